/* Half precision and bfloat16 to float and back, rounded to nearest even. All cases are computed
 * and one is chosen, so that loops over these functions become vector code; float denormals never
 * occur on the way, so the results do not depend on whether the processor flushes them. */
#ifndef SH_TENSOR_KERNELS_SIMD_HALF_H
#define SH_TENSOR_KERNELS_SIMD_HALF_H

#include "tensor/kernels/simd/lanes.h"

/* The bits of a float, and back: memcpy is free of aliasing trouble and compiles to nothing. */
LANE_FUNCTION uint32_t float_bits(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

LANE_FUNCTION float float_of(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A half has 5 bits of exponent (bias 15) and 10 of fraction. */
LANE_FUNCTION float half_to_float(uint16_t half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t shifted = (uint32_t)(half & 0x7FFF) << 13;
    uint32_t exponent = shifted & 0x0F800000;
    uint32_t normal = shifted + ((127 - 15) << 23);
    uint32_t special = normal + ((128 - 16) << 23);  // infinity and NaN keep a full exponent
    // A denormal is fraction * 2^-24: written behind the point of 2^-14 and that taken away again.
    uint32_t small = float_bits(float_of(normal + (1 << 23)) - float_of(113u << 23));
    uint32_t bits = exponent == 0x0F800000 ? special : normal;
    bits = exponent == 0 ? small : bits;
    return float_of(bits | sign);
}

/* The inverse: subnormals by a float sum with `magic`, whose last place is 2^-24; normal numbers
 * by integers, rounded to nearest even; the rest is infinity or a quiet NaN. */
LANE_FUNCTION uint16_t half_from_float(float x) {
    uint32_t bits = float_bits(x), sign = bits & 0x80000000;
    bits ^= sign;
    const uint32_t magic = (uint32_t)(127 - 15 + 23 - 10 + 1) << 23;
    uint32_t small = float_bits(float_of(bits) + float_of(magic)) - magic;
    uint32_t odd = (bits >> 13) & 1;
    uint32_t normal = (bits - ((127 - 15) << 23) + 0xFFF + odd) >> 13;
    uint32_t special = bits > 0x7F800000 ? 0x7E00 : 0x7C00;
    uint32_t half = bits < (113u << 23) ? small : normal;
    half = bits >= (143u << 23) ? special : half;
    return (uint16_t)(half | sign >> 16);
}

LANE_FUNCTION float bfloat_to_float(uint16_t bfloat) { return float_of((uint32_t)bfloat << 16); }

/* Rounds to nearest even; a NaN is made quiet instead, since rounding could carry it into
 * infinity. */
LANE_FUNCTION uint16_t bfloat_from_float(float x) {
    uint32_t bits = float_bits(x);
    uint32_t rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16;
    uint32_t nan = (bits >> 16) | 0x40;
    return (uint16_t)((bits & 0x7FFFFFFF) > 0x7F800000 ? nan : rounded);
}

#endif
