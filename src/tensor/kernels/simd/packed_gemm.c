/* Goto's algorithm (Goto, van de Geijn 2008): B is packed into panels of 16 columns that stay in
 * L1, A is read in slivers of 6 rows, and a 6 x 16 tile of C lives in twelve vector registers.
 *
 *   per tile and k: 2 vector loads of B, 6 broadcasts of A, 12 fused multiply-adds
 *
 * Threads split the longer side of C and share nothing, so there is no barrier and every element of
 * C is summed in the same order at any thread count. */
#include "tensor/kernels/packed_gemm.h"

#include <string.h>

#include "base/memory.h"
#include "base/status.h"

enum {
    MR = 6,          // rows of a tile
    NR = 16,         // columns of a tile: two vectors of 8
    KC_MOST = 320,   // k per block: a panel of B is at most 20 KiB
    NC_MOST = 1536,  // columns of B packed at a time: at most 1.9 MiB
    MC = 120,        // rows of A per block when A is packed
};

typedef float v8 __attribute__((vector_size(32)));
typedef int i8 __attribute__((vector_size(32)));
typedef float v8u __attribute__((vector_size(32), aligned(4)));

static inline __attribute__((always_inline)) v8 load(const float *p) { return *(const v8u *)p; }
static inline __attribute__((always_inline)) void store(float *p, v8 x) { *(v8u *)p = x; }

/* One tile: rows of A at a + i*row, k at stride `step`; B packed. The sums go to `tile`, or stay in
 * registers for the caller: it is inlined for every row count, so `rows` is a constant. */
static inline __attribute__((always_inline)) void multiply(int rows, int64_t k, const float *a,
                                                           int64_t row, int64_t step,
                                                           const float *b, v8 sum[MR][2]) {
    for (int i = 0; i < rows; i++) sum[i][0] = sum[i][1] = (v8){0};
    for (int64_t p = 0; p < k; p++) {
        v8 b0 = *(const v8 *)(b + p * NR), b1 = *(const v8 *)(b + p * NR + 8);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            float x = a[i * row + p * step];
            v8 broadcast = {x, x, x, x, x, x, x, x};
            sum[i][0] += broadcast * b0;
            sum[i][1] += broadcast * b1;
        }
    }
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
    multiply(rows, k, a, row, step, b, sum);
    if (end->columns == NR && !end->transposed) {
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

/* Transposes 8 x 8 from rows of `source` into rows of `target`. */
static inline __attribute__((always_inline)) void transpose8(const float *source, int64_t stride,
                                                             float *target, int64_t target_stride) {
    v8 r[8], t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++) r[i] = load(source + i * stride);
#pragma GCC unroll 4
    for (int i = 0; i < 8; i += 2) {
        t[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
        t[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
    }
#pragma GCC unroll 2
    for (int i = 0; i < 8; i += 4) {
        r[i] = __builtin_shufflevector(t[i], t[i + 2], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 1] = __builtin_shufflevector(t[i], t[i + 2], 2, 3, 10, 11, 6, 7, 14, 15);
        r[i + 2] = __builtin_shufflevector(t[i + 1], t[i + 3], 0, 1, 8, 9, 4, 5, 12, 13);
        r[i + 3] = __builtin_shufflevector(t[i + 1], t[i + 3], 2, 3, 10, 11, 6, 7, 14, 15);
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; i++) {
        store(target + i * target_stride,
              __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11));
        store(target + (i + 4) * target_stride,
              __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15));
    }
}

/* One panel: k rows of 16 columns, zero where columns are missing. */
static void pack_panel(float *target, const float *b, int64_t stride, bool transposed, int64_t k,
                       int columns) {
    if (columns < NR) memset(target, 0, (size_t)k * NR * sizeof *target);
    if (!transposed) {
        if (columns == NR) {
            for (int64_t p = 0; p < k; p++) {
                *(v8 *)(target + p * NR) = load(b + p * stride);
                *(v8 *)(target + p * NR + 8) = load(b + p * stride + 8);
            }
        } else {
            for (int64_t p = 0; p < k; p++)
                memcpy(target + p * NR, b + p * stride, (size_t)columns * sizeof *b);
        }
        return;
    }
    int j = 0;
    for (; j + 8 <= columns; j += 8) {
        int64_t p = 0;
        for (; p + 8 <= k; p += 8) transpose8(b + j * stride + p, stride, target + p * NR + j, NR);
        for (; p < k; p++)
            for (int i = j; i < j + 8; i++) target[p * NR + i] = b[i * stride + p];
    }
    for (; j < columns; j++)
        for (int64_t p = 0; p < k; p++) target[p * NR + j] = b[j * stride + p];
}

/* Slivers of 6 rows from A stored (k, m): six neighbours per k. */
static void pack_slivers(float *target, const float *a, int64_t stride, int64_t k, int64_t rows) {
    for (int64_t i = 0; i < rows; i += MR, target += k * MR) {
        int64_t wide = rows - i < MR ? rows - i : MR;
        if (wide == MR) {
            for (int64_t p = 0; p < k; p++)
                memcpy(target + p * MR, a + p * stride + i, MR * sizeof *a);
        } else {
            for (int64_t p = 0; p < k; p++)
                memcpy(target + p * MR, a + p * stride + i, (size_t)wide * sizeof *a);
        }
    }
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
    int64_t kc_most = block_of_k(q->k);
    float *panels = scratch, *slivers = scratch + kc_most * sh_round_up(NC_MOST, NR);
    for (int64_t jc = j0; jc < j1; jc += NC_MOST) {
        int64_t je = least(j1, jc + NC_MOST);
        for (int64_t p = 0; p < q->k; p += kc_most) {
            int64_t kc = least(kc_most, q->k - p);
            for (int64_t j = jc; j < je; j += NR)
                pack_panel(panels + (j - jc) * kc,
                           q->b_by_n ? q->b + j * q->b_stride + p : q->b + p * q->b_stride + j,
                           q->b_stride, q->b_by_n, kc, (int)least(NR, je - j));
            for (int64_t i = i0; i < i1; i += MC) {
                int64_t ie = least(i1, i + MC);
                if (q->a_by_k)
                    pack_slivers(slivers, q->a + p * q->a_stride + i, q->a_stride, kc, ie - i);
                multiply_block(q, i, ie, jc, je, p, kc, panels, q->a_by_k ? slivers : NULL);
            }
        }
    }
}

static size_t thread_floats(int64_t k) {
    return sh_round_up((size_t)block_of_k(k) * (NC_MOST + MC + MR), 16);
}

static size_t scratch_bytes(int64_t m, int64_t n, int64_t k, int threads) {
    (void)m, (void)n;
    return (size_t)threads * thread_floats(k) * sizeof(float);
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
    size_t floats = thread_floats(q.k);
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
