#include "tensor/kernels/activation.h"

#include <math.h>

#include "settings.h"
#include "tensor/kernels/reference.h"

static float from_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static double ulps(float got, double want) {
    if (isnan(want)) return isnan(got) ? 0 : INFINITY;
    if (isinf((float)want)) return got == (float)want ? 0 : INFINITY;
    double scale = fmax(fabs(want), 0x1p-126) * 0x1p-23;
    return fabs((double)got - want) / scale;
}

enum { RUN = 4096 };

/* Walks over all floats in steps and returns the largest error in units of the last place. */
static double worst(void (*f)(const float *, float *, size_t), double (*exact)(double),
                    uint32_t first, uint32_t last) {
    static float x[RUN], y[RUN];
    double most = 0;
    for (uint64_t bits = first; bits <= last;) {
        size_t count = 0;
        for (; count < RUN && bits <= last; bits += 4099) x[count++] = from_bits((uint32_t)bits);
        f(x, y, count);
        for (size_t i = 0; i < count; i++) most = fmax(most, ulps(y[i], exact((double)x[i])));
    }
    return most;
}

static double sigmoid(double x) { return 1.0 / (1.0 + exp(-x)); }

/* 0.. to inf are the positive floats, 0x80000000.. the negative ones; both end in NaNs. */
static void functions_match_libm(void) {
    const sh_activation_kernels *k = sh_activation();
    assert_true(worst(k->exp, exp, 0, 0x7FFFFFFF) < 1.7);
    assert_true(worst(k->exp, exp, 0x80000000, 0xFFFFFFFF) < 1.7);
    assert_true(worst(k->erf, erf, 0, 0x7FFFFFFF) < 1.7);
    assert_true(worst(k->erf, erf, 0x80000000, 0xFFFFFFFF) < 1.7);
    assert_true(worst(k->log1p_unit, log1p, 0, 0x3F800000) < 2.5);
    const sh_activation_row *tanh_row = &k->row[SH_ACTIVATION_TANH];
    assert_true(worst(tanh_row->forward, tanh, 0, 0x7FFFFFFF) < 2.5);
    assert_true(worst(tanh_row->forward, tanh, 0x80000000, 0xFFFFFFFF) < 2.5);
    const sh_activation_row *sigmoid_row = &k->row[SH_ACTIVATION_SIGMOID];
    assert_true(worst(sigmoid_row->forward, sigmoid, 0, 0x7FFFFFFF) < 2.5);
    assert_true(worst(sigmoid_row->forward, sigmoid, 0x80000000, 0xC2AE0000) < 2.5);  // to -87
}

TEST(math, is_exact_to_about_one_unit_over_all_floats) { each_setting(functions_match_libm); }

static void ends_are_exact(void) {
    const float x[] = {0.0f,       -0.0f,    INFINITY, -INFINITY, NAN,
                       88.722839f, 88.7229f, -103.97f, -104.1f};
    float y[SH_COUNT(x)];
    sh_activation()->exp(x, y, SH_COUNT(x));
    for (size_t i = 0; i < SH_COUNT(x); i++)
        if (!isnan(x[i]))
            assert_true(fabs((double)(y[i] / expf(x[i])) - 1) < 3e-7 || y[i] == expf(x[i]));
    assert_true(isnan(y[4]));
    assert_true(y[3] == 0.0f && isinf(y[6]) && y[7] > 0.0f && y[8] == 0.0f);
}

TEST(math, keeps_the_ends_of_the_range) { each_setting(ends_are_exact); }

