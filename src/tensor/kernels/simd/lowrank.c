/* The products of PowerSGD: tall-skinny, rank 1 to a few, so they are bound by reading the matrix.
 * It is read once per product, for several vectors together. */
#include "tensor/kernels/lowrank.h"

#include "tensor/kernels/simd/lanes.h"

/* Vectors are taken TOGETHER at a time, so that the matrix is read once for them; columns in STRIPs
 * whose vectors stay in the first-level cache. */
enum { TOGETHER = 4, STRIP = 1024 };

/* out[j] = sum over c of m[c] q[j][c], for n <= TOGETHER vectors; n is a constant at every use. */
LANE_FUNCTION void dots(const float *m, const float *q, size_t columns, size_t n,
                        float out[TOGETHER]) {
    vf sum[TOGETHER] = {{0}};
    size_t c = 0;
    for (; c + LANES <= columns; c += LANES) {
        vf v = vf_load(m + c);
        for (size_t j = 0; j < n; j++) sum[j] += v * vf_load(q + j * columns + c);
    }
    for (size_t j = 0; j < n; j++) {
        out[j] = vf_sum(sum[j]);
        for (size_t k = c; k < columns; k++) out[j] += m[k] * q[j * columns + k];
    }
}

/* One row of M against all vectors of Q: writes column `row` of P (rank, rows). */
static void project_row(const sh_lowrank *s, const float *m, const float *q, size_t row, float *p) {
    for (size_t j = 0; j < s->rank; j += TOGETHER) {
        float out[TOGETHER];
        size_t n = least(TOGETHER, s->rank - j);
        switch (n) {  // constants, so that the sums stay in registers
            case 4:
                dots(m, q + j * s->columns, s->columns, 4, out);
                break;
            case 3:
                dots(m, q + j * s->columns, s->columns, 3, out);
                break;
            case 2:
                dots(m, q + j * s->columns, s->columns, 2, out);
                break;
            default:
                dots(m, q + j * s->columns, s->columns, 1, out);
        }
        for (size_t k = 0; k < n; k++) p[(j + k) * s->rows + row] = out[k];
    }
}

/* P = Q M^T, rows of M over threads. Each sum is taken by one thread in one order. */
static void project(const sh_lowrank *shape, const float *m, const float *q, float *p) {
    sh_lowrank s = *shape;
#pragma omp parallel for schedule(static) if (s.rows * s.columns >= PARALLEL_LEAST)
    for (size_t row = 0; row < s.rows; row++) project_row(&s, m + row * s.columns, q, row, p);
}

/* q += factor m, for the rows that are left over. */
static void add_row(const float *restrict m, float factor, size_t count, float *restrict q) {
#pragma omp simd
    for (size_t c = 0; c < count; c++) q[c] += factor * m[c];
}

/* q += the TOGETHER rows of m, each times its factor: q is loaded and stored once for all of
 * them. */
static void add_rows(const float *restrict m, size_t stride, const float factor[TOGETHER],
                     size_t count, float *restrict q) {
    float f0 = factor[0], f1 = factor[1], f2 = factor[2], f3 = factor[3];
#pragma omp simd
    for (size_t c = 0; c < count; c++)
        q[c] +=
            (f0 * m[c] + f1 * m[stride + c]) + (f2 * m[2 * stride + c] + f3 * m[3 * stride + c]);
}

/* Columns [at, at + count) of all vectors of Q, so that this strip of Q stays in the first cache
 * while M streams by. */
static void back_strip(const sh_lowrank *s, const float *m, const float *p, size_t at, size_t count,
                       float *q) {
    for (size_t j = 0; j < s->rank; j++) memset(q + j * s->columns + at, 0, count * sizeof *q);
    size_t row = 0;
    for (; row + TOGETHER <= s->rows; row += TOGETHER)
        for (size_t j = 0; j < s->rank; j++)
            add_rows(m + row * s->columns + at, s->columns, p + j * s->rows + row, count,
                     q + j * s->columns + at);
    for (; row < s->rows; row++)
        for (size_t j = 0; j < s->rank; j++)
            add_row(m + row * s->columns + at, p[j * s->rows + row], count,
                    q + j * s->columns + at);
}

/* Q = P^T M, strips of columns over threads: no two write to one place. */
static void project_back(const sh_lowrank *shape, const float *m, const float *p, float *q) {
    sh_lowrank s = *shape;
#pragma omp parallel for schedule(static) if (s.rows * s.columns >= PARALLEL_LEAST)
    for (size_t at = 0; at < s.columns; at += STRIP)
        back_strip(&s, m, p, at, least(STRIP, s.columns - at), q);
}

/* value = `count` columns of one row of P^T Q. */
static void expand_strip(const sh_lowrank *s, const float *p, const float *q, size_t row, size_t at,
                         size_t count, float value[STRIP]) {
    memset(value, 0, count * sizeof *value);
    for (size_t j = 0; j < s->rank; j++) {
        const float *restrict from = q + j * s->columns + at;
        float factor = p[j * s->rows + row];
#pragma omp simd
        for (size_t c = 0; c < count; c++) value[c] += factor * from[c];
    }
}

/* x = scale P^T Q. Error feedback: `left` loses `share` times the same matrix, since that much was
 * sent. */
static void expand(const sh_lowrank *shape, const float *p, const float *q, float scale, float *x,
                   float share, float *left) {
    sh_lowrank s = *shape;
#pragma omp parallel for schedule(static) if (s.rows * s.columns >= PARALLEL_LEAST)
    for (size_t row = 0; row < s.rows; row++)
        for (size_t at = 0; at < s.columns; at += STRIP) {
            float value[STRIP];
            size_t n = least(STRIP, s.columns - at), first = row * s.columns + at;
            expand_strip(&s, p, q, row, at, n, value);
            for (size_t c = 0; c < n; c++) x[first + c] = scale * value[c];
            if (left == NULL) continue;
            for (size_t c = 0; c < n; c++) left[first + c] -= share * value[c];
        }
}

const sh_lowrank_kernels SH_SIMD(sh_lowrank_table) = {
    .project = project,
    .project_back = project_back,
    .expand = expand,
};
