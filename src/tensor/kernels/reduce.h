/* Sums and checks over long arrays, parallel, in an order that does not depend on the thread count.
 */
#ifndef SH_TENSOR_KERNELS_REDUCE_H
#define SH_TENSOR_KERNELS_REDUCE_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/kernels/simd.h"

typedef struct sh_reduce_kernels {
    double (*sum_squares)(const float *x, size_t count);
    double (*dot)(const float *x, const float *y, size_t count);
    bool (*all_finite)(const float *x, size_t count);
} sh_reduce_kernels;

SH_SIMD_DECLARE(sh_reduce_kernels, sh_reduce_table);
static inline const sh_reduce_kernels *sh_reduce(void) { return SH_SIMD_PICK(sh_reduce_table); }

#endif
