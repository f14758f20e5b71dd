/* The vector types that the files of this folder compute with: LANES floats, one register of the
 * instruction set at hand (so that vectors may be passed by value without an ABI warning). */
#ifndef SH_TENSOR_KERNELS_SIMD_LANES_H
#define SH_TENSOR_KERNELS_SIMD_LANES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE__)
#include <immintrin.h>
#endif

#if defined(__AVX__)
#define LANES 8
#else
#define LANES 4
#endif

/* LANES floats and LANES 32-bit integers; comparisons of vf give vi, all ones or zeros per lane. */
typedef float vf __attribute__((vector_size(LANES * 4)));
typedef int32_t vi __attribute__((vector_size(LANES * 4)));

#define LANE_FUNCTION static inline __attribute__((always_inline, unused))

/* Below this many elements a team of threads costs more than it saves. */
enum { PARALLEL_LEAST = 1 << 15 };
/* From this many on a result is streamed where others read it: it would not stay in a core's cache.
 */
enum { STREAMED_LEAST = 1 << 18 };

LANE_FUNCTION size_t least(size_t a, size_t b) { return a < b ? a : b; }

LANE_FUNCTION vf vf_all(float value) { return value - (vf){0}; }  // -0.0 stays -0.0

/* Loads and stores at any alignment. */
LANE_FUNCTION vf vf_load(const float *x) {
    vf v;
    memcpy(&v, x, sizeof v);
    return v;
}

LANE_FUNCTION void vf_store(float *x, vf v) { memcpy(x, &v, sizeof v); }

/* A store past the caches, for long results that other cores read: a plain store to a line that
 * another core has read waits until that one has let go of it, which on some machines takes as long
 * as ten stores, line by line (docs/kernels.md). `x` is aligned to a register. Others may read it
 * after vf_stream_end. */
LANE_FUNCTION void vf_stream(float *x, vf v) {
#if defined(__AVX__)
    _mm256_stream_ps(x, (__m256)v);
#elif defined(__SSE__)
    _mm_stream_ps(x, (__m128)v);
#else
    vf_store(x, v);
#endif
}

/* Makes streamed stores visible before any later store of this thread. */
LANE_FUNCTION void vf_stream_end(void) {
#if defined(__SSE__)
    _mm_sfence();
#endif
}

/* The first `count` < LANES values, the rest filled up. Copied in powers of two: few branches. */
LANE_FUNCTION vf vf_load_part(const float *x, size_t count, float rest) {
    float part[LANES];
    vf_store(part, vf_all(rest));
    size_t at = 0;
    if (LANES > 4 && (count & 4)) memcpy(part, x, 4 * sizeof *x), at = 4;
    if (count & 2) memcpy(part + at, x + at, 2 * sizeof *x), at += 2;
    if (count & 1) part[at] = x[at];
    return vf_load(part);
}

/* Stores the first `count` < LANES values; memory behind them is not touched. */
LANE_FUNCTION void vf_store_part(float *x, vf v, size_t count) {
    float part[LANES];
    vf_store(part, v);
    size_t at = 0;
    if (LANES > 4 && (count & 4)) memcpy(x, part, 4 * sizeof *x), at = 4;
    if (count & 2) memcpy(x + at, part + at, 2 * sizeof *x), at += 2;
    if (count & 1) x[at] = part[at];
}

/* Lanes of `yes` where the mask (of a comparison) is set, of `no` elsewhere. */
LANE_FUNCTION vf vf_select(vi mask, vf yes, vf no) {
    return (vf)((mask & (vi)yes) | (~mask & (vi)no));
}

/* Lanes of `v` where the mask is set, 0 elsewhere. */
LANE_FUNCTION vf vf_keep(vi mask, vf v) { return (vf)(mask & (vi)v); }

/* Like the C operators: a NaN in `a` is dropped, one in `b` stays. */
LANE_FUNCTION vf vf_max(vf a, vf b) { return vf_select(a > b, a, b); }
LANE_FUNCTION vf vf_min(vf a, vf b) { return vf_select(a < b, a, b); }

LANE_FUNCTION vf vf_abs(vf v) { return (vf)((vi)v & 0x7FFFFFFF); }
/* `v`, which must not be negative, with the sign of `sign`. */
LANE_FUNCTION vf vf_with_sign(vf v, vf sign) {
    return (vf)((vi)v | ((vi)sign & (int32_t)0x80000000));
}

/* Sum of the lanes by a fixed tree, so that the bits do not depend on how a compiler would order
 * them. */
LANE_FUNCTION float vf_sum(vf v) {
    float x[LANES];
    vf_store(x, v);
#if LANES == 8
    return ((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7]));
#else
    return (x[0] + x[2]) + (x[1] + x[3]);
#endif
}

LANE_FUNCTION float larger(float a, float b) { return a > b ? a : b; }

/* Largest lane; not defined with a NaN among them. */
LANE_FUNCTION float vf_largest(vf v) {
    float x[LANES];
    vf_store(x, v);
    float most = larger(larger(x[0], x[2]), larger(x[1], x[3]));
#if LANES == 8
    most = larger(most, larger(larger(x[4], x[6]), larger(x[5], x[7])));
#endif
    return most;
}

#endif
