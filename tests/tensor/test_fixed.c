#include "tensor/kernels/fixed.h"

#include <float.h>
#include <math.h>

#include "settings.h"

/* What the kernels promise, said with the C library. */
static void reference(int64_t *sum, const float *const *x, const double *weights, size_t terms,
                      size_t at, size_t count, double scale) {
    for (size_t i = 0; i < count; i++) {
        sum[i] = 0;
        for (size_t j = 0; j < terms; j++)
            sum[i] += llrint((double)x[j][at + i] * scale * (weights != NULL ? weights[j] : 1.0));
    }
}

enum { TERMS = 9, COUNT = 3001 };

/* Values of many sizes below the exponent of `largest`, each sign, zeros and denormals among them.
 */
static void fill_terms(float **x, float largest) {
    for (uint64_t j = 0; j < TERMS; j++) {
        x[j] = filled(COUNT, j + 1, largest);
        for (int i = 0; i < COUNT; i++) {
            x[j][i] = ldexpf(x[j][i], -(i % 60));
            if (i % 97 == 0) x[j][i] = i % 2 ? 0.0f : -0.0f;
        }
    }
    x[TERMS - 1][COUNT - 1] = -largest;
}

static int exponent_of(float *const *x) {
    int most = 0;
    for (int j = 0; j < TERMS; j++) {
        int here = sh_fixed()->exponent(x[j], COUNT);
        if (here > most) most = here;
    }
    return most;
}

static void sums(void) {
    const float sizes[] = {1.0f, 3e-3f, FLT_MAX, FLT_MIN, FLT_MIN / 64, FLT_TRUE_MIN, 12345.678f};
    static int64_t sum[COUNT], want[COUNT];
    for (size_t s = 0; s < SH_COUNT(sizes); s++) {
        float *x[TERMS];
        fill_terms(x, sizes[s]);
        double weights[TERMS], scale = sh_fixed_scale(exponent_of(x));
        for (int j = 0; j < TERMS; j++) weights[j] = j;
        for (size_t at = 0; at < 3; at++) {
            size_t count = COUNT - at - at * 1024;
            sh_fixed()->sum(sum, (const float *const *)x, NULL, TERMS, at, count, scale);
            reference(want, (const float *const *)x, NULL, TERMS, at, count, scale);
            assert_memory_equal(sum, want, count * sizeof *sum);
            sh_fixed()->sum(sum, (const float *const *)x, weights, TERMS, at, count, scale / 16);
            reference(want, (const float *const *)x, weights, TERMS, at, count, scale / 16);
            assert_memory_equal(sum, want, count * sizeof *sum);
        }
        for (int j = 0; j < TERMS; j++) free(x[j]);
    }
    sh_fixed()->sum(sum, NULL, NULL, 0, 0, COUNT, 1.0);
    for (int i = 0; i < COUNT; i++) assert_int_equal(sum[i], 0);
}

TEST(fixed, sums_as_the_c_library_rounds) { each_setting(sums); }

/* The order of the terms, and cutting them into groups, changes nothing. */
static void orders(void) {
    float *x[TERMS];
    static int64_t sum[COUNT], other[COUNT], part[COUNT];
    fill_terms(x, 0.37f);
    double scale = sh_fixed_scale(exponent_of(x));
    sh_fixed()->sum(sum, (const float *const *)x, NULL, TERMS, 0, COUNT, scale);
    const float *turned[TERMS];
    for (int j = 0; j < TERMS; j++) turned[j] = x[(j * 4 + 5) % TERMS];
    sh_fixed()->sum(other, turned, NULL, TERMS, 0, COUNT, scale);
    assert_memory_equal(sum, other, sizeof sum);
    for (size_t cut = 1; cut < TERMS; cut++) {
        sh_fixed()->sum(other, turned, NULL, cut, 0, COUNT, scale);
        sh_fixed()->sum(part, turned + cut, NULL, TERMS - cut, 0, COUNT, scale);
        for (int i = 0; i < COUNT; i++) other[i] += part[i];
        assert_memory_equal(sum, other, sizeof sum);
    }
    for (int j = 0; j < TERMS; j++) free(x[j]);
}

TEST(fixed, sums_do_not_depend_on_the_order) { each_setting(orders); }

static void round_trips(void) {
    const float largest[] = {1.0f, FLT_MAX, FLT_MIN, FLT_TRUE_MIN, -7e-40f, -3.14159f, 0.0f};
    for (size_t k = 0; k < SH_COUNT(largest); k++) {
        float x[27], back[27];
        int64_t sum[27];
        for (int i = 0; i < 27; i++) x[i] = ldexpf(largest[k], -i);  // 2^-26 of it, still whole
        const float *terms[] = {x};
        double scale = sh_fixed_scale(sh_fixed()->exponent(x, 27));
        sh_fixed()->sum(sum, terms, NULL, 1, 0, 27, scale);
        sh_fixed()->to_float(back, sum, 27, 1 / scale);
        for (int i = 0; i < 27; i++) assert_true(back[i] == x[i]);
    }
}

TEST(fixed, keeps_every_bit_down_to_a_part_of_the_largest) { each_setting(round_trips); }

static void most_terms(void) {
    const float values[] = {FLT_MAX, -FLT_MAX, 0.99999994f, 1.0f, -FLT_TRUE_MIN};
    static const float *terms[SH_FIXED_TERMS_MOST];
    for (size_t k = 0; k < SH_COUNT(values); k++) {
        for (int j = 0; j < SH_FIXED_TERMS_MOST; j++) terms[j] = &values[k];
        double scale = sh_fixed_scale(sh_fixed()->exponent(&values[k], 1));
        int64_t sum;
        sh_fixed()->sum(&sum, terms, NULL, SH_FIXED_TERMS_MOST, 0, 1, scale);
        float mean;
        sh_fixed()->to_float(&mean, &sum, 1, 1 / scale / SH_FIXED_TERMS_MOST);
        assert_true(mean == values[k]);
        sh_fixed()->to_float(&mean, &sum, 1, 1 / scale);
        assert_true(fabsf(values[k]) == FLT_MAX ? isinf(mean)
                                                : mean == values[k] * SH_FIXED_TERMS_MOST);
    }
}

TEST(fixed, holds_as_many_terms_as_it_says) { each_setting(most_terms); }

static void exponents(void) {
    float x[40] = {0};
    assert_int_equal(sh_fixed()->exponent(x, 0), 0);
    assert_int_equal(sh_fixed()->exponent(x, 40), 0);
    const float values[] = {1.0f, -1.5f, FLT_MAX, -FLT_MIN, FLT_TRUE_MIN, 0.1f};
    const int wanted[] = {127, 127, 254, 1, 0, 123};
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    for (size_t count = 1; count <= 40; count++)
        for (size_t at = 0; at < count; at++) {
            for (size_t k = 0; k < SH_COUNT(values); k++) {
                x[at] = values[k];
                assert_int_equal(sh_fixed()->exponent(x, count), wanted[k]);
            }
            for (size_t k = 0; k < SH_COUNT(bad); k++) {
                x[at] = bad[k];
                assert_int_equal(sh_fixed()->exponent(x, count), SH_FIXED_NOT_FINITE);
            }
            x[at] = 0;
        }
}

TEST(fixed, finds_the_largest_exponent_and_what_is_not_finite) { each_setting(exponents); }
