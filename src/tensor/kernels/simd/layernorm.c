/* Layer normalisation (Ba, Kiros and Hinton 2016) over rows. Forward reads a row twice from the
 * cache; backward adds dgamma and dbeta over all rows, in parts whose number depends on the input
 * alone, so equal calls give equal bits. */
#include <math.h>
#include <omp.h>

#include "base/status.h"
#include "tensor/kernels/norm.h"
#include "tensor/kernels/simd/lanes.h"

/* Sums along a row are taken in float lanes over ROW_BLOCK elements, and over blocks in double;
 * sums over rows in float over ROWS_TOGETHER rows, which are then added up. The error of a long sum
 * is that of a block. */
enum { ROW_BLOCK = 1024, ROWS_TOGETHER = 128 };

/* Sum of at most ROW_BLOCK values in float lanes. */
static float sum_block(const float *x, size_t count) {
    vf a = {0}, b = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        a += vf_load(x + i);
        b += vf_load(x + i + LANES);
    }
    float sum = vf_sum(a + b);
    for (; i < count; i++) sum += x[i];
    return sum;
}

/* Mean of a row: blocks in float, their sums in double. */
static float mean_of(const float *x, size_t C) {
    if (C <= ROW_BLOCK) return sum_block(x, C) / (float)C;
    double sum = 0;
    for (size_t at = 0; at < C; at += ROW_BLOCK)
        sum += (double)sum_block(x + at, least(ROW_BLOCK, C - at));
    return (float)(sum / (double)C);
}

/* Sum of squared deviations of at most ROW_BLOCK values. */
static float squares_block(const float *x, float mean, size_t count) {
    vf a = {0}, b = {0};
    size_t i = 0;
    for (; i + 2 * LANES <= count; i += 2 * LANES) {
        vf u = vf_load(x + i) - mean, v = vf_load(x + i + LANES) - mean;
        a += u * u;
        b += v * v;
    }
    float sum = vf_sum(a + b);
    for (; i < count; i++) sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

/* Biased variance about the mean that was found; the mean of squares minus the squared mean would
 * cancel. */
static float variance_of(const float *x, float mean, size_t C) {
    if (C <= ROW_BLOCK) return squares_block(x, mean, C) / (float)C;
    double sum = 0;
    for (size_t at = 0; at < C; at += ROW_BLOCK)
        sum += (double)squares_block(x + at, mean, least(ROW_BLOCK, C - at));
    return (float)(sum / (double)C);
}

/* y = gamma (x - mean) rstd + beta. */
static void forward_row(const float *x, const float *gamma, const float *beta, float mean,
                        float rstd, size_t C, float *y) {
    size_t i = 0;
    for (; i + LANES <= C; i += LANES) {
        vf v = (vf_load(x + i) - mean) * rstd * vf_load(gamma + i);
        vf_store(y + i, beta ? v + vf_load(beta + i) : v);
    }
    for (; i < C; i++) y[i] = (x[i] - mean) * rstd * gamma[i] + (beta ? beta[i] : 0.0f);
}

/* Rows over threads; mean and rstd (rows) are kept for backward. */
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

/* The two sums over a row that dx needs. */
typedef struct row_sums {
    float g;      // sum of gamma dy
    float g_hat;  // sum of gamma dy x_hat
} row_sums;

/* Adds a block's share of its row to dgamma and dbeta and returns its part of the two sums that dx
 * needs. */
static inline row_sums gather_block(const float *dy, const float *x, const float *gamma, float mean,
                                    float rstd, size_t count, float *dgamma, float *dbeta) {
    vf sum = {0}, sum_hat = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) {
        vf d = vf_load(dy + i), hat = (vf_load(x + i) - mean) * rstd, g = d * vf_load(gamma + i);
        vf dhat = d * hat;
        sum += g;
        sum_hat += g * hat;
        vf_store(dgamma + i, vf_load(dgamma + i) + dhat);
        vf_store(dbeta + i, vf_load(dbeta + i) + d);
    }
    row_sums sums = {vf_sum(sum), vf_sum(sum_hat)};
    for (; i < count; i++) {
        float hat = (x[i] - mean) * rstd;
        sums.g += dy[i] * gamma[i];
        sums.g_hat += dy[i] * gamma[i] * hat;
        dgamma[i] += dy[i] * hat;
        dbeta[i] += dy[i];
    }
    return sums;
}

