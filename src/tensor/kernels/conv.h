/* 2-d convolutions on own kernels and on oneDNN, whichever the tuner finds faster. Weights are
 * plain (OIHW); the blocked copies that kernels like are made at each use in scratch memory: a
 * weight is used once in forward and once in backward between two updates, so a cached copy would
 * save nothing and cost its size twice. Activations are plain (block 1) or (N, C/8, H, W, 8) (block
 * 8).
 */
#ifndef SH_TENSOR_KERNELS_CONV_H
#define SH_TENSOR_KERNELS_CONV_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "tensor/kernels/conv_shape.h"
#include "tensor/kernels/tuner.h"

typedef struct sh_conv sh_conv;

typedef struct sh_conv_options {
    sh_conv_shape shape;
    int x_block, y_block;  // 1 or 8
    bool bias, relu;       // relu is applied to the output in forward
    bool backward;         // also the weight gradient
    bool input_gradient;   // also the gradient of x
} sh_conv_options;

sh_status sh_conv_create(const sh_conv_options *options, sh_tuner *tuner, sh_conv **conv_out);
void sh_conv_destroy(sh_conv *conv);
size_t sh_conv_scratch_bytes(const sh_conv *conv);
/* "own / jit:avx2 reordered / own": the kernels of forward, input and weight gradient; a reordered
 * one works on copies of its images in another layout. */
const char *sh_conv_kernels(const sh_conv *conv);

/* `scratch`: sh_conv_scratch_bytes, 64-byte aligned. */
void sh_conv_forward(sh_conv *conv, const float *x, const float *w, const float *bias, float *y,
                     void *scratch);
void sh_conv_input_gradient(sh_conv *conv, const float *dy, const float *w, float *dx,
                            void *scratch);
/* dw and dbias (NULL: none) are overwritten, or added to. */
void sh_conv_weight_gradient(sh_conv *conv, const float *x, const float *dy, float *dw,
                             float *dbias, bool accumulate, void *scratch);

#endif
