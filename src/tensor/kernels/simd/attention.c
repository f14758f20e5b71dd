/* Attention in blocks, after FlashAttention-2 (Dao 2023).
 *
 *   B batch, T tokens, H heads, D head size; per head and visible (query, key) pair
 *   forward 4 D flops (S, O), backward 10 D (S, dP, dV, dK, dQ); memory O(T D) per thread
 *
 * Forward keeps for each row the largest score m seen so far, l = sum exp(s - m) and O = sum
 * exp(s - m) v; a key block with a larger m rescales l and O, so that O / l is always the softmax
 * over the keys seen. Backward recomputes P = exp(s - lse) block by block and needs of the rest of
 * the row only delta = dy . y, because sum_j P_j dP_j = dy . sum_j P_j v_j.
 *
 * Queries are packed with the factor log2(e) / sqrt(D): the exponentials are powers of two.
 *
 * Packed blocks come in two forms. "Rows" are row-major, padded with zeros to whole vectors, a row
 * being an odd number of cache lines so that columns do not collide in the cache. "Panels" are
 * transposed: NR tokens beside each other for every channel, (tokens / NR, D, NR). */
#include "tensor/kernels/attention.h"

#include <math.h>
#include <omp.h>
#include <stdint.h>
#include <string.h>

#include "tensor/kernels/simd/tile.h"

/* Block edges are multiples of MR and of NR: a row tile then lies on one side of a block edge, and
 * every row that meets a key block sees at least one of its keys. */
enum { EDGE = 48, FORWARD_ROWS = 96, FORWARD_KEYS = 192, BACKWARD_ROWS = 96, BACKWARD_KEYS = 96 };
_Static_assert(EDGE % MR == 0 && EDGE % NR == 0, "blocks are whole tiles");

enum { CACHE_LINE = 16 };  // in floats
enum { AHEAD = 8 };        // rows prefetched before they are packed

static const float LOG2_E = 1.44269504f, LN_2 = 0.693147181f;

static size_t min_size(size_t a, size_t b) { return a < b ? a : b; }
static size_t round_up(size_t n, size_t multiple) {
    return (n + multiple - 1) / multiple * multiple;
}
static size_t odd_lines(size_t n) { return ((n + CACHE_LINE - 1) / CACHE_LINE | 1) * CACHE_LINE; }

/* 2^x, relative error below 2.5e-7, 0 below x = -126.5; NaN stays NaN. For x <= 127.
 *
 * Adding 1.5 * 2^23 + 127 leaves round(x) + 127 in the low bits, which shifted are 2^round(x);
 * the polynomial is the minimax one of degree 5 for the fraction in [-1/2, 1/2]. */
static inline float power_of_two(float x) {
    const float magic = 12582912.0f + 127.0f;
    x = -127.0f > x ? -127.0f : x;
    float shifted = x + magic, f = x - (shifted - magic);
    uint32_t bits;
    memcpy(&bits, &shifted, sizeof bits);
    bits <<= 23;
    float scale;
    memcpy(&scale, &bits, sizeof scale);
    float p = 0.00132764725f;
    p = p * f + 0.00967554096f;
    p = p * f + 0.0555071309f;
    p = p * f + 0.240221202f;
    p = p * f + 0.693146944f;
    p = p * f + 1.0f;
    return p * scale;
}

/* One head of one sample: what all steps below need to know. */
typedef struct head {
    size_t T, D;
    size_t D_padded;        // whole NR
    size_t row;             // floats from one packed row to the next
    size_t qkv_row, y_row;  // the same in the caller's arrays: 3C, C
    bool causal;
    const float *q, *k, *v;
} head;

static head head_at(const sh_attention_shape *s, const float *qkv, size_t index) {
    size_t C = s->H * s->D, b = index / s->H, h = index % s->H;
    const float *q = qkv + b * s->T * 3 * C + h * s->D;
    return (head){.T = s->T,
                  .D = s->D,
                  .D_padded = round_up(s->D, NR),
                  .row = odd_lines(s->D),
                  .qkv_row = 3 * C,
                  .y_row = C,
                  .causal = s->causal,
                  .q = q,
                  .k = q + C,
                  .v = q + 2 * C};
}

