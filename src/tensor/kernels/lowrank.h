/* Products of a matrix with few vectors, for PowerSGD. Vectors stand in rows: P (rank, rows) and
 * Q (rank, columns). The bits do not depend on the thread count. */
#ifndef SH_TENSOR_KERNELS_LOWRANK_H
#define SH_TENSOR_KERNELS_LOWRANK_H

#include <stddef.h>

#include "tensor/kernels/simd.h"

typedef struct sh_lowrank {
    size_t rows, columns, rank;
} sh_lowrank;

typedef struct sh_lowrank_kernels {
    /* P = (M Q^T)^T: P[j][row] = sum over columns of M[row][c] Q[j][c]. */
    void (*project)(const sh_lowrank *shape, const float *m, const float *q, float *p);
    /* Q = P M: Q[j][c] = sum over rows of P[j][row] M[row][c]. */
    void (*project_back)(const sh_lowrank *shape, const float *m, const float *p, float *q);
    /* x = scale * P^T Q; `left` (or NULL) loses share * P^T Q. */
    void (*expand)(const sh_lowrank *shape, const float *p, const float *q, float scale, float *x,
                   float share, float *left);
} sh_lowrank_kernels;

SH_SIMD_DECLARE(sh_lowrank_kernels, sh_lowrank_table);
static inline const sh_lowrank_kernels *sh_lowrank_pick(void) {
    return SH_SIMD_PICK(sh_lowrank_table);
}

#endif