/* gather_block over a whole row; long rows in double over blocks. */
static row_sums gather_row(const float *dy, const float *x, const float *gamma, float mean,
                           float rstd, size_t C, float *dgamma, float *dbeta) {
    if (C <= ROW_BLOCK) return gather_block(dy, x, gamma, mean, rstd, C, dgamma, dbeta);
    double g = 0, g_hat = 0;
    for (size_t at = 0; at < C; at += ROW_BLOCK) {
        row_sums block = gather_block(dy + at, x + at, gamma + at, mean, rstd,
                                      least(ROW_BLOCK, C - at), dgamma + at, dbeta + at);
        g += (double)block.g;
        g_hat += (double)block.g_hat;
    }
    return (row_sums){(float)g, (float)g_hat};
}

/* dx = rstd (gamma dy - mean(gamma dy) - x_hat mean(gamma dy x_hat)) + residual; x_hat is computed
 * again instead of stored. */
static void scatter_row(const sh_layernorm_backward *a, size_t row, row_sums sums) {
    size_t C = a->C, i = 0;
    const float *dy = a->dy + row * C, *x = a->x + row * C, *gamma = a->gamma;
    const float *residual = a->residual ? a->residual + row * C : NULL;
    float mean = a->mean[row], rstd = a->rstd[row], *dx = a->dx + row * C;
    // Both means of the formula above.
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

/* What a part of the rows sums up lies in its scratch. */
enum { PART_ROWS = 4 };  // of C floats: totals of dgamma and dbeta, then those of the rows at hand

/* Adds the sums of ROWS_TOGETHER rows to the totals and clears them: so no float sum runs over
 * more than that many terms at a time. */
static void move_to_totals(float *totals, float *sums, size_t count) {
    for (size_t i = 0; i < count; i++) totals[i] += sums[i];
    memset(sums, 0, count * sizeof *sums);
}

/* Rows of one part in order. A row is gathered and scattered while it is in the cache. */
static void backward_part(const sh_layernorm_backward *a, size_t part, size_t parts) {
    size_t C = a->C, end = a->rows * (part + 1) / parts;
    float *totals = a->scratch + part * PART_ROWS * C, *dgamma = totals + 2 * C,
          *dbeta = dgamma + C;
    memset(totals, 0, PART_ROWS * C * sizeof *totals);
    for (size_t first = a->rows * part / parts; first < end; first += ROWS_TOGETHER) {
        for (size_t row = first; row < least(end, first + ROWS_TOGETHER); row++) {
            row_sums sums = gather_row(a->dy + row * C, a->x + row * C, a->gamma, a->mean[row],
                                       a->rstd[row], C, dgamma, dbeta);
            scatter_row(a, row, sums);
        }
        move_to_totals(totals, dgamma, 2 * C);
    }
}

/* Adds the parts' sums in ascending order. */
static void fold(const float *scratch, size_t parts, size_t C, bool accumulate, float *into) {
    for (size_t i = 0; i < C; i++) {
        float sum = accumulate ? into[i] : 0.0f;
        for (size_t part = 0; part < parts; part++) sum += scratch[part * PART_ROWS * C + i];
        into[i] = sum;
    }
}

/* Parts over threads. The number of parts is bounded by the scratch the caller lends, PART_ROWS *
 * C floats each. */
static void backward(const sh_layernorm_backward *a) {
    size_t parts = least((size_t)omp_get_max_threads(), a->scratch_floats / (PART_ROWS * a->C));
    SH_ASSERT(parts > 0);
    if (a->rows * a->C < PARALLEL_LEAST) parts = 1;
#pragma omp parallel for schedule(static) if (parts > 1)
    for (size_t part = 0; part < parts; part++) backward_part(a, part, parts);
    fold(a->scratch, parts, a->C, a->accumulate, a->dgamma);
    if (a->dbeta != NULL) fold(a->scratch + a->C, parts, a->C, a->accumulate, a->dbeta);
}

const sh_layernorm_kernels SH_SIMD(sh_layernorm_table) = {.forward = forward, .backward = backward};
