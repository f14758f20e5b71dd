/* fp16 and bfloat16 to and from float, rounding to nearest even, in integer arithmetic: the base
 * instruction set has no conversion, and all sets must give equal bits. What rounding lost can be
 * kept for error feedback. */
#include "tensor/kernels/half.h"

#include "tensor/kernels/simd/lanes.h"

/* Elements per parallel block. */
enum { BLOCK = 8192 };

/* LANES values of 16 bits. */
typedef uint16_t vh __attribute__((vector_size(LANES * 2)));

LANE_FUNCTION vi vi_select(vi mask, vi yes, vi no) { return (mask & yes) | (~mask & no); }

LANE_FUNCTION vh vh_load(const uint16_t *x) {
    vh v;
    memcpy(&v, x, sizeof v);
    return v;
}

/* Three ranges of the magnitude, each by the operation that rounds there as wanted:
 *   normal     integers: half of the last place is added, less one for an even result
 *   subnormal  a float sum with 0.5, whose last place is that of fp16's subnormals, 2^-24
 *   the rest   infinity, or a quiet NaN */
LANE_FUNCTION vi fp16_from(vf x) {
    vi bits = (vi)x, sign = (bits >> 16) & 0x8000, size = bits & 0x7FFFFFFF;
    vi odd = (size >> 13) & 1;
    vi normal = (size + odd + (0xFFF - (112 << 23))) >> 13;
    vi subnormal = (vi)((vf)size + 0.5f) - 0x3F000000;
    vi outside = vi_select(size > 0x7F800000, (vi){0} + 0x7E00, (vi){0} + 0x7C00);
    vi half = vi_select(size < 0x38800000, subnormal, normal);  // below 2^-14
    return vi_select(size >= 0x477FF000, outside, half) | sign;
}

/* The product with 2^112 moves the exponent from bias 15 to 127 and normalises subnormals at once;
 * infinities and NaN are set apart. */
LANE_FUNCTION vf fp16_to(vi half) {
    vi size = (half & 0x7FFF) << 13, sign = (half << 16) & INT32_MIN;
    vi value = (vi)((vf)size * 0x1p112f);
    value = vi_select(size >= (0x7C00 << 13), size | 0x7F800000, value);
    return (vf)(value | sign);
}

/* Half of the last place is added, less one for an even result. A NaN keeps its upper bits and
 * becomes quiet: rounding could carry it into infinity. */
LANE_FUNCTION vi bf16_from(vf x) {
    vi bits = (vi)x, odd = (bits >> 16) & 1;
    vi rounded = (bits + odd + 0x7FFF) >> 16;
    vi nan = (bits & 0x7FFFFFFF) > 0x7F800000;
    return vi_select(nan, (bits >> 16) | 0x40, rounded) & 0xFFFF;
}

/* Exact: a bfloat16 is the upper half of a float. */
LANE_FUNCTION vf bf16_to(vi half) { return (vf)(half << 16); }

/* One vector of the first n <= LANES values: both directions of both formats, named by the format.
 */
#define TO_BLOCK(name, from, to)                                                                  \
    LANE_FUNCTION void name##_some(const float *x, uint16_t *y, float *left, size_t n) {          \
        vf v = n == LANES ? vf_load(x) : vf_load_part(x, n, 0);                                   \
        vi half = from(v);                                                                        \
        vh narrow = __builtin_convertvector(half, vh);                                            \
        memcpy(y, &narrow, n * sizeof *y);                                                        \
        if (left == NULL) return;                                                                 \
        vf rest = v - to(half);                                                                   \
        if (n == LANES)                                                                           \
            vf_store(left, rest);                                                                 \
        else                                                                                      \
            vf_store_part(left, rest, n);                                                         \
    }                                                                                             \
    static void name(const float *x, uint16_t *y, size_t count, float *left) {                    \
        _Pragma(                                                                                  \
            "omp parallel for schedule(static) if (count >= PARALLEL_LEAST)") for (size_t at = 0; \
                                                                                   at < count;    \
                                                                                   at += BLOCK) { \
            size_t end = least(at + BLOCK, count), i = at;                                        \
            for (; i + LANES <= end; i += LANES)                                                  \
                name##_some(x + i, y + i, left != NULL ? left + i : NULL, LANES);                 \
            if (i < end) name##_some(x + i, y + i, left != NULL ? left + i : NULL, end - i);      \
        }                                                                                         \
    }

/* Reading: y = scale x. */
#define FROM_BLOCK(name, to)                                                                      \
    static void name(const uint16_t *x, float scale, float *y, size_t count) {                    \
        _Pragma(                                                                                  \
            "omp parallel for schedule(static) if (count >= PARALLEL_LEAST)") for (size_t at = 0; \
                                                                                   at < count;    \
                                                                                   at += BLOCK) { \
            size_t end = least(at + BLOCK, count), i = at;                                        \
            for (; i + LANES <= end; i += LANES)                                                  \
                vf_store(y + i, to(__builtin_convertvector(vh_load(x + i), vi)) * scale);         \
            if (i == end) continue;                                                               \
            vh rest = {0};                                                                        \
            memcpy(&rest, x + i, (end - i) * sizeof *x);                                          \
            vf_store_part(y + i, to(__builtin_convertvector(rest, vi)) * scale, end - i);         \
        }                                                                                         \
    }

TO_BLOCK(to_fp16, fp16_from, fp16_to)
TO_BLOCK(to_bf16, bf16_from, bf16_to)
FROM_BLOCK(from_fp16, fp16_to)
FROM_BLOCK(from_bf16, bf16_to)

const sh_half_kernels SH_SIMD(sh_half_table) = {
    .to_fp16 = to_fp16,
    .to_bf16 = to_bf16,
    .from_fp16 = from_fp16,
    .from_bf16 = from_bf16,
};
