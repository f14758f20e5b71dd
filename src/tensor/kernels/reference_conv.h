/* Convolution as its definition reads: the oracle for every faster version. Plain layouts, doubles
 * inside, no threads. Supports stride, padding, dilation and groups. */
#ifndef SH_TENSOR_KERNELS_REFERENCE_CONV_H
#define SH_TENSOR_KERNELS_REFERENCE_CONV_H

#include "tensor/kernels/conv_shape.h"

/* x (n, ic, ih, iw), w (oc, ic / groups, kh, kw), bias (oc) or NULL, y (n, oc, oh, ow). */
void sh_reference_conv_forward(const sh_conv_shape *shape, const float *x, const float *w,
                               const float *bias, float *y_out);
/* dx (n, ic, ih, iw) is overwritten. */
void sh_reference_conv_data(const sh_conv_shape *shape, const float *dy, const float *w,
                            float *dx_out);
/* dw (oc, ic / groups, kh, kw) and db (oc, or NULL) are overwritten. */
void sh_reference_conv_weight(const sh_conv_shape *shape, const float *x, const float *dy,
                              float *dw_out, float *db_out);

#endif
