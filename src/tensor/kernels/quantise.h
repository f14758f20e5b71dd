/* Values as small whole numbers of a common step, bit-packed: the inner loops of the quantising
 * codecs. Arrays of `left` are y itself (it keeps what was not written) or NULL. All numbers are
 * little-endian. The bits do not depend on the thread count. */
#ifndef SH_TENSOR_KERNELS_QUANTISE_H
#define SH_TENSOR_KERNELS_QUANTISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/rng.h"
#include "tensor/kernels/simd.h"

enum { SH_QUANTISE_BLOCK = 512, SH_TERNARY_GROUP = 160 };

/* Sizes: a norm per block; groups of 8 levels take `bits` bytes; 5 ternary digits take a byte. */
static inline size_t sh_quantise_norms(size_t count) {
    return (count + SH_QUANTISE_BLOCK - 1) / SH_QUANTISE_BLOCK;
}
static inline size_t sh_quantise_bytes(size_t count, int bits) {
    return (count + 7) / 8 * (size_t)bits;
}
static inline size_t sh_ternary_bytes(size_t count) { return (count + 4) / 5; }

typedef struct sh_moments {
    double sum, squares;
    float largest;  // magnitude; NaN if there is one
} sh_moments;

typedef struct sh_quantise_kernels {
    /* y (count) in blocks: norm = largest magnitude, level = y s / norm in -s..s, rounded to
     * nearest, or with `rng` up or down at random so that the mean is right; s = 2^(bits-1) - 1,
     * 2 <= bits <= 8. Element i of the rng's draws serves element i. A block that is not finite
     * says so in its norm. */
    void (*levels)(const float *y, size_t count, int bits, const sh_rng *rng, float *norms,
                   uint8_t *packed, float *left);
    /* x += scale * level * norm / s. False, with x spoilt, when a level is outside -s..s. */
    bool (*add_levels)(const float *norms, const uint8_t *packed, size_t count, int bits,
                       float scale, float *x);
    /* -1, 0 or 1 at random with mean y / most, y cut to -most..most. Digits are packed in base 3,
     * SH_TERNARY_GROUP at a time: digit d of byte j is element d * (bytes of the group) + j. */
    void (*ternary)(const float *y, size_t count, float most, const sh_rng *rng, uint8_t *packed);
    /* x += step * digit. False, with x spoilt, on a byte above 242. */
    bool (*add_ternary)(const uint8_t *packed, size_t count, float step, float *x);
    sh_moments (*moments)(const float *y, size_t count);
} sh_quantise_kernels;

SH_SIMD_DECLARE(sh_quantise_kernels, sh_quantise_table);
static inline const sh_quantise_kernels *sh_quantise(void) {
    return SH_SIMD_PICK(sh_quantise_table);
}

#endif
