/* Dropout without a stored mask: element e of a sample is kept when word e % 4 of block e / 4 of
 * the sample's stream says so, so backward draws the same mask again, on any worker and thread. */
#ifndef SH_TENSOR_KERNELS_DROPOUT_H
#define SH_TENSOR_KERNELS_DROPOUT_H

#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "tensor/kernels/simd.h"

typedef struct sh_dropout_kernels {
    /* x, y [samples][per_sample]; streams[samples]; 0 <= p < 1. y = x / (1 - p) where kept, else 0.
     * Backward is the same call on dy. y may be x. */
    void (*apply)(const float *x, float *y, size_t samples, size_t per_sample, float p,
                  const sh_rng *streams);
} sh_dropout_kernels;

SH_SIMD_DECLARE(sh_dropout_kernels, sh_dropout_table);
static inline const sh_dropout_kernels *sh_dropout(void) { return SH_SIMD_PICK(sh_dropout_table); }

/* An element is dropped when the upper 24 bits of its word are below this. */
static inline int32_t sh_dropout_threshold(float p) { return (int32_t)((double)p * 0x1p24); }

#endif
