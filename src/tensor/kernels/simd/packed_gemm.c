/* Goto's algorithm (Goto, van de Geijn 2008): B is packed into panels of 16 columns that stay in
 * L1, A into slivers of 6 rows that stay in L2, and a 6 x 16 tile of C lives in twelve vector
 * registers.
 *
 *   per tile and k: 2 vector loads of B, 6 broadcasts of A, 12 fused multiply-adds
 *
 * A product of few rows packs all of A and then B by a few panels at a time, which go from memory
 * to the first caches and no further. One of fewer columns than a tile is computed turned round,
 * and written through a buffer that stays in L2.
 *
 * Threads split the longer side of C and share nothing, so there is no barrier and every element of
 * C is summed in the same order at any thread count. */
#include "tensor/kernels/packed_gemm.h"

#include "base/memory.h"
#include "base/status.h"
#include "tensor/kernels/simd/packed_gemm_pack.h"

enum {
    KC_MOST = 384,          // k per block: a panel of B is at most 24 KiB
    NC_MOST = 1536,         // columns of B packed at a time: at most 2.25 MiB
    MC = 120,               // rows of A per block: at most 180 KiB
    LOW_MOST = 192,         // rows of an A that is packed whole: at most 288 KiB
    LOW_NC = 4 * NR,        // columns of B that then are packed at a time: at most 96 KiB
    PACK_A_LEAST = 8 * NR,  // columns that pay for packing rows of A that lie well already
    UNROLL = 8,
};

/* One k of a tile: rows of A at a + i * row, 16 packed columns of B. The sums stay in registers,
 * because `rows` is a constant wherever this is inlined. */
static inline __attribute__((always_inline)) void multiply_once(int rows, const float *a,
                                                                int64_t row, const float *b,
                                                                v8 sum[MR][2]) {
    v8 b0 = *(const v8 *)b, b1 = *(const v8 *)(b + 8);
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        float x = a[i * row];
        v8 broadcast = {x, x, x, x, x, x, x, x};
        sum[i][0] += broadcast * b0;
        sum[i][1] += broadcast * b1;
    }
}

/* All k of a tile, UNROLL at a time; `step` is the stride of k in A. */
static inline __attribute__((always_inline)) void multiply(int rows, int64_t k, const float *a,
                                                           int64_t row, int64_t step,
                                                           const float *b, v8 sum[MR][2]) {
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = (v8){0};
    int64_t p = 0;
    for (; p + UNROLL <= k; p += UNROLL, a += UNROLL * step, b += UNROLL * NR) {
#pragma GCC unroll 8
        for (int u = 0; u < UNROLL; u++) multiply_once(rows, a + u * step, row, b + u * NR, sum);
    }
    for (; p < k; p++, a += step, b += NR) multiply_once(rows, a, row, b, sum);
}

/* What is done to a finished tile: where it goes, and the fused operations. */
typedef struct tile_end {
    float *c;
    int64_t row;        // stride of C
    int columns;        // 1..16 of this tile exist
    bool add;           // C holds earlier sums
    const float *bias;  // at this tile's column, NULL until the last block of k
    bool relu;          // in the last block of k
} tile_end;

/* max(x, 0), except that NaN passes. */
static inline __attribute__((always_inline)) v8 relu8(v8 x) {
    // A comparison gives all ones or zeros per lane; written so that NaN passes.
    return (v8)(~(x < (v8){0}) & (i8)x);
}

/* Writes a full tile from registers: bias, earlier sums, ReLU. */
static inline __attribute__((always_inline)) void finish_full(int rows, v8 sum[MR][2],
                                                              const tile_end *end) {
    v8 bias0 = {0}, bias1 = {0};
    if (end->bias != NULL) {
        bias0 = load(end->bias);
        bias1 = load(end->bias + 8);
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        float *c = end->c + i * end->row;
        v8 x = sum[i][0] + bias0, y = sum[i][1] + bias1;
        if (end->add) {
            x += load(c);
            y += load(c + 8);
        }
        if (end->relu) {
            x = relu8(x);
            y = relu8(y);
        }
        store(c, x);
        store(c + 8, y);
    }
}

/* Fetches the tile's lines of C while the tile is summed, since C comes from memory. */
static inline __attribute__((always_inline)) void fetch_early(int rows, const tile_end *end) {
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch(end->c + i * end->row, 1);
        __builtin_prefetch(end->c + i * end->row + NR - 1, 1);
    }
}

/* Writes a tile at the edge of C element by element; `tile` holds its sums, rows `tile_row` floats
 * apart. */
