/* The matrix products between Winograd's transforms, one per point. All operands are packed, so
 * that every stride of the inner loops is a constant:
 *
 *   forward  C (rows, NR) (+)= sum over input blocks b and channels i of A[b][row][i] B[b][i]
 *            A (block, row, 8): rows are tiles         B (block, 8, NR): weights
 *   weights  C (8, NR) += sum over tiles t of A[t][channel] B[t]
 *            A (tile, 8)                                B (tile, NR): dy
 *
 * C is held in registers: of the forward product 14 x 32, 6 x 16 or 3 x 16. */
#ifndef SH_TENSOR_KERNELS_SIMD_WINOGRAD_PRODUCT_H
#define SH_TENSOR_KERNELS_SIMD_WINOGRAD_PRODUCT_H

#include "tensor/kernels/simd/winograd.h"

#if defined(__AVX512F__)
enum { WIDE = 16, MR = 14 };
#elif defined(__AVX__)
enum { WIDE = 8, MR = 6 };
#else
enum { WIDE = 8, MR = 3 };  // two registers each
#endif
enum { NR = 2 * WIDE };

typedef float wide __attribute__((vector_size(WIDE * 4)));
typedef float wide_memory __attribute__((vector_size(WIDE * 4), aligned(4), may_alias));

#define LOAD_WIDE(x)     ((wide) * (const wide_memory *)(x))
#define STORE_WIDE(x, v) (*(wide_memory *)(x) = (v))

/* C (rows, NR) = or += A B over `blocks` blocks of 8 channels. `rows` is a constant at every use,
 * so the sums stay in registers. */
WINOGRAD_FUNCTION void product_rows(const int rows, int64_t blocks, const float *a, int64_t a_block,
                                    const float *b, float *c, bool adds) {
    wide sum[MR][2];
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        sum[i][0] = adds ? LOAD_WIDE(c + i * NR) : (wide){0};
        sum[i][1] = adds ? LOAD_WIDE(c + i * NR + WIDE) : (wide){0};
    }
    for (; blocks > 0; blocks--, a += a_block, b += LANES * NR) {
#pragma GCC unroll 8
        for (int k = 0; k < LANES; k++) {
            wide b0 = LOAD_WIDE(b + k * NR), b1 = LOAD_WIDE(b + k * NR + WIDE);
#pragma GCC unroll 14
            for (int i = 0; i < rows; i++) {
                float scalar = a[i * LANES + k];
                sum[i][0] += scalar * b0;
                sum[i][1] += scalar * b1;
            }
        }
    }
#pragma GCC unroll 14
    for (int i = 0; i < rows; i++) {
        STORE_WIDE(c + i * NR, sum[i][0]);
        STORE_WIDE(c + i * NR + WIDE, sum[i][1]);
    }
}

/* product_rows compiled for every row count up to MR, and the table of them. */
#define PRODUCT_DEFINE(rows)                                                                    \
    static void product_##rows(int64_t blocks, const float *a, int64_t a_block, const float *b, \
                               float *c, bool adds) {                                           \
        product_rows(rows, blocks, a, a_block, b, c, adds);                                     \
    }
#define PRODUCT_ROW(rows) [rows] = product_##rows,
#define PRODUCTS_3(X)     X(1) X(2) X(3)
#define PRODUCTS_6(X)     PRODUCTS_3(X) X(4) X(5) X(6)
#if defined(__AVX512F__)
#define PRODUCTS(X) PRODUCTS_6(X) X(7) X(8) X(9) X(10) X(11) X(12) X(13) X(14)
#elif defined(__AVX__)
#define PRODUCTS(X) PRODUCTS_6(X)
#else
#define PRODUCTS(X) PRODUCTS_3(X)
#endif

typedef void product_function(int64_t blocks, const float *a, int64_t a_block, const float *b,
                              float *c, bool adds);

#endif
