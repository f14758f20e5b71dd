/* Softmax over rows, in the stable form exp(x - max). Rows over threads; a row is computed by one
 * thread in one order. */
#include "tensor/kernels/softmax.h"

#include "tensor/kernels/simd/rows.h"

/* Softmax of one row: maximum, exponentials with their sum, division. */
static void forward_row(const float *x, float *y, size_t cols) {
    double sum = row_exp_sum(x, cols, row_max(x, cols), y);
    row_affine(y, y, cols, (float)(1.0 / sum), 0);
}

/* Dot product of at most ROW_BLOCK elements in float lanes. */
static float dot_block(const float *x, const float *y, size_t count) {
    vf sum = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) sum += vf_load(x + i) * vf_load(y + i);
    if (i < count) sum += vf_load_part(x + i, count - i, 0) * vf_load_part(y + i, count - i, 0);
    return vf_sum(sum);
}

/* Dot product of a row: blocks in float, their sums in double. */
static float dot(const float *x, const float *y, size_t count) {
    if (count <= ROW_BLOCK) return dot_block(x, y, count);
    double total = 0;
    for (size_t at = 0; at < count; at += ROW_BLOCK)
        total += (double)dot_block(x + at, y + at, least(ROW_BLOCK, count - at));
    return (float)total;
}

/* dx = y (dy - sum(dy y)). */
static void backward_row(const float *dy, const float *y, float *dx, size_t cols) {
    float sum = dot(dy, y, cols);  // the same for the whole row
    size_t i = 0;
    for (; i + LANES <= cols; i += LANES)
        vf_store(dx + i, vf_load(y + i) * (vf_load(dy + i) - sum));
    for (; i < cols; i++) dx[i] = y[i] * (dy[i] - sum);
}

static void forward(const float *x, float *y, size_t rows, size_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_LEAST)
    for (size_t row = 0; row < rows; row++) forward_row(x + row * cols, y + row * cols, cols);
}

static void backward(const float *dy, const float *y, float *dx, size_t rows, size_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_LEAST)
    for (size_t row = 0; row < rows; row++)
        backward_row(dy + row * cols, y + row * cols, dx + row * cols, cols);
}

const sh_softmax_kernels SH_SIMD(sh_softmax_table) = {.forward = forward, .backward = backward};
