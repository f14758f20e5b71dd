/* Small matrix products on packed blocks, held in registers.
 *
 * A tile of C is MR x NR: 12 accumulators, fed by one broadcast of A and two vectors of B at a
 * time, which leaves one register of the 16 to spare. Blocks are padded to whole tiles by their
 * owners, so there are no edge cases here. Rows of B and C start on vector boundaries. */
#ifndef SH_TENSOR_KERNELS_SIMD_TILE_H
#define SH_TENSOR_KERNELS_SIMD_TILE_H

#include <stdbool.h>
#include <stddef.h>

#if defined(__AVX__)
enum { LANES = 8 };
#else
enum { LANES = 4 };
#endif
enum { MR = 6, NR = 2 * LANES };

typedef float vec __attribute__((vector_size(4 * LANES)));

/* C (+)= A B over `inner` terms; A(i, k) is a[i * a_row + k * a_column]. */
static inline __attribute__((always_inline)) void tile(bool adds, size_t inner, const float *a,
                                                       size_t a_row, size_t a_column,
                                                       const float *b, size_t b_row, float *c,
                                                       size_t c_row) {
    vec sum[MR][2];
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++) {
        sum[i][0] = adds ? *(const vec *)(c + i * c_row) : (vec){0};
        sum[i][1] = adds ? *(const vec *)(c + i * c_row + LANES) : (vec){0};
    }
    for (size_t k = 0; k < inner; k++) {
        vec b0 = *(const vec *)(b + k * b_row), b1 = *(const vec *)(b + k * b_row + LANES);
#pragma GCC unroll 6
        for (int i = 0; i < MR; i++) {
            float scalar = a[i * a_row + k * a_column];
            sum[i][0] += scalar * b0;
            sum[i][1] += scalar * b1;
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++) {
        *(vec *)(c + i * c_row) = sum[i][0];
        *(vec *)(c + i * c_row + LANES) = sum[i][1];
    }
}

/* C = A B with A (MR, inner) in rows. */
static inline void tile_set(size_t inner, const float *a, size_t a_row, const float *b,
                            size_t b_row, float *c, size_t c_row) {
    tile(false, inner, a, a_row, 1, b, b_row, c, c_row);
}

/* C += A B with A (MR, inner) in rows. */
static inline void tile_add(size_t inner, const float *a, size_t a_row, const float *b,
                            size_t b_row, float *c, size_t c_row) {
    tile(true, inner, a, a_row, 1, b, b_row, c, c_row);
}

/* C += A' B with A (inner, MR) in rows. */
static inline void tile_add_transposed(size_t inner, const float *a, size_t a_row, const float *b,
                                       size_t b_row, float *c, size_t c_row) {
    tile(true, inner, a, 1, a_row, b, b_row, c, c_row);
}

#endif
