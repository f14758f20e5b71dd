/* Reorders images between plain [N][C][area] and blocked [N][C/block][area][block] (nChw8c,
 * nChw16c). The block divides C; source and result do not overlap. */
#ifndef SH_TENSOR_KERNELS_LAYOUT_H
#define SH_TENSOR_KERNELS_LAYOUT_H

#include <stddef.h>

#include "tensor/kernels/simd.h"

typedef struct sh_layout_kernels {
    void (*to_blocked)(const float *plain, size_t N, size_t C, size_t area, size_t block,
                       float *blocked);
    void (*to_plain)(const float *blocked, size_t N, size_t C, size_t area, size_t block,
                     float *plain);
} sh_layout_kernels;

SH_SIMD_DECLARE(sh_layout_kernels, sh_layout_table);
static inline const sh_layout_kernels *sh_layout(void) { return SH_SIMD_PICK(sh_layout_table); }

#endif