/* How many of the `width` keys from `key` on the query at `row` sees. */
static size_t visible(const head *x, size_t row, size_t key, size_t width) {
    if (!x->causal) return width;
    return row < key ? 0 : min_size(row + 1 - key, width);
}

/* The same for the tile of MR queries that starts at `row`: what its last real query sees. */
static size_t tile_visible(const head *x, size_t row, size_t key, size_t width) {
    return visible(x, min_size(row + MR, x->T) - 1, key, width);
}

/* A head's rows lie 3C apart, too far for the processor to guess the next one. */
static inline void prefetch_row(const head *x, const float *row) {
    for (size_t d = 0; d < x->D; d += CACHE_LINE) __builtin_prefetch(row + d);
}

/* Rows of D columns into packed rows, times `factor`; zeros up to a whole tile. */
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

/* Rows of D columns into panels; tokens beyond `count` are zero. */
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

static void unpack_rows(const head *x, const float *restrict from, size_t count, float factor,
                        float *restrict to, size_t to_row) {
    for (size_t i = 0; i < count; i++)
        for (size_t d = 0; d < x->D; d++) to[i * to_row + d] = factor * from[i * x->row + d];
}

/* A block of queries against a block of keys: positions, extents, and where scores stand. */
typedef struct block {
    size_t row, rows;   // first query, count
    size_t key, width;  // first key, count
    size_t score_row;   // floats from one row of scores to the next
} block;

/* scores (rows, width) = left (rows) . right (keys, in panels), where anything is visible. */
static void multiply_scores(const head *x, const block *at, const float *left, const float *panels,
                            float *scores) {
    for (size_t key = 0; key < at->width; key += NR, panels += x->D * NR) {
        size_t first = 0;
        if (x->causal && at->key + key > at->row) first = (at->key + key - at->row) / MR * MR;
        for (size_t i = first; i < at->rows; i += MR)
            tile_set(x->D, left + i * x->row, x->row, panels, NR, scores + i * at->score_row + key,
                     at->score_row);
    }
}

/* out (rows, D) (+)= weights (rows, width) . right (width, D), hidden weights being 0 or skipped.
 */
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

/* out (width, D) += weights' (width, rows) . right (rows, D), without the rows that see nothing. */
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

/* ---- forward ---- */

typedef struct forward_scratch {
    float *k;       // panels, all keys
    float *v;       // rows, all keys
    float *q, *o;   // rows, one block of queries
    float *scores;  // (FORWARD_ROWS, odd_lines(FORWARD_KEYS))
    float m[FORWARD_ROWS], l[FORWARD_ROWS];
} forward_scratch;

static float row_maximum(const float *x, size_t count, float most) {
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < count; i++) most = x[i] > most ? x[i] : most;
    return most;
}

static float row_exponentials(float *x, size_t count, float most) {
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) {
        x[i] = power_of_two(x[i] - most);
        sum += x[i];
    }
    return sum;
}

/* l and o of row i, summed against `m`, go over to the larger `most`. */
static void forward_rescale(const head *x, size_t i, float most, forward_scratch *own) {
    float shrink = power_of_two(own->m[i] - most);
    own->l[i] *= shrink;
    if (shrink == 1.0f) return;
    for (size_t d = 0; d < x->D_padded; d++) own->o[i * x->row + d] *= shrink;
}

/* Scores of the tile of rows at `first` become weights; m, l and o follow the new maximum. All
 * maxima come before all exponentials, so that no row waits for the end of its own reduction. */
