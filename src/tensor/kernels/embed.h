/* Embedding tables and learned positions. */
#ifndef SH_TENSOR_KERNELS_EMBED_H
#define SH_TENSOR_KERNELS_EMBED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/kernels/simd.h"

/* B sequences, T tokens each, C channels, V words; tokens are in [0, V) (asserted). */
typedef struct sh_embed_kernels {
    /* y[i] = table[tokens[i]] for `count` tokens, plus position[i % T] unless `position` is NULL.
     */
    void (*forward)(const float *table, size_t V, size_t C, const int32_t *tokens, size_t count,
                    const float *position, size_t T, float *y);
    /* dtable[tokens[i]] += dy[i], in the order of i whatever the thread count. Adds always: the
     * caller has cleared dtable (a tied head shares it). */
    void (*backward)(const float *dy, const int32_t *tokens, size_t count, size_t V, size_t C,
                     float *dtable);
    /* y[B][T][C] = x + position[T][C]; y may be x. */
    void (*position_forward)(const float *x, const float *position, size_t B, size_t T, size_t C,
                             float *y);
    /* dposition[T][C] (+)= sum over B of dy[B][T][C]. */
    void (*position_backward)(const float *dy, size_t B, size_t T, size_t C, bool accumulate,
                              float *dposition);
} sh_embed_kernels;

SH_SIMD_DECLARE(sh_embed_kernels, sh_embed_table);
static inline const sh_embed_kernels *sh_embed(void) { return SH_SIMD_PICK(sh_embed_table); }

#endif
