#include <math.h>
#include <omp.h>

#include "base/status.h"
#include "tensor/kernels/norm.h"
#include "tensor/kernels/simd/lanes.h"

static float mean_of(const float *x, size_t C) {
    vf a = {0}, b = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= C; i += 2 * LANES) {
        a += vf_load(x + i);
        b += vf_load(x + i + LANES);
    }
    float sum = vf_sum(a + b);
    for (; i < C; i++) sum += x[i];
    return sum / (float)C;
}

static float variance_of(const float *x, float mean, size_t C) {
    vf a = {0}, b = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= C; i += 2 * LANES) {
        vf u = vf_load(x + i) - mean, v = vf_load(x + i + LANES) - mean;
        a += u * u;
        b += v * v;
    }
    float sum = vf_sum(a + b);
    for (; i < C; i++) sum += (x[i] - mean) * (x[i] - mean);
    return sum / (float)C;
}

static void forward_row(const float *x, const float *gamma, const float *beta, float mean,
                        float rstd, size_t C, float *y) {
    size_t i = 0;
    for (; i + LANES <= C; i += LANES) {
        vf v = (vf_load(x + i) - mean) * rstd * vf_load(gamma + i);
        vf_store(y + i, beta ? v + vf_load(beta + i) : v);
    }
    for (; i < C; i++) y[i] = (x[i] - mean) * rstd * gamma[i] + (beta ? beta[i] : 0.0f);
}

static void forward(const float *x, const float *gamma, const float *beta, float eps, size_t rows,
                    size_t C, float *y, float *mean, float *rstd) {
#pragma omp parallel for schedule(static) if (rows * C >= PARALLEL_LEAST)
    for (size_t row = 0; row < rows; row++) {
        const float *from = x + row * C;
        mean[row] = mean_of(from, C);
        rstd[row] = 1.0f / sqrtf(variance_of(from, mean[row], C) + eps);
        forward_row(from, gamma, beta, mean[row], rstd[row], C, y + row * C);
    }
}

typedef struct row_sums {
    float g;      // sum of gamma dy
    float g_hat;  // sum of gamma dy x_hat
} row_sums;

/* Adds the row's share to dgamma and dbeta and returns the two sums that dx needs. */
static row_sums gather_row(const float *dy, const float *x, const float *gamma, float mean,
                           float rstd, size_t C, float *dgamma, float *dbeta) {
    vf sum = {0}, sum_hat = {0};
    size_t i = 0;
    for (; i + LANES <= C; i += LANES) {
        vf d = vf_load(dy + i), hat = (vf_load(x + i) - mean) * rstd, g = d * vf_load(gamma + i);
        vf dhat = d * hat;
        sum += g;
        sum_hat += g * hat;
        vf_store(dgamma + i, vf_load(dgamma + i) + dhat);
        vf_store(dbeta + i, vf_load(dbeta + i) + d);
    }
    row_sums sums = {vf_sum(sum), vf_sum(sum_hat)};
    for (; i < C; i++) {
        float hat = (x[i] - mean) * rstd;
        sums.g += dy[i] * gamma[i];
        sums.g_hat += dy[i] * gamma[i] * hat;
        dgamma[i] += dy[i] * hat;
        dbeta[i] += dy[i];
    }
    return sums;
}

/* dx = rstd (gamma dy - mean(gamma dy) - x_hat mean(gamma dy x_hat)) + residual */
static void scatter_row(const sh_layernorm_backward *a, size_t row, row_sums sums) {
    size_t C = a->C, i = 0;
    const float *dy = a->dy + row * C, *x = a->x + row * C, *gamma = a->gamma;
    const float *residual = a->residual ? a->residual + row * C : NULL;
    float mean = a->mean[row], rstd = a->rstd[row], *dx = a->dx + row * C;
    float term = sums.g / (float)C, term_hat = sums.g_hat / (float)C;
    for (; i + LANES <= C; i += LANES) {
        vf hat = (vf_load(x + i) - mean) * rstd;
        vf v = rstd * (vf_load(dy + i) * vf_load(gamma + i) - term - hat * term_hat);
        vf_store(dx + i, residual ? v + vf_load(residual + i) : v);
    }
    for (; i < C; i++) {
        float hat = (x[i] - mean) * rstd;
        float v = rstd * (dy[i] * gamma[i] - term - hat * term_hat);
        dx[i] = residual ? v + residual[i] : v;
    }
}

static void backward_part(const sh_layernorm_backward *a, size_t part, size_t parts) {
    size_t C = a->C;
    float *dgamma = a->scratch + part * 2 * C, *dbeta = dgamma + C;
    memset(dgamma, 0, 2 * C * sizeof *dgamma);
    for (size_t row = a->rows * part / parts; row < a->rows * (part + 1) / parts; row++) {
        row_sums sums = gather_row(a->dy + row * C, a->x + row * C, a->gamma, a->mean[row],
                                   a->rstd[row], C, dgamma, dbeta);
        scatter_row(a, row, sums);
    }
}

static void fold(const float *scratch, size_t parts, size_t C, bool accumulate, float *into) {
    for (size_t i = 0; i < C; i++) {
        float sum = accumulate ? into[i] : 0.0f;
        for (size_t part = 0; part < parts; part++) sum += scratch[part * 2 * C + i];
        into[i] = sum;
    }
}

static void backward(const sh_layernorm_backward *a) {
    size_t parts = least((size_t)omp_get_max_threads(), a->scratch_floats / (2 * a->C));
    SH_ASSERT(parts > 0);
    if (a->rows * a->C < PARALLEL_LEAST) parts = 1;
#pragma omp parallel for schedule(static) if (parts > 1)
    for (size_t part = 0; part < parts; part++) backward_part(a, part, parts);
    fold(a->scratch, parts, a->C, a->accumulate, a->dgamma);
    if (a->dbeta != NULL) fold(a->scratch + a->C, parts, a->C, a->accumulate, a->dbeta);
}

const sh_layernorm_kernels SH_SIMD(sh_layernorm_table) = {.forward = forward, .backward = backward};
