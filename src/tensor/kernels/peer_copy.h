/* Copies of memory that another core wrote last or reads next. The C library's memcpy turns to
 * `rep movsb` from a few KiB up, which is many times slower on lines that are dirty in another
 * core's cache; plain vector loads and stores are not. Never uses more than the calling thread. */
#ifndef SH_TENSOR_KERNELS_PEER_COPY_H
#define SH_TENSOR_KERNELS_PEER_COPY_H

#include <stddef.h>
#include <string.h>

#include "tensor/kernels/simd.h"

typedef struct sh_peer_kernels {
    void (*copy)(void *restrict to, const void *restrict from, size_t bytes);
} sh_peer_kernels;

SH_SIMD_DECLARE(sh_peer_kernels, sh_peer_table);

/* The two do not overlap. */
static inline void sh_copy_shared(void *restrict to, const void *restrict from, size_t bytes) {
    if (bytes < 512)
        memcpy(to, from, bytes);
    else
        SH_SIMD_PICK(sh_peer_table)->copy(to, from, bytes);
}

#endif
