/* What the steps of attention share: one head's blocks, packing them, and their products.
 *
 * Packed blocks come in two forms. "Rows" are row-major, padded with zeros to whole vectors, a row
 * being an odd number of cache lines so that columns do not collide in the cache. "Panels" are
 * transposed: NR tokens beside each other for every channel, (tokens / NR, D, NR). */
#ifndef SH_TENSOR_KERNELS_SIMD_ATTENTION_BLOCKS_H
#define SH_TENSOR_KERNELS_SIMD_ATTENTION_BLOCKS_H

#include <math.h>
#include <string.h>

#include "tensor/kernels/attention.h"
#include "tensor/kernels/simd/math.h"
#include "tensor/kernels/simd/tile.h"

/* Block edges are multiples of MR and of NR: a row tile then lies on one side of a block edge, and
 * every row that meets a key block sees at least one of its keys. */
enum { EDGE = 48 };
_Static_assert(EDGE % MR == 0 && EDGE % NR == 0, "blocks are whole tiles");

enum { CACHE_LINE = 16 };  // in floats
enum { AHEAD = 8 };        // rows prefetched before they are packed

static const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
static size_t round_up(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}
/* Floats rounded up to an odd number of cache lines, so that rows of a block spread over all cache
 * sets. */
static size_t odd_lines(size_t n) { return ((n + CACHE_LINE - 1) / CACHE_LINE | 1) * CACHE_LINE; }

/* One head of one sample: what all steps below need to know. */
typedef struct head {
    size_t T, D;            // tokens, head size
    size_t D_padded;        // whole NR
    size_t row;             // floats from one packed row to the next
    size_t qkv_row, y_row;  // the same in the caller's arrays: 3C, C
    bool causal;
    // First element of this head's q, k and v in the caller's qkv.
    const float *q, *k, *v;
} head;

/* The extents of every head, without data: what scratch memory depends on. */
static head head_extents(const sh_attention_shape *s) {
    size_t C = s->H * s->D;
    return (head){.T = s->T,
                  .D = s->D,
                  .D_padded = round_up(s->D, NR),
                  .row = odd_lines(s->D),
                  .qkv_row = 3 * C,
                  .y_row = C,
                  .causal = s->causal};
}

/* Head `index` of B * H: sample index / H, head index % H. */
static head head_at(const sh_attention_shape *s, const float *qkv, size_t index) {
    size_t C = s->H * s->D, b = index / s->H, h = index % s->H;
    head x = head_extents(s);
    x.q = qkv + b * s->T * 3 * C + h * s->D;
    x.k = x.q + C;
    x.v = x.k + C;
    return x;
}

/* How many of the `width` keys from `key` on the query at `row` sees. */
static size_t visible(const head *x, size_t row, size_t key, size_t width) {
    if (!x->causal) return width;
    return row < key ? 0 : min_size(row + 1 - key, width);
}

/* Keys that at least one query of the MR-row tile at `row` sees: those of its last real query. */
static size_t tile_visible(const head *x, size_t row, size_t key, size_t width) {
    return visible(x, min_size(row + MR, x->T) - 1, key, width);
}

/* Prefetches one row. A head's rows lie 3C floats apart, which hardware prefetchers do not
 * follow. */
static inline void prefetch_row(const head *x, const float *row) {
    for (size_t d = 0; d < x->D; d += CACHE_LINE) __builtin_prefetch(row + d);
}

/* Copies rows of D columns into packed rows, times `factor`; columns to D_padded and rows to a
 * whole tile are zero. */
static void pack_rows(const head *x, const float *restrict from, size_t from_row, size_t count,
                      float factor, float *restrict to) {
    for (size_t i = 0; i < count; i++) {
        if (i + AHEAD < count) prefetch_row(x, from + (i + AHEAD) * from_row);
        for (size_t d = 0; d < x->D; d++) to[i * x->row + d] = factor * from[i * from_row + d];
        for (size_t d = x->D; d < x->D_padded; d++) to[i * x->row + d] = 0;
    }
    size_t padding = round_up(count, MR) - count;
    memset(to + count * x->row, 0, padding * x->row * sizeof *to);
}

