#include "tensor/kernels/conv_plain.h"

#include <math.h>
#include <string.h>

#include "tensor/convolutions.h"

static const conv_sizes rows[] = {
    {3, 1, 32, 28, 28, 5, 5, 1, 1, 2, 2, 1},  //
    {2, 3, 64, 67, 63, 11, 11, 4, 4, 2, 2, 1},
    {3, 3, 16, 32, 32, 3, 3, 1, 1, 1, 1, 1},
    {5, 3, 24, 9, 7, 3, 3, 1, 1, 1, 1, 1},  // three blocks of channels
    {2, 4, 8, 6, 5, 7, 7, 2, 2, 3, 3, 1},
    {1, 2, 40, 5, 9, 1, 1, 2, 3, 0, 0, 1},
    {2, 3, 16, 4, 4, 2, 9, 1, 1, 3, 8, 1},  // rows of y that see only padding
    {7, 2, 8, 1, 1, 3, 3, 1, 1, 1, 1, 1},
    {1, 4, 48, 23, 200, 5, 3, 3, 1, 0, 2, 1},  // several chunks of rows
    {2, 12, 16, 11, 13, 3, 3, 1, 2, 1, 1, 1},
    {2, 3, 24, 17, 19, 3, 3, 1, 1, 2, 2, 2},
    {1, 2, 8, 14, 9, 4, 3, 2, 1, 5, 3, 3},
    {1, 1, 56, 3, 70, 3, 1, 5, 7, 1, 0, 1},  // x ends before the last stride
};

typedef struct fixture {
    sh_conv_shape s;
    size_t y_count;
    float *x, *w, *bias;
    float *want, *y;  // plain, blocked
} fixture;

static fixture fixture_make(const conv_sizes *row) {
    fixture f = {.s = shape_of(row)};
    const sh_conv_shape *s = &f.s;
    f.y_count = (size_t)(s->n * s->oc * s->oh * s->ow);
    f.x = seeded((size_t)(s->n * s->ic * s->ih * s->iw), 1);
    f.w = seeded((size_t)(s->oc * s->ic * s->kh * s->kw), 2);
    f.bias = seeded((size_t)s->oc, 3);
    f.want = floats(f.y_count);
    f.y = floats(f.y_count);
    return f;
}

static void fixture_free(fixture *f) {
    free(f->x), free(f->w), free(f->bias), free(f->want), free(f->y);
}

/* Runs with a fence behind the scratch and the output, and fails if one is written. */
static void run(const fixture *f, const float *bias, bool relu, int threads) {
    enum { FENCE = 256 };
    const sh_conv_plain_kernels *k = sh_conv_plain();
    assert_true(k->supports(&f->s));
    size_t bytes = k->scratch_bytes(&f->s, threads);
    unsigned char *scratch = (unsigned char *)floats((bytes + FENCE) / sizeof(float));
    memset(scratch, 0xFF, bytes + FENCE);  // NaN: scratch must be written before it is read
    memset(f->y, 0xFF, f->y_count * sizeof(float) + 64);
    k->run(&(sh_conv_plain_call){.shape = &f->s,
                                 .x = f->x,
                                 .w = f->w,
                                 .bias = bias,
                                 .y = f->y,
                                 .scratch = scratch,
                                 .threads = threads,
                                 .relu = relu});
    for (size_t i = 0; i < FENCE; i++) assert_int_equal(scratch[bytes + i], 0xFF);
    const unsigned char *behind = (const unsigned char *)(f->y + f->y_count);
    for (size_t i = 0; i < 64; i++) assert_int_equal(behind[i], 0xFF);
    free(scratch);
}

/* (n, channels / 8, pixels, 8) to (n, channels, pixels). */
static float *to_plain(const fixture *f) {
    int64_t pixels = f->s.oh * f->s.ow;
    float *plain = floats(f->y_count);
    for (int64_t i = 0; i < f->s.n; i++)
        for (int64_t c = 0; c < f->s.oc; c++)
            for (int64_t p = 0; p < pixels; p++)
                plain[(i * f->s.oc + c) * pixels + p] =
                    f->y[((i * (f->s.oc / 8) + c / 8) * pixels + p) * 8 + c % 8];
    return plain;
}

static void check(const fixture *f, const float *bias, bool relu, int threads) {
    sh_reference_conv_forward(&f->s, f->x, f->w, bias, f->want);
    if (relu)
        for (size_t i = 0; i < f->y_count; i++) f->want[i] = fmaxf(f->want[i], 0.0f);
    run(f, bias, relu, threads);
    float *got = to_plain(f);
    CHECK_CLOSE(got, f->want, f->y_count, 2e-5);
    free(got);
}

static void check_all(int threads) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture f = fixture_make(&rows[i]);
        check(&f, f.bias, false, threads);
        check(&f, i % 2 ? f.bias : NULL, true, threads);
        fixture_free(&f);
    }
}

TEST(conv_forward, equals_reference_on_one_thread) { check_all(1); }
TEST(conv_forward, equals_reference_on_two_threads) { check_all(2); }
TEST(conv_forward, equals_reference_on_more_threads_than_rows) { check_all(9); }

TEST(conv_forward, equals_reference_on_lesser_instruction_sets) {
    check_lesser_levels(check_all, 2);
}

TEST(conv_forward, gives_equal_bits_on_any_number_of_threads) {
    fixture f = fixture_make(&rows[1]);
    run(&f, f.bias, true, 1);
    float *first = floats(f.y_count);
    memcpy(first, f.y, f.y_count * sizeof(float));
    for (int threads = 2; threads <= 5; threads++) {
        run(&f, f.bias, true, threads);
        assert_memory_equal(first, f.y, f.y_count * sizeof(float));
    }
    free(first);
    fixture_free(&f);
}

TEST(conv_forward, lets_nan_through_the_relu) {
    fixture f = fixture_make(&rows[3]);
    f.x[0] = NAN;
    run(&f, f.bias, true, 1);
    assert_true(isnan(f.y[0]));
    fixture_free(&f);
}

TEST(conv_forward, refuses_what_it_cannot_do) {
    sh_conv_shape s = shape_of(&rows[0]);
    assert_true(sh_conv_plain()->supports(&s));
    s.oc = 12;
    assert_false(sh_conv_plain()->supports(&s));
    s = shape_of(&rows[0]), s.groups = 2;
    assert_false(sh_conv_plain()->supports(&s));
}
