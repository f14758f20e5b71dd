/* Sums over whole gradients, for clipping and norms: bound by memory, parallel, with equal bits at
 * any thread count, because the ranges depend on the length alone and are added in order. */
#include "tensor/kernels/reduce.h"

#include "tensor/kernels/simd/lanes.h"

/* Blocks of 4096 are summed in float lanes, blocks in double: error grows with the block only. The
 * blocks are cut into PARTS ranges whatever the thread count, and the ranges' sums are added in
 * order, so the result depends on the input alone. */
enum { BLOCK = 4096, PARTS = 64 };

/* Dot product of at most BLOCK elements. Four sums hide the latency of the additions. */
static double dot_block(const float *x, const float *y, size_t count) {
    vf sum[4] = {{0}};
    size_t i = 0;
    for (; i + 4 * LANES <= count; i += 4 * LANES)
        for (size_t k = 0; k < 4; k++)
            sum[k] += vf_load(x + i + k * LANES) * vf_load(y + i + k * LANES);
    float rest = 0;
    for (; i < count; i++) rest += x[i] * y[i];
    return (double)vf_sum((sum[0] + sum[1]) + (sum[2] + sum[3])) + (double)rest;
}

/* Dot product of one range: blocks in float, their sums in double. */
static double dot_part(const float *x, const float *y, size_t count) {
    double total = 0;
    for (size_t at = 0; at < count; at += BLOCK)
        total += dot_block(x + at, y + at, least(BLOCK, count - at));
    return total;
}

/* Dot product of whole arrays: ranges over threads, their sums added in ascending order. */
static double dot(const float *x, const float *y, size_t count) {
    if (count < PARALLEL_LEAST) return dot_part(x, y, count);
    size_t blocks = (count + BLOCK - 1) / BLOCK, each = (blocks + PARTS - 1) / PARTS * BLOCK;
    size_t parts = (count + each - 1) / each;
    double part[PARTS], total = 0;
#pragma omp parallel for schedule(static)
    for (size_t p = 0; p < parts; p++)
        part[p] = dot_part(x + p * each, y + p * each, least(each, count - p * each));
    for (size_t p = 0; p < parts; p++) total += part[p];
    return total;
}

static double sum_squares(const float *x, size_t count) { return dot(x, x, count); }

/* Tells whether all values are finite: infinities and NaN have all exponent bits set. */
static bool block_finite(const float *x, size_t count) {
    const int32_t exponent = 0x7F800000;
    vi found = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) found |= ((vi)vf_load(x + i) & exponent) == exponent;
    if (i < count) found |= ((vi)vf_load_part(x + i, count - i, 0) & exponent) == exponent;
    int32_t any = 0;
    for (int lane = 0; lane < LANES; lane++) any |= found[lane];
    return any == 0;
}

/* Blocks over threads; the result is a logical OR, so their order does not matter. */
static bool all_finite(const float *x, size_t count) {
    int found = 0;
#pragma omp parallel for schedule(static) reduction(| : found) if (count >= PARALLEL_LEAST)
    for (size_t at = 0; at < count; at += BLOCK)
        found |= !block_finite(x + at, least(BLOCK, count - at));
    return found == 0;
}

const sh_reduce_kernels SH_SIMD(sh_reduce_table) = {
    .sum_squares = sum_squares,
    .dot = dot,
    .all_finite = all_finite,
};
