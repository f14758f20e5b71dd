#include "tensor/kernels/conv.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "harness.h"
#include "tensor/kernels/reference_conv.h"
#include "tensor/kernels/simd.h"

/* n ic oc ih iw kh kw stride pad dilation groups */
typedef struct size_row {
    int64_t n, ic, oc, ih, iw, kh, kw, stride_h, stride_w, pad_h, pad_w, dilation, groups;
} size_row;

static const size_row rows[] = {
    {2, 3, 5, 7, 6, 3, 3, 1, 1, 1, 1, 1, 1},       // plain
    {1, 3, 16, 9, 9, 3, 3, 1, 1, 0, 0, 1, 1},      // plain to blocked
    {3, 8, 16, 7, 9, 3, 3, 1, 1, 1, 1, 1, 1},      // blocked
    {2, 16, 8, 8, 8, 1, 1, 1, 1, 0, 0, 1, 1},      // 1x1
    {2, 16, 24, 8, 7, 1, 1, 2, 2, 0, 0, 1, 1},     // columns on the right that no window sees
    {2, 8, 8, 11, 10, 3, 3, 2, 3, 1, 0, 1, 1},     // two strides
    {1, 1, 32, 12, 12, 5, 5, 1, 1, 2, 2, 1, 1},    // one channel
    {2, 3, 64, 23, 23, 11, 11, 4, 4, 2, 2, 1, 1},  // AlexNet's stem, smaller
    {2, 4, 6, 9, 9, 3, 3, 1, 1, 2, 2, 2, 1},       // dilation, plain
    {2, 8, 16, 9, 9, 3, 3, 1, 1, 2, 2, 2, 1},      // dilation, blocked
    {2, 8, 8, 13, 13, 3, 3, 2, 2, 3, 3, 3, 1},     // dilation and stride
    {2, 6, 4, 7, 7, 3, 3, 1, 1, 1, 1, 1, 2},       // groups
    {2, 16, 16, 7, 7, 3, 3, 1, 1, 1, 1, 1, 16},    // depthwise
    {2, 5, 10, 7, 7, 3, 3, 2, 2, 1, 1, 1, 5},      // depthwise with a multiplier
    {2, 16, 32, 6, 6, 3, 3, 1, 1, 1, 1, 1, 2},     // groups of 8
    {2, 12, 24, 7, 7, 3, 3, 1, 1, 1, 1, 1, 3},     // groups that blocks of 8 would cross
    {2, 16, 16, 9, 9, 5, 5, 1, 1, 2, 2, 1, 16},    // depthwise, 5x5
    {2, 16, 16, 9, 9, 3, 3, 1, 1, 2, 2, 2, 16},    // depthwise, dilated
    {2, 12, 20, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1},     // channels that are no multiple of 8
    {2, 12, 24, 8, 8, 3, 3, 1, 1, 1, 1, 1, 1},     // the same, to blocked
    {1, 8, 8, 20, 20, 3, 3, 1, 1, 8, 8, 8, 1},     // padding wider than the kernel is
    {7, 8, 8, 3, 3, 3, 3, 1, 1, 0, 0, 1, 1},       // one output pixel
    {2, 8, 8, 2, 2, 5, 5, 1, 1, 2, 2, 1, 1},       // a kernel larger than the image
    {2, 8, 8, 5, 9, 1, 4, 1, 1, 0, 2, 1, 1},       // flat kernel
};

typedef struct fixture {
    sh_conv_shape s;
    size_t x_count, y_count, w_count;
    float *x, *w, *bias, *dy;  // plain
    float *y, *dx, *dw, *db;   // what the reference says
} fixture;

static float *floats(size_t count) {
    float *values = NULL;
    assert_int_equal(posix_memalign((void **)&values, 64, (count + 16) * sizeof(float)), 0);
    return values;
}

static float *random_floats(size_t count, uint64_t seed) {
    float *values = floats(count);
    sh_test_fill(values, count, seed);
    return values;
}

static int64_t outputs(int64_t in, int64_t k, int64_t stride, int64_t pad, int64_t dilation) {
    return (in + 2 * pad - dilation * (k - 1) - 1) / stride + 1;
}

