/* Max and average pooling of images stored as [images][H][W][lanes]: lanes 8 and images N*C/8 for
 * blocked activations, lanes 1 and images N*C for plain ones. Padding never wins a maximum and
 * counts as zero in an average (count_include_pad, PyTorch's default). */
#ifndef SH_TENSOR_KERNELS_POOL_H
#define SH_TENSOR_KERNELS_POOL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tensor/kernels/simd.h"

typedef struct sh_pool_shape {
    size_t images, lanes;
    int height, width;                // of the input
    int out_height, out_width;        // sh_pool_out of each
    int kernel_height, kernel_width;  // at most 255 positions together
    int stride_height, stride_width;
    int pad_top, pad_left;  // each less than the kernel
    bool relu;              // max pooling only: y = max(0, max); backward then passes where y > 0
} sh_pool_shape;

typedef struct sh_pool_kernels {
    /* index [images][out_height][out_width][lanes]: the place of the maximum in its window,
     * row-major, the first one of equals; not written when NULL. */
    void (*max_forward)(const sh_pool_shape *shape, const float *x, float *y, uint8_t *index);
    /* `y` is read where relu was fused, otherwise it may be NULL. Writes all of dx. */
    void (*max_backward)(const sh_pool_shape *shape, const float *dy, const float *y,
                         const uint8_t *index, float *dx);
    void (*average_forward)(const sh_pool_shape *shape, const float *x, float *y);
    void (*average_backward)(const sh_pool_shape *shape, const float *dy, float *dx);
    /* Mean over the area: x [images][area][lanes], y [images][lanes]. */
    void (*global_forward)(size_t images, size_t area, size_t lanes, const float *x, float *y);
    void (*global_backward)(size_t images, size_t area, size_t lanes, const float *dy, float *dx);
} sh_pool_kernels;

SH_SIMD_DECLARE(sh_pool_kernels, sh_pool_table);
static inline const sh_pool_kernels *sh_pool(void) { return SH_SIMD_PICK(sh_pool_table); }

/* Windows that fit: (size + 2 pad - kernel) / stride + 1. */
static inline int sh_pool_out(int size, int kernel, int stride, int pad) {
    return (size + 2 * pad - kernel) / stride + 1;
}

#endif
