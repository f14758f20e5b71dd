/* The sizes of one 2-d convolution, shared by every version of its kernels. */
#ifndef SH_TENSOR_KERNELS_CONV_SHAPE_H
#define SH_TENSOR_KERNELS_CONV_SHAPE_H

#include <stdint.h>

/* x (n, ic, ih, iw), y (n, oc, oh, ow), weights (oc, ic / groups, kh, kw). Padding is the count of
 * zero rows above and zero columns left of x; below and right it is whatever oh and ow imply. A
 * dilation of 1 is the plain convolution. */
typedef struct sh_conv_shape {
    int64_t n, ic, oc, ih, iw, oh, ow, kh, kw;
    int64_t stride_h, stride_w, pad_h, pad_w, dilation_h, dilation_w, groups;
} sh_conv_shape;

#endif
