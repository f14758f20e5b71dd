/* Small matrix products on packed blocks, held in registers.
 *
 * A tile of C is MR x NR: 12 accumulators, fed by one broadcast of A and two vectors of B at a
 * time, which leaves one register of the 16 to spare. Blocks are padded to whole tiles by their
 * owners, so there are no edge cases here. Rows of B and C start on vector boundaries. */
#ifndef SH_TENSOR_KERNELS_SIMD_TILE_H
#define SH_TENSOR_KERNELS_SIMD_TILE_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/kernels/simd/lanes.h"

/* Rows and columns of a tile of C. */
enum { MR = 6, NR = 2 * LANES };

/* C (MR, NR) = or += A B over `inner` terms; A(i, k) is a[i * a_row + k * a_column]. `adds` is a
 * constant at every use. */
LANE_FUNCTION void tile(bool adds, size_t inner, const float *a, size_t a_row, size_t a_column,
                        const float *b, size_t b_row, float *c, size_t c_row) {
    vf sum[MR][2];
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++) {
        sum[i][0] = adds ? vf_load(c + i * c_row) : (vf){0};
        sum[i][1] = adds ? vf_load(c + i * c_row + LANES) : (vf){0};
    }
    for (size_t k = 0; k < inner; k++) {
        vf b0 = vf_load(b + k * b_row), b1 = vf_load(b + k * b_row + LANES);
#pragma GCC unroll 6
        for (int i = 0; i < MR; i++) {
            float scalar = a[i * a_row + k * a_column];
            sum[i][0] += scalar * b0;
            sum[i][1] += scalar * b1;
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < MR; i++) {
        vf_store(c + i * c_row, sum[i][0]);
        vf_store(c + i * c_row + LANES, sum[i][1]);
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

/* Interleave a and b, inside each group of 4 lanes: a0 b0 a1 b1, and a2 b2 a3 b3. */
#if defined(__AVX__)
#define LOW(a, b)          __builtin_shufflevector(a, b, 0, 8, 1, 9, 4, 12, 5, 13)
#define HIGH(a, b)         __builtin_shufflevector(a, b, 2, 10, 3, 11, 6, 14, 7, 15)
#define FRONT_HALVES(a, b) __builtin_shufflevector(a, b, 0, 1, 2, 3, 8, 9, 10, 11)
#define BACK_HALVES(a, b)  __builtin_shufflevector(a, b, 4, 5, 6, 7, 12, 13, 14, 15)
#else
#define LOW(a, b)  __builtin_shufflevector(a, b, 0, 4, 1, 5)
#define HIGH(a, b) __builtin_shufflevector(a, b, 2, 6, 3, 7)
#endif

/* Transposes the 4 x 4 squares of four rows, each group of 4 lanes being one square. */
LANE_FUNCTION void transpose_squares(vf r[4]) {
    vf even_low = LOW(r[0], r[2]), even_high = HIGH(r[0], r[2]);
    vf odd_low = LOW(r[1], r[3]), odd_high = HIGH(r[1], r[3]);
    r[0] = LOW(even_low, odd_low);
    r[1] = HIGH(even_low, odd_low);
    r[2] = LOW(even_high, odd_high);
    r[3] = HIGH(even_high, odd_high);
}

/* to (LANES, LANES) = from'. Rows of `from` may start anywhere. */
static inline void transpose_square(const float *from, size_t from_row, float *to, size_t to_row) {
    vf r[LANES];
#pragma GCC unroll 8
    for (int i = 0; i < LANES; i++) r[i] = vf_load(from + i * from_row);
#pragma GCC unroll 2
    for (int i = 0; i < LANES; i += 4) transpose_squares(r + i);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
#if defined(__AVX__)
        vf_store(to + i * to_row, FRONT_HALVES(r[i], r[i + 4]));
        vf_store(to + (i + 4) * to_row, BACK_HALVES(r[i], r[i + 4]));
#else
        vf_store(to + i * to_row, r[i]);
#endif
    }
}

#endif