static void finish_part(int rows, int64_t tile_row, const float *tile, const tile_end *end) {
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < end->columns; j++) {
            float *c = &end->c[i * end->row + j];
            float x = tile[i * tile_row + j];
            if (end->bias != NULL) x += end->bias[j];
            if (end->add) x += *c;
            *c = end->relu && x < 0 ? 0 : x;
        }
    }
}

/* Writes whole rows of 8 of a turned result. */
static void finish_eight(int rows, const float *tile, const tile_end *end) {
    v8 bias = end->bias != NULL ? load(end->bias) : (v8){0};
    for (int i = 0; i < rows; i++) {
        float *c = end->c + i * end->row;
        v8 x = load(tile + i * 8) + bias;
        if (end->add) x += load(c);
        store(c, end->relu ? relu8(x) : x);
    }
}

/* Sums one tile and writes it. */
static inline __attribute__((always_inline)) void tile_rows(int rows, int64_t k, const float *a,
                                                            int64_t row, int64_t step,
                                                            const float *b, const tile_end *end) {
    v8 sum[MR][2];
    bool full = end->columns == NR;
    if (full) fetch_early(rows, end);
    multiply(rows, k, a, row, step, b, sum);
    if (full) {
        finish_full(rows, sum, end);
        return;
    }
    float tile[MR * NR] __attribute__((aligned(32)));
    for (int i = 0; i < rows; i++) {
        *(v8 *)(tile + i * NR) = sum[i][0];
        *(v8 *)(tile + i * NR + 8) = sum[i][1];
    }
    finish_part(rows, NR, tile, end);
}

/* Chooses the code for this number of rows. The two strides of A that occur, packed and in place,
 * are made constants for the compiler. */
static void tile_any(int rows, int64_t k, const float *a, int64_t row, bool packed, const float *b,
                     const tile_end *end) {
#define CASE(r)                                 \
    case r:                                     \
        if (packed)                             \
            tile_rows(r, k, a, 1, MR, b, end);  \
        else                                    \
            tile_rows(r, k, a, row, 1, b, end); \
        break;
    switch (rows) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) }
#undef CASE
}

/* A product as it is computed: the one asked for, its transpose, or a part of either. */
typedef struct problem {
    int64_t m, n, k;
    const float *a, *b;
    int64_t a_stride, b_stride;
    bool a_by_k;  // A is stored (k, m)
    bool b_by_n;  // B is stored (n, k)
    float *c;
    int64_t c_stride;
    bool turned;  // C is stored (n, m)
    bool accumulate, relu;
    const float *bias;
    const sh_activation_row *activation;
    float *slope;  // these two lie as C does
    const float *factor;
} problem;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Equal blocks of k, none larger than KC_MOST: a short last block would waste a pass over C. */
static int64_t block_of_k(int64_t k) { return k == 0 ? 1 : ceil_div(k, ceil_div(k, KC_MOST)); }

/* Rows [i0, i1) and columns [j0, j1) of a product; all pointers move along, in C by its stored
 * orientation. */
static problem part_of(const problem *q, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
    problem part = *q;
    part.m = i1 - i0;
    part.n = j1 - j0;
    part.a += q->a_by_k ? i0 : i0 * q->a_stride;
    part.b += q->b_by_n ? j0 * q->b_stride : j0;
    part.c += q->turned ? j0 * q->c_stride + i0 : i0 * q->c_stride + j0;
    if (q->bias != NULL) part.bias += q->turned ? i0 : j0;
    if (q->slope != NULL) part.slope += part.c - q->c;
    if (q->factor != NULL) part.factor += part.c - q->c;
    return part;
}

/* Applies activation and factor to finished values of C from element `at` on, while they are in
 * the cache. */
static void activate(const problem *q, int64_t at, int64_t rows, int64_t columns) {
    float *restrict c = q->c + at;
    if (q->activation != NULL)
        q->activation->apply(c, q->slope != NULL ? q->slope + at : NULL, (size_t)rows,
                             (size_t)columns, (size_t)q->c_stride);
    if (q->factor == NULL) return;
    const float *restrict factor = q->factor + at;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) c[i * q->c_stride + j] *= factor[i * q->c_stride + j];
}

/* Multiplies rows [i0, i1) with the block of k at p, tile by tile. Later blocks of k add to C;
 * bias and ReLU come with the last one. `slivers` NULL: A is read in place. */
