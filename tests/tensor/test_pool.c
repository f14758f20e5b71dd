#include "tensor/kernels/pool.h"

#include <math.h>

#include "settings.h"
#include "tensor/kernels/reference.h"

static sh_pool_shape shape_of(size_t images, size_t lanes, int h, int w, int kh, int kw, int sh,
                              int sw, int ph, int pw, bool relu) {
    return (sh_pool_shape){
        .images = images,
        .lanes = lanes,
        .height = h,
        .width = w,
        .out_height = sh_pool_out(h, kh, sh, ph),
        .out_width = sh_pool_out(w, kw, sw, pw),
        .kernel_height = kh,
        .kernel_width = kw,
        .stride_height = sh,
        .stride_width = sw,
        .pad_top = ph,
        .pad_left = pw,
        .relu = relu,
    };
}

static const struct pool_case {
    size_t images;
    int h, w, kh, kw, sh, sw, ph, pw;
} CASES[] = {
    {3, 4, 6, 2, 2, 2, 2, 0, 0},     {3, 5, 7, 2, 2, 2, 2, 0, 0},    {2, 9, 7, 3, 3, 2, 2, 1, 1},
    {2, 6, 6, 3, 3, 1, 1, 0, 0},     {1, 8, 5, 3, 2, 2, 1, 1, 0},    {2, 1, 1, 1, 1, 1, 1, 0, 0},
    {1, 20, 20, 15, 17, 3, 2, 7, 8}, {17, 16, 16, 2, 2, 2, 2, 0, 0}, {23, 15, 13, 3, 3, 2, 2, 1, 1},
    {2, 7, 7, 2, 2, 3, 3, 0, 0},
};

static void check_max(const sh_pool_shape *s) {
    size_t in = s->images * (size_t)(s->height * s->width) * s->lanes;
    size_t out = s->images * (size_t)(s->out_height * s->out_width) * s->lanes;
    float *x = filled(in, 1, 4), *dy = filled(out, 2, 1);
    for (size_t i = 0; i < in; i++) x[i] = roundf(x[i] * 2) - 1;  // ties, and many below zero
    float *y = filled(out, 3, 1), *want = filled(out, 4, 1);
    float *dx = filled(in, 5, 1), *dwant = filled(in, 6, 1);
    uint8_t *index = calloc(out, 1), *index_want = calloc(out, 1);
    sh_pool()->max_forward(s, x, y, index);
    sh_ref_max_forward(s, x, want, index_want);
    assert_memory_equal(y, want, out * sizeof *y);
    assert_memory_equal(index, index_want, out);
    sh_pool()->max_backward(s, dy, s->relu ? y : NULL, index, dx);
    sh_ref_max_backward(s, dy, want, index_want, dwant);
    CHECK_CLOSE(dx, dwant, in, 1e-6);
    memset(y, 0, out * sizeof *y);
    sh_pool()->max_forward(s, x, y, NULL);
    assert_memory_equal(y, want, out * sizeof *y);
    free(x), free(dy), free(y), free(want), free(dx), free(dwant), free(index), free(index_want);
}

static void check_average(const sh_pool_shape *s) {
    size_t in = s->images * (size_t)(s->height * s->width) * s->lanes;
    size_t out = s->images * (size_t)(s->out_height * s->out_width) * s->lanes;
    float *x = filled(in, 1, 4), *dy = filled(out, 2, 1);
    float *y = filled(out, 3, 1), *want = filled(out, 4, 1);
    float *dx = filled(in, 5, 1), *dwant = filled(in, 6, 1);
    sh_pool()->average_forward(s, x, y);
    sh_ref_average_forward(s, x, want);
    CHECK_CLOSE(y, want, out, 1e-6);
    sh_pool()->average_backward(s, dy, dx);
    sh_ref_average_backward(s, dy, dwant);
    CHECK_CLOSE(dx, dwant, in, 1e-6);
    free(x), free(dy), free(y), free(want), free(dx), free(dwant);
}

static void each_case(void (*check)(const sh_pool_shape *), bool relu) {
    const size_t lanes[] = {1, 3, 8, 12, 16};
    for (size_t c = 0; c < SH_COUNT(CASES); c++)
        for (size_t l = 0; l < SH_COUNT(lanes); l++) {
            const struct pool_case *p = &CASES[c];
            sh_pool_shape s = shape_of(p->images, lanes[l], p->h, p->w, p->kh, p->kw, p->sh, p->sw,
                                       p->ph, p->pw, relu);
            check(&s);
        }
}

