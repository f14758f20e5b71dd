/* Weight and bias gradients of a convolution, for the shapes where the library is slow: inputs of
 * few channels in plain layout, and blocked inputs of any size. Nothing is allocated. The sums run
 * in an order that depends only on the shape and on `threads`, so equal calls give equal bits. */
#ifndef SH_TENSOR_KERNELS_CONV_WEIGHT_H
#define SH_TENSOR_KERNELS_CONV_WEIGHT_H

#include <stdbool.h>
#include <stddef.h>

#include "tensor/kernels/conv_shape.h"
#include "tensor/kernels/simd.h"

typedef struct sh_conv_weight_call {
    const sh_conv_shape *shape;
    const float *x;   // (n, ic, ih, iw), or (n, ic / 8, ih, iw, 8) with x_blocked
    const float *dy;  // (n, oc / 8, oh, ow, 8)
    float *dw;        // (oc, ic, kh, kw)
    float *db;        // (oc), or NULL where there is no bias
    void *scratch;    // scratch_bytes(shape, x_blocked, threads), 64-byte aligned
    int threads;
    bool x_blocked;
    bool accumulate;  // adds to dw and db instead of overwriting them
} sh_conv_weight_call;

typedef struct sh_conv_weight_kernels {
    /* One group, no dilation, oc a multiple of 8, and ic too when x is blocked. */
    bool (*supports)(const sh_conv_shape *shape, bool x_blocked);
    size_t (*scratch_bytes)(const sh_conv_shape *shape, bool x_blocked, int threads);
    void (*run)(const sh_conv_weight_call *call);
    /* Only the bias: sums dy (n, oc / 8, pixels, 8) into db (oc). */
    void (*bias)(const float *dy, int64_t n, int64_t oc, int64_t pixels, float *db,
                 bool accumulate);
} sh_conv_weight_kernels;

SH_SIMD_DECLARE(sh_conv_weight_kernels, sh_conv_weight_table);
static inline const sh_conv_weight_kernels *sh_conv_weight(void) {
    return SH_SIMD_PICK(sh_conv_weight_table);
}

#endif
