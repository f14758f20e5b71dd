/* Convolution between images in blocks of 8 channels: the forward pass, and the gradient of the
 * inputs, which is the same sum with the kernel turned around. Bias and relu are fused. Nothing is
 * allocated. A value does not depend on `threads` nor on the images beside its own. */
#ifndef SH_TENSOR_KERNELS_CONV_BLOCKED_H
#define SH_TENSOR_KERNELS_CONV_BLOCKED_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/kernels/conv_shape.h"
#include "tensor/kernels/simd.h"

typedef struct sh_conv_blocked_call {
    const sh_conv_shape *shape;  // of the forward pass, in both directions
    const float *in;             // x (n, ic / 8, ih, iw, 8), or dy (n, oc / 8, oh, ow, 8)
    const float *w;              // (oc, ic, kh, kw)
    const float *bias;           // a value per channel of `out`, or NULL
    float *out;                  // y like dy above, or dx like x above; overwritten
    void *scratch;               // scratch_bytes(shape, input_gradient, threads), 64-byte aligned
    int threads;
    bool input_gradient;
    bool relu;
} sh_conv_blocked_call;

typedef struct sh_conv_blocked_kernels {
    /* One group, no dilation, ic and oc multiples of 8; any kernel, stride and padding. */
    bool (*supports)(const sh_conv_shape *shape);
    size_t (*scratch_bytes)(const sh_conv_shape *shape, bool input_gradient, int threads);
    void (*run)(const sh_conv_blocked_call *call);
} sh_conv_blocked_kernels;

SH_SIMD_DECLARE(sh_conv_blocked_kernels, sh_conv_blocked_table);
static inline const sh_conv_blocked_kernels *sh_conv_blocked(void) {
    return SH_SIMD_PICK(sh_conv_blocked_table);
}

#endif
