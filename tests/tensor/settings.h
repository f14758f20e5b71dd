/* Runs a check once per instruction set and thread count. */
#ifndef SH_TESTS_TENSOR_SETTINGS_H
#define SH_TESTS_TENSOR_SETTINGS_H

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "tensor/kernels/simd.h"

static inline void each_setting(void (*check)(void)) {
    for (int level = SH_SIMD_BASE; level <= SH_SIMD_MOST; level++)
        for (int threads = 1; threads <= 2; threads++) {
            sh_simd_limit((sh_simd_level)level);
            omp_set_num_threads(threads);
            check();
        }
    sh_simd_limit(SH_SIMD_MOST);
}

/* Seeded values in [-scale, scale); the test frees. */
static inline float *filled(size_t count, uint64_t seed, float scale) {
    float *values = malloc((count + 1) * sizeof *values);
    assert_non_null(values);
    sh_test_fill(values, count, seed);
    for (size_t i = 0; i < count; i++) values[i] *= scale;
    return values;
}

static inline float *copied(const float *from, size_t count) {
    float *values = malloc((count + 1) * sizeof *values);
    assert_non_null(values);
    memcpy(values, from, count * sizeof *values);
    return values;
}

/* (f(x + h) - f(x - h)) / 2h of sum(weight y) against dx at a few elements; `run` maps all of x to
 * y. Float results bound the accuracy, hence a wide h and a wide tolerance. */
static inline void check_slopes(void (*run)(void *context), void *context, float *x, size_t x_count,
                                const float *y, const float *weight, size_t y_count,
                                const float *dx, double h, double tolerance) {
    for (size_t probe = 0; probe < 12; probe++) {
        size_t at = (probe * 2654435761u) % x_count;
        float kept = x[at];
        double side[2];
        for (int s = 0; s < 2; s++) {
            x[at] = kept + (float)(s ? h : -h);
            run(context);
            side[s] = 0;
            for (size_t i = 0; i < y_count; i++) side[s] += (double)y[i] * (double)weight[i];
        }
        x[at] = kept;
        float slope = (float)((side[1] - side[0]) / (2 * h));
        CHECK_CLOSE(&slope, &dx[at], 1, tolerance);
    }
    run(context);
}

#endif
