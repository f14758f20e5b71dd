/* Multi-head self-attention, forward and backward, in blocks: no T x T matrix ever exists, and
 * what the causal mask hides is not computed.
 *
 *   B batch, T tokens, H heads, D head size, C = H D channels
 *
 * Rows of `qkv` hold q | k | v side by side (the order of PyTorch and nanoGPT); head h owns columns
 * h D .. h D + D - 1 of each third. Scores carry the factor 1/sqrt(D). `lse` is the natural
 * logarithm of each row's sum of exponentials, all that backward needs of the softmax.
 *
 * Every head is computed alone and in one order, so the bits do not depend on the thread count.
 * Nothing is allocated: the caller lends `scratch`, 64-byte aligned, of scratch_bytes(shape, n)
 * bytes, where n is at least omp_get_max_threads() at the call. Its contents need not be kept. */
#ifndef SH_TENSOR_KERNELS_ATTENTION_H
#define SH_TENSOR_KERNELS_ATTENTION_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/kernels/simd.h"

typedef struct sh_attention_shape {
    size_t B, T, H, D;
    bool causal;  // token t sees tokens 0..t; otherwise all
} sh_attention_shape;

typedef struct sh_attention_kernels {
    /* Enough for forward and for backward. */
    size_t (*scratch_bytes)(const sh_attention_shape *shape, int threads);
    /* qkv (B, T, 3C) -> y (B, T, C), lse (B, H, T). */
    void (*forward)(const sh_attention_shape *shape, const float *qkv, float *y, float *lse,
                    void *scratch);
    /* dy (B, T, C) -> dqkv (B, T, 3C), every element written. */
    void (*backward)(const sh_attention_shape *shape, const float *qkv, const float *y,
                     const float *lse, const float *dy, float *dqkv, void *scratch);
} sh_attention_kernels;

SH_SIMD_DECLARE(sh_attention_kernels, sh_attention_table);
static inline const sh_attention_kernels *sh_attention(void) {
    return SH_SIMD_PICK(sh_attention_table);
}

#endif
