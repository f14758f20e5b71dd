/* Which library computes a product: ours, oneDNN or OpenBLAS, measured once per shape (tuner.h).
 * Bias, relu and activation are fused in ours and applied afterwards to the others' results. */
#include "tensor/kernels/gemm.h"

#include <cblas.h>
#include <limits.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/signals.h"
#include "tensor/kernels/reference.h"

static const char *const library_names[SH_GEMM_LIBRARIES] = {
    [SH_GEMM_PACKED] = "packed",
    [SH_GEMM_ONEDNN] = "onednn",
    [SH_GEMM_OPENBLAS] = "openblas",
};

const char *sh_gemm_library_name(sh_gemm_library library) { return library_names[library]; }

/* NaN passes a relu, so that a net that broke does not look like one that is silent. */
static void finish_row(const sh_gemm_args *args, int64_t i) {
    const int64_t n = args->n;
    const float *bias = args->bias;
    float *c = args->c + i * n;
    if (bias != NULL && args->relu)
        for (int64_t j = 0; j < n; j++) c[j] = c[j] + bias[j] < 0 ? 0 : c[j] + bias[j];
    else if (bias != NULL)
        for (int64_t j = 0; j < n; j++) c[j] += bias[j];
    else if (args->relu)
        for (int64_t j = 0; j < n; j++) c[j] = c[j] < 0 ? 0 : c[j];
    if (args->activation != NULL)
        args->activation->apply(c, args->slope != NULL ? args->slope + i * n : NULL, 1, (size_t)n,
                                0);
    if (args->factor != NULL)
        for (int64_t j = 0; j < n; j++) c[j] *= args->factor[i * n + j];
}

/* The libraries have no epilogue: what follows the sums takes one more pass over C. */
static void finish(const sh_gemm_args *args) {
    if (args->bias == NULL && !args->relu && args->activation == NULL && args->factor == NULL)
        return;
#pragma omp parallel for schedule(static) if (args->m * args->n > 1 << 15)
    for (int64_t i = 0; i < args->m; i++) finish_row(args, i);
}

static void run_library(sh_gemm_library library, const sh_gemm_args *q, void *scratch,
                        int threads) {
    const int64_t lda = q->ta ? q->m : q->k, ldb = q->tb ? q->k : q->n;
    const float beta = q->accumulate ? 1.0f : 0.0f;
    // The others refuse a matrix without columns, and OpenBLAS counts in ints.
    bool is_long = q->m > INT_MAX || q->n > INT_MAX || q->k > INT_MAX;
    if (q->k == 0 || (is_long && library == SH_GEMM_OPENBLAS)) library = SH_GEMM_PACKED;
    sigset_t signals;
    bool held;
    switch (library) {
        case SH_GEMM_PACKED:
            sh_packed_gemm()->run(q, scratch, threads);
            return;
        case SH_GEMM_ONEDNN:
            held = sh_signals_hold(&signals);
            dnnl_sgemm(q->ta ? 'T' : 'N', q->tb ? 'T' : 'N', q->m, q->n, q->k, 1.0f, q->a, lda,
                       q->b, ldb, beta, q->c, q->n);
            if (held) sh_signals_release(&signals);
            break;
        default:
            cblas_sgemm(CblasRowMajor, q->ta ? CblasTrans : CblasNoTrans,
                        q->tb ? CblasTrans : CblasNoTrans, (int)q->m, (int)q->n, (int)q->k, 1.0f,
                        q->a, (int)lda, q->b, (int)ldb, beta, q->c, (int)q->n);
            break;
    }
    finish(q);
}

void sh_gemm_run(const sh_gemm *gemm, sh_gemm_args args, void *scratch) {
    args.m = gemm->m;
    args.n = gemm->n;
    args.k = gemm->k;
    args.ta = gemm->ta;
    args.tb = gemm->tb;
    run_library(gemm->library, &args, scratch, gemm->threads);
}

/* Operands for a measurement: their values do not matter, but they must not be denormal. There are
 * several sets, taken in turn: in a step they come from a cache that the cores share, at best. */
typedef struct trial {
    sh_gemm_args args;
    const float *operands;
    size_t a, set, sets;  // floats of A, and of both; how many sets
    size_t turn;
    void *scratch;
    int threads;
} trial;

static void run_trial(void *context, int candidate) {
    trial *trying = context;
    const float *operands = trying->operands + trying->turn * trying->set;
    trying->turn = (trying->turn + 1) % trying->sets;
    trying->args.a = operands;
    trying->args.b = operands + trying->a;
    run_library((sh_gemm_library)candidate, &trying->args, trying->scratch, trying->threads);
}

/* Operands of a trial: ordinary numbers, neither zeros nor left-overs of memory. */
static void fill_ones(float *x, size_t count) {
    for (size_t i = 0; i < count; i++) x[i] = 1.0f;
}

