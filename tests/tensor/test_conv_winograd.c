#include "tensor/kernels/conv_winograd.h"

#include <math.h>
#include <string.h>

#include "tensor/convolutions.h"

typedef struct size_row {
    int64_t n, ic, oc, ih, iw, pad_h, pad_w, taps;
} size_row;

static const size_row rows[] = {
    {3, 16, 24, 8, 8, 1, 1, 3},    // whole tiles
    {2, 64, 40, 13, 13, 1, 1, 3},  // tiles that overhang
    {140, 8, 8, 4, 4, 1, 1, 3},    // an image is a tile; too many to keep: several chunks
    {1, 8, 72, 9, 6, 0, 0, 3},     // no padding; the last panel is part of one
    {2, 24, 8, 3, 3, 0, 0, 3},     // one output pixel
    {1, 8, 16, 1, 1, 1, 1, 3},     // one pixel
    {2, 8, 8, 5, 7, 2, 2, 3},      // outputs that see only padding
    {1, 16, 8, 2, 30, 3, 1, 3},    // the input gradient reads from inside of dy only
    {1, 8, 8, 4, 6, 5, 4, 3},      // windows wholly outside
    {1, 136, 48, 6, 5, 1, 0, 3},   // fewer tiles than threads; steps and strips of channels
    {33, 8, 72, 5, 5, 1, 1, 3},   {3, 16, 24, 8, 8, 2, 2, 5},  // the same with 5 x 5
    {2, 32, 40, 13, 9, 2, 2, 5},  {15, 8, 8, 6, 6, 2, 2, 5},  {1, 8, 72, 9, 6, 0, 0, 5},
    {2, 24, 8, 5, 5, 0, 0, 5},    {1, 8, 16, 1, 1, 2, 2, 5},  {1, 16, 8, 2, 14, 6, 1, 5},
    {1, 72, 48, 6, 5, 1, 3, 5},
};

static sh_conv_shape row_shape(const size_row *row) {
    conv_sizes sizes = {row->n,    row->ic, row->oc, row->ih,    row->iw,    row->taps,
                        row->taps, 1,       1,       row->pad_h, row->pad_w, 1};
    return shape_of(&sizes);
}

typedef enum direction { FORWARD, INPUTS, WEIGHTS, DIRECTIONS } direction;

/* One convolution: x, w, y (or dy) and the bias, plain and as the kernels want them. */
typedef struct fixture {
    sh_conv_shape s;
    size_t x_count, y_count, w_count;
    float *x, *w, *dy, *bias, *x_blocked, *dy_blocked;
} fixture;

static fixture fixture_make(const size_row *row) {
    fixture f = {.s = row_shape(row)};
    const sh_conv_shape *s = &f.s;
    f.x_count = (size_t)(s->n * s->ic * s->ih * s->iw);
    f.y_count = (size_t)(s->n * s->oc * s->oh * s->ow);
    f.w_count = (size_t)(s->oc * s->ic * s->kh * s->kw);
    f.x = seeded(f.x_count, 1), f.w = seeded(f.w_count, 2);
    f.dy = seeded(f.y_count, 3), f.bias = seeded((size_t)s->oc, 4);
    f.x_blocked = rearranged(f.x, s->n, s->ic, s->ih * s->iw, true);
    f.dy_blocked = rearranged(f.dy, s->n, s->oc, s->oh * s->ow, true);
    return f;
}

static void fixture_free(fixture *f) {
    free(f->x), free(f->w), free(f->dy), free(f->bias), free(f->x_blocked), free(f->dy_blocked);
}

enum { FENCE = 256 };

/* NaN: scratch must be written before it is read; and a fence behind it. */
static unsigned char *scratch_make(size_t bytes) {
    unsigned char *scratch = (unsigned char *)floats((bytes + FENCE) / sizeof(float));
    memset(scratch, 0xFF, bytes + FENCE);
    return scratch;
}

static void scratch_free(unsigned char *scratch, size_t bytes) {
    for (size_t i = 0; i < FENCE; i++) assert_int_equal(scratch[bytes + i], 0xFF);
    free(scratch);
}

