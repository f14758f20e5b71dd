/* How packed_gemm.c lays its operands out: B in panels of 16 columns, A in slivers of 6 rows, both
 * with k running slowest, so that a tile reads each from front to back. */
#ifndef SH_TENSOR_KERNELS_SIMD_PACKED_GEMM_PACK_H
#define SH_TENSOR_KERNELS_SIMD_PACKED_GEMM_PACK_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "tensor/kernels/simd/transpose.h"

enum {
    MR = 6,          // rows of a tile
    NR = 16,         // columns of a tile: two vectors of 8
    PACK_SLACK = 2,  // floats that packing may write past the last sliver
};

typedef float v8 __attribute__((vector_size(32)));
typedef int i8 __attribute__((vector_size(32)));
typedef float v8u __attribute__((vector_size(32), aligned(4)));

/* Macros: a function that returns such a vector has no ABI on the base instruction set. */
#define load(p)     (*(const v8u *)(p))
#define store(p, x) (*(v8u *)(p) = (x))

/* Packs one panel, (k, 16), with zeros where columns are missing: tiles then need no test for the
 * edge. */
static void pack_panel(float *target, const float *b, int64_t stride, bool transposed, int64_t k,
                       int columns) {
    if (columns < NR) memset(target, 0, (size_t)k * NR * sizeof *target);
    if (!transposed) {
        for (int64_t p = 0; p < k; p++)
            memcpy(target + p * NR, b + p * stride, (size_t)columns * sizeof *b);
        return;
    }
    int j = 0;
    for (; j + 8 <= columns; j += 8) {
        int64_t p = 0;
        for (; p + 8 <= k; p += 8) {
            // A row's part of a block of k is too short for the processor to foresee the next row.
            for (int i = 0; i < 8 && p % 16 == 0; i++)
                __builtin_prefetch(b + (j + 8 + i) * stride + p);
            transpose8(8, b + j * stride + p, stride, target + p * NR + j, NR);
        }
        for (; p < k; p++)
            for (int i = j; i < j + 8; i++) target[p * NR + i] = b[i * stride + p];
    }
    for (; j < columns; j++)
        for (int64_t p = 0; p < k; p++) target[p * NR + j] = b[j * stride + p];
}

/* Panels from B stored (k, n), four at a time: a row of one panel is a single line of memory, which
 * no prefetcher foresees. */
static int64_t pack_wide(float *target, const float *b, int64_t stride, int64_t k,
                         int64_t columns) {
    enum { WIDE = 4, AHEAD = 8 };
    int64_t j = 0;
    for (; j + WIDE * NR <= columns; j += WIDE * NR) {
        for (int64_t p = 0; p < k; p++) {
            const float *from = b + p * stride + j;
            float *to = target + j * k + p * NR;
            int64_t ahead = p + AHEAD < k ? AHEAD * stride : 0;
            for (int u = 0; u < WIDE; u++) {
                __builtin_prefetch(from + ahead + u * NR);
                *(v8 *)(to + u * k * NR) = load(from + u * NR);
                *(v8 *)(to + u * k * NR + 8) = load(from + u * NR + 8);
            }
        }
    }
    return j;
}

/* Packs all panels of `columns` columns, (panel, k, 16). `by_n`: B is stored (n, k). */
static void pack_panels(float *target, const float *b, int64_t stride, bool by_n, int64_t k,
                        int64_t columns) {
    int64_t j = by_n ? 0 : pack_wide(target, b, stride, k, columns);
    for (; j < columns; j += NR)
        pack_panel(target + j * k, by_n ? b + j * stride : b + j, stride, by_n, k,
                   (int)(columns - j < NR ? columns - j : NR));
}

/* Slivers from A stored (k, m): six neighbours per k. Eight rows at a time stay in L1. */
static void pack_slivers_by_k(float *target, const float *a, int64_t stride, int64_t k,
                              int64_t rows) {
    int64_t whole = rows / MR * MR, rest = rows - whole;
    for (int64_t first = 0; first < k; first += 8) {
        int64_t end = first + 8 < k ? first + 8 : k;
        for (int64_t i = 0; i < whole; i += MR)
            for (int64_t p = first; p < end; p++)
                memcpy(target + i * k + p * MR, a + p * stride + i, MR * sizeof *a);
    }
    if (rest == 0) return;
    for (int64_t p = 0; p < k; p++)
        memcpy(target + whole * k + p * MR, a + p * stride + whole, (size_t)rest * sizeof *a);
}

/* Packs all slivers of `rows` rows, (sliver, k, 6). `by_k`: A is stored (k, m). Missing rows of
 * the last sliver are not filled, since tiles know their row count. */
static void pack_slivers(float *target, const float *a, int64_t stride, bool by_k, int64_t k,
                         int64_t rows) {
    if (by_k) {
        pack_slivers_by_k(target, a, stride, k, rows);
        return;
    }
    for (int64_t i = 0; i < rows; i += MR, target += k * MR, a += MR * stride) {
        int64_t wide = rows - i < MR ? rows - i : MR, p = 0;
        if (wide == MR)
            for (; p + 8 <= k; p += 8) transpose8(MR, a + p, stride, target + p * MR, MR);
        for (; p < k; p++)
            for (int64_t r = 0; r < wide; r++) target[p * MR + r] = a[r * stride + p];
    }
}

#endif