static int pick(sh_tuner *tuner, const char *key, trial *trying) {
    return sh_tuner_choose(tuner, key, library_names, SH_GEMM_LIBRARIES, run_trial, trying);
}

/* The longest side is halved until a trial takes a few milliseconds: the ranking of the libraries
 * is settled long before, and a first start must not wait for it. */
static void shorten(int64_t *m, int64_t *n, int64_t *k) {
    const double work_most = 2.5e8;  // multiply-adds
    while ((double)*m * (double)*n * (double)*k > work_most) {
        int64_t *longest = *m >= *n && *m >= *k ? m : *n >= *k ? n : k;
        *longest = (*longest + 1) / 2;
    }
}

enum { TRIAL_FLOATS = 1 << 20 };  // more than a core's own cache

static sh_status choose(sh_gemm *gemm, sh_tuner *tuner, const char *key) {
    if (sh_tuner_knows(tuner, key, library_names, SH_GEMM_LIBRARIES)) {
        gemm->library = (sh_gemm_library)pick(tuner, key, NULL);
        return SH_OK;
    }
    int64_t m = gemm->m, n = gemm->n, k = gemm->k;
    shorten(&m, &n, &k);
    size_t a = (size_t)(m * k), b = (size_t)(k * n), c = (size_t)(m * n), set = a + b;
    size_t sets = set < TRIAL_FLOATS ? TRIAL_FLOATS / set : 1;
    // A cut k can have larger blocks than the whole one, and then needs more scratch.
    size_t scratch_bytes = sh_packed_gemm()->scratch_bytes(m, n, k, gemm->threads);
    sh_arena arena;
    SH_TRY(sh_arena_init(&arena, "kernel measurement",
                         (sets * set + c) * sizeof(float) + scratch_bytes + 4 * SH_ALIGN));
    float *operands = sh_arena_take(&arena, sets * set * sizeof(float));
    fill_ones(operands, sets * set);
    trial trying = {
        .args = {.m = m,
                 .n = n,
                 .k = k,
                 .ta = gemm->ta,
                 .tb = gemm->tb,
                 .c = sh_arena_take(&arena, c * sizeof(float))},
        .operands = operands,
        .a = a,
        .set = set,
        .sets = sets,
        .scratch = sh_arena_take(&arena, scratch_bytes),
        .threads = gemm->threads,
    };
    gemm->library = (sh_gemm_library)pick(tuner, key, &trying);
    sh_arena_fini(&arena);
    return SH_OK;
}

sh_status sh_gemm_choose(sh_gemm *gemm, int64_t m, int64_t n, int64_t k, bool ta, bool tb,
                         sh_tuner *tuner) {
    int threads = sh_tuner_threads(tuner);
    *gemm = (sh_gemm){.m = m, .n = n, .k = k, .ta = ta, .tb = tb, .threads = threads};
    gemm->scratch_bytes = sh_packed_gemm()->scratch_bytes(m, n, k, threads);
    char key[96];
    snprintf(key, sizeof key, "gemm %c%c %ldx%ldx%ld t%d", ta ? 't' : 'n', tb ? 't' : 'n', (long)m,
             (long)n, (long)k, threads);
    return choose(gemm, tuner, key);
}

static sh_activation_kind kind_of(const sh_activation_row *row) {
    int kind = 0;
    while (strcmp(sh_activation()->row[kind].name, row->name) != 0) kind++;
    return (sh_activation_kind)kind;
}

static void reference_end(const sh_gemm_args *q, int64_t at, double x) {
    double y = x;
    if (q->activation != NULL) {
        sh_activation_kind kind = kind_of(q->activation);
        y = sh_ref_activation(kind, x);
        if (q->slope != NULL) q->slope[at] = (float)sh_ref_activation_slope(kind, x);
    }
    q->c[at] = (float)(q->factor != NULL ? y * (double)q->factor[at] : y);
}

/* The oracle of tests. */
void sh_gemm_reference(const sh_gemm_args *args) {
    const sh_gemm_args *q = args;
    for (int64_t i = 0; i < q->m; i++) {
        for (int64_t j = 0; j < q->n; j++) {
            double sum = q->accumulate ? (double)q->c[i * q->n + j] : 0.0;
            for (int64_t p = 0; p < q->k; p++)
                sum += (double)(q->ta ? q->a[p * q->m + i] : q->a[i * q->k + p]) *
                       (double)(q->tb ? q->b[j * q->k + p] : q->b[p * q->n + j]);
            if (q->bias != NULL) sum += (double)q->bias[j];
            if (q->relu && sum < 0) sum = 0;
            reference_end(q, i * q->n + j, sum);
        }
    }
}
