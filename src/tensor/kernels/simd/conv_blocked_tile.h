/* The inner loop of the blocked convolution: one output position of T images times V blocks of 8
 * output channels.
 *
 * T * V <= 12 sums, V vectors of weights and one broadcast fill the 16 registers; T = 4, V = 3
 * costs 7 loads per 12 multiply-adds, so the multipliers are the limit. All images of a tile see
 * the same taps, so those that fall on the padding are left out of the loops. */
#ifndef SH_TENSOR_KERNELS_SIMD_CONV_BLOCKED_TILE_H
#define SH_TENSOR_KERNELS_SIMD_CONV_BLOCKED_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/kernels/simd/conv_common.h"

/* Without registers of 8 floats, compilers keep arrays of such vectors in memory, and wider tiles
 * run ten times slower. */
#if defined(__AVX__)
enum { V_MOST = 3 };
#else
enum { V_MOST = 1 };
#endif
enum { T_MOST = 4, TILE_MOST = 12 };

/* Strides in floats. The sums begin with the bias, or with those of the blocks before. */
typedef struct tile_job {
    int64_t blocks, rows, cols;     // input blocks and taps to visit
    int64_t x_block, x_row;         // a column of x is (T, 8)
    int64_t w_block, w_row, w_col;  // a tap of weights is (8, V, 8)
    int64_t y_image, y_block;
    const float *bias;  // (V, 8), or NULL to go on from the sums
    bool to_y, relu;    // the last blocks write y, the others the sums
} tile_job;

/* A tile compiled for one T and V; x and w point at the first tap. */
typedef void tile_function(const tile_job *job, const float *x, const float *w, float *sums,
                           float *y);

/* Loads the T * V sums: the bias for the first slab, otherwise what the slab before has left. */
__attribute__((always_inline)) static inline void tile_begin(const tile_job *job, const float *sums,
                                                             v8 *a, const int T, const int V) {
    if (job->bias != NULL) {
        UNROLL
        for (int i = 0; i < T * V; i++) a[i] = *(const v8_memory *)(job->bias + i % V * LANES);
    } else {
        UNROLL
        for (int i = 0; i < T * V; i++) a[i] = *(const v8_memory *)(sums + i * LANES);
    }
}

/* Stores the sums, or after the last slab y, with ReLU where it is fused. */
__attribute__((always_inline)) static inline void tile_end(const tile_job *job, const v8 *a,
                                                           float *sums, float *y, const int T,
                                                           const int V) {
    if (!job->to_y) {
        UNROLL
        for (int i = 0; i < T * V; i++) *(v8_memory *)(sums + i * LANES) = a[i];
        return;
    }
    UNROLL
    for (int i = 0; i < T * V; i++) {
        v8_mask keep = job->relu ? ~(a[i] <= 0.0f) : (v8_mask){0} - 1;  // NaN stays
        *(v8_memory *)(y + i / V * job->y_image + i % V * job->y_block) =
            (v8)(keep & (v8_mask)a[i]);
    }
}

/* One tap of one input block: 8 rank-1 updates of the sums, one per input channel. */
__attribute__((always_inline)) static inline void tile_tap(const float *x, const float *w, v8 *a,
                                                           const int T, const int V) {
    UNROLL
    for (int i = 0; i < LANES; i++) {
        v8 f[V_MOST];
        UNROLL
        for (int v = 0; v < V; v++) f[v] = *(const v8_memory *)(w + (i * V + v) * LANES);
        UNROLL
        for (int t = 0; t < T; t++) {
            float s = x[t * LANES + i];
            v8 b = {s, s, s, s, s, s, s, s};
            UNROLL
            for (int v = 0; v < V; v++) a[t * V + v] += b * f[v];
        }
    }
}

/* Sums over blocks, rows and columns of taps. Inlined with constant T and V, so that the sums stay
 * in registers. */
__attribute__((always_inline)) static inline void tile(const tile_job *job, const float *x,
                                                       const float *w, float *sums, float *y,
                                                       const int T, const int V) {
    v8 a[TILE_MOST];
    tile_begin(job, sums, a, T, V);
    const int64_t cols = job->cols, w_col = job->w_col;
    for (int64_t b = 0; b < job->blocks; b++, x += job->x_block, w += job->w_block) {
        const float *x_row = x, *w_row = w;
        for (int64_t r = 0; r < job->rows; r++, x_row += job->x_row, w_row += job->w_row) {
            const float *xp = x_row, *wp = w_row;
            for (int64_t c = 0; c < cols; c++, xp += T * LANES, wp += w_col)
                tile_tap(xp, wp, a, T, V);
        }
    }
    tile_end(job, a, sums, y, T, V);
}

/* Every pair of T and V that fits the registers; each becomes one function. */
#define SH_TILES_1(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1)
#define SH_TILES_2(X) X(1, 2) X(2, 2) X(3, 2) X(4, 2)
#define SH_TILES_3(X) X(1, 3) X(2, 3) X(3, 3) X(4, 3)
#if defined(__AVX__)
#define SH_TILES(X) SH_TILES_1(X) SH_TILES_2(X) SH_TILES_3(X)
#else
#define SH_TILES(X) SH_TILES_1(X)
#endif

#define SH_TILE_DEFINE(T, V)                                                                     \
    static void tile_##T##x##V(const tile_job *job, const float *x, const float *w, float *sums, \
                               float *y) {                                                       \
        tile(job, x, w, sums, y, T, V);                                                          \
    }
SH_TILES(SH_TILE_DEFINE)

/* Table of tile functions by V and T. */
#define SH_TILE_ROW(T, V) [V][T] = tile_##T##x##V,
static tile_function *const tiles[V_MOST + 1][T_MOST + 1] = {SH_TILES(SH_TILE_ROW)};

/* Output blocks of the next tile: 4 are cut into 2 and 2, since a tile of one block has too few
 * multiply-adds per load. */
static inline int64_t next_v(int64_t left) {
    return least(left == V_MOST + 1 && V_MOST > 2 ? 2 : V_MOST, left);
}

#endif