static fixture fixture_make(const size_row *r) {
    fixture f = {.s = {.n = r->n,
                       .ic = r->ic,
                       .oc = r->oc,
                       .ih = r->ih,
                       .iw = r->iw,
                       .oh = outputs(r->ih, r->kh, r->stride_h, r->pad_h, r->dilation),
                       .ow = outputs(r->iw, r->kw, r->stride_w, r->pad_w, r->dilation),
                       .kh = r->kh,
                       .kw = r->kw,
                       .stride_h = r->stride_h,
                       .stride_w = r->stride_w,
                       .pad_h = r->pad_h,
                       .pad_w = r->pad_w,
                       .dilation_h = r->dilation,
                       .dilation_w = r->dilation,
                       .groups = r->groups}};
    const sh_conv_shape *s = &f.s;
    f.x_count = (size_t)(s->n * s->ic * s->ih * s->iw);
    f.y_count = (size_t)(s->n * s->oc * s->oh * s->ow);
    f.w_count = (size_t)(s->oc * s->ic / s->groups * s->kh * s->kw);
    f.x = random_floats(f.x_count, 1), f.w = random_floats(f.w_count, 2);
    f.bias = random_floats((size_t)s->oc, 3), f.dy = random_floats(f.y_count, 4);
    f.y = floats(f.y_count), f.dx = floats(f.x_count);
    f.dw = floats(f.w_count), f.db = floats((size_t)s->oc);
    sh_reference_conv_data(s, f.dy, f.w, f.dx);
    sh_reference_conv_weight(s, f.x, f.dy, f.dw, f.db);
    return f;
}

static void fixture_free(fixture *f) {
    free(f->x), free(f->w), free(f->bias), free(f->dy);
    free(f->y), free(f->dx), free(f->dw), free(f->db);
}

/* (n, channels, pixels) to (n, channels / block, pixels, block), or back. */
static float *relaid(const float *in, int64_t n, int64_t channels, int64_t pixels, int block,
                     bool back) {
    float *out = floats((size_t)(n * channels * pixels));
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t p = 0; p < pixels; p++) {
                int64_t plain = (i * channels + c) * pixels + p;
                int64_t blocked =
                    ((i * (channels / block) + c / block) * pixels + p) * block + c % block;
                out[back ? plain : blocked] = in[back ? blocked : plain];
            }
    return out;
}

/* A convolution with NaN in its scratch and a fence behind it. */
typedef struct runner {
    sh_conv *conv;
    float *scratch;
    size_t scratch_count;
    int x_block, y_block;
} runner;

static runner runner_make(const fixture *f, sh_conv_options options, sh_tuner *tuner) {
    runner r = {.x_block = options.x_block, .y_block = options.y_block};
    options.shape = f->s;
    CHECK_OK(sh_conv_create(&options, tuner, &r.conv));
    r.scratch_count = sh_conv_scratch_bytes(r.conv) / sizeof(float) + 1;
    r.scratch = floats(r.scratch_count);
    memset(r.scratch, 0xFF, r.scratch_count * sizeof(float));
    r.scratch[r.scratch_count] = 4321.0f;
    return r;
}

static void runner_free(runner *r) {
    assert_true(r->scratch[r->scratch_count] == 4321.0f);
    free(r->scratch);
    sh_conv_destroy(r->conv);
}

static void check_forward(fixture *f, runner *r, bool bias, bool relu) {
    const sh_conv_shape *s = &f->s;
    sh_reference_conv_forward(s, f->x, f->w, bias ? f->bias : NULL, f->y);
    for (size_t i = 0; relu && i < f->y_count; i++) f->y[i] = f->y[i] > 0 ? f->y[i] : 0;
    float *x = relaid(f->x, s->n, s->ic, s->ih * s->iw, r->x_block, false);
    float *y = floats(f->y_count);
    memset(y, 0xFF, f->y_count * sizeof(float));
    sh_conv_forward(r->conv, x, f->w, bias ? f->bias : NULL, y, r->scratch);
    float *plain = relaid(y, s->n, s->oc, s->oh * s->ow, r->y_block, true);
    CHECK_CLOSE(plain, f->y, f->y_count, 2e-5);
    free(x), free(y), free(plain);
}

static void check_input_gradient(const fixture *f, runner *r) {
    const sh_conv_shape *s = &f->s;
    float *dy = relaid(f->dy, s->n, s->oc, s->oh * s->ow, r->y_block, false);
    float *dx = floats(f->x_count);
    memset(dx, 0xFF, f->x_count * sizeof(float));
    sh_conv_input_gradient(r->conv, dy, f->w, dx, r->scratch);
    float *plain = relaid(dx, s->n, s->ic, s->ih * s->iw, r->x_block, true);
    CHECK_CLOSE(plain, f->dx, f->x_count, 2e-5);
    free(dy), free(dx), free(plain);
}

