/* What the convolution kernels of this folder share: vectors of 8 channels, ranges, padded rows. */
#ifndef SH_TENSOR_KERNELS_SIMD_CONV_COMMON_H
#define SH_TENSOR_KERNELS_SIMD_CONV_COMMON_H

#include <stdint.h>
#include <string.h>

enum { LANES = 8, ALIGN_FLOATS = 16 };  // ALIGN_FLOATS: one cache line

/* v8: 8 channels. v8_memory: the same at any float's address, which may alias. v8_mask: result of
 * a comparison, all ones or zeros per lane. */
typedef float v8 __attribute__((vector_size(32)));
typedef float v8_memory __attribute__((vector_size(32), aligned(4), may_alias));
typedef int32_t v8_mask __attribute__((vector_size(32)));

/* Clang unrolls these short loops by itself, and keeps arrays in memory when told to. */
#if defined(__clang__)
#define UNROLL
#else
#define UNROLL _Pragma("GCC unroll 12")
#endif

typedef struct range {  // [from, to)
    int64_t from, to;
} range;

static inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }
static inline int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
/* `floats` rounded up to whole cache lines. */
static inline int64_t aligned(int64_t floats) {
    return ceil_div(floats, ALIGN_FLOATS) * ALIGN_FLOATS;
}

/* Part `part` of `count` things cut into `parts` nearly equal ones. */
static inline range slice(int64_t count, int64_t parts, int64_t part) {
    return (range){count * part / parts, count * (part + 1) / parts};
}

/* out (row) = `left` zeros, the first of `width` values that fit, zeros. */
static inline void pad_row(const float *in, int64_t width, int64_t left, float *out, int64_t row) {
    int64_t zeros = least(left, row), copied = most(0, least(width, row - left));
    memset(out, 0, (size_t)zeros * sizeof(float));
    memcpy(out + zeros, in, (size_t)copied * sizeof(float));
    memset(out + zeros + copied, 0, (size_t)(row - zeros - copied) * sizeof(float));
}

#endif
