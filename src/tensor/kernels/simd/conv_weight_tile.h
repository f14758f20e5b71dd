/* The inner loops of the convolution weight gradient: register tiles.
 *
 * A tile sums, over a box of output pixels, T scalars of x (broadcast) times V vectors of 8 output
 * channels of dy. T * V <= 12 accumulators, V vectors of dy and one broadcast fill the 16
 * registers; T = 4, V = 3 costs 7 loads per 12 multiply-adds, so the multipliers are the limit. */
#ifndef SH_TENSOR_KERNELS_SIMD_CONV_WEIGHT_TILE_H
#define SH_TENSOR_KERNELS_SIMD_CONV_WEIGHT_TILE_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/kernels/simd/conv_common.h"

/* Without registers of 8 floats, compilers keep arrays of such vectors in memory, and wider tiles
 * run ten times slower. */
#if defined(__AVX__)
enum { V_MOST = 4 };
#else
enum { V_MOST = 1 };
#endif
enum { T_MOST = 8, TILE_MOST = 12, LINE_FLOATS = 16 };

/* A box of images x rows x cols output pixels; strides in floats. */
typedef struct tile_box {
    int64_t images, rows, cols;
    int64_t x_image, x_row, x_col;
    int64_t dy_image, dy_row, dy_block;  // a pixel of dy is LANES floats
    /* Blocks of dy that are needed next: each image of the box asks for `ahead_step` more floats of
     * each, until `ahead_end`. */
    const float *ahead, *ahead_end;
    int64_t ahead_step;
} tile_box;

/* A tile compiled for one T and V; `fresh`: overwrite the sums. */
typedef void tile_function(tile_box *box, const float *x, const float *dy, float *sums, bool fresh);

/* Fetches the next `ahead_step` floats of each of the V blocks of dy into the second cache. */
__attribute__((always_inline)) static inline void prefetch(tile_box *box, const int V) {
    const float *end = box->ahead + box->ahead_step;
    for (const float *at = box->ahead; at < end; at += LINE_FLOATS) {
        UNROLL
        for (int v = 0; v < V; v++) __builtin_prefetch(at + v * box->dy_block, 0, 2);
    }
    box->ahead = end;
}

/* sums (T, V, 8) = or += the products of the box. Inlined with constant T and V. */
__attribute__((always_inline)) static inline void tile(tile_box *box, const float *x,
                                                       const float *dy, float *sums, bool fresh,
                                                       const int T, const int V) {
    v8 a[TILE_MOST] = {0};
    const int64_t cols = box->cols, x_col = box->x_col, block = box->dy_block;
    for (int64_t image = 0; image < box->images; image++) {
        if (box->ahead < box->ahead_end) prefetch(box, V);
        for (int64_t row = 0; row < box->rows; row++) {
            const float *xp = x + image * box->x_image + row * box->x_row;
            const float *dp = dy + image * box->dy_image + row * box->dy_row;
            for (int64_t col = 0; col < cols; col++, xp += x_col, dp += LANES) {
                v8 d[V_MOST];
                UNROLL
                for (int v = 0; v < V; v++) d[v] = *(const v8_memory *)(dp + v * block);
                UNROLL
                for (int t = 0; t < T; t++) {
                    float s = xp[t];
                    v8 b = {s, s, s, s, s, s, s, s};
                    UNROLL
                    for (int v = 0; v < V; v++) a[t * V + v] += b * d[v];
                }
            }
        }
    }
    v8_memory *out = (v8_memory *)sums;
    UNROLL
    for (int i = 0; i < T * V; i++) {
        if (!fresh) a[i] += out[i];
        out[i] = a[i];
    }
}

/* Every pair of T and V that fits the registers; each becomes one function. */
#define SH_TILES_1(X) X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1)
#define SH_TILES_2(X) X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2)
#define SH_TILES_3(X) X(1, 3) X(2, 3) X(3, 3) X(4, 3)
#define SH_TILES_4(X) X(1, 4) X(2, 4) X(3, 4)
#if defined(__AVX__)
#define SH_TILES(X) SH_TILES_1(X) SH_TILES_2(X) SH_TILES_3(X) SH_TILES_4(X)
#else
#define SH_TILES(X) SH_TILES_1(X)
#endif

#define SH_TILE_DEFINE(T, V)                                                                \
    static void tile_##T##x##V(tile_box *box, const float *x, const float *dy, float *sums, \
                               bool fresh) {                                                \
        tile(box, x, dy, sums, fresh, T, V);                                                \
    }
SH_TILES(SH_TILE_DEFINE)

/* Table of tile functions by V and T. */
#define SH_TILE_ROW(T, V) [V][T] = tile_##T##x##V,
static tile_function *const tiles[V_MOST + 1][T_MOST + 1] = {SH_TILES(SH_TILE_ROW)};

/* Most scalars of x beside V vectors of dy: T * V <= 12 sums. */
static const int tile_most[] = {0, 8, 6, 4, 3};

#endif
