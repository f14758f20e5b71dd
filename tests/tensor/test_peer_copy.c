#include "tensor/kernels/peer_copy.h"

#include <string.h>

#include "harness.h"

enum { MOST = 3000, GUARD = 64 };

/* Every length, from and to odd addresses; the bytes around stay as they were. */
static void copy_all_lengths(void) {
    static unsigned char from[MOST + 2 * GUARD], to[MOST + 2 * GUARD], expected[MOST + 2 * GUARD];
    for (size_t i = 0; i < sizeof from; i++) from[i] = (unsigned char)(i * 31 + (i >> 8));
    for (size_t bytes = 0; bytes <= MOST; bytes++) {
        size_t x = bytes % 7, y = GUARD + bytes % 5;
        memset(to, 0xEE, sizeof to);
        memset(expected, 0xEE, sizeof expected);
        memcpy(expected + y, from + x, bytes);
        sh_copy_shared(to + y, from + x, bytes);
        assert_memory_equal(to, expected, sizeof to);
        memset(to, 0xEE, sizeof to);
        SH_SIMD_PICK(sh_peer_table)->copy(to + y, from + x, bytes);
        assert_memory_equal(to, expected, sizeof to);
    }
}

TEST(peer_copy, copies_every_length_and_nothing_else) {
    for (int level = SH_SIMD_BASE; level <= SH_SIMD_MOST; level++) {
        sh_simd_limit((sh_simd_level)level);
        copy_all_lengths();
    }
    sh_simd_limit(SH_SIMD_MOST);
}
