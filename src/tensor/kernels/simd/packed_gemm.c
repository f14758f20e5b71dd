/* Goto's algorithm (Goto, van de Geijn 2008): B is packed into panels of 16 columns that stay in
 * L1, A into slivers of 6 rows that stay in L2, and a 6 x 16 tile of C lives in twelve vector
 * registers.
 *
 *   per tile and k: 2 vector loads of B, 6 broadcasts of A, 12 fused multiply-adds
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
    PACK_A_LEAST = 8 * NR,  // columns that pay for packing rows of A that lie well already
    UNROLL = 8,
};

/* One tile: rows of A at a + i*row, k at stride `step`; B packed. The sums go to `tile`, or stay in
 * registers for the caller: it is inlined for every row count, so `rows` is a constant. */
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

/* What happens to a finished tile. */
typedef struct tile_end {
    float *c;
    int64_t row;        // stride of C
    int columns;        // 1..16 of this tile exist
    bool add;           // C holds earlier sums
    const float *bias;  // at this tile's column, NULL until the last block of k
    bool relu;          // in the last block of k
    bool transposed;    // C is stored (n, m): tile rows are its columns
} tile_end;

static inline __attribute__((always_inline)) v8 relu8(v8 x) {
    // A comparison gives all ones or zeros per lane; written so that NaN passes.
    return (v8)(~(x < (v8){0}) & (i8)x);
}

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

/* The lines of C come from memory while the tile is summed. */
static inline __attribute__((always_inline)) void fetch_early(int rows, const tile_end *end) {
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++) {
        __builtin_prefetch(end->c + i * end->row, 1);
        __builtin_prefetch(end->c + i * end->row + NR - 1, 1);
    }
}

/* Edges and transposed output go element by element. */
static void finish_part(int rows, const float *tile, const tile_end *end) {
    for (int i = 0; i < rows; i++) {
        for (int j = 0; j < end->columns; j++) {
            float *c = end->transposed ? &end->c[j * end->row + i] : &end->c[i * end->row + j];
            float x = tile[i * NR + j];
            if (end->bias != NULL) x += end->transposed ? end->bias[i] : end->bias[j];
            if (end->add) x += *c;
            *c = end->relu && x < 0 ? 0 : x;
        }
    }
}

static inline __attribute__((always_inline)) void tile_rows(int rows, int64_t k, const float *a,
                                                            int64_t row, int64_t step,
                                                            const float *b, const tile_end *end) {
    v8 sum[MR][2];
    bool full = end->columns == NR && !end->transposed;
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
    finish_part(rows, tile, end);
}

/* The two strides of A that occur are made constants for the compiler. */
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

/* A product in the orientation that is computed: C or its transpose. */
typedef struct problem {
    int64_t m, n, k;
    const float *a, *b;
    int64_t a_stride, b_stride;
    bool a_by_k;  // A is stored (k, m)
    bool b_by_n;  // B is stored (n, k)
    float *c;
    int64_t c_stride;
    bool transposed, accumulate, relu;
    const float *bias;
} problem;

static int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
static int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Equal blocks of k, none larger than KC_MOST: a short last block would waste a pass over C. */
static int64_t block_of_k(int64_t k) { return k == 0 ? 1 : ceil_div(k, ceil_div(k, KC_MOST)); }

static void multiply_block(const problem *q, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
                           int64_t p, int64_t kc, const float *panels, const float *slivers) {
    bool last = p + kc == q->k;
    for (int64_t j = j0; j < j1; j += NR) {
        const float *panel = panels + (j - j0) / NR * kc * NR;
        for (int64_t i = i0; i < i1; i += MR) {
            const float *a =
                slivers != NULL ? slivers + (i - i0) / MR * kc * MR : q->a + i * q->a_stride + p;
            tile_end end = {
                .c = q->transposed ? q->c + j * q->c_stride + i : q->c + i * q->c_stride + j,
                .row = q->c_stride,
                .columns = (int)least(NR, j1 - j),
                .add = q->accumulate || p > 0,
                .bias = last && q->bias != NULL ? q->bias + (q->transposed ? i : j) : NULL,
                .relu = last && q->relu,
                .transposed = q->transposed,
            };
            tile_any((int)least(MR, i1 - i), kc, a, q->a_stride, slivers != NULL, panel, &end);
        }
    }
}

