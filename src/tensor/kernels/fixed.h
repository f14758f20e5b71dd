/* Sums of floats that do not depend on their order: fixed point in int64. All arrays that are to be
 * summed share one scale, taken from the largest exponent among them; integers are then added,
 * which is associative, and the sum becomes a float again once.
 *
 *   |x| < 2^(exponent - 126)        integer = x 2^(50 - (exponent - 126)), to nearest, ties to even
 *
 * An integer is at most 2^50, so 4096 of them fit into an int64. A float as large as the largest
 * keeps all of its 24 bits and 26 more below them: what is at least 2^-26 of the largest loses
 * nothing, and what is smaller loses less than 2^-51 of the largest. The same bits with every
 * instruction set. */
#ifndef SH_TENSOR_KERNELS_FIXED_H
#define SH_TENSOR_KERNELS_FIXED_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/kernels/simd.h"

enum { SH_FIXED_BITS = 50, SH_FIXED_TERMS_MOST = 4096, SH_FIXED_NOT_FINITE = 255 };

typedef struct sh_fixed_kernels {
    /* The exponent field of the largest magnitude: 0 for zeros and denormals, SH_FIXED_NOT_FINITE
     * when a value is infinite or not a number. */
    int (*exponent)(const float *x, size_t count);
    /* sum[i] = sum over j of x[j][at + i] scale weights[j], each product rounded to an integer of
     * at most SH_FIXED_BITS bits. Finite values only; weights are integers, NULL: all 1. */
    void (*sum)(int64_t *sum, const float *const *x, const double *weights, size_t terms, size_t at,
                size_t count, double scale);
    /* x[i] = sum[i] factor. */
    void (*to_float)(float *x, const int64_t *sum, size_t count, double factor);
} sh_fixed_kernels;

SH_SIMD_DECLARE(sh_fixed_kernels, sh_fixed_table);
static inline const sh_fixed_kernels *sh_fixed(void) { return SH_SIMD_PICK(sh_fixed_table); }

/* The scale for values of this exponent and below; its inverse is exact too. */
static inline double sh_fixed_scale(int exponent) {
    return ldexp(1.0, SH_FIXED_BITS + 126 - (exponent > 1 ? exponent : 1));
}

#endif
