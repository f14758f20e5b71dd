/* exp, tanh, erf, sigmoid and log1p on vectors of floats, within about one unit in the last place
 * (2e-7 relative); NaN in, NaN out; infinities and the ends of the range as in libm. */
#ifndef SH_TENSOR_KERNELS_SIMD_MATH_H
#define SH_TENSOR_KERNELS_SIMD_MATH_H

#include "tensor/kernels/simd/lanes.h"

/* exp(x) = 2^n exp(r), |r| <= ln(2)/2. Adding 1.5 * 2^23 rounds to an integer and leaves it in the
 * low bits. 2^n is applied in two halves, so that results below the smallest normal number and
 * those just under overflow come out right. Polynomial of Cephes (Moshier). */
LANE_FUNCTION vf vf_exp(vf x) {
    // 1.5 * 2^23: the last place of a sum with it is 1.
    const float magic = 12582912.0f;
    x = vf_select(x > 89.0f, vf_all(89.0f), x);
    x = vf_select(x < -104.0f, vf_all(-104.0f), x);
    vf t = x * 1.44269504088896341f + magic;
    vi n = (vi)t - 0x4B400000;
    t -= magic;
    vf r = x - t * 0.693359375f;
    r = r - t * -2.12194440e-4f;
    vf p = 1.9875691500e-4f * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * (r * r) + r;
    p = p + 1.0f;
    vi half = n >> 1;
    vf scale = (vf)((half + 127) << 23), rest = (vf)((n - half + 127) << 23);
    return p * scale * rest;
}

/* 2^x, relative error below 2.5e-7, 0 below x = -126.5; NaN stays NaN. For x <= 127.
 *
 * Adding 1.5 * 2^23 + 127 leaves round(x) + 127 in the low bits, which shifted are 2^round(x);
 * the polynomial is the minimax one of degree 5 for the fraction in [-1/2, 1/2]. */
LANE_FUNCTION vf power_of_two(vf x) {
    const float magic = 12582912.0f + 127.0f;
    vf shifted = x + magic, f = x - (shifted - magic);
    vf p = 0.00132764725f * f + 0.00967554096f;
    p = p * f + 0.0555071309f;
    p = p * f + 0.240221202f;
    p = p * f + 0.693146944f;
    p = p * f + 1.0f;
    return vf_keep(~(x < -126.5f), p * (vf)((vi)shifted << 23));
}

/* Odd polynomial near 0 (Cephes), 1 - 2 / (exp(2|x|) + 1) beyond. */
LANE_FUNCTION vf vf_tanh(vf x) {
    vf a = vf_abs(x), s = x * x;
    vf p = -5.70498872745e-3f * s + 2.06390887954e-2f;
    p = p * s - 5.37397155531e-2f;
    p = p * s + 1.33314422036e-1f;
    p = p * s - 3.33332819422e-1f;
    vf near = p * s * x + x;
    vf far = vf_with_sign(1.0f - 2.0f / (vf_exp(a + a) + 1.0f), x);
    return vf_select(a < 0.625f, near, far);
}

/* Two minimax polynomials after N. Juffa: odd near 0, 1 - exp(p(|x|)) beyond. */
LANE_FUNCTION vf vf_erf(vf x) {
    vf a = vf_abs(x), s;
    a = vf_select(a > 4.0f, vf_all(4.0f), a);  // erf(4) is 1 in float
    s = a * a;
    vf p = (-1.72853470e-5f * a + 3.83197126e-4f) * s + (-3.88396438e-3f * a + 2.42546219e-2f);
    p = p * a - 1.06777877e-1f;
    p = p * a - 6.34846687e-1f;
    p = p * a - 1.28717512e-1f;
    p = p * a - a;
    vf far = vf_with_sign(1.0f - vf_exp(p), x);
    vf q = -5.96761703e-4f * s + 4.99119423e-3f;
    q = q * s - 2.67681349e-2f;
    q = q * s + 1.12819925e-1f;
    q = q * s - 3.76125336e-1f;
    q = q * s + 1.28379166e-1f;
    vf near = q * x + x;
    return vf_select(a > 0.927734375f, far, near);
}

/* 1 / (1 + exp(-x)); the exponential overflows to infinity for very negative x, which gives the
 * right 0. */
LANE_FUNCTION vf vf_sigmoid(vf x) { return 1.0f / (1.0f + vf_exp(-x)); }

/* log(1 + e) for 0 <= e <= 1, as 2 atanh(e / (2 + e)): the argument is at most 1/3. */
LANE_FUNCTION vf vf_log1p_unit(vf e) {
    vf s = e / (2.0f + e), q = s * s;
    vf p = q * (1.0f / 17) + 1.0f / 15;
    p = p * q + 1.0f / 13;
    p = p * q + 1.0f / 11;
    p = p * q + 1.0f / 9;
    p = p * q + 1.0f / 7;
    p = p * q + 1.0f / 5;
    p = p * q + 1.0f / 3;
    return 2.0f * (s + s * q * p);
}

#endif
