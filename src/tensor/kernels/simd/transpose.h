/* Squares of 8 x 8 floats, transposed in registers. */
#ifndef SH_TENSOR_KERNELS_SIMD_TRANSPOSE_H
#define SH_TENSOR_KERNELS_SIMD_TRANSPOSE_H

#include <stdint.h>

/* One row of the square in a register, and the same at any float's address. */
typedef float square_row __attribute__((vector_size(32)));
typedef float square_memory __attribute__((vector_size(32), aligned(4), may_alias));

/* Transposes (rows, 8) to (8, rows), rows <= 8. Target rows are stored 8 wide in ascending order:
 * if target_stride is below 8, each store's excess is overwritten by the next one. */
static inline __attribute__((always_inline)) void transpose8(int rows, const float *source,
                                                             int64_t stride, float *target,
                                                             int64_t target_stride) {
    square_row r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        r[i] = i < rows ? (square_row) * (const square_memory *)(source + i * stride)
                        : (square_row){0};
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        r[i] = __builtin_shufflevector(t[i], t[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 1] = __builtin_shufflevector(t[i], t[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        r[i + 2] = __builtin_shufflevector(t[i + 1], t[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 3] = __builtin_shufflevector(t[i + 1], t[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        *(square_memory *)(target + i * target_stride) =
            __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++)
        *(square_memory *)(target + (i + 4) * target_stride) =
            __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
}

#endif