static void max_plain(void) { each_case(check_max, false); }
static void max_relu(void) { each_case(check_max, true); }
static void average(void) { each_case(check_average, false); }

TEST(max_pool, matches_reference) { each_setting(max_plain); }
TEST(max_pool, with_relu_matches_reference) { each_setting(max_relu); }
TEST(average_pool, matches_reference) { each_setting(average); }

/* The pooling of a relu is the relu of the pooling, gradients included. */
TEST(max_pool, equals_pooling_after_relu) {
    sh_pool_shape fused = shape_of(2, 8, 8, 8, 2, 2, 2, 2, 0, 0, true), plain = fused;
    plain.relu = false;
    enum { IN = 2 * 64 * 8, OUT = 2 * 16 * 8 };
    float *x = filled(IN, 1, 1), *positive = filled(IN, 1, 1), *dy = filled(OUT, 2, 1);
    float y[OUT], y2[OUT], dx[IN], dx2[IN];
    uint8_t index[OUT], index2[OUT];
    for (size_t i = 0; i < IN; i++) positive[i] = fmaxf(x[i], 0);
    sh_pool()->max_forward(&fused, x, y, index);
    sh_pool()->max_forward(&plain, positive, y2, index2);
    assert_memory_equal(y, y2, sizeof y);
    sh_pool()->max_backward(&fused, dy, y, index, dx);
    sh_pool()->max_backward(&plain, dy, NULL, index2, dx2);
    for (size_t i = 0; i < IN; i++) dx2[i] = positive[i] > 0 ? dx2[i] : 0;
    assert_memory_equal(dx, dx2, sizeof dx);
    free(x), free(positive), free(dy);
}

static void nan_wins(void) {
    for (size_t lanes = 1; lanes <= 8; lanes += 7) {
        sh_pool_shape s = shape_of(1, lanes, 2, 2, 2, 2, 2, 2, 0, 0, true);
        float x[32], y[8];
        for (size_t i = 0; i < 32; i++) x[i] = (float)i;
        x[lanes] = NAN;
        sh_pool()->max_forward(&s, x, y, NULL);
        assert_true(isnan(y[0]));
        if (lanes > 1) assert_true(y[1] == (float)(3 * lanes + 1));
    }
}

TEST(max_pool, shows_nan) { each_setting(nan_wins); }

static void global(void) {
    const size_t lanes[] = {1, 5, 8, 16};
    for (size_t l = 0; l < SH_COUNT(lanes); l++)
        for (size_t area = 1; area < 600; area += 98) {
            size_t images = 9, out = images * lanes[l], in = out * area;
            float *x = filled(in, area, 2), *dy = filled(out, area + 1, 1);
            float *y = filled(out, 7, 1), *want = calloc(out, sizeof *want);
            float *dx = filled(in, 8, 1), *dwant = calloc(in, sizeof *dwant);
            for (size_t i = 0; i < in; i++) {
                size_t to = i / (area * lanes[l]) * lanes[l] + i % lanes[l];
                want[to] += x[i] / (float)area;
                dwant[i] = dy[to] / (float)area;
            }
            sh_pool()->global_forward(images, area, lanes[l], x, y);
            sh_pool()->global_backward(images, area, lanes[l], dy, dx);
            CHECK_CLOSE(y, want, out, 2e-6);
            CHECK_CLOSE(dx, dwant, in, 1e-6);
            free(x), free(dy), free(y), free(want), free(dx), free(dwant);
        }
}

TEST(global_pool, is_the_mean_over_the_area) { each_setting(global); }

/* Images of 224 x 224 positive values: a sum in one float per channel is off by 3e-6. */
static void large_images(void) {
    enum { SIDE = 224, AREA = SIDE * SIDE };
    for (size_t lanes = 1; lanes <= 8; lanes += 7) {
        float *x = filled(AREA * lanes, lanes, 1), y[8], want[8];
        double sum[8] = {0};
        for (size_t i = 0; i < AREA * lanes; i++) {
            x[i] += 1;
            sum[i % lanes] += (double)x[i];
        }
        for (size_t lane = 0; lane < lanes; lane++) want[lane] = (float)(sum[lane] / AREA);
        sh_pool()->global_forward(1, AREA, lanes, x, y);
        CHECK_CLOSE(y, want, lanes, 2e-7);
        free(x);
    }
}

TEST(global_pool, keeps_its_digits_in_large_images) { each_setting(large_images); }
