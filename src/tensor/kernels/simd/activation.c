#include "tensor/kernels/activation.h"

#include "tensor/kernels/simd/math.h"

enum { BLOCK = 4096 };

typedef vf (*unary)(vf x);
typedef vf (*binary)(vf dy, vf saved);
typedef void (*unary_range)(const float *x, float *y, size_t count);
typedef void (*binary_range)(const float *dy, const float *saved, float *dx, size_t count);

/* `f` is a constant at every use, so the call is inlined. */
LANE_FUNCTION void map(unary f, const float *x, float *y, size_t count) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) vf_store(y + i, f(vf_load(x + i)));
    if (i < count) vf_store_part(y + i, f(vf_load_part(x + i, count - i, 0)), count - i);
}

LANE_FUNCTION void map2(binary f, const float *dy, const float *saved, float *dx, size_t count) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) vf_store(dx + i, f(vf_load(dy + i), vf_load(saved + i)));
    size_t rest = count - i;
    if (rest == 0) return;
    vf_store_part(dx + i, f(vf_load_part(dy + i, rest, 0), vf_load_part(saved + i, rest, 0)), rest);
}

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
LANE_FUNCTION vf relu_grad(vf dy, vf y) { return vf_keep(y > 0.0f, dy); }

LANE_FUNCTION vf gelu(vf x) { return 0.5f * x * (1.0f + vf_erf(x * 0.70710678118654752f)); }

/* Phi(x) + x phi(x) */
LANE_FUNCTION vf gelu_grad(vf dy, vf x) {
    vf cdf = 0.5f + 0.5f * vf_erf(x * 0.70710678118654752f);
    vf a = vf_abs(x);
    x = vf_select(a > 16.0f, vf_with_sign(vf_all(16.0f), x),
                  x);  // phi is 0 there; x^2 stays finite
    return dy * (cdf + x * 0.39894228040143268f * vf_exp(-0.5f * x * x));
}

/* 0.5 x (1 + tanh u) = x sigmoid(2u), 2u = sqrt(8/pi) (x + 0.044715 x^3). Beyond 12 the sigmoid is
 * 0 or 1 in float. */
static const float GELU_A = 1.5957691216057308f, GELU_B = 0.044715f;

LANE_FUNCTION vf gelu_tanh_clamp(vf x) {
    return vf_select(vf_abs(x) > 12.0f, vf_with_sign(vf_all(12.0f), x), x);
}

LANE_FUNCTION vf gelu_tanh(vf x) {
    vf z = gelu_tanh_clamp(x);
    return x * vf_sigmoid(GELU_A * z * (1.0f + GELU_B * z * z));
}

LANE_FUNCTION vf gelu_tanh_grad(vf dy, vf x) {
    vf z = gelu_tanh_clamp(x), s = z * z;
    vf g = vf_sigmoid(GELU_A * z * (1.0f + GELU_B * s));
    return dy * (g + z * g * (1.0f - g) * GELU_A * (1.0f + 3.0f * GELU_B * s));
}

LANE_FUNCTION vf silu(vf x) { return x * vf_sigmoid(x); }

LANE_FUNCTION vf silu_grad(vf dy, vf x) {
    vf g = vf_sigmoid(x);
    x = vf_select(vf_abs(x) > 128.0f, vf_with_sign(vf_all(128.0f), x), x);
    return dy * g * (1.0f + x * (1.0f - g));
}

LANE_FUNCTION vf tanh_grad(vf dy, vf y) { return dy * (1.0f - y * y); }
LANE_FUNCTION vf sigmoid_grad(vf dy, vf y) { return dy * y * (1.0f - y); }

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

static void exp_array(const float *x, float *y, size_t count) { map(vf_exp, x, y, count); }
static void erf_array(const float *x, float *y, size_t count) { map(vf_erf, x, y, count); }
static void log1p_array(const float *x, float *y, size_t count) { map(vf_log1p_unit, x, y, count); }

#define ROW(title, input)                                                 \
    {                                                                     \
        .name = #title, .needs_input = input, .forward = title##_forward, \
        .backward = title##_backward                                      \
    }

const sh_activation_kernels SH_SIMD(sh_activation_table) = {
    .row =
        {
            [SH_ACTIVATION_RELU] = ROW(relu, false),
            [SH_ACTIVATION_GELU] = ROW(gelu, true),
            [SH_ACTIVATION_GELU_TANH] = ROW(gelu_tanh, true),
            [SH_ACTIVATION_SILU] = ROW(silu, true),
            [SH_ACTIVATION_TANH] = ROW(tanh, false),
            [SH_ACTIVATION_SIGMOID] = ROW(sigmoid, false),
        },
    .exp = exp_array,
    .erf = erf_array,
    .log1p_unit = log1p_array,
};
