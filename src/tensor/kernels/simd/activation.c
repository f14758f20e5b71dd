/* Activations on vectors. Cost: one pass over the arrays, so they are bound by memory, and a layer
 * fuses them where it can (`apply`). Slopes come with the values from one exponential.
 *
 * Functions are approximated by polynomials (math.h) to about one unit in the last place of a
 * float. */
#include "tensor/kernels/activation.h"

#include "tensor/kernels/simd/math.h"

/* Elements per parallel block: 16 KiB of input. */
enum { BLOCK = 4096 };

/* Function types: value; gradient from the saved tensor (input or output, as the row says); value
 * with slope; and loops over ranges. */
typedef vf (*unary)(vf x);
typedef vf (*binary)(vf dy, vf saved);
typedef vf (*both)(vf x, vf *slope_out);
typedef void (*unary_range)(const float *x, float *y, size_t count);
typedef void (*binary_range)(const float *dy, const float *saved, float *dx, size_t count);

/* y = f(x). `f` is a constant at every use, so the compiler inlines it. The remainder is a part
 * vector and uses the same instructions, so an element's bits do not depend on its place. */
LANE_FUNCTION void map(unary f, const float *x, float *y, size_t count) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) vf_store(y + i, f(vf_load(x + i)));
    if (i < count) vf_store_part(y + i, f(vf_load_part(x + i, count - i, 0)), count - i);
}

/* dx = f(dy, saved), in the same way. */
LANE_FUNCTION void map2(binary f, const float *dy, const float *saved, float *dx, size_t count) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) vf_store(dx + i, f(vf_load(dy + i), vf_load(saved + i)));
    size_t rest = count - i;
    if (rest == 0) return;
    vf_store_part(dx + i, f(vf_load_part(dy + i, rest, 0), vf_load_part(saved + i, rest, 0)), rest);
}

/* One row of a matrix: values in place, slopes into `slope`. Both come from one exponential. */
LANE_FUNCTION void apply_row(both f, float *x, float *slope, size_t count) {
    size_t i = 0;
    vf s;
    for (; i + LANES <= count; i += LANES) {
        vf_store(x + i, f(vf_load(x + i), &s));
        vf_store(slope + i, s);
    }
    if (i == count) return;
    vf_store_part(x + i, f(vf_load_part(x + i, count - i, 0), &s), count - i);
    vf_store_part(slope + i, s, count - i);
}

/* A matrix whose rows lie `row` floats apart, as a GEMM epilogue finds it. slope NULL: inference,
 * values only. */
LANE_FUNCTION void apply(unary f, both f_both, float *x, float *slope, size_t rows, size_t columns,
                         size_t row) {
    for (size_t i = 0; i < rows; i++) {
        if (slope != NULL)
            apply_row(f_both, x + i * row, slope + i * row, columns);
        else
            map(f, x + i * row, x + i * row, columns);
    }
}

/* Splits a long array over the threads. Elements are independent, so the cut changes no bits. */
static void forward(unary_range range, const float *x, float *y, size_t count) {
    if (count < PARALLEL_LEAST) {
        range(x, y, count);
        return;
    }
    size_t blocks = (count + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static)
    for (size_t block = 0; block < blocks; block++) {
        size_t at = block * BLOCK;
        range(x + at, y + at, least(BLOCK, count - at));
    }
}

/* The same split for the gradient. */
static void backward(binary_range range, const float *dy, const float *saved, float *dx,
                     size_t count) {
    if (count < PARALLEL_LEAST) {
        range(dy, saved, dx, count);
        return;
    }
    size_t blocks = (count + BLOCK - 1) / BLOCK;
#pragma omp parallel for schedule(static)
    for (size_t block = 0; block < blocks; block++) {
        size_t at = block * BLOCK;
        range(dy + at, saved + at, dx + at, least(BLOCK, count - at));
    }
}

LANE_FUNCTION vf relu(vf x) { return vf_keep(~(x <= 0.0f), x); }  // NaN stays
/* From the output: y > 0 exactly where x > 0. */
LANE_FUNCTION vf relu_grad(vf dy, vf y) { return vf_keep(y > 0.0f, dy); }

/* x Phi(x), and its slope Phi(x) + x phi(x), from one exponential: with a = |x|,
 *
 *   Phi(-a) = exp(-a^2 / 2) t P(t),   t = 1 / (1 + 0.305 a)
 *
 * where P, of degree 7, is the minimax fit by relative error (1e-7) for a up to 13.3, from where on
 * the exponential is 0. */
LANE_FUNCTION vf gelu_both(vf x, vf *slope_out) {
    vf e = power_of_two(-0.721347520f * x * x), t = 1.0f / (1.0f + 0.305f * vf_abs(x));
    vf p = 0.0366992767f * t - 0.152988663f;
    p = p * t + 0.185717484f;
    p = p * t - 0.0379773320f;
    p = p * t + 0.121021920f;
    p = p * t + 0.103420804f;
    p = p * t + 0.122466824f;
    p = p * t + 0.121639732f;
    vf tail = p * t * e, cdf = vf_select(x < 0.0f, tail, 1.0f - tail);
    *slope_out = cdf + 0.398942280f * x * e;
    return x * cdf;
}

