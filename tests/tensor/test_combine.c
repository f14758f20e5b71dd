/* The kernels that join ranks' values, against plain loops and exact rounding. */
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"
#include "tensor/kernels/combine.h"

enum { COUNT = 1037 };  // nothing divides it

static const sh_simd_level levels[] = {SH_SIMD_BASE, SH_SIMD_AVX2, SH_SIMD_AVX512};

#define EACH_LEVEL(body)                            \
    for (size_t l = 0; l < SH_COUNT(levels); l++) { \
        sh_simd_limit(levels[l]);                   \
        body;                                       \
    }                                               \
    sh_simd_limit(SH_SIMD_MOST)

/* Every operator of one type: z apart, z = a, z = b, and both at once. */
#define CHECK_TYPE(dtype, type, bits, op, expression)                         \
    do {                                                                      \
        type a[COUNT], b[COUNT], z[COUNT], wanted[COUNT], c[COUNT], d[COUNT]; \
        fill_bits(a, sizeof a, bits, 1);                                      \
        fill_bits(b, sizeof b, bits, 2);                                      \
        for (size_t i = 0; i < COUNT; i++) wanted[i] = (type)(expression);    \
        sh_combine()->join[op][dtype](z, a, b, COUNT);                        \
        assert_memory_equal(z, wanted, sizeof z);                             \
        memcpy(c, a, sizeof c);                                               \
        sh_combine()->join[op][dtype](c, c, b, COUNT);                        \
        assert_memory_equal(c, wanted, sizeof c);                             \
        memcpy(c, b, sizeof c);                                               \
        sh_combine()->join[op][dtype](c, a, c, COUNT);                        \
        assert_memory_equal(c, wanted, sizeof c);                             \
        memcpy(c, a, sizeof c);                                               \
        memcpy(d, b, sizeof d);                                               \
        sh_combine()->both[op][dtype](c, d, COUNT);                           \
        assert_memory_equal(c, wanted, sizeof c);                             \
        assert_memory_equal(d, wanted, sizeof d);                             \
    } while (0)

/* Random whole numbers over all bits, or random reals. */
static void fill_bits(void *data, size_t bytes, int how, uint64_t seed) {
    if (how == 32) {
        sh_test_fill(data, bytes / sizeof(float), seed);
    } else if (how == 64) {
        float some[COUNT];
        sh_test_fill(some, COUNT, seed);
        for (size_t i = 0; i < bytes / sizeof(double); i++) ((double *)data)[i] = some[i] * 1.1;
    } else {
        uint64_t state = seed * 77;
        for (size_t i = 0; i < bytes; i++) {
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            ((unsigned char *)data)[i] = (unsigned char)(state >> 56);
        }
    }
}

static void check_types(void) {
    CHECK_TYPE(SH_DTYPE_F32, float, 32, SH_SUM, a[i] + b[i]);
    CHECK_TYPE(SH_DTYPE_F32, float, 32, SH_MEAN, a[i] + b[i]);
    CHECK_TYPE(SH_DTYPE_F32, float, 32, SH_PRODUCT, a[i] * b[i]);
    CHECK_TYPE(SH_DTYPE_F32, float, 32, SH_MAX, a[i] > b[i] ? a[i] : b[i]);
    CHECK_TYPE(SH_DTYPE_F32, float, 32, SH_MIN, a[i] < b[i] ? a[i] : b[i]);
    CHECK_TYPE(SH_DTYPE_F64, double, 64, SH_SUM, a[i] + b[i]);
    CHECK_TYPE(SH_DTYPE_F64, double, 64, SH_PRODUCT, a[i] * b[i]);
    CHECK_TYPE(SH_DTYPE_F64, double, 64, SH_MAX, a[i] > b[i] ? a[i] : b[i]);
    CHECK_TYPE(SH_DTYPE_F64, double, 64, SH_MIN, a[i] < b[i] ? a[i] : b[i]);
    CHECK_TYPE(SH_DTYPE_I32, int32_t, 0, SH_SUM, (uint32_t)a[i] + (uint32_t)b[i]);
    CHECK_TYPE(SH_DTYPE_I32, int32_t, 0, SH_PRODUCT, (uint32_t)a[i] * (uint32_t)b[i]);
    CHECK_TYPE(SH_DTYPE_I32, int32_t, 0, SH_MAX, a[i] > b[i] ? a[i] : b[i]);
    CHECK_TYPE(SH_DTYPE_I32, int32_t, 0, SH_MIN, a[i] < b[i] ? a[i] : b[i]);
    CHECK_TYPE(SH_DTYPE_I64, int64_t, 0, SH_SUM, (uint64_t)a[i] + (uint64_t)b[i]);
    CHECK_TYPE(SH_DTYPE_I64, int64_t, 0, SH_PRODUCT, (uint64_t)a[i] * (uint64_t)b[i]);
    CHECK_TYPE(SH_DTYPE_I64, int64_t, 0, SH_MAX, a[i] > b[i] ? a[i] : b[i]);
    CHECK_TYPE(SH_DTYPE_I64, int64_t, 0, SH_MIN, a[i] < b[i] ? a[i] : b[i]);
}

