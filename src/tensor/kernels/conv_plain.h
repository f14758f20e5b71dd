/* Forward convolution for first layers: images in plain layout, of few channels, in; blocks of 8
 * channels out. The library has no fast kernel for this pair of layouts unless the kernel is small.
 * Bias and relu are fused. Nothing is allocated. A value does not depend on `threads`. */
#ifndef SH_TENSOR_KERNELS_CONV_PLAIN_H
#define SH_TENSOR_KERNELS_CONV_PLAIN_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/kernels/conv_shape.h"
#include "tensor/kernels/simd.h"

typedef struct sh_conv_plain_call {
    const sh_conv_shape *shape;
    const float *x;     // (n, ic, ih, iw)
    const float *w;     // (oc, ic, kh, kw)
    const float *bias;  // (oc), or NULL
    float *y;           // (n, oc / 8, oh, ow, 8)
    void *scratch;      // scratch_bytes(shape, threads), 64-byte aligned
    int threads;
    bool relu;
} sh_conv_plain_call;

typedef struct sh_conv_plain_kernels {
    /* One group, oc a multiple of 8; any kernel, stride, padding and dilation. */
    bool (*supports)(const sh_conv_shape *shape);
    size_t (*scratch_bytes)(const sh_conv_shape *shape, int threads);
    void (*run)(const sh_conv_plain_call *call);
} sh_conv_plain_kernels;

SH_SIMD_DECLARE(sh_conv_plain_kernels, sh_conv_plain_table);
static inline const sh_conv_plain_kernels *sh_conv_plain(void) {
    return SH_SIMD_PICK(sh_conv_plain_table);
}

#endif