static void multiply_block(const problem *q, int64_t i0, int64_t i1, int64_t p, int64_t kc,
                           const float *panels, const float *slivers) {
    bool last = p + kc == q->k;
    for (int64_t j = 0; j < q->n; j += NR) {
        for (int64_t i = i0; i < i1; i += MR) {
            const float *a =
                slivers != NULL ? slivers + (i - i0) / MR * kc * MR : q->a + i * q->a_stride + p;
            tile_end end = {
                .c = q->c + i * q->c_stride + j,
                .row = q->c_stride,
                .columns = (int)least(NR, q->n - j),
                .add = q->accumulate || p > 0,
                .bias = last && q->bias != NULL ? q->bias + j : NULL,
                .relu = last && q->relu,
            };
            tile_any((int)least(MR, i1 - i), kc, a, q->a_stride, slivers != NULL,
                     panels + j / NR * kc * NR, &end);
        }
        if (last) activate(q, i0 * q->c_stride + j, i1 - i0, least(NR, q->n - j));
    }
}

/* A product of at most LOW_MOST rows, not turned: A is packed whole per block of k and B a few
 * panels at a time, so B goes from memory to the first caches only once. */
static void multiply_low(const problem *q, bool pack_a, float *scratch) {
    int64_t kc_most = block_of_k(q->k);
    float *panels = scratch, *slivers = scratch + kc_most * LOW_NC;
    for (int64_t p = 0; p < q->k; p += kc_most) {
        int64_t kc = least(kc_most, q->k - p);
        if (pack_a)
            pack_slivers(slivers, q->a_by_k ? q->a + p * q->a_stride : q->a + p, q->a_stride,
                         q->a_by_k, kc, q->m);
        for (int64_t j = 0; j < q->n; j += LOW_NC) {
            problem part = part_of(q, 0, q->m, j, least(q->n, j + LOW_NC));
            pack_panels(panels, q->b_by_n ? part.b + p : part.b + p * q->b_stride, q->b_stride,
                        q->b_by_n, kc, part.n);
            multiply_block(&part, 0, q->m, p, kc, panels, pack_a ? slivers : NULL);
        }
    }
}

/* A product of at most NC_MOST columns, not turned: B is packed whole per block of k, A by MC
 * rows. */
static void multiply_columns(const problem *q, bool pack_a, float *scratch) {
    int64_t kc_most = block_of_k(q->k);
    float *panels = scratch, *slivers = scratch + kc_most * sh_round_up(q->n, NR);
    for (int64_t p = 0; p < q->k; p += kc_most) {
        int64_t kc = least(kc_most, q->k - p);
        pack_panels(panels, q->b_by_n ? q->b + p : q->b + p * q->b_stride, q->b_stride, q->b_by_n,
                    kc, q->n);
        for (int64_t i = 0; i < q->m; i += MC) {
            int64_t ie = least(q->m, i + MC);
            if (pack_a)
                pack_slivers(slivers,
                             q->a_by_k ? q->a + p * q->a_stride + i : q->a + i * q->a_stride + p,
                             q->a_stride, q->a_by_k, kc, ie - i);
            multiply_block(q, i, ie, p, kc, panels, pack_a ? slivers : NULL);
        }
    }
}

/* Transposes `sums`, rows of n, into C (n, m), with bias, earlier sums and ReLU. */
static void turn_back(const problem *q, const float *sums) {
    for (int64_t i = 0; i < q->m; i += 8) {
        for (int64_t j = 0; j < q->n; j += 8) {
            int wide = (int)least(8, q->m - i), rows = (int)least(8, q->n - j);
            float tile[8 * 8];
            if (wide == 8 && rows == 8)
                transpose8(8, sums + i * q->n + j, q->n, tile, 8);
            else
                for (int u = 0; u < rows; u++)
                    for (int v = 0; v < wide; v++) tile[u * 8 + v] = sums[(i + v) * q->n + j + u];
            tile_end end = {.c = q->c + j * q->c_stride + i,
                            .row = q->c_stride,
                            .columns = wide,
                            .add = q->accumulate,
                            .bias = q->bias != NULL ? q->bias + i : NULL,
                            .relu = q->relu};
            if (wide == 8)
                finish_eight(rows, tile, &end);
            else
                finish_part(rows, 8, tile, &end);
        }
    }
}

/* A turned product: computes C' into a buffer that stays in the second cache, then writes it the
 * right way round. */
static void multiply_turned(const problem *q, float *scratch) {
    problem plain = *q;
    plain.c = scratch;
    plain.c_stride = q->n;
    plain.turned = plain.accumulate = plain.relu = false;
    plain.bias = plain.factor = NULL;
    plain.activation = NULL;
    multiply_columns(&plain, q->a_by_k || q->n >= PACK_A_LEAST,
                     scratch + sh_round_up((size_t)(q->m * q->n), NR));
    turn_back(q, scratch);
    activate(q, 0, q->n, q->m);
}

