/* Softmax over the rows of x[rows][cols]. Results may overwrite arguments (y == x, dx == dy). */
#ifndef SH_TENSOR_KERNELS_SOFTMAX_H
#define SH_TENSOR_KERNELS_SOFTMAX_H

#include <stddef.h>

#include "tensor/kernels/simd.h"

typedef struct sh_softmax_kernels {
    void (*forward)(const float *x, float *y, size_t rows, size_t cols);
    void (*backward)(const float *dy, const float *y, float *dx, size_t rows, size_t cols);
} sh_softmax_kernels;

SH_SIMD_DECLARE(sh_softmax_kernels, sh_softmax_table);
static inline const sh_softmax_kernels *sh_softmax(void) { return SH_SIMD_PICK(sh_softmax_table); }

#endif