static void forward_softmax_tile(const head *x, const block *at, size_t first,
                                 forward_scratch *own) {
    size_t end = round_up(tile_visible(x, at->row + first, at->key, at->width), NR);
    size_t rows = min_size(MR, at->rows - first);
    float *scores = own->scores + first * at->score_row, most[MR];
    for (size_t i = 0; i < rows; i++) {
        float *row = scores + i * at->score_row;
        size_t seen = visible(x, at->row + first + i, at->key, at->width);
        for (size_t j = seen; j < end; j++) row[j] = -INFINITY;
        most[i] = row_maximum(row, end, own->m[first + i]);
    }
    for (size_t i = 0; i < rows; i++) {
        if (at->key > 0) forward_rescale(x, first + i, most[i], own);
        own->l[first + i] += row_exponentials(scores + i * at->score_row, end, most[i]);
        own->m[first + i] = most[i];
    }
}

static void forward_softmax(const head *x, const block *at, forward_scratch *own) {
    for (size_t first = 0; first < at->rows; first += MR)
        if (tile_visible(x, at->row + first, at->key, at->width) > 0)
            forward_softmax_tile(x, at, first, own);
}

static void forward_rows(const head *x, size_t row, float *y, float *lse, forward_scratch *own) {
    block at = {.row = row,
                .rows = min_size(FORWARD_ROWS, x->T - row),
                .score_row = odd_lines(FORWARD_KEYS)};
    float factor = LOG2_E / sqrtf((float)x->D);
    pack_rows(x, x->q + row * x->qkv_row, x->qkv_row, at.rows, factor, own->q);
    for (size_t i = 0; i < at.rows; i++) own->m[i] = -INFINITY, own->l[i] = 0;

    size_t end = x->causal ? row + at.rows : x->T;
    for (at.key = 0; at.key < end; at.key += FORWARD_KEYS) {
        at.width = min_size(FORWARD_KEYS, x->T - at.key);
        multiply_scores(x, &at, own->q, own->k + at.key * x->D, own->scores);
        forward_softmax(x, &at, own);
        multiply_values(x, &at, at.key > 0, own->scores, own->v + at.key * x->row, own->o);
    }
    for (size_t i = 0; i < at.rows; i++) {
        unpack_rows(x, own->o + i * x->row, 1, 1 / own->l[i], y + (row + i) * x->y_row, x->y_row);
        lse[row + i] = LN_2 * own->m[i] + logf(own->l[i]);
    }
}

/* ---- backward ---- */

typedef struct backward_scratch {
    float *q, *dy, *dq;  // rows, all queries
    float *lse, *delta;  // (T): lse in powers of two; dy . y
    float *k, *dk, *dv;  // rows, one block of keys
    float *k_panels, *v_panels;
    float *p, *ds;  // (BACKWARD_ROWS, odd_lines(BACKWARD_KEYS))
} backward_scratch;

/* s and dp of one block become P and dS = P (dP - delta); what the mask hides becomes 0. */
static void backward_softmax(const head *x, const block *at, backward_scratch *own) {
    size_t end = round_up(at->width, EDGE);
    for (size_t i = 0; i < at->rows; i++) {
        float *restrict p = own->p + i * at->score_row, *restrict ds = own->ds + i * at->score_row;
        size_t seen = visible(x, at->row + i, at->key, at->width);
        float lse = own->lse[at->row + i], delta = own->delta[at->row + i];
#pragma omp simd
        for (size_t j = 0; j < round_up(seen, LANES); j++) {  // whole vectors, cut below
            p[j] = power_of_two(p[j] - lse);
            ds[j] = p[j] * (ds[j] - delta);
        }
        for (size_t j = seen; j < end; j++) p[j] = ds[j] = 0;
    }
}

/* Which blocks of queries and keys a sweep visits, and which gradients it is for. */
typedef struct sweep {
    size_t row_first, row_step, key_first, key_step;
    bool wants_dq, wants_dkv;
} sweep;

static void backward_pair(const head *x, const block *at, const sweep *over,
                          backward_scratch *own) {
    const float *q = own->q + at->row * x->row, *dy = own->dy + at->row * x->row;
    multiply_scores(x, at, q, own->k_panels, own->p);
    multiply_scores(x, at, dy, own->v_panels, own->ds);
    backward_softmax(x, at, own);
    if (over->wants_dq)
        multiply_values(x, at, at->key > 0, own->ds, own->k, own->dq + at->row * x->row);
    if (!over->wants_dkv) return;
    multiply_transposed(x, at, own->p, dy, own->dv);
    multiply_transposed(x, at, own->ds, q, own->dk);
}