TEST(combine, joins_equal_plain_loops_and_integers_wrap) { EACH_LEVEL(check_types()); }

static void check_nan(void) {
    for (int op = SH_SUM; op <= SH_PRODUCT; op++)
        for (int side = 0; side < 2; side++) {
            float a[9], b[9], z[9];
            for (int i = 0; i < 9; i++) a[i] = b[i] = 1;
            (side == 0 ? a : b)[3] = NAN;
            sh_combine()->join[op][SH_DTYPE_F32](z, a, b, 9);
            for (int i = 0; i < 9; i++) assert_int_equal(isnan(z[i]) != 0, i == 3);
        }
}

TEST(combine, a_nan_on_either_side_stays) { EACH_LEVEL(check_nan()); }

/* ---- Half precision --------------------------------------------------------------------------
 */

typedef struct half_type {
    sh_dtype dtype;
    int fraction_bits, bias;
} half_type;

static const half_type half_types[] = {{SH_DTYPE_F16, 10, 15}, {SH_DTYPE_BF16, 7, 127}};

static double half_value(const half_type *t, uint16_t bits) {
    int exponents = 1 << (15 - t->fraction_bits);
    int exponent = (bits & 0x7FFF) >> t->fraction_bits;
    int fraction = bits & ((1 << t->fraction_bits) - 1);
    double value = fraction;
    if (exponent == exponents - 1)
        value = fraction == 0 ? INFINITY : NAN;
    else if (exponent == 0)
        value = ldexp(value, 1 - t->bias - t->fraction_bits);
    else
        value = ldexp(value + (1 << t->fraction_bits), exponent - t->bias - t->fraction_bits);
    return bits & 0x8000 ? -value : value;
}

/* Rounded to the nearest value of the type, ties to even. */
static double half_rounded(const half_type *t, double x) {
    if (x == 0 || isnan(x) || isinf(x)) return x;
    int exponent = ilogb(x), least = 1 - t->bias;
    if (exponent < least) exponent = least;
    double rounded =
        ldexp(nearbyint(ldexp(x, t->fraction_bits - exponent)), exponent - t->fraction_bits);
    return fabs(rounded) >= ldexp(1, t->bias + 1) ? copysign(INFINITY, x) : rounded;
}

static bool same(double a, double b) { return a == b || (isnan(a) && isnan(b)); }

static void check_half(const half_type *t) {
    enum { ALL = 1 << 16 };
    static uint16_t a[ALL], b[ALL], z[ALL];
    for (int round = 0; round < 4; round++) {
        for (size_t i = 0; i < ALL; i++) {
            a[i] = (uint16_t)i;
            b[i] = round == 0 ? 0 : (uint16_t)(i * 40503u + (unsigned)round * 977u);
        }
        sh_combine()->join[SH_SUM][t->dtype](z, a, b, ALL);
        for (size_t i = 0; i < ALL; i++) {
            // The float between is exact or so long that the second rounding cannot matter.
            float sum = (float)half_value(t, a[i]) + (float)half_value(t, b[i]);
            double wanted = half_rounded(t, (double)sum);
            if (!same(half_value(t, z[i]), wanted))
                fail_msg("type %d: %04x + %04x is %04x, %g, not %g", (int)t->dtype, a[i], b[i],
                         z[i], half_value(t, z[i]), wanted);
        }
    }
}

TEST(combine, halves_add_in_float_and_round_to_even) {
    for (size_t i = 0; i < SH_COUNT(half_types); i++) {
        EACH_LEVEL(check_half(&half_types[i]));
    }
}

/* ---- The rest -------------------------------------------------------------------------------- */

static void check_divide(void) {
    float x[COUNT], wanted[COUNT];
    int32_t whole[COUNT], wholes[COUNT];
    sh_test_fill(x, COUNT, 5);
    for (int i = 0; i < COUNT; i++) {
        wanted[i] = x[i] / 3;
        whole[i] = (i - 500) * 1000003;
        wholes[i] = whole[i] / 3;
    }
    sh_combine()->divide[SH_DTYPE_F32](x, 3, COUNT);
    sh_combine()->divide[SH_DTYPE_I32](whole, 3, COUNT);
    assert_memory_equal(x, wanted, sizeof x);
    assert_memory_equal(whole, wholes, sizeof whole);
}

TEST(combine, divides_correctly_rounded) { EACH_LEVEL(check_divide()); }

static void check_copy(void) {
    unsigned char from[1000], to[1000];
    fill_bits(from, sizeof from, 0, 3);
    for (size_t bytes = 0; bytes < 600; bytes++) {
        memset(to, 0, sizeof to);
        sh_combine()->copy(to + 7, from + 3, bytes);
        assert_memory_equal(to + 7, from + 3, bytes);
        assert_int_equal(to[6], 0);
        assert_int_equal(to[7 + bytes], 0);
    }
}

TEST(combine, copies_all_bytes_and_no_more) { EACH_LEVEL(check_copy()); }
