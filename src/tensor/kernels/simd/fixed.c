/* Fixed point for exact runs: gradients are scaled to 64-bit integers, whose addition is
 * associative, so any order of summing gives equal bits. A common exponent per tensor, found
 * first, keeps the sums from overflowing. */
#include "tensor/kernels/fixed.h"

#include "tensor/kernels/simd/lanes.h"

/* Added to a double below 2^51 it leaves the nearest integer in the low bits of the sum: there is
 * no vector instruction from double to int64 before AVX-512. The product before it is exact (24
 * bits of the float, at most 29 of the scale), so fusing the two changes nothing. */
static const double magic = 0x1.8p52;

/* The bits of a double, without aliasing trouble. */
static inline int64_t bits_of(double value) {
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Largest biased exponent (0 to 255) of the range; 255 tells of an infinity or NaN. Magnitudes of
 * floats compare like integers. */
static int exponent(const float *x, size_t count) {
    const int32_t no_sign = 0x7FFFFFFF;
    vi most = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vi bits = (vi)vf_load(x + i) & no_sign, more = bits > most;
        most = (more & bits) | (~more & most);
    }
    if (i < count) {
        vi bits = (vi)vf_load_part(x + i, count - i, 0) & no_sign, more = bits > most;
        most = (more & bits) | (~more & most);
    }
    int32_t largest = 0;
    for (int lane = 0; lane < LANES; lane++) largest = most[lane] > largest ? most[lane] : largest;
    return largest >> 23;
}

/* sum = round(x scale). The first term overwrites, so that no pass is needed to clear the sums. */
static void set_term(int64_t *restrict sum, const float *restrict x, double scale, size_t count) {
    const int64_t zero = bits_of(magic);
#pragma omp simd
    for (size_t i = 0; i < count; i++) sum[i] = bits_of((double)x[i] * scale + magic) - zero;
}

/* sum += round(x scale). */
static void add_term(int64_t *restrict sum, const float *restrict x, double scale, size_t count) {
    const int64_t zero = bits_of(magic);
#pragma omp simd
    for (size_t i = 0; i < count; i++) sum[i] += bits_of((double)x[i] * scale + magic) - zero;
}

/* out = sum over terms of round(x[j] weights[j] scale). Integer addition is associative, so
 * neither the order of terms nor the cut into blocks matters. */
static void sum(int64_t *out, const float *const *x, const double *weights, size_t terms, size_t at,
                size_t count, double scale) {
    enum { BLOCK = 1024 };  // stays in the first-level cache over all terms
    if (terms == 0) memset(out, 0, count * sizeof *out);
    for (size_t i = 0; i < count && terms > 0; i += BLOCK) {
        size_t some = least(BLOCK, count - i);
        for (size_t j = 0; j < terms; j++)
            (j == 0 ? set_term : add_term)(out + i, x[j] + at + i,
                                           weights != NULL ? weights[j] * scale : scale, some);
    }
}

/* Back to floats: one rounding for the whole sum. */
static void to_float(float *restrict x, const int64_t *restrict from, size_t count, double factor) {
    for (size_t i = 0; i < count; i++) x[i] = (float)((double)from[i] * factor);
}

const sh_fixed_kernels SH_SIMD(sh_fixed_table) = {
    .exponent = exponent,
    .sum = sum,
    .to_float = to_float,
};