/* The work of one thread, by the shape of its part. */
static void multiply_part(const problem *q, float *scratch) {
    bool pack_a = q->a_by_k || q->n >= PACK_A_LEAST;
    if (!q->turned && q->m <= LOW_MOST) {
        multiply_low(q, pack_a, scratch);
        return;
    }
    for (int64_t j = 0; j < q->n; j += NC_MOST) {
        problem part = part_of(q, 0, q->m, j, least(q->n, j + NC_MOST));
        if (q->turned)
            multiply_turned(&part, scratch);
        else
            multiply_columns(&part, pack_a, scratch);
    }
}

/* Narrow results are computed transposed, so that vectors run along their long side. */
static bool turns(int64_t m, int64_t n) { return n < NR && m >= NR; }

/* Scratch floats of one thread, enough for every path above, whichever way round. */
static size_t thread_floats(int64_t m, int64_t n, int64_t k) {
    int64_t width = sh_round_up(least(NC_MOST, m > n ? m : n), NR);
    int64_t columns = width + MC, low = LOW_NC + LOW_MOST;
    size_t floats = (size_t)(block_of_k(k) * (columns > low ? columns : low)) + PACK_SLACK;
    if (turns(m, n)) floats += sh_round_up((size_t)(least(m, NC_MOST) * n), NR);
    return sh_round_up(floats, 16);
}

/* Bytes of scratch for all threads. */
static size_t scratch_bytes(int64_t m, int64_t n, int64_t k, int threads) {
    return (size_t)threads * thread_floats(m, n, k) * sizeof(float);
}

/* Turns the call into a problem; a turned one exchanges A and B and the meaning of their
 * transposition. */
static problem orient(const sh_gemm_args *args) {
    problem straight = {
        .m = args->m,
        .n = args->n,
        .k = args->k,
        .a = args->a,
        .a_by_k = args->ta,
        .a_stride = args->ta ? args->m : args->k,
        .b = args->b,
        .b_by_n = args->tb,
        .b_stride = args->tb ? args->k : args->n,
        .c = args->c,
        .c_stride = args->n,
        .accumulate = args->accumulate,
        .relu = args->relu,
        .bias = args->bias,
        .activation = args->activation,
        .slope = args->slope,
        .factor = args->factor,
    };
    if (!turns(args->m, args->n)) return straight;
    problem q = straight;
    q.m = args->n;
    q.n = args->m;
    q.a = args->b;
    q.a_by_k = !args->tb;
    q.a_stride = straight.b_stride;
    q.b = args->a;
    q.b_by_n = !args->ta;
    q.b_stride = straight.a_stride;
    q.turned = true;
    return q;
}

/* A product with k = 0: C is 0 (or kept), plus bias, with the fused operations. */
static void empty_sum(const sh_gemm_args *args) {
    problem q = orient(&(sh_gemm_args){.m = args->m,
                                       .n = args->n,
                                       .c = args->c,
                                       .activation = args->activation,
                                       .slope = args->slope,
                                       .factor = args->factor});
    for (int64_t i = 0; i < args->m; i++) {
        for (int64_t j = 0; j < args->n; j++) {
            float *c = &args->c[i * args->n + j];
            float x = (args->accumulate ? *c : 0) + (args->bias != NULL ? args->bias[j] : 0);
            *c = args->relu && x < 0 ? 0 : x;
        }
    }
    activate(&q, 0, args->m, args->n);
}

/* Threads split the longer side of C in whole tiles; each has its own scratch and its own part of
 * C. */
static void run(const sh_gemm_args *args, void *scratch, int threads) {
    if (args->m == 0 || args->n == 0) return;
    if (args->k == 0) {
        empty_sum(args);
        return;
    }
    problem q = orient(args);
    // Whole tiles per thread, so that only the last thread has a partial one.
    bool by_rows = q.m >= q.n;
    int64_t unit = by_rows ? MR : NR, side = by_rows ? q.m : q.n;
    int64_t share = ceil_div(ceil_div(side, unit), threads) * unit;
    size_t floats = thread_floats(args->m, args->n, args->k);
    // Multiply-adds that take one thread 8 us or more: as long as waking a second one that sleeps.
    const double work_least = 1 << 19;
    bool worth = threads > 1 && (double)q.m * (double)q.n * (double)q.k > work_least;
    if (!worth) {
        multiply_part(&q, scratch);
        return;
    }
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        int64_t begin = least(side, t * share), end = least(side, begin + share);
        problem part = by_rows ? part_of(&q, begin, end, 0, q.n) : part_of(&q, 0, q.m, begin, end);
        if (begin < end) multiply_part(&part, (float *)scratch + (size_t)t * floats);
    }
}

const sh_packed_gemm_kernels SH_SIMD(sh_packed_gemm_table) = {
    .scratch_bytes = scratch_bytes,
    .run = run,
};
