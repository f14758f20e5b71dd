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
 * Queries are packed with the factor log2(e) / sqrt(D): the exponentials are powers of two. */
#include "tensor/kernels/attention.h"

#include <math.h>
#include <omp.h>
#include <string.h>

#include "tensor/kernels/simd/attention_blocks.h"

/* Block sizes, in whole edges: the scores of a block fit in the second cache, a panel of keys and
 * a tile of queries in the first. */
enum {
    FORWARD_ROWS = 2 * EDGE,
    FORWARD_KEYS = 4 * EDGE,
    BACKWARD_ROWS = 2 * EDGE,
    BACKWARD_KEYS = 2 * EDGE
};

/* ---- forward ---- */

/* Scratch of one thread in the forward pass. m and l are the running maximum and sum of the online
 * softmax, in powers of two. */
typedef struct forward_scratch {
    float *k;       // panels, all keys
    float *v;       // rows, all keys
    float *q, *o;   // rows, one block of queries
    float *scores;  // (FORWARD_ROWS, odd_lines(FORWARD_KEYS))
    float m[FORWARD_ROWS], l[FORWARD_ROWS];
} forward_scratch;

/* Largest of `most` and the row. `count` is a multiple of NR, two vectors. */
static float row_maximum(const float *x, size_t count, float most) {
    vf a = vf_all(most), b = a;
    for (size_t j = 0; j < count; j += NR) {
        a = vf_max(vf_load(x + j), a);
        b = vf_max(vf_load(x + j + LANES), b);
    }
    return vf_largest(vf_max(a, b));
}

/* Replaces scores by 2^(score - most) and returns their sum. Hidden scores are -inf, which becomes
 * 0. */
static float row_exponentials(float *x, size_t count, float most) {
    vf sum = {0};
    for (size_t j = 0; j < count; j += LANES) {
        vf p = power_of_two(vf_load(x + j) - most);
        vf_store(x + j, p);
        sum += p;
    }
    return vf_sum(sum);
}

/* Rescales l and o of row i from the old maximum m to the larger `most`: times 2^(m - most). */
static void forward_rescale(const head *x, size_t i, float most, forward_scratch *own) {
    float shrink = power_of_two(vf_all(own->m[i] - most))[0];
    own->l[i] *= shrink;
    if (shrink == 1.0f) return;  // the common case once the maximum has been seen
    for (size_t d = 0; d < x->D_padded; d++) own->o[i * x->row + d] *= shrink;
}

/* Turns the scores of the MR rows at `first` into weights; m, l and o follow the new maximum. All
 * maxima are taken before all exponentials, so that no row waits for its own reduction. */
static void forward_softmax_tile(const head *x, const block *at, size_t first,
                                 forward_scratch *own) {
    size_t end = round_up(tile_visible(x, at->row + first, at->key, at->width), NR);
    size_t rows = min_size(MR, at->rows - first);
    float *scores = own->scores + first * at->score_row, most[MR];
    for (size_t i = 0; i < rows; i++) {
        float *row = scores + i * at->score_row;
        size_t seen = visible(x, at->row + first + i, at->key, at->width);
        // Masked keys and the padding up to whole vectors get weight 0.
        for (size_t j = seen; j < end; j++) row[j] = -INFINITY;
        most[i] = row_maximum(row, end, own->m[first + i]);
    }
    for (size_t i = 0; i < rows; i++) {
        if (at->key > 0) forward_rescale(x, first + i, most[i], own);
        own->l[first + i] += row_exponentials(scores + i * at->score_row, end, most[i]);
        own->m[first + i] = most[i];
    }
}

/* Softmax of one block, tile by tile; tiles that see no key of the block are skipped. */
static void forward_softmax(const head *x, const block *at, forward_scratch *own) {
    for (size_t first = 0; first < at->rows; first += MR)
        if (tile_visible(x, at->row + first, at->key, at->width) > 0)
            forward_softmax_tile(x, at, first, own);
}

/* One block of queries against all keys it may see; writes y and lse for it. */
static void forward_rows(const head *x, size_t row, float *y, float *lse, forward_scratch *own) {
    block at = {.row = row,
                .rows = min_size(FORWARD_ROWS, x->T - row),
                .score_row = odd_lines(FORWARD_KEYS)};
    float factor = LOG2_E / sqrtf((float)x->D);  // exponentials become powers of two
    pack_rows(x, x->q + row * x->qkv_row, x->qkv_row, at.rows, factor, own->q);
    for (size_t i = 0; i < at.rows; i++) own->m[i] = -INFINITY, own->l[i] = 0;

    size_t end = x->causal ? row + at.rows : x->T;  // later keys are hidden from all rows
    for (at.key = 0; at.key < end; at.key += FORWARD_KEYS) {
        at.width = min_size(FORWARD_KEYS, x->T - at.key);
        multiply_scores(x, &at, own->q, own->k + at.key * x->D, own->scores);
        forward_softmax(x, &at, own);
        multiply_values(x, &at, at.key > 0, own->scores, own->v + at.key * x->row, own->o);
    }
    for (size_t i = 0; i < at.rows; i++) {
        unpack_rows(x, own->o + i * x->row, 1, 1 / own->l[i], y + (row + i) * x->y_row, x->y_row);
        lse[row + i] = LN_2 * own->m[i] + logf(own->l[i]);  // back to natural logarithms
    }
}

