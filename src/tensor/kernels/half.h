/* Floats of 16 bits: fp16 (IEEE half: 5 bits of exponent, 10 of fraction) and bf16 (the upper half
 * of a float). Rounded to nearest, ties to even; infinities and NaN stay what they are, and what is
 * too large becomes infinite. */
#ifndef SH_TENSOR_KERNELS_HALF_H
#define SH_TENSOR_KERNELS_HALF_H

#include <stddef.h>
#include <stdint.h>

#include "tensor/kernels/simd.h"

typedef struct sh_half_kernels {
    /* `left` gets x minus what was written; it may be x, or NULL. */
    void (*to_fp16)(const float *x, uint16_t *y, size_t count, float *left);
    void (*to_bf16)(const float *x, uint16_t *y, size_t count, float *left);
    void (*from_fp16)(const uint16_t *x, float scale, float *y, size_t count);  // y = scale x
    void (*from_bf16)(const uint16_t *x, float scale, float *y, size_t count);
} sh_half_kernels;

SH_SIMD_DECLARE(sh_half_kernels, sh_half_table);
static inline const sh_half_kernels *sh_half(void) { return SH_SIMD_PICK(sh_half_table); }

#endif
