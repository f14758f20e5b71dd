/* What the tests of our own convolutions share: shapes from the sizes that vary, data that repeats,
 * and its blocked form. */
#ifndef TEST_CONVOLUTIONS_H
#define TEST_CONVOLUTIONS_H

#include <stdlib.h>

#include "harness.h"
#include "tensor/kernels/reference_conv.h"
#include "tensor/kernels/simd.h"

/* Outputs follow from the rest. */
typedef struct conv_sizes {
    int64_t n, ic, oc, ih, iw, kh, kw, stride_h, stride_w, pad_h, pad_w, dilation;
} conv_sizes;

static inline int64_t outputs_of(int64_t in, int64_t kernel, int64_t stride, int64_t pad,
                                 int64_t dilation) {
    return (in + 2 * pad - (kernel - 1) * dilation - 1) / stride + 1;
}

static inline sh_conv_shape shape_of(const conv_sizes *z) {
    return (sh_conv_shape){.n = z->n,
                           .ic = z->ic,
                           .oc = z->oc,
                           .ih = z->ih,
                           .iw = z->iw,
                           .oh = outputs_of(z->ih, z->kh, z->stride_h, z->pad_h, z->dilation),
                           .ow = outputs_of(z->iw, z->kw, z->stride_w, z->pad_w, z->dilation),
                           .kh = z->kh,
                           .kw = z->kw,
                           .stride_h = z->stride_h,
                           .stride_w = z->stride_w,
                           .pad_h = z->pad_h,
                           .pad_w = z->pad_w,
                           .dilation_h = z->dilation,
                           .dilation_w = z->dilation,
                           .groups = 1};
}

static inline float *floats(size_t count) {
    float *values = NULL;
    assert_int_equal(posix_memalign((void **)&values, 64, count * sizeof(float) + 64), 0);
    return values;
}

static inline float *seeded(size_t count, uint64_t seed) {
    float *values = floats(count);
    sh_test_fill(values, count, seed);
    return values;
}

/* (n, channels, pixels) to (n, channels / 8, pixels, 8), or back. */
static inline float *rearranged(const float *in, int64_t n, int64_t channels, int64_t pixels,
                                bool to_blocked) {
    float *out = floats((size_t)(n * channels * pixels));
    for (int64_t i = 0; i < n; i++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t p = 0; p < pixels; p++) {
                int64_t plain = (i * channels + c) * pixels + p;
                int64_t blocked = ((i * (channels / 8) + c / 8) * pixels + p) * 8 + c % 8;
                out[to_blocked ? blocked : plain] = in[to_blocked ? plain : blocked];
            }
    return out;
}

/* The same check under each instruction set below the best, on one thread and on `threads`. */
static inline void check_lesser_levels(void (*check)(int threads), int threads) {
    for (int level = SH_SIMD_BASE; level < SH_SIMD_MOST; level++) {
        sh_simd_limit((sh_simd_level)level);
        check(1);
        check(threads);
    }
    sh_simd_limit(SH_SIMD_MOST);
}

#endif