/* Overwrites what was NaN, then adds to it: once and twice the gradient. */
static void check_weight_gradient(const fixture *f, runner *r, bool bias) {
    const sh_conv_shape *s = &f->s;
    float *dy = relaid(f->dy, s->n, s->oc, s->oh * s->ow, r->y_block, false);
    float *x = relaid(f->x, s->n, s->ic, s->ih * s->iw, r->x_block, false);
    float *dw = floats(f->w_count), *db = floats((size_t)s->oc);
    memset(dw, 0xFF, f->w_count * sizeof(float));
    memset(db, 0xFF, (size_t)s->oc * sizeof(float));
    sh_conv_weight_gradient(r->conv, x, dy, dw, bias ? db : NULL, false, r->scratch);
    CHECK_CLOSE(dw, f->dw, f->w_count, 3e-5);
    if (bias) CHECK_CLOSE(db, f->db, (size_t)s->oc, 3e-5);
    sh_conv_weight_gradient(r->conv, x, dy, dw, bias ? db : NULL, true, r->scratch);
    for (size_t i = 0; i < f->w_count; i++) dw[i] /= 2;
    for (int64_t i = 0; i < s->oc; i++) db[i] /= 2;
    CHECK_CLOSE(dw, f->dw, f->w_count, 3e-5);
    if (bias) CHECK_CLOSE(db, f->db, (size_t)s->oc, 3e-5);
    free(dy), free(x), free(dw), free(db);
}

static sh_tuner *tuner_make(int threads) {
    sh_tuner *tuner = NULL;
    omp_set_num_threads(threads);
    CHECK_OK(sh_tuner_create(
        &(sh_tuner_options){.clock = &sh_clock_real, .measure = false, .threads = threads},
        &tuner));
    return tuner;
}

static void check_row(const size_row *row, bool blocked, int threads) {
    fixture f = fixture_make(row);
    sh_tuner *tuner = tuner_make(threads);
    int y_block = blocked && row->oc % 8 == 0 ? 8 : 1;
    int x_block = y_block == 8 && row->ic % 8 == 0 ? 8 : 1;
    for (int variant = 0; variant < 4; variant++) {
        bool bias = variant & 1, relu = variant & 2;
        runner r = runner_make(&f,
                               (sh_conv_options){.x_block = x_block,
                                                 .y_block = y_block,
                                                 .bias = bias,
                                                 .relu = relu,
                                                 .backward = true,
                                                 .input_gradient = true},
                               tuner);
        check_forward(&f, &r, bias, relu);
        check_input_gradient(&f, &r);
        check_weight_gradient(&f, &r, bias);
        runner_free(&r);
    }
    sh_tuner_destroy(tuner);
    fixture_free(&f);
}

TEST(conv, equals_reference_on_plain_images) {
    for (size_t i = 0; i < SH_COUNT(rows); i++) check_row(&rows[i], false, 1);
}
TEST(conv, equals_reference_on_blocked_images) {
    for (size_t i = 0; i < SH_COUNT(rows); i++) check_row(&rows[i], true, 1);
}
TEST(conv, equals_reference_on_three_threads) {
    for (size_t i = 0; i < SH_COUNT(rows); i++) check_row(&rows[i], i % 2 == 0, 3);
}

/* The keys the convolutions ask for, with every choice set to one candidate, `to` (with quotes). */
static sh_tuner *tuner_of(const sh_tuner *asked, const char *to) {
    static const char *const names[] = {"\"own\"", "\"onednn-reordered\""};
    char *text = sh_tuner_print(asked, true), *json = sh_alloc(8 * strlen(text) + 1, 1), *at = json;
    for (const char *from = text; *from != '\0';) {
        size_t skip = 0;
        for (size_t i = 0; i < SH_COUNT(names) && skip == 0; i++)
            if (strncmp(from, names[i], strlen(names[i])) == 0) skip = strlen(names[i]);
        const char *piece = skip > 0 ? to : from;
        size_t length = skip > 0 ? strlen(to) : 1;
        memcpy(at, piece, length);
        at += length;
        from += skip > 0 ? skip : 1;
    }
    sh_tuner *tuner = tuner_make(2);
    CHECK_OK(sh_tuner_load(tuner, "kernels.json", json, strlen(json), true));
    sh_free(text);
    sh_free(json);
    return tuner;
}

/* All directions of a row by oneDNN. Returns whether another candidate would have been chosen. */
static bool check_library(const size_row *row, bool blocked) {
    fixture f = fixture_make(row);
    sh_tuner *tuner = tuner_make(2);
    int y_block = blocked && row->oc % 8 == 0 ? 8 : 1;
    sh_conv_options options = {.x_block = y_block == 8 && row->ic % 8 == 0 ? 8 : 1,
                               .y_block = y_block,
                               .bias = true,
                               .relu = true,
                               .backward = true,
                               .input_gradient = true};
    runner usual = runner_make(&f, options, tuner);
    sh_tuner *forced = tuner_of(tuner, "\"onednn\"");
    runner r = runner_make(&f, options, forced);
    bool changed = strcmp(sh_conv_kernels(usual.conv), sh_conv_kernels(r.conv)) != 0;
    assert_null(strstr(sh_conv_kernels(r.conv), "own"));
    check_forward(&f, &r, true, true);
    check_input_gradient(&f, &r);
    check_weight_gradient(&f, &r, true);
    runner_free(&usual);
    runner_free(&r);
    sh_tuner_destroy(tuner);
    sh_tuner_destroy(forced);
    fixture_free(&f);
    return changed;
}

