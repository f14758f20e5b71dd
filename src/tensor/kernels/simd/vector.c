/* Element-wise passes over arrays, and sums over rows for bias gradients. Long arrays are split
 * over threads in blocks; short ones stay in the calling thread, where starting a team would cost
 * more than the work. */
#include "tensor/kernels/vector.h"

#include "tensor/kernels/simd/lanes.h"

enum { BLOCK = 8192 };  // elements of a parallel block

/* Runs `body` for blocks [at, at + n) of 0..count: one block when there is little to do, otherwise
 * in parallel. */
#define EACH_BLOCK(count, at, n, body)                                                 \
    do {                                                                               \
        if ((count) < PARALLEL_LEAST) {                                                \
            size_t at = 0, n = (count);                                                \
            body;                                                                      \
            break;                                                                     \
        }                                                                              \
        _Pragma("omp parallel for schedule(static)") for (size_t at = 0; at < (count); \
                                                          at += BLOCK) {               \
            size_t n = least(BLOCK, (count)-at);                                       \
            body;                                                                      \
        }                                                                              \
    } while (0)

/* One block each of the operations below. Loops without explicit vectors are plain enough for the
 * compiler to make them. */
static void fill_block(float *x, float value, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = value;
}

static void add_block(const float *a, const float *b, float *z, size_t count) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) vf_store(z + i, vf_load(a + i) + vf_load(b + i));
    for (; i < count; i++) z[i] = a[i] + b[i];
}

static void multiply_block(float *restrict a, const float *restrict b, size_t count) {
    for (size_t i = 0; i < count; i++) a[i] *= b[i];
}

static void scale_block(float *x, float factor, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] *= factor;
}

static void axpy_block(float factor, const float *restrict x, float *restrict y, size_t count) {
    for (size_t i = 0; i < count; i++) y[i] += factor * x[i];
}

/* Entry points of the element-wise passes: blocks over threads. */
static void copy(const float *x, float *y, size_t count) {
    if (x == y) return;
    EACH_BLOCK(count, at, n, memcpy(y + at, x + at, n * sizeof *y));
}

static void fill(float *x, float value, size_t count) {
    EACH_BLOCK(count, at, n, fill_block(x + at, value, n));
}

static void add(const float *a, const float *b, float *z, size_t count) {
    EACH_BLOCK(count, at, n, add_block(a + at, b + at, z + at, n));
}

static void add_to(float *a, const float *b, size_t count) { add(a, b, a, count); }

static void multiply_to(float *a, const float *b, size_t count) {
    EACH_BLOCK(count, at, n, multiply_block(a + at, b + at, n));
}

static void scale(float *x, float factor, size_t count) {
    EACH_BLOCK(count, at, n, scale_block(x + at, factor, n));
}

static void axpy(float factor, const float *x, float *y, size_t count) {
    EACH_BLOCK(count, at, n, axpy_block(factor, x + at, y + at, n));
}

/* x[r][c] += bias[c]; rows over threads. */
static void bias_add_rows(float *x, const float *bias, size_t rows, size_t cols) {
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_LEAST)
    for (size_t row = 0; row < rows; row++) add_block(x + row * cols, bias, x + row * cols, cols);
}

/* Columns are summed in strips, each by one thread and in the order of the rows, so the result does
 * not depend on the thread count. Every ROW_BLOCK rows the float sums are put aside, and again
 * every ROW_BLOCKS blocks, which keeps the error of long columns small. */
enum { STRIP = 8, ROW_BLOCK = 128, ROW_BLOCKS = 64 };  // STRIP vectors: sums stay in registers

/* Column sums of at most ROW_BLOCKS blocks of rows, added to sums_out; `vectors` <= STRIP is a
 * constant at every use. */
LANE_FUNCTION void sum_blocks(const float *dy, size_t rows, size_t stride, size_t vectors,
                              vf sums_out[STRIP]) {
    for (size_t at = 0; at < rows; at += ROW_BLOCK) {
        vf sum[STRIP] = {{0}};
        for (size_t row = at; row < least(rows, at + ROW_BLOCK); row++)
            for (size_t v = 0; v < vectors; v++) sum[v] += vf_load(dy + row * stride + v * LANES);
        for (size_t v = 0; v < vectors; v++) sums_out[v] += sum[v];
    }
}

