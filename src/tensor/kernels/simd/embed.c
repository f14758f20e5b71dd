/* Embedding rows and position rows. Forward copies rows; backward adds gradients of equal tokens,
 * which must not race: columns are split over threads instead of tokens. */
#include "tensor/kernels/embed.h"

#include <omp.h>

#include "base/status.h"
#include "tensor/kernels/simd/lanes.h"

/* z = a + b. */
static void add_row(const float *a, const float *b, float *z, size_t count) {
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) vf_store(z + i, vf_load(a + i) + vf_load(b + i));
    for (; i < count; i++) z[i] = a[i] + b[i];
}

/* y = table[token] (+ position[i % T]). The assertion keeps a token outside the vocabulary from
 * reading past the table. */
static void forward(const float *table, size_t V, size_t C, const int32_t *tokens, size_t count,
                    const float *position, size_t T, float *y) {
#pragma omp parallel for schedule(static) if (count * C >= PARALLEL_LEAST)
    for (size_t i = 0; i < count; i++) {
        SH_ASSERT(tokens[i] >= 0 && (size_t)tokens[i] < V);
        const float *row = table + (size_t)tokens[i] * C;
        if (position)
            add_row(row, position + i % T * C, y + i * C, C);
        else
            memcpy(y + i * C, row, C * sizeof *y);
    }
}

/* Each part owns a range of columns and walks all tokens: no two threads meet in a row, and every
 * element is summed in the order of the tokens. */
static void backward(const float *dy, const int32_t *tokens, size_t count, size_t V, size_t C,
                     float *dtable) {
    for (size_t i = 0; i < count; i++) SH_ASSERT(tokens[i] >= 0 && (size_t)tokens[i] < V);
    size_t parts = count * C < PARALLEL_LEAST ? 1 : (size_t)omp_get_max_threads();
    // Two threads on one cache line would take it from each other at every token.
    size_t wide = (C / parts + 15) / 16 * 16;  // whole cache lines
    wide = wide > 0 ? wide : 16;
#pragma omp parallel for schedule(static) if (parts > 1)
    for (size_t col = 0; col < C; col += wide)
        for (size_t i = 0; i < count; i++) {
            float *to = dtable + (size_t)tokens[i] * C + col;
            add_row(to, dy + i * C + col, to, least(wide, C - col));
        }
}

/* Adds row t of the positions to token t of every sample. */
static void position_forward(const float *x, const float *position, size_t B, size_t T, size_t C,
                             float *y) {
#pragma omp parallel for schedule(static) if (B * T * C >= PARALLEL_LEAST)
    for (size_t i = 0; i < B * T; i++) add_row(x + i * C, position + i % T * C, y + i * C, C);
}

/* Sums over samples, in their order. */
static void position_backward(const float *dy, size_t B, size_t T, size_t C, bool accumulate,
                              float *dposition) {
#pragma omp parallel for schedule(static) if (B * T * C >= PARALLEL_LEAST)
    for (size_t t = 0; t < T; t++) {
        float *to = dposition + t * C;
        if (!accumulate) memset(to, 0, C * sizeof *to);
        for (size_t b = 0; b < B; b++) add_row(to, dy + (b * T + t) * C, to, C);
    }
}

const sh_embed_kernels SH_SIMD(sh_embed_table) = {
    .forward = forward,
    .backward = backward,
    .position_forward = position_forward,
    .position_backward = position_backward,
};