/* y or dx, blocked. */
static float *run_images(const fixture *f, direction d, const float *bias, bool relu, int threads) {
    const sh_conv_winograd_kernels *k = sh_conv_winograd();
    assert_true(k->supports(&f->s));
    size_t count = d == FORWARD ? f->y_count : f->x_count;
    float *out = floats(count);
    memset(out, 0xFF, count * sizeof(float) + 64);
    size_t bytes = k->scratch_bytes(&f->s, d == INPUTS, threads);
    unsigned char *scratch = scratch_make(bytes);
    k->run(&(sh_conv_blocked_call){.shape = &f->s,
                                   .in = d == FORWARD ? f->x_blocked : f->dy_blocked,
                                   .w = f->w,
                                   .bias = bias,
                                   .out = out,
                                   .scratch = scratch,
                                   .threads = threads,
                                   .input_gradient = d == INPUTS,
                                   .relu = relu});
    scratch_free(scratch, bytes);
    const unsigned char *behind = (const unsigned char *)(out + count);
    for (size_t i = 0; i < 64; i++) assert_int_equal(behind[i], 0xFF);
    return out;
}

static void run_weights(const fixture *f, float *dw, float *db, bool accumulate, int threads) {
    const sh_conv_winograd_weight_kernels *k = sh_conv_winograd_weight();
    size_t bytes = k->scratch_bytes(&f->s, threads);
    unsigned char *scratch = scratch_make(bytes);
    k->run(&(sh_conv_weight_call){.shape = &f->s,
                                  .x = f->x_blocked,
                                  .dy = f->dy_blocked,
                                  .dw = dw,
                                  .db = db,
                                  .scratch = scratch,
                                  .threads = threads,
                                  .x_blocked = true,
                                  .accumulate = accumulate});
    scratch_free(scratch, bytes);
}

static float *run_direction(const fixture *f, direction d, int threads) {
    if (d != WEIGHTS) return run_images(f, d, NULL, false, threads);
    float *dw = floats(f->w_count);
    memset(dw, 0xFF, f->w_count * sizeof(float));
    run_weights(f, dw, NULL, false, threads);
    return dw;
}

static size_t count_of(const fixture *f, direction d) {
    return d == FORWARD ? f->y_count : d == INPUTS ? f->x_count : f->w_count;
}

static void check_forward(const fixture *f, const float *bias, bool relu, int threads) {
    const sh_conv_shape *s = &f->s;
    float *want = floats(f->y_count);
    sh_reference_conv_forward(s, f->x, f->w, bias, want);
    for (size_t i = 0; relu && i < f->y_count; i++) want[i] = fmaxf(want[i], 0.0f);
    float *out = run_images(f, FORWARD, bias, relu, threads);
    float *got = rearranged(out, s->n, s->oc, s->oh * s->ow, false);
    CHECK_CLOSE(got, want, f->y_count, 1e-4);
    free(want), free(out), free(got);
}

static void check_inputs(const fixture *f, int threads) {
    const sh_conv_shape *s = &f->s;
    float *want = floats(f->x_count);
    sh_reference_conv_data(s, f->dy, f->w, want);
    float *out = run_images(f, INPUTS, NULL, false, threads);
    float *got = rearranged(out, s->n, s->ic, s->ih * s->iw, false);
    CHECK_CLOSE(got, want, f->x_count, 1e-4);
    free(want), free(out), free(got);
}

/* Overwrites what was NaN, then adds to it: once and twice the gradient. The error of a sum grows
 * like that of its terms, with the root of their number. */
static void check_weights(const fixture *f, int threads) {
    size_t oc = (size_t)f->s.oc;
    double close = fmax(1e-4, 5e-6 * sqrt((double)(f->s.n * f->s.oh * f->s.ow)));
    float *want = floats(f->w_count), *want_bias = floats(oc);
    float *dw = floats(f->w_count), *db = floats(oc);
    sh_reference_conv_weight(&f->s, f->x, f->dy, want, want_bias);
    memset(dw, 0xFF, f->w_count * sizeof(float));
    memset(db, 0xFF, oc * sizeof(float));
    run_weights(f, dw, db, false, threads);
    CHECK_CLOSE(dw, want, f->w_count, close);
    CHECK_CLOSE(db, want_bias, oc, 1e-4);
    run_weights(f, dw, db, true, threads);
    for (size_t i = 0; i < f->w_count; i++) want[i] *= 2;
    for (size_t i = 0; i < oc; i++) want_bias[i] *= 2;
    CHECK_CLOSE(dw, want, f->w_count, close);
    CHECK_CLOSE(db, want_bias, oc, 1e-4);
    free(want), free(want_bias), free(dw), free(db);
}

static void check_all(int threads) {
    for (size_t i = 0; i < SH_COUNT(rows); i++) {
        fixture f = fixture_make(&rows[i]);
        check_forward(&f, f.bias, false, threads);
        check_forward(&f, i % 2 ? f.bias : NULL, true, threads);
        check_inputs(&f, threads);
        check_weights(&f, threads);
        fixture_free(&f);
    }
}