/* Copies rows of D columns into panels (tokens / NR, D, NR), transposing LANES x LANES squares in
 * registers; tokens beyond `count` are zero. */
static void pack_panels(const head *x, const float *from, size_t from_row, size_t count,
                        float *to) {
    for (size_t first = 0; first < round_up(count, NR); first += LANES) {
        float *panel = to + first / NR * NR * x->D + first % NR;
        size_t here = first < count ? min_size(LANES, count - first) : 0, d = 0;
        const float *rows = from + first * from_row;
        for (size_t i = first + LANES; i < min_size(first + 2 * LANES, count); i++)
            prefetch_row(x, from + i * from_row);
        if (here == LANES)
            for (; d + LANES <= x->D; d += LANES)
                transpose_square(rows + d, from_row, panel + d * NR, NR);
        for (; d < x->D; d++)
            for (size_t i = 0; i < LANES; i++)
                panel[d * NR + i] = i < here ? rows[i * from_row + d] : 0;
    }
}

/* Copies packed rows back to the caller's rows, times `factor`, without the padding. */
static void unpack_rows(const head *x, const float *restrict from, size_t count, float factor,
                        float *restrict to, size_t to_row) {
    for (size_t i = 0; i < count; i++)
        for (size_t d = 0; d < x->D; d++) to[i * to_row + d] = factor * from[i * x->row + d];
}

/* A block of queries against a block of keys: positions, sizes and the stride of its scores. */
typedef struct block {
    size_t row, rows;   // first query, count
    size_t key, width;  // first key, count
    size_t score_row;   // floats from one row of scores to the next
} block;

/* scores (rows, width) = left (rows, D) . right (keys, in panels). Tiles above the diagonal of a
 * causal mask are skipped. */
static void multiply_scores(const head *x, const block *at, const float *left, const float *panels,
                            float *scores) {
    for (size_t key = 0; key < at->width; key += NR, panels += x->D * NR) {
        size_t first = 0;
        // First tile that sees a key of this panel.
        if (x->causal && at->key + key > at->row) first = (at->key + key - at->row) / MR * MR;
        for (size_t i = first; i < at->rows; i += MR)
            tile_set(x->D, left + i * x->row, x->row, panels, NR, scores + i * at->score_row + key,
                     at->score_row);
    }
}

/* out (rows, D) = or += weights (rows, width) . right (width, D). Hidden weights are 0 or beyond
 * `seen` and not read. */
static void multiply_values(const head *x, const block *at, bool adds, const float *weights,
                            const float *right, float *out) {
    for (size_t d = 0; d < x->D_padded; d += NR)
        for (size_t i = 0; i < at->rows; i += MR) {
            size_t seen = tile_visible(x, at->row + i, at->key, at->width);
            const float *tile_weights = weights + i * at->score_row;
            float *tile_out = out + i * x->row + d;
            if (adds)
                tile_add(seen, tile_weights, at->score_row, right + d, x->row, tile_out, x->row);
            else
                tile_set(seen, tile_weights, at->score_row, right + d, x->row, tile_out, x->row);
        }
}

/* out (width, D) += weights' (width, rows) . right (rows, D), without rows that see none of these
 * keys. */
static void multiply_transposed(const head *x, const block *at, const float *weights,
                                const float *right, float *out) {
    for (size_t d = 0; d < x->D_padded; d += NR)
        for (size_t key = 0; key < at->width; key += MR) {
            size_t first = 0;
            if (x->causal && at->key + key > at->row) first = at->key + key - at->row;
            if (first >= at->rows) continue;
            tile_add_transposed(at->rows - first, weights + first * at->score_row + key,
                                at->score_row, right + first * x->row + d, x->row,
                                out + key * x->row + d, x->row);
        }
}

#endif