/* Column sums of any number of rows, in three levels: rows, blocks, groups of blocks. */
LANE_FUNCTION void sum_strip(const float *dy, size_t rows, size_t stride, size_t vectors,
                             bool accumulate, float *dbias) {
    const size_t together = (size_t)ROW_BLOCK * ROW_BLOCKS;
    vf total[STRIP] = {{0}};
    sum_blocks(dy, least(rows, together), stride, vectors, total);
    for (size_t at = together; at < rows; at += together) {
        vf sum[STRIP] = {{0}};
        sum_blocks(dy + at * stride, least(rows - at, together), stride, vectors, sum);
        for (size_t v = 0; v < vectors; v++) total[v] += sum[v];
    }
    for (size_t v = 0; v < vectors; v++) {
        if (accumulate) total[v] += vf_load(dbias + v * LANES);
        vf_store(dbias + v * LANES, total[v]);
    }
}

/* One column that fills no vector, summed in double. */
static void sum_column(const float *dy, size_t rows, size_t stride, bool accumulate, float *dbias) {
    double total = accumulate ? (double)*dbias : 0;
    for (size_t row = 0; row < rows; row++) total += (double)dy[row * stride];
    *dbias = (float)total;
}

/* Columns of one strip: all vectors at once where the strip is whole, otherwise vector by vector
 * and column by column. */
static void sum_columns(const float *dy, size_t rows, size_t stride, size_t cols, bool accumulate,
                        float *dbias) {
    size_t col = 0;
    if (cols == STRIP * LANES) {
        sum_strip(dy, rows, stride, STRIP, accumulate, dbias);
        return;
    }
    for (; col + LANES <= cols; col += LANES)
        sum_strip(dy + col, rows, stride, 1, accumulate, dbias + col);
    for (; col < cols; col++) sum_column(dy + col, rows, stride, accumulate, dbias + col);
}

/* Column sums of a (rows, cols) matrix; strips over threads. */
static void bias_grad(const float *dy, size_t rows, size_t cols, bool accumulate, float *dbias) {
    size_t wide = STRIP * LANES;
#pragma omp parallel for schedule(static) if (rows * cols >= PARALLEL_LEAST)
    for (size_t col = 0; col < cols; col += wide)
        sum_columns(dy + col, rows, cols, least(wide, cols - col), accumulate, dbias + col);
}

/* A run of one plain channel is summed in blocks: in float within one, over them in double. */
enum { RUN_BLOCK = 4096 };

/* Sum of at most RUN_BLOCK neighbouring values in float lanes. */
LANE_FUNCTION float sum_block(const float *x, size_t count) {
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

/* Sum of neighbouring values: blocks in float, their sums in double. */
static double sum_run(const float *x, size_t count) {
    if (count <= RUN_BLOCK) return (double)sum_block(x, count);
    double total = 0;
    for (size_t at = 0; at < count; at += RUN_BLOCK)
        total += (double)sum_block(x + at, least(RUN_BLOCK, count - at));
    return total;
}

/* Plain images (outer, channels, inner): a channel's positions lie side by side. Channels over
 * threads. */
static void bias_grad_plain(const float *dy, size_t outer, size_t channels, size_t inner,
                            bool accumulate, float *dbias) {
#pragma omp parallel for schedule(static) if (outer * channels * inner >= PARALLEL_LEAST)
    for (size_t c = 0; c < channels; c++) {
        double total = accumulate ? (double)dbias[c] : 0;
        for (size_t o = 0; o < outer; o++) total += sum_run(dy + (o * channels + c) * inner, inner);
        dbias[c] = (float)total;
    }
}

/* Blocked images: positions are rows of `lanes` columns; images are added in ascending order.
 * Plain ones (lanes 1) as above. */
static void bias_grad_images(const float *dy, size_t outer, size_t channels, size_t inner,
                             size_t lanes, bool accumulate, float *dbias) {
    if (lanes == 1) {
        bias_grad_plain(dy, outer, channels, inner, accumulate, dbias);
        return;
    }
#pragma omp parallel for schedule(static) if (outer * channels * inner >= PARALLEL_LEAST)
    for (size_t c = 0; c < channels; c += lanes)
        for (size_t o = 0; o < outer; o++)
            sum_columns(dy + (o * channels + c) * inner, inner, lanes, lanes, accumulate || o > 0,
                        dbias + c);
}

const sh_vector_kernels SH_SIMD(sh_vector_table) = {
    .copy = copy,
    .fill = fill,
    .add = add,
    .add_to = add_to,
    .multiply_to = multiply_to,
    .scale = scale,
    .axpy = axpy,
    .bias_add_rows = bias_add_rows,
    .bias_grad = bias_grad,
    .bias_grad_images = bias_grad_images,
};
