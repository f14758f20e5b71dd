/* Attention as its definition reads, in double, with every T x T matrix row by row: the yardstick
 * for tests, and the fallback that anybody can check by eye. Same arrays as attention.h. */
#ifndef SH_TENSOR_KERNELS_REFERENCE_ATTENTION_H
#define SH_TENSOR_KERNELS_REFERENCE_ATTENTION_H

#include "tensor/kernels/attention.h"

/* `row` is room for T doubles. qkv (B, T, 3C) -> y (B, T, C), lse (B, H, T). */
void sh_reference_attention_forward(const sh_attention_shape *shape, const float *qkv, float *y,
                                    float *lse, double *row);
/* dy (B, T, C) -> dqkv (B, T, 3C), every element written; `row` is room for T + B T 3C doubles. */
void sh_reference_attention_backward(const sh_attention_shape *shape, const float *qkv,
                                     const float *dy, float *dqkv, double *row);

#endif
