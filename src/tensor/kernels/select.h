/* Passes of the sparse codecs over whole gradients: looking for large elements, and the momentum
 * of DGC. */
#ifndef SH_TENSOR_KERNELS_SELECT_H
#define SH_TENSOR_KERNELS_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/kernels/simd.h"

/* The magnitude of a float as a whole number: the same order, NaN above infinity. */
static inline uint32_t sh_magnitude(float value) {
    uint32_t bits;
    __builtin_memcpy(&bits, &value, sizeof bits);
    return bits & 0x7FFFFFFF;
}

typedef struct sh_dgc_update {
    const float *g;  // (count)
    float *u, *v;    // (count) velocity, accumulated
    size_t count;
    float momentum;
    bool nesterov;  // v gains g + momentum u instead of u
    bool keep;      // v is added to; otherwise overwritten
} sh_dgc_update;

typedef struct sh_select_kernels {
    /* Indices (ascending) and values of the elements whose magnitude is at least `least`, at most
     * `capacity` of them. Returns how many; capacity + 1: there are more. */
    size_t (*collect)(const float *y, size_t count, uint32_t least, size_t capacity,
                      uint32_t *indices, float *values);
    /* u = momentum u + g; v = v + u. */
    void (*dgc)(const sh_dgc_update *update);
} sh_select_kernels;

SH_SIMD_DECLARE(sh_select_kernels, sh_select_table);
static inline const sh_select_kernels *sh_select(void) { return SH_SIMD_PICK(sh_select_table); }

#endif