/* Rows [i0, i1) and columns [j0, j1) by one thread. */
static void multiply_part(const problem *q, int64_t i0, int64_t i1, int64_t j0, int64_t j1,
                          float *scratch) {
    int64_t kc_most = block_of_k(q->k), width = sh_round_up(least(NC_MOST, j1 - j0), NR);
    float *panels = scratch, *slivers = scratch + kc_most * width;
    bool pack_a = q->a_by_k || j1 - j0 >= PACK_A_LEAST;
    for (int64_t jc = j0; jc < j1; jc += NC_MOST) {
        int64_t je = least(j1, jc + NC_MOST);
        for (int64_t p = 0; p < q->k; p += kc_most) {
            int64_t kc = least(kc_most, q->k - p);
            pack_panels(panels,
                        q->b_by_n ? q->b + jc * q->b_stride + p : q->b + p * q->b_stride + jc,
                        q->b_stride, q->b_by_n, kc, je - jc);
            for (int64_t i = i0; i < i1; i += MC) {
                int64_t ie = least(i1, i + MC);
                if (pack_a)
                    pack_slivers(
                        slivers,
                        q->a_by_k ? q->a + p * q->a_stride + i : q->a + i * q->a_stride + p,
                        q->a_stride, q->a_by_k, kc, ie - i);
                multiply_block(q, i, ie, jc, je, p, kc, panels, pack_a ? slivers : NULL);
            }
        }
    }
}

/* Of one thread. A problem may be turned round, so either side can be the columns. */
static size_t thread_floats(int64_t m, int64_t n, int64_t k) {
    int64_t width = sh_round_up(least(NC_MOST, m > n ? m : n), NR);
    return sh_round_up((size_t)(block_of_k(k) * (width + MC)) + PACK_SLACK, 16);
}

static size_t scratch_bytes(int64_t m, int64_t n, int64_t k, int threads) {
    return (size_t)threads * thread_floats(m, n, k) * sizeof(float);
}

/* Narrow results are computed transposed, so that vectors run along the long side. */
static problem orient(const sh_gemm_args *args) {
    bool flip = args->n < NR && args->m >= NR;
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
    };
    if (!flip) return straight;
    problem q = straight;
    q.m = args->n;
    q.n = args->m;
    q.a = args->b;
    q.a_by_k = !args->tb;
    q.a_stride = straight.b_stride;
    q.b = args->a;
    q.b_by_n = !args->ta;
    q.b_stride = straight.a_stride;
    q.transposed = true;
    return q;
}

static void empty_sum(const sh_gemm_args *args) {
    for (int64_t i = 0; i < args->m; i++) {
        for (int64_t j = 0; j < args->n; j++) {
            float *c = &args->c[i * args->n + j];
            float x = (args->accumulate ? *c : 0) + (args->bias != NULL ? args->bias[j] : 0);
            *c = args->relu && x < 0 ? 0 : x;
        }
    }
}

static void run(const sh_gemm_args *args, void *scratch, int threads) {
    if (args->m == 0 || args->n == 0) return;
    if (args->k == 0) {
        empty_sum(args);
        return;
    }
    problem q = orient(args);
    bool by_rows = q.m >= q.n;
    int64_t unit = by_rows ? MR : NR, side = by_rows ? q.m : q.n;
    int64_t share = ceil_div(ceil_div(side, unit), threads) * unit;
    size_t floats = thread_floats(q.m, q.n, q.k);
    const double work_least = 1 << 17;  // multiply-adds that pay for waking a team
    bool worth = threads > 1 && (double)q.m * (double)q.n * (double)q.k > work_least;
    if (!worth) {
        multiply_part(&q, 0, q.m, 0, q.n, scratch);
        return;
    }
#pragma omp parallel for schedule(static, 1) num_threads(threads)
    for (int t = 0; t < threads; t++) {
        int64_t begin = least(side, t * share), end = least(side, begin + share);
        float *own = (float *)scratch + (size_t)t * floats;
        if (begin < end && by_rows) multiply_part(&q, begin, end, 0, q.n, own);
        if (begin < end && !by_rows) multiply_part(&q, 0, q.m, begin, end, own);
    }
}

const sh_packed_gemm_kernels SH_SIMD(sh_packed_gemm_table) = {
    .scratch_bytes = scratch_bytes,
    .run = run,
};