/* Far values included: gradients there must be finite and right. */
static void rows_match_reference(void) {
    const size_t counts[] = {1, 7, 8, 9, 31, 1000, 70001};
    for (size_t c = 0; c < SH_COUNT(counts); c++) {
        size_t n = counts[c];
        float *x = filled(n, n, 12.0f), *dy = filled(n, n + 1, 1.0f);
        float *y = malloc(n * sizeof *y), *want = malloc(n * sizeof *want), *dx = copied(dy, n);
        x[n - 1] = 200.0f;
        x[n / 2] = -1e30f;
        x[n / 3] = 1e-20f;
        for (int kind = 0; kind < SH_ACTIVATION_COUNT; kind++) {
            const sh_activation_row *row = &sh_activation()->row[kind];
            row->forward(x, y, n);
            for (size_t i = 0; i < n; i++) want[i] = (float)sh_ref_activation(kind, (double)x[i]);
            CHECK_CLOSE(y, want, n, 1e-6);
            row->backward(dy, row->needs_input ? x : y, dx, n);
            for (size_t i = 0; i < n; i++)
                want[i] = (float)((double)dy[i] * sh_ref_activation_slope(kind, (double)x[i]));
            CHECK_CLOSE(dx, want, n, 2e-6);
            memcpy(dx, dy, n * sizeof *dx);
            row->backward(dx, row->needs_input ? x : y, dx, n);
            CHECK_CLOSE(dx, want, n, 2e-6);
            memcpy(dx, x, n * sizeof *dx);
            row->forward(dx, dx, n);
            assert_memory_equal(dx, y, n * sizeof *dx);
        }
        free(x), free(dy), free(y), free(want), free(dx);
    }
}

/* Part of a matrix, rows of 41 of which 37 are activated, with slopes and without. */
static void fused_parts_match_reference(void) {
    enum { ROWS = 5, COLUMNS = 37, ROW = 41, ALL = ROWS * ROW };
    for (int kind = 0; kind < SH_ACTIVATION_COUNT; kind++) {
        const sh_activation_row *row = &sh_activation()->row[kind];
        assert_true((row->apply != NULL) == row->needs_input);
        if (row->apply == NULL) continue;
        float *x = filled(ALL, 3, 9.0f), *y = copied(x, ALL), *alone = copied(x, ALL);
        float *want = copied(x, ALL), *slope = copied(x, ALL), *want_slope = copied(x, ALL);
        for (int i = 0; i < ALL; i++) {
            if (i % ROW >= COLUMNS) continue;
            want[i] = (float)sh_ref_activation(kind, (double)x[i]);
            want_slope[i] = (float)sh_ref_activation_slope(kind, (double)x[i]);
        }
        row->apply(y, slope, ROWS, COLUMNS, ROW);
        row->apply(alone, NULL, ROWS, COLUMNS, ROW);
        CHECK_CLOSE(y, want, ALL, 1e-6);
        CHECK_CLOSE(slope, want_slope, ALL, 2e-6);
        CHECK_CLOSE(alone, want, ALL, 1e-6);
        free(x), free(y), free(alone), free(want), free(slope), free(want_slope);
    }
}

TEST(activation, bends_parts_of_a_matrix_as_the_reference) {
    each_setting(fused_parts_match_reference);
}

TEST(activation, matches_reference) { each_setting(rows_match_reference); }

static void slopes_match(void) {
    for (int kind = 0; kind < SH_ACTIVATION_COUNT; kind++)
        for (double x = -4.05; x < 4; x += 0.3) {
            double h = 1e-5;
            double slope =
                (sh_ref_activation(kind, x + h) - sh_ref_activation(kind, x - h)) / (2 * h);
            assert_true(fabs(slope - sh_ref_activation_slope(kind, x)) < 1e-8);
        }
}

TEST(activation, reference_slopes_match_finite_differences) { slopes_match(); }

static void nan_passes(void) {
    float x[9] = {1, 2, NAN, 3, 4, 5, 6, 7, NAN}, y[9];
    for (int kind = 0; kind < SH_ACTIVATION_COUNT; kind++) {
        sh_activation()->row[kind].forward(x, y, 9);
        assert_true(isnan(y[2]) && isnan(y[8]) && !isnan(y[3]));
    }
}

TEST(activation, shows_nan) { each_setting(nan_passes); }

TEST(activation, is_found_by_name) {
    for (int kind = 0; kind < SH_ACTIVATION_COUNT; kind++) {
        const sh_activation_row *row = &sh_activation()->row[kind];
        assert_ptr_equal(sh_activation_find(row->name), row);
    }
    assert_null(sh_activation_find("swish"));
}
