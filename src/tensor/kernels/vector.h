/* Copies, sums and biases. x and y may be the same array where a result replaces an argument;
 * otherwise arrays do not overlap. */
#ifndef SH_TENSOR_KERNELS_VECTOR_H
#define SH_TENSOR_KERNELS_VECTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/kernels/simd.h"

typedef struct sh_vector_kernels {
    void (*copy)(const float *x, float *y, size_t count);
    void (*fill)(float *x, float value, size_t count);
    void (*add)(const float *a, const float *b, float *z, size_t count);  // z may be a or b
    void (*add_to)(float *a, const float *b, size_t count);               // a += b
    void (*multiply_to)(float *a, const float *b, size_t count);          // a *= b
    void (*scale)(float *x, float factor, size_t count);
    void (*axpy)(float factor, const float *x, float *y, size_t count);  // y += factor x
    /* x[rows][cols] += bias[cols]; the gradient is the sum of each column of dy[rows][cols]. */
    void (*bias_add_rows)(float *x, const float *bias, size_t rows, size_t cols);
    void (*bias_grad)(const float *dy, size_t rows, size_t cols, bool accumulate, float *dbias);
    /* The same for images: dy[outer][channels/lanes][inner][lanes], lanes 1, 8 or 16. */
    void (*bias_grad_images)(const float *dy, size_t outer, size_t channels, size_t inner,
                             size_t lanes, bool accumulate, float *dbias);
} sh_vector_kernels;

SH_SIMD_DECLARE(sh_vector_kernels, sh_vector_table);
static inline const sh_vector_kernels *sh_vector(void) { return SH_SIMD_PICK(sh_vector_table); }

#endif