/* ---- backward ---- */

/* Scratch of one thread in the backward pass, all packed with zero padding. */
typedef struct backward_scratch {
    float *q, *dy, *dq;  // rows, all queries
    float *lse, *delta;  // (T): lse in powers of two; dy . y
    float *k, *dk, *dv;  // rows, one block of keys
    float *k_panels, *v_panels;
    float *p, *ds;  // (BACKWARD_ROWS, odd_lines(BACKWARD_KEYS))
} backward_scratch;

/* Turns s and dp of one block into P = 2^(s - lse) and dS = P (dP - delta); masked entries become
 * 0, so that the products below need no mask. */
static void backward_softmax(const head *x, const block *at, backward_scratch *own) {
    size_t end = round_up(at->width, EDGE);
    for (size_t i = 0; i < at->rows; i++) {
        float *p = own->p + i * at->score_row, *ds = own->ds + i * at->score_row;
        size_t seen = visible(x, at->row + i, at->key, at->width);
        float lse = own->lse[at->row + i], delta = own->delta[at->row + i];
        for (size_t j = 0; j < seen; j += LANES) {  // whole vectors; the next loop cuts
            vf weight = power_of_two(vf_load(p + j) - lse);
            vf_store(p + j, weight);
            vf_store(ds + j, weight * (vf_load(ds + j) - delta));
        }
        for (size_t j = seen; j < end; j++) p[j] = ds[j] = 0;
    }
}

/* Which blocks of queries and keys a sweep visits, and which gradients it is for. */
typedef struct sweep {
    size_t row_first, row_step, key_first, key_step;
    bool wants_dq, wants_dkv;
} sweep;

/* One block of queries with one block of keys: recomputes the scores, then adds to dq, dk and dv
 * as the sweep wants. Five products of 2 rows width D flops
 * each. */
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

/* One block of keys meets every block of queries of the sweep that sees it; dk and dv are complete
 * afterwards. dq points at the head's q columns of dqkv. */
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
    unpack_rows(x, own->dk, at.width, LN_2, dk, x->qkv_row);  // undoes the log2(e) packed into q
    unpack_rows(x, own->dv, at.width, 1, dv, x->qkv_row);
}

/* All pairs of blocks of one sweep. dq adds up over the key blocks and is written at the end. */
static void backward_sweep(const head *x, const sweep *over, float *dq, backward_scratch *own) {
    for (size_t key = over->key_first; key < x->T; key += over->key_step)
        backward_keys(x, key, over, dq, own);
    if (!over->wants_dq) return;
    // dS carries no scale yet: s = q . k / sqrt(D).
    float factor = 1 / sqrtf((float)x->D);
    for (size_t row = over->row_first; row < x->T; row += over->row_step)
        unpack_rows(x, own->dq + row * x->row, min_size(BACKWARD_ROWS, x->T - row), factor,
                    dq + row * x->qkv_row, x->qkv_row);
}

/* Packs q and dy of all tokens, and computes delta = dy . y, which replaces the sum over a whole
 * row of P dP. */
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

/* With fewer heads than threads each head is split into parts; part i takes blocks i, i + parts,
 * ... so that causal work is spread evenly. */
static size_t parts_of(size_t heads, size_t threads) {
    return heads == 0 || heads >= threads ? 1 : (threads + heads - 1) / heads;
}

/* Takes `count` floats of scratch, rounded up to whole cache lines. base NULL: only counts, so
 * that sizes and layout come from the same code. */
static float *take(float *base, size_t *used, size_t count) {
    float *taken = base == NULL ? NULL : base + *used;
    *used += round_up(count, CACHE_LINE);
    return taken;
}

/* Lays out a thread's forward scratch; returns its size in floats. */
static size_t forward_layout(const head *x, float *base, forward_scratch *own) {
    size_t used = 0;
    own->k = take(base, &used, round_up(x->T, NR) * x->D);
    own->v = take(base, &used, round_up(x->T, MR) * x->row);
    own->q = take(base, &used, FORWARD_ROWS * x->row);
    own->o = take(base, &used, FORWARD_ROWS * x->row);
    own->scores = take(base, &used, FORWARD_ROWS * odd_lines(FORWARD_KEYS));
    return used;
}

/* Lays out a thread's backward scratch; returns its size in floats. */
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

/* The larger of both passes: they share the memory. */
static size_t floats_per_thread(const sh_attention_shape *s) {
    head x = head_extents(s);
    size_t forward = forward_layout(&x, NULL, &(forward_scratch){0});
    size_t backward = backward_layout(&x, NULL, &(backward_scratch){0});
    return forward > backward ? forward : backward;
}

static size_t scratch_bytes(const sh_attention_shape *s, int threads) {
    return (size_t)threads * floats_per_thread(s) * sizeof(float);
}

/* Heads (or parts of them) over threads. Every part packs the head's keys and values for itself:
 * no barrier, at the price of packing them again. */
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

/* Heads over threads. A split head runs two sweeps, by rows for dq and by keys for dk and dv. */
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
