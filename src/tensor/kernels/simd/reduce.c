#include "tensor/kernels/reduce.h"

#include <stdint.h>
#include <string.h>

/* Blocks of 4096 are summed in float lanes, blocks in double: error grows with the block only. */
enum { BLOCK = 4096, PARALLEL_LEAST = 1 << 15 };

static float dot_block(const float *restrict x, const float *restrict y, size_t count) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) sum += x[i] * y[i];
    return sum;
}

static double dot(const float *x, const float *y, size_t count) {
    size_t blocks = (count + BLOCK - 1) / BLOCK;
    double total = 0;
#pragma omp parallel for schedule(static) reduction(+ : total) if (count >= PARALLEL_LEAST)
    for (size_t block = 0; block < blocks; block++) {
        size_t at = block * BLOCK, n = count - at < BLOCK ? count - at : BLOCK;
        total += (double)dot_block(x + at, y + at, n);
    }
    return total;
}

static double sum_squares(const float *x, size_t count) { return dot(x, x, count); }

/* A float is not finite when all exponent bits are set. */
static bool all_finite(const float *x, size_t count) {
    uint32_t found = 0;
#pragma omp parallel for simd schedule(static) reduction(| : found) if (count >= PARALLEL_LEAST)
    for (size_t i = 0; i < count; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        found |= (bits & 0x7F800000u) == 0x7F800000u;
    }
    return found == 0;
}

const sh_reduce_kernels SH_SIMD(sh_reduce_table) = {
    .sum_squares = sum_squares,
    .dot = dot,
    .all_finite = all_finite,
};
