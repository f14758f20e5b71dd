#include "tensor/kernels/conv_blocked.h"

#include <math.h>
#include <string.h>

#include "tensor/convolutions.h"

static const conv_sizes rows[] = {
    {4, 16, 24, 13, 13, 3, 3, 1, 1, 1, 1, 1},  // one tile of images, three blocks of channels
    {19, 24, 32, 4, 4, 3, 3, 1, 1, 1, 1, 1},   // many images per item, tiles of three and four
    {5, 64, 16, 8, 8, 3, 3, 1, 1, 1, 1, 1},    // several slabs of weights
    {2, 8, 24, 32, 32, 3, 3, 1, 1, 1, 1, 1},   // several chunks of rows
    {9, 16, 40, 8, 8, 3, 3, 2, 2, 1, 1, 1},
    {3, 8, 56, 7, 9, 3, 3, 2, 2, 1, 1, 1},
    {3, 16, 16, 7, 9, 1, 1, 2, 2, 0, 0, 1},  // inputs that no output reads
    {6, 16, 8, 5, 5, 1, 1, 1, 1, 0, 0, 1},
    {3, 8, 8, 14, 14, 5, 5, 1, 1, 2, 2, 1},
    {2, 8, 16, 17, 5, 5, 3, 2, 1, 0, 2, 1},
    {3, 8, 16, 2, 2, 5, 5, 1, 1, 2, 2, 1},  // the kernel is larger than the image
    {2, 8, 8, 3, 3, 2, 2, 1, 1, 3, 3, 1},   // outputs that see only padding
    {2, 8, 16, 4, 4, 2, 9, 1, 1, 3, 8, 1},
    {1, 8, 8, 40, 3, 3, 3, 3, 1, 1, 1, 1},
    {1, 16, 8, 11, 70, 4, 2, 3, 5, 2, 0, 1},
    {7, 8, 8, 1, 1, 3, 3, 1, 1, 1, 1, 1},
    {1, 8, 8, 23, 21, 2, 2, 3, 3, 0, 0, 1},  // chunks that begin between two rows of dy
    {2, 8, 8, 9, 9, 3, 3, 4, 4, 5, 5, 1},
    {1, 8, 72, 6, 6, 3, 3, 1, 1, 1, 1, 1},  // fewer items than threads
};

/* One direction of one row: what goes in, plain and blocked, and what comes out. */
typedef struct fixture {
    sh_conv_shape s;
    bool gradient;
    int64_t out_channels, out_pixels;
    size_t out_count;
    float *in, *in_blocked, *w, *bias;
    float *want, *out;  // plain, blocked
} fixture;

static fixture fixture_make(const conv_sizes *row, bool gradient) {
    fixture f = {.s = shape_of(row), .gradient = gradient};
    const sh_conv_shape *s = &f.s;
    int64_t in_channels = gradient ? s->oc : s->ic;
    int64_t in_pixels = gradient ? s->oh * s->ow : s->ih * s->iw;
    f.out_channels = gradient ? s->ic : s->oc;
    f.out_pixels = gradient ? s->ih * s->iw : s->oh * s->ow;
    f.out_count = (size_t)(s->n * f.out_channels * f.out_pixels);
    f.in = seeded((size_t)(s->n * in_channels * in_pixels), 1);
    f.in_blocked = rearranged(f.in, s->n, in_channels, in_pixels, true);
    f.w = seeded((size_t)(s->oc * s->ic * s->kh * s->kw), 2);
    f.bias = seeded((size_t)f.out_channels, 3);
    f.want = floats(f.out_count);
    f.out = floats(f.out_count);
    return f;
}

static void fixture_free(fixture *f) {
    free(f->in), free(f->in_blocked), free(f->w), free(f->bias), free(f->want), free(f->out);
}

