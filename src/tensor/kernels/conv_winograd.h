/* 3 x 3 and 5 x 5 convolutions by Winograd's minimal filtering (Lavin, Gray 2015), in all three
 * directions: F(4 x 4, 3 x 3) takes 36 multiplications for 16 outputs where the definition takes
 * 144, F(2 x 2, 5 x 5) 36 for 4 instead of 100. Images are in blocks of 8 channels. Bias and relu
 * are fused. Nothing is allocated.
 *
 * A value does not depend on `threads`, and one of the images not on the images beside its own.
 * Sums are rounded otherwise than by the definition: docs/kernels.md has the errors. */
#ifndef SH_TENSOR_KERNELS_CONV_WINOGRAD_H
#define SH_TENSOR_KERNELS_CONV_WINOGRAD_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/kernels/conv_blocked.h"
#include "tensor/kernels/conv_shape.h"
#include "tensor/kernels/conv_weight.h"
#include "tensor/kernels/simd.h"

/* Forward and input gradient: the call is that of the direct kernel. */
typedef struct sh_conv_winograd_kernels {
    /* Kernels of 3 x 3 or 5 x 5, stride 1, no dilation, one group, ic and oc multiples of 8; any
     * padding. */
    bool (*supports)(const sh_conv_shape *shape);
    size_t (*scratch_bytes)(const sh_conv_shape *shape, bool input_gradient, int threads);
    void (*run)(const sh_conv_blocked_call *call);
} sh_conv_winograd_kernels;

/* Weight gradient, likewise; supports what the above supports, with x_blocked. */
typedef struct sh_conv_winograd_weight_kernels {
    size_t (*scratch_bytes)(const sh_conv_shape *shape, int threads);
    void (*run)(const sh_conv_weight_call *call);
} sh_conv_winograd_weight_kernels;

SH_SIMD_DECLARE(sh_conv_winograd_kernels, sh_conv_winograd_table);
SH_SIMD_DECLARE(sh_conv_winograd_weight_kernels, sh_conv_winograd_weight_table);
static inline const sh_conv_winograd_kernels *sh_conv_winograd(void) {
    return SH_SIMD_PICK(sh_conv_winograd_table);
}
static inline const sh_conv_winograd_weight_kernels *sh_conv_winograd_weight(void) {
    return SH_SIMD_PICK(sh_conv_winograd_weight_table);
}

#endif
