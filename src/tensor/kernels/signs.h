/* One bit per element, and per row the mean of its negative and of its other elements. */
#ifndef SH_TENSOR_KERNELS_SIGNS_H
#define SH_TENSOR_KERNELS_SIGNS_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/kernels/simd.h"

/* 32-bit words of bits for so many elements; at least one bit is spare, so that a decoder may read
 * a vector's bits as two whole bytes. */
static inline size_t sh_signs_words(size_t count) { return count / 32 + 1; }

typedef struct sh_signs_kernels {
    /* y (rows, columns) -> means (rows, 2): of the negative elements, of the others; 0 where there
     * are none. Bit i of the words is set where element i is not negative (or NaN). `left` is y
     * itself, which keeps what was not written, or NULL. */
    void (*write)(const float *y, size_t rows, size_t columns, float *means, uint32_t *bits,
                  float *left);
    /* x += scale * mean. */
    void (*add)(const float *means, const uint32_t *bits, size_t rows, size_t columns, float scale,
                float *x);
} sh_signs_kernels;

SH_SIMD_DECLARE(sh_signs_kernels, sh_signs_table);
static inline const sh_signs_kernels *sh_signs(void) { return SH_SIMD_PICK(sh_signs_table); }

#endif