/* Runs with a fence behind the scratch and the output, and fails if one is written. */
static void run(const fixture *f, const float *bias, bool relu, int threads) {
    enum { FENCE = 256 };
    const sh_conv_blocked_kernels *k = sh_conv_blocked();
    assert_true(k->supports(&f->s));
    size_t bytes = k->scratch_bytes(&f->s, f->gradient, threads);
    unsigned char *scratch = (unsigned char *)floats((bytes + FENCE) / sizeof(float));
    memset(scratch, 0xFF, bytes + FENCE);  // NaN: scratch must be written before it is read
    memset(f->out, 0xFF, f->out_count * sizeof(float) + 64);
    k->run(&(sh_conv_blocked_call){.shape = &f->s,
                                   .in = f->in_blocked,
                                   .w = f->w,
                                   .bias = bias,
                                   .out = f->out,
                                   .scratch = scratch,
                                   .threads = threads,
                                   .input_gradient = f->gradient,
                                   .relu = relu});
    for (size_t i = 0; i < FENCE; i++) assert_int_equal(scratch[bytes + i], 0xFF);
    const unsigned char *behind = (const unsigned char *)(f->out + f->out_count);
    for (size_t i = 0; i < 64; i++) assert_int_equal(behind[i], 0xFF);
    free(scratch);
}

static void check(const fixture *f, const float *bias, bool relu, int threads) {
    if (f->gradient)
        sh_reference_conv_data(&f->s, f->in, f->w, f->want);
    else
        sh_reference_conv_forward(&f->s, f->in, f->w, bias, f->want);
    if (relu)
        for (size_t i = 0; i < f->out_count; i++) f->want[i] = fmaxf(f->want[i], 0.0f);
    run(f, bias, relu, threads);
    float *got = rearranged(f->out, f->s.n, f->out_channels, f->out_pixels, false);
    CHECK_CLOSE(got, f->want, f->out_count, 2e-5);
    free(got);
}

static void check_all(int threads) {
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        fixture forward = fixture_make(&rows[i], false);
        check(&forward, forward.bias, false, threads);
        check(&forward, i % 2 ? forward.bias : NULL, true, threads);
        fixture_free(&forward);
        fixture gradient = fixture_make(&rows[i], true);
        check(&gradient, NULL, false, threads);
        fixture_free(&gradient);
    }
}

TEST(conv_blocked, equals_reference_on_one_thread) { check_all(1); }
TEST(conv_blocked, equals_reference_on_two_threads) { check_all(2); }
TEST(conv_blocked, equals_reference_on_three_threads) { check_all(3); }
TEST(conv_blocked, equals_reference_on_more_threads_than_items) { check_all(9); }

TEST(conv_blocked, equals_reference_on_lesser_instruction_sets) {
    check_lesser_levels(check_all, 3);
}

TEST(conv_blocked, gives_equal_bits_on_any_number_of_threads) {
    for (int gradient = 0; gradient < 2; gradient++) {
        fixture f = fixture_make(&rows[2], gradient);
        run(&f, f.bias, true, 1);
        float *first = floats(f.out_count);
        memcpy(first, f.out, f.out_count * sizeof(float));
        for (int threads = 2; threads <= 5; threads++) {
            run(&f, f.bias, true, threads);
            assert_memory_equal(first, f.out, f.out_count * sizeof(float));
        }
        free(first);
        fixture_free(&f);
    }
}

TEST(conv_blocked, gives_an_image_equal_bits_in_a_batch_and_alone) {
    fixture f = fixture_make(&rows[2], false);
    run(&f, f.bias, false, 2);
    float *first = floats(f.out_count);
    memcpy(first, f.out, f.out_count * sizeof(float));
    f.s.n = 1;
    f.out_count /= (size_t)rows[2].n;
    run(&f, f.bias, false, 2);
    assert_memory_equal(first, f.out, f.out_count * sizeof(float));
    free(first);
    fixture_free(&f);
}

TEST(conv_blocked, lets_nan_through_the_relu) {
    fixture f = fixture_make(&rows[0], false);
    f.in_blocked[0] = NAN;
    run(&f, f.bias, true, 1);
    assert_true(isnan(f.out[0]));
    fixture_free(&f);
}

TEST(conv_blocked, refuses_what_it_cannot_do) {
    bool (*supports)(const sh_conv_shape *) = sh_conv_blocked()->supports;
    sh_conv_shape good = shape_of(&rows[0]), s = good;
    assert_true(supports(&s));
    s.oc = 12;
    assert_false(supports(&s));
    s = good, s.ic = 3;
    assert_false(supports(&s));
    s = good, s.groups = 2;
    assert_false(supports(&s));
    s = good, s.dilation_h = 2;
    assert_false(supports(&s));
}