/* One block of keys meets the blocks of queries that see it. dq points at the head's q columns. */
static void backward_keys(const head *x, size_t key, const sweep *over, float *dq,
                          backward_scratch *own) {
    block at = {.key = key,
                .width = min_size(BACKWARD_KEYS, x->T - key),
                .score_row = odd_lines(BACKWARD_KEYS)};
    const float *k = x->k + key * x->qkv_row, *v = x->v + key * x->qkv_row;
    pack_panels(x, k, x->qkv_row, at.width, own->k_panels);
    pack_panels(x, v, x->qkv_row, at.width, own->v_panels);
    pack_rows(x, k, x->qkv_row, at.width, 1, own->k);
    size_t sum_bytes = round_up(at.width, MR) * x->row * sizeof(float);
    memset(own->dk, 0, sum_bytes);
    memset(own->dv, 0, sum_bytes);

    for (at.row = over->row_first; at.row < x->T; at.row += over->row_step) {
        at.rows = min_size(BACKWARD_ROWS, x->T - at.row);
        if (!x->causal || at.row + at.rows > key) backward_pair(x, &at, over, own);
    }
    if (!over->wants_dkv) return;
    size_t C = x->y_row;
    float *dk = dq + C + key * x->qkv_row, *dv = dk + C;
    unpack_rows(x, own->dk, at.width, LN_2, dk, x->qkv_row);  // q carries log2(e) too much
    unpack_rows(x, own->dv, at.width, 1, dv, x->qkv_row);
}

static void backward_sweep(const head *x, const sweep *over, float *dq, backward_scratch *own) {
    for (size_t key = over->key_first; key < x->T; key += over->key_step)
        backward_keys(x, key, over, dq, own);
    if (!over->wants_dq) return;
    float factor = 1 / sqrtf((float)x->D);
    for (size_t row = over->row_first; row < x->T; row += over->row_step)
        unpack_rows(x, own->dq + row * x->row, min_size(BACKWARD_ROWS, x->T - row), factor,
                    dq + row * x->qkv_row, x->qkv_row);
}

static void backward_prepare(const head *x, const float *y, const float *lse, const float *dy,
                             backward_scratch *own) {
    pack_rows(x, x->q, x->qkv_row, x->T, LOG2_E / sqrtf((float)x->D), own->q);
    pack_rows(x, dy, x->y_row, x->T, 1, own->dy);
    for (size_t t = 0; t < x->T; t++) {
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (size_t d = 0; d < x->D; d++) sum += dy[t * x->y_row + d] * y[t * x->y_row + d];
        own->delta[t] = sum;
        own->lse[t] = LOG2_E * lse[t];
    }
}

/* ---- heads over threads ---- */

/* With fewer heads than threads each head is split in parts, which take every parts-th block. */
static size_t parts_of(size_t heads, size_t threads) {
    return heads == 0 || heads >= threads ? 1 : (threads + heads - 1) / heads;
}

/* Takes `count` floats, whole cache lines; with `*at` NULL it only counts. */
static float *take(float *base, size_t *used, size_t count) {
    float *taken = base == NULL ? NULL : base + *used;
    *used += round_up(count, CACHE_LINE);
    return taken;
}

static size_t forward_layout(const head *x, float *base, forward_scratch *own) {
    size_t used = 0;
    own->k = take(base, &used, round_up(x->T, NR) * x->D);
    own->v = take(base, &used, round_up(x->T, MR) * x->row);
    own->q = take(base, &used, FORWARD_ROWS * x->row);
    own->o = take(base, &used, FORWARD_ROWS * x->row);
    own->scores = take(base, &used, FORWARD_ROWS * odd_lines(FORWARD_KEYS));
    return used;
}