static void check_level(sh_simd_level level) {
    sh_simd_limit(level);
    check_all(1);
    check_all(3);
    sh_simd_limit(SH_SIMD_MOST);
}

TEST(conv_winograd, equals_reference_on_one_thread) { check_all(1); }
TEST(conv_winograd, equals_reference_on_two_threads) { check_all(2); }
TEST(conv_winograd, equals_reference_on_more_threads_than_units) { check_all(9); }
TEST(conv_winograd, equals_reference_on_lesser_instruction_sets) {
    check_level(SH_SIMD_BASE);
    check_level(SH_SIMD_AVX2);
}

TEST(conv_winograd, gives_equal_bits_on_any_number_of_threads) {
    for (int d = 0; d < DIRECTIONS; d++)
        for (size_t i = 0; i < SH_COUNT(rows); i++) {
            fixture f = fixture_make(&rows[i]);
            float *first = run_direction(&f, (direction)d, 1);
            for (int threads = 2; threads <= 5; threads++) {
                float *again = run_direction(&f, (direction)d, threads);
                assert_memory_equal(first, again, count_of(&f, (direction)d) * sizeof(float));
                free(again);
            }
            free(first);
            fixture_free(&f);
        }
}

/* The batch has tiles enough to keep the weights, the image alone has not. */
TEST(conv_winograd, gives_an_image_equal_bits_in_a_batch_and_alone) {
    fixture f = fixture_make(&rows[10]);
    float *batch = run_images(&f, FORWARD, f.bias, false, 2);
    f.s.n = 1;
    f.y_count /= (size_t)rows[10].n;
    float *alone = run_images(&f, FORWARD, f.bias, false, 2);
    assert_memory_equal(batch, alone, f.y_count * sizeof(float));
    free(batch), free(alone);
    fixture_free(&f);
}

/* The root of mean squares of the error against that of the values. */
static double relative_error(const float *got, const float *want, size_t count) {
    double error = 0, norm = 0;
    for (size_t i = 0; i < count; i++) {
        double difference = (double)got[i] - (double)want[i];
        error += difference * difference;
        norm += (double)want[i] * (double)want[i];
    }
    return sqrt(error / norm);
}

static void check_rounding(const size_row *row) {
    fixture f = fixture_make(row);
    float *want = floats(f.y_count), *out = run_images(&f, FORWARD, NULL, false, 1);
    float *got = rearranged(out, f.s.n, f.s.oc, f.s.oh * f.s.ow, false);
    sh_reference_conv_forward(&f.s, f.x, f.w, NULL, want);
    assert_true(relative_error(got, want, f.y_count) < 5e-6);
    float *dw = run_direction(&f, WEIGHTS, 1), *want_dw = floats(f.w_count);
    sh_reference_conv_weight(&f.s, f.x, f.dy, want_dw, NULL);
    assert_true(relative_error(dw, want_dw, f.w_count) < 5e-6);
    free(want), free(out), free(got), free(dw), free(want_dw);
    fixture_free(&f);
}

/* With many channels; docs/kernels.md has the figures. */
TEST(conv_winograd, loses_little_to_rounding) {
    check_rounding(&(size_row){1, 512, 32, 12, 12, 1, 1, 3});
    check_rounding(&(size_row){1, 256, 32, 12, 12, 2, 2, 5});
}

TEST(conv_winograd, lets_nan_through_the_relu) {
    fixture f = fixture_make(&rows[0]);
    f.x_blocked[0] = NAN;
    float *out = run_images(&f, FORWARD, f.bias, true, 1);
    assert_true(isnan(out[0]));
    free(out);
    fixture_free(&f);
}

TEST(conv_winograd, refuses_what_it_cannot_do) {
    bool (*supports)(const sh_conv_shape *) = sh_conv_winograd()->supports;
    sh_conv_shape good = row_shape(&rows[0]), s = good;
    assert_true(supports(&s));
    s.oc = 12;
    assert_false(supports(&s));
    s = good, s.ic = 3;
    assert_false(supports(&s));
    s = good, s.kh = s.kw = 5;
    assert_true(supports(&s));
    s = good, s.kh = 5;
    assert_false(supports(&s));
    s = good, s.kh = s.kw = 4;
    assert_false(supports(&s));
    s = good, s.kw = 1;
    assert_false(supports(&s));
    s = good, s.stride_w = 2;
    assert_false(supports(&s));
    s = good, s.groups = 2;
    assert_false(supports(&s));
    s = good, s.dilation_h = 2;
    assert_false(supports(&s));
}