TEST(conv, equals_reference_when_the_library_serves_the_layouts_at_hand) {
    int changed = 0;
    for (size_t i = 0; i < SH_COUNT(rows); i++) {
        changed += check_library(&rows[i], false);
        changed += check_library(&rows[i], true);
    }
    assert_true(changed > 5);
}

TEST(conv, equals_reference_by_winograd_where_that_is_chosen) {
    fixture f = fixture_make(&rows[2]);
    sh_tuner *tuner = tuner_make(2);
    sh_conv_options options = {.x_block = 8,
                               .y_block = 8,
                               .bias = true,
                               .relu = true,
                               .backward = true,
                               .input_gradient = true};
    runner usual = runner_make(&f, options, tuner);
    assert_null(strstr(sh_conv_kernels(usual.conv), "winograd"));
    sh_tuner *forced = tuner_of(tuner, "\"winograd\"");
    runner r = runner_make(&f, options, forced);
    assert_string_equal(sh_conv_kernels(r.conv), "winograd / winograd / winograd");
    check_forward(&f, &r, true, true);
    check_input_gradient(&f, &r);
    check_weight_gradient(&f, &r, true);
    runner_free(&usual);
    runner_free(&r);
    sh_tuner_destroy(tuner);
    sh_tuner_destroy(forced);
    fixture_free(&f);
}

/* A choice of Winograd from another run does not count where only direct kernels are wanted. */
TEST(conv, keeps_to_direct_kernels_where_asked) {
    fixture f = fixture_make(&rows[2]);
    sh_conv_options options = {.x_block = 8, .y_block = 8};
    sh_tuner *asked = tuner_make(1);
    runner usual = runner_make(&f, options, asked);
    char *choices = sh_tuner_print(asked, true);
    assert_non_null(strstr(choices, " n3"));  // fewer images than settle the ranking
    sh_tuner *direct = NULL;
    CHECK_OK(sh_tuner_create(
        &(sh_tuner_options){.clock = &sh_clock_real, .measure = true, .direct = true, .threads = 1},
        &direct));
    runner r = runner_make(&f, options, direct);
    char *of_direct = sh_tuner_print(direct, true);
    assert_non_null(strstr(of_direct, " direct"));
    assert_null(strstr(of_direct, "winograd"));
    check_forward(&f, &r, false, false);
    sh_free(choices);
    sh_free(of_direct);
    runner_free(&usual);
    runner_free(&r);
    sh_tuner_destroy(asked);
    sh_tuner_destroy(direct);
    fixture_free(&f);
}

/* Where AVX2 is there, the library has a real kernel for each of these in some layout. */
TEST(conv, never_runs_the_reference_kernels_of_the_library) {
    if (sh_simd_level_get() < SH_SIMD_AVX2) skip();
    for (size_t i = 0; i < SH_COUNT(rows); i++) {
        fixture f = fixture_make(&rows[i]);
        sh_tuner *tuner = tuner_make(1);
        bool y_blocked = rows[i].oc % 8 == 0, x_blocked = y_blocked && rows[i].ic % 8 == 0;
        runner r = runner_make(&f,
                               (sh_conv_options){.x_block = x_blocked ? 8 : 1,
                                                 .y_block = y_blocked ? 8 : 1,
                                                 .backward = true,
                                                 .input_gradient = true},
                               tuner);
        if (strstr(sh_conv_kernels(r.conv), "ref:") != NULL)
            fail_msg("row %zu: %s", i, sh_conv_kernels(r.conv));
        runner_free(&r);
        sh_tuner_destroy(tuner);
        fixture_free(&f);
    }
}

TEST(conv, for_inference_has_no_backward_and_needs_less) {
    fixture f = fixture_make(&rows[2]);
    sh_tuner *tuner = tuner_make(1);
    sh_conv_options options = {.x_block = 8, .y_block = 8, .bias = true};
    runner eval = runner_make(&f, options, tuner);
    check_forward(&f, &eval, true, false);
    assert_null(strchr(sh_conv_kernels(eval.conv), '/'));
    options.backward = true;
    runner train = runner_make(&f, options, tuner);
    assert_non_null(strchr(sh_conv_kernels(train.conv), '/'));
    assert_true(sh_conv_scratch_bytes(eval.conv) <= sh_conv_scratch_bytes(train.conv));
    check_weight_gradient(&f, &train, true);
    runner_free(&eval);
    runner_free(&train);
    sh_tuner_destroy(tuner);
    fixture_free(&f);
}