static size_t backward_layout(const head *x, float *base, backward_scratch *own) {
    size_t used = 0, queries = round_up(x->T, BACKWARD_ROWS);
    size_t pairs = BACKWARD_ROWS * odd_lines(BACKWARD_KEYS);
    own->q = take(base, &used, queries * x->row);
    own->dy = take(base, &used, queries * x->row);
    own->dq = take(base, &used, queries * x->row);
    own->lse = take(base, &used, x->T);
    own->delta = take(base, &used, x->T);
    own->k = take(base, &used, BACKWARD_KEYS * x->row);
    own->dk = take(base, &used, BACKWARD_KEYS * x->row);
    own->dv = take(base, &used, BACKWARD_KEYS * x->row);
    own->k_panels = take(base, &used, BACKWARD_KEYS * x->D);
    own->v_panels = take(base, &used, BACKWARD_KEYS * x->D);
    own->p = take(base, &used, pairs);
    own->ds = take(base, &used, pairs);
    return used;
}

static size_t floats_per_thread(const sh_attention_shape *s) {
    head x = head_at(s, NULL, 0);
    size_t forward = forward_layout(&x, NULL, &(forward_scratch){0});
    size_t backward = backward_layout(&x, NULL, &(backward_scratch){0});
    return forward > backward ? forward : backward;
}

static size_t scratch_bytes(const sh_attention_shape *s, int threads) {
    return (size_t)threads * floats_per_thread(s) * sizeof(float);
}

static void forward(const sh_attention_shape *s, const float *qkv, float *y, float *lse,
                    void *scratch) {
    size_t heads = s->B * s->H, parts = parts_of(heads, (size_t)omp_get_max_threads());
    size_t own_floats = floats_per_thread(s);
#pragma omp parallel for schedule(static)
    for (size_t task = 0; task < heads * parts; task++) {
        size_t index = task / parts, part = task % parts;
        head x = head_at(s, qkv, index);
        forward_scratch own;
        forward_layout(&x, (float *)scratch + (size_t)omp_get_thread_num() * own_floats, &own);
        pack_panels(&x, x.k, x.qkv_row, x.T, own.k);
        pack_rows(&x, x.v, x.qkv_row, x.T, 1, own.v);
        float *y_head = y + index / s->H * s->T * x.y_row + index % s->H * s->D;
        for (size_t row = part * FORWARD_ROWS; row < x.T; row += parts * FORWARD_ROWS)
            forward_rows(&x, row, y_head, lse + index * s->T, &own);
    }
}

static void backward(const sh_attention_shape *s, const float *qkv, const float *y,
                     const float *lse, const float *dy, float *dqkv, void *scratch) {
    size_t heads = s->B * s->H, parts = parts_of(heads, (size_t)omp_get_max_threads());
    size_t own_floats = floats_per_thread(s);
#pragma omp parallel for schedule(static)
    for (size_t task = 0; task < heads * parts; task++) {
        size_t index = task / parts, part = task % parts;
        head x = head_at(s, qkv, index);
        backward_scratch own;
        backward_layout(&x, (float *)scratch + (size_t)omp_get_thread_num() * own_floats, &own);
        size_t at = index / s->H * s->T * x.y_row + index % s->H * s->D;
        float *dq = dqkv + (x.q - qkv);
        backward_prepare(&x, y + at, lse + index * s->T, dy + at, &own);
        if (parts == 1) {
            sweep all = {0, BACKWARD_ROWS, 0, BACKWARD_KEYS, true, true};
            backward_sweep(&x, &all, dq, &own);
            continue;
        }
        /* Both sums stay in one order if scores are computed twice, once for each. */
        sweep rows = {part * BACKWARD_ROWS, parts * BACKWARD_ROWS, 0, BACKWARD_KEYS, true, false};
        sweep keys = {0, BACKWARD_ROWS, part * BACKWARD_KEYS, parts * BACKWARD_KEYS, false, true};
        backward_sweep(&x, &rows, dq, &own);
        backward_sweep(&x, &keys, dq, &own);
    }
}

const sh_attention_kernels SH_SIMD(sh_attention_table) = {
    .scratch_bytes = scratch_bytes,
    .forward = forward,
    .backward = backward,
};
