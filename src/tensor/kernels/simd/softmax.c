#include "tensor/kernels/softmax.h"

#include "tensor/kernels/simd/rows.h"

static void forward_row(const float *x, float *y, size_t cols) {
    double sum = row_exp_sum(x, cols, row_max(x, cols), y);
    row_affine(y, y, cols, (float)(1.0 / sum), 0);
}

/* dx = y (dy - sum(dy y)) */
static void backward_row(const float *dy, const float *y, float *dx, size_t cols) {
    vf sum = {0};
    size_t i = 0;
    for (; i + LANES <= cols; i += LANES) sum += vf_load(dy + i) * vf_load(y + i);
    if (i < cols) sum += vf_load_part(dy + i, cols - i, 0) * vf_load_part(y + i, cols - i, 0);
    float dot = vf_sum(sum);
    for (i = 0; i + LANES <= cols; i += LANES)
        vf_store(dx + i, vf_load(y + i) * (vf_load(dy + i) - dot));
    for (; i < cols; i++) dx[i] = y[i] * (dy[i] - dot);
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
