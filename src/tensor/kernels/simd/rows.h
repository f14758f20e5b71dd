/* What softmax and cross-entropy both do to one row. */
#ifndef SH_TENSOR_KERNELS_SIMD_ROWS_H
#define SH_TENSOR_KERNELS_SIMD_ROWS_H

#include <math.h>

#include "tensor/kernels/simd/math.h"

/* The largest value of the row; NaN is passed over (the sum of exponentials will show it). */
LANE_FUNCTION float row_max(const float *x, size_t count) {
    vf a = vf_all(-INFINITY), b = a;
    size_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        a = vf_max(vf_load(x + i), a);
        b = vf_max(vf_load(x + i + LANES), b);
    }
    if (i + LANES <= count) {
        a = vf_max(vf_load(x + i), a);
        i += LANES;
    }
    if (i < count) b = vf_max(vf_load_part(x + i, count - i, -INFINITY), b);
    return vf_largest(vf_max(a, b));
}

/* Sums of a thousand floats in lanes, sums of those in double. */
enum { ROW_BLOCK = 1024 };

/* Sum of exp(x - shift); the terms go to `e` unless it is NULL (e == x is fine). */
LANE_FUNCTION double row_exp_sum(const float *x, size_t count, float shift, float *e) {
    double total = 0;
    size_t i = 0;
    while (i + LANES <= count) {
        vf sum = {0};
        size_t end = least(count, i + ROW_BLOCK);
        for (; i + LANES <= end; i += LANES) {
            vf v = vf_exp(vf_load(x + i) - shift);
            if (e != NULL) vf_store(e + i, v);
            sum += v;
        }
        total += (double)vf_sum(sum);
    }
    if (i < count) {
        vf v = vf_exp(vf_load_part(x + i, count - i, -INFINITY) - shift);
        if (e != NULL) vf_store_part(e + i, v, count - i);
        total += (double)vf_sum(v);
    }
    return total;
}

/* y = x * factor + term (y == x is fine). */
LANE_FUNCTION void row_affine(const float *x, float *y, size_t count, float factor, float term) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) vf_store(y + i, vf_load(x + i) * factor + term);
    for (; i < count; i++) y[i] = x[i] * factor + term;
}

#endif