/* 0.5 x (1 + tanh u) = x sigmoid(2u), 2u = sqrt(8/pi) (x + 0.044715 x^3). Beyond 12 the sigmoid is
 * 0 or 1 in float. */
static const float GELU_A = 1.5957691216057308f, GELU_B = 0.044715f;

/* Keeps the powers of x below finite; the result beyond is decided anyway. */
LANE_FUNCTION vf gelu_tanh_clamp(vf x) {
    return vf_select(vf_abs(x) > 12.0f, vf_with_sign(vf_all(12.0f), x), x);
}

/* Slope: g + x g (1 - g) d(2u)/dx, with g the sigmoid. */
LANE_FUNCTION vf gelu_tanh_both(vf x, vf *slope_out) {
    vf z = gelu_tanh_clamp(x), s = z * z;
    vf g = vf_sigmoid(GELU_A * z * (1.0f + GELU_B * s));
    *slope_out = g + z * g * (1.0f - g) * GELU_A * (1.0f + 3.0f * GELU_B * s);
    return x * g;
}

/* x sigmoid(x), and its slope s (1 + x (1 - s)). */
LANE_FUNCTION vf silu_both(vf x, vf *slope_out) {
    // z is clamped, since an infinite x times 0 would be NaN.
    vf g = vf_sigmoid(x), z = vf_select(vf_abs(x) > 128.0f, vf_with_sign(vf_all(128.0f), x), x);
    *slope_out = g * (1.0f + z * (1.0f - g));
    return x * g;
}

/* Derives value, gradient and fused matrix form of an activation from its `_both` function. The
 * gradient recomputes the slope from the input x. */
#define WITH_SLOPE(name)                                                                        \
    LANE_FUNCTION vf name(vf x) {                                                               \
        vf slope;                                                                               \
        return name##_both(x, &slope);                                                          \
    }                                                                                           \
    LANE_FUNCTION vf name##_grad(vf dy, vf x) {                                                 \
        vf slope;                                                                               \
        name##_both(x, &slope);                                                                 \
        return dy * slope;                                                                      \
    }                                                                                           \
    static void name##_apply(float *x, float *slope, size_t rows, size_t columns, size_t row) { \
        apply(name, name##_both, x, slope, rows, columns, row);                                 \
    }

WITH_SLOPE(gelu)
WITH_SLOPE(gelu_tanh)
WITH_SLOPE(silu)

/* The slope of tanh from its output: 1 - y^2. */
LANE_FUNCTION vf tanh_grad(vf dy, vf y) { return dy * (1.0f - y * y); }
LANE_FUNCTION vf sigmoid_grad(vf dy, vf y) { return dy * y * (1.0f - y); }

/* Whole-array forms of an activation: ranges for one thread, and the parallel entry points. */
#define ACTIVATION(name, f, g)                                                                    \
    static void name##_range(const float *x, float *y, size_t count) { map(f, x, y, count); }     \
    static void name##_grad_range(const float *dy, const float *saved, float *dx, size_t count) { \
        map2(g, dy, saved, dx, count);                                                            \
    }                                                                                             \
    static void name##_forward(const float *x, float *y, size_t count) {                          \
        forward(name##_range, x, y, count);                                                       \
    }                                                                                             \
    static void name##_backward(const float *dy, const float *saved, float *dx, size_t count) {   \
        backward(name##_grad_range, dy, saved, dx, count);                                        \
    }

ACTIVATION(relu, relu, relu_grad)
ACTIVATION(gelu, gelu, gelu_grad)
ACTIVATION(gelu_tanh, gelu_tanh, gelu_tanh_grad)
ACTIVATION(silu, silu, silu_grad)
ACTIVATION(tanh, vf_tanh, tanh_grad)
ACTIVATION(sigmoid, vf_sigmoid, sigmoid_grad)

/* Plain functions, for kernels outside this folder and for tests against libm. */
static void exp_array(const float *x, float *y, size_t count) { map(vf_exp, x, y, count); }
static void erf_array(const float *x, float *y, size_t count) { map(vf_erf, x, y, count); }
static void log1p_array(const float *x, float *y, size_t count) { map(vf_log1p_unit, x, y, count); }

/* BY_OUTPUT: the gradient needs y only, so x need not be kept. BY_INPUT: it needs x, and `apply`
 * can store slopes instead. */
#define BY_OUTPUT(title) \
    { .name = #title, .forward = title##_forward, .backward = title##_backward }
#define BY_INPUT(title)                                                  \
    {                                                                    \
        .name = #title, .needs_input = true, .forward = title##_forward, \
        .backward = title##_backward, .apply = title##_apply             \
    }

const sh_activation_kernels SH_SIMD(sh_activation_table) = {
    .row =
        {
            [SH_ACTIVATION_RELU] = BY_OUTPUT(relu),
            [SH_ACTIVATION_GELU] = BY_INPUT(gelu),
            [SH_ACTIVATION_GELU_TANH] = BY_INPUT(gelu_tanh),
            [SH_ACTIVATION_SILU] = BY_INPUT(silu),
            [SH_ACTIVATION_TANH] = BY_OUTPUT(tanh),
            [SH_ACTIVATION_SIGMOID] = BY_OUTPUT(sigmoid),
        },
    .exp = exp_array,
    .erf = erf_array,
    .log1p_unit = log1p_array,
};
