#include "tensor/kernels/half.h"

#include <math.h>

#include "tensor/settings.h"

/* What a half stands for, from the definition of the format. */
static double half_value(uint16_t half, int fraction_bits) {
    int exponent_bits = 15 - fraction_bits, bias = (1 << (exponent_bits - 1)) - 1;
    int exponent = half >> fraction_bits & ((1 << exponent_bits) - 1);
    int fraction = half & ((1 << fraction_bits) - 1);
    double sign = half & 0x8000 ? -1 : 1;
    if (exponent == (1 << exponent_bits) - 1) return fraction ? NAN : sign * INFINITY;
    if (exponent == 0) return sign * ldexp(fraction, 1 - bias - fraction_bits);
    return sign * ldexp(fraction + (1 << fraction_bits), exponent - bias - fraction_bits);
}

static bool same(double a, double b) {
    return (isnan(a) && isnan(b)) || (a == b && signbit(a) == signbit(b));
}

static void every_half(void) {
    enum { ALL = 65536 };
    uint16_t *half = malloc(ALL * sizeof *half), *back = malloc(ALL * sizeof *back);
    float *x = malloc(ALL * sizeof *x);
    for (int i = 0; i < ALL; i++) half[i] = (uint16_t)i;
    for (int bits = 10; bits >= 7; bits -= 3) {
        if (bits == 10)
            sh_half()->from_fp16(half, 1, x, ALL), sh_half()->to_fp16(x, back, ALL, NULL);
        else
            sh_half()->from_bf16(half, 1, x, ALL), sh_half()->to_bf16(x, back, ALL, NULL);
        for (int i = 0; i < ALL; i++) {
            double value = half_value(half[i], bits);
            assert_true(same((double)x[i], value));
            if (isnan(value))
                assert_true(isnan(half_value(back[i], bits)));
            else
                assert_int_equal(back[i], half[i]);
        }
    }
    free(half), free(back), free(x);
}

TEST(half, every_value_is_read_and_written_back) { each_setting(every_half); }

/* The written value is nearest: no nearer neighbour, and in a tie it is even. */
static void check_nearest(float x, uint16_t half, int bits) {
    double value = half_value(half, bits), error = fabs((double)x - value);
    if (isinf(value)) {  // beyond half of the last place above the largest
        double largest = half_value((uint16_t)(0x7FFF - (1 << bits)), bits);
        double below = half_value((uint16_t)(0x7FFE - (1 << bits)), bits);
        assert_true(fabs((double)x) >= largest + (largest - below) / 2);
        return;
    }
    for (int step = -1; step <= 1; step += 2) {
        uint16_t size = half & 0x7FFF;
        if (step < 0 && size == 0) continue;
        double other = half_value((uint16_t)(half + step), bits);
        if (!isfinite(other)) continue;
        double beside = fabs((double)x - other);
        assert_true(error < beside || (error == beside && half % 2 == 0));
    }
}

static void nearest(void) {
    enum { COUNT = 20003 };
    float *x = filled(COUNT, 5, 1), *left = malloc(COUNT * sizeof *left);
    uint16_t *half = malloc(COUNT * sizeof *half);
    for (int i = 0; i < COUNT; i++) {
        x[i] = ldexpf(x[i], i % 60 - 40);                                 // subnormals to overflow
        if (i % 5 == 0) x[i] = ldexpf((float)(2 * i + 1), -12 - i % 20);  // ties
    }
    for (int bits = 10; bits >= 7; bits -= 3) {
        (bits == 10 ? sh_half()->to_fp16 : sh_half()->to_bf16)(x, half, COUNT, left);
        for (int i = 0; i < COUNT; i++) {
            check_nearest(x[i], half[i], bits);
            double value = half_value(half[i], bits);
            if (isfinite(value)) assert_true((double)left[i] == (double)x[i] - value);
        }
    }
    free(x), free(left), free(half);
}

TEST(half, rounds_to_nearest_even_and_tells_what_is_left) { each_setting(nearest); }
