/* Philox4x32-10 (base/rng.h) on many blocks side by side; the inner loops become vector code. */
#ifndef SH_TENSOR_KERNELS_SIMD_PHILOX_H
#define SH_TENSOR_KERNELS_SIMD_PHILOX_H

#include "base/rng.h"
#include "tensor/kernels/simd/lanes.h"

enum { PHILOX_BLOCKS = 32, PHILOX_WORDS = 4 * PHILOX_BLOCKS };

/* PHILOX_BLOCKS counters side by side: word w of every block in one array. */
typedef struct philox_state {
    uint32_t c0[PHILOX_BLOCKS], c1[PHILOX_BLOCKS], c2[PHILOX_BLOCKS], c3[PHILOX_BLOCKS];
} philox_state;

/* Upper 32 bits of a 64-bit product. */
LANE_FUNCTION uint32_t high_half(uint32_t a, uint32_t b) {
    return (uint32_t)((uint64_t)a * b >> 32);
}

/* Upper and lower halves of the products are written apart and the loop stands alone: so gcc sees
 * vector multiplies. */
__attribute__((noinline)) static void philox_round(philox_state *s, uint32_t k0, uint32_t k1) {
    const uint32_t m0 = 0xD2511F53u, m1 = 0xCD9E8D57u;
    for (int i = 0; i < PHILOX_BLOCKS; i++) {
        uint32_t a = s->c0[i], b = s->c2[i];
        s->c0[i] = high_half(m1, b) ^ s->c1[i] ^ k0;
        s->c2[i] = high_half(m0, a) ^ s->c3[i] ^ k1;
        s->c1[i] = m1 * b;
        s->c3[i] = m0 * a;
    }
}

/* Blocks first .. first + PHILOX_BLOCKS - 1 of a stream: word w of block b in c<w>[b]. */
static inline void philox_blocks(const sh_rng *stream, uint64_t first, philox_state *s) {
    uint32_t k0 = stream->key[0], k1 = stream->key[1];
    for (int i = 0; i < PHILOX_BLOCKS; i++) {
        s->c0[i] = (uint32_t)(first + (uint64_t)i);
        s->c1[i] = (uint32_t)((first + (uint64_t)i) >> 32);
        s->c2[i] = stream->stream[0];
        s->c3[i] = stream->stream[1];
    }
    for (int round = 0; round < 10; round++) {
        philox_round(s, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
}

#endif
