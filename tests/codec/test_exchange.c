/* Ranks as threads: every codec over the engine, against the same codecs run one after another. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "codec/exchange.h"
#include "comm/engines.h"
#include "rig.h"

static const char *const texts[] = {"none",     "fp16",     "bf16",      "int8",
                                    "qsgd:4",   "terngrad", "onebit",    "topk:2%",
                                    "randk:5%", "dgc:1%",   "powersgd:2"};

enum { STEPS = 4, RANKS_MOST = 5, BUCKETS = 3 };

/* A small net: matrices, vectors, odd sizes. */
static const sh_shape shapes[] = {
    {4, {6, 1, 5, 5}}, {1, {6}}, {4, {16, 6, 5, 5}}, {1, {16}},
    {2, {120, 71}},    {1, {1}}, {2, {10, 84}},
};
static const sh_exchange_bucket buckets[BUCKETS] = {{5, 2}, {2, 3}, {0, 2}};

static sh_status make_params(sh_param_list *list) {
    for (size_t i = 0; i < SH_COUNT(shapes); i++) {
        char name[16];
        snprintf(name, sizeof name, "p%zu", i);
        SH_TRY(sh_param_list_add(list, name, shapes[i], true, NULL));
    }
    return SH_OK;
}

/* What rank `rank` computes in a step. */
static void fill_gradient(float *x, size_t count, int rank, int64_t step) {
    sh_test_fill(x, count, (uint64_t)(1000 * step + rank));
}

typedef struct world {
    sh_codec codec;
    int ranks;
    float *result[RANKS_MOST];    // gradients of the last step
    float *residual[RANKS_MOST];  // after it
    bool shared, waits;
} world;

static sh_status make_exchange(sh_engine *engine, const sh_codec *codec,
                               const sh_param_list *params, float *gradients,
                               const sh_shared *shared, sh_exchange **exchange_out) {
    return sh_exchange_create(&(sh_exchange_options){.group = sh_engine_world(engine),
                                                     .codec = codec,
                                                     .params = params,
                                                     .gradients = gradients,
                                                     .shared = shared,
                                                     .buckets = buckets,
                                                     .bucket_count = BUCKETS,
                                                     .seed = 7},
                              exchange_out);
}

/* Ranks ask for buckets in different ways, so that rounds are reached at different times. */
static sh_status run_step(sh_exchange *exchange, float *x, size_t count, int rank, int64_t step,
                          bool waits) {
    fill_gradient(x, count, rank, step);
    sh_exchange_begin(exchange, step);
    for (size_t b = 0; b < BUCKETS; b++) {
        sh_exchange_start(exchange, b);
        for (int poll = 0; poll < 50 * rank; poll++)
            sh_exchange_test(exchange, (size_t)poll % (b + 1));
    }
    for (size_t b = 0; b < BUCKETS; b++) {
        size_t which = rank % 2 ? BUCKETS - 1 - b : b;
        while (!waits && !sh_exchange_test(exchange, which)) continue;
        SH_TRY(sh_exchange_wait(exchange, which));
    }
    return SH_OK;
}

static sh_status run_rank(sh_engine *engine, void *argument) {
    world *w = argument;
    int rank = sh_engine_rank(engine);
    sh_param_list params = {0};
    sh_exchange *exchange = NULL;
    sh_shared shared = {0};
    SH_TRY(make_params(&params));
    float *x = w->result[rank];
    if (w->shared) {
        SH_TRY(sh_engine_share(engine, params.total * sizeof *x, &shared));
        x = (float *)shared.base[rank];
    }
    SH_TRY(make_exchange(engine, &w->codec, &params, x, w->shared ? &shared : NULL, &exchange));
    sh_status status = SH_OK;
    for (int64_t step = 0; step < STEPS && status == SH_OK; step++)
        status = run_step(exchange, x, params.total, rank, step, w->waits);
    sh_exchange_state states[SH_EXCHANGE_STATES];
    if (sh_exchange_states(exchange, states) > 0)
        memcpy(w->residual[rank], states[0].block, params.total * sizeof *x);
    if (w->shared) memcpy(w->result[rank], x, params.total * sizeof *x);
    if (status != SH_OK) return status;
    sh_exchange_destroy(exchange);
    if (w->shared) sh_engine_unshare(engine, &shared);
    sh_param_list_fini(&params);
    return status;
}

static void world_init(world *w, const char *text, int ranks, size_t total) {
    *w = (world){.codec = codec_of(text), .ranks = ranks};
    if (w->codec.kind != NULL && w->codec.kind->owns_momentum) w->codec.options.momentum = 0.9;
    for (int k = 0; k < ranks; k++) {
        w->result[k] = calloc(total, sizeof(float));
        w->residual[k] = calloc(total, sizeof(float));
    }
}

static void world_fini(world *w) {
    for (int k = 0; k < w->ranks; k++) free(w->result[k]), free(w->residual[k]);
}

/* One parameter after STEPS steps, by the codec alone; sums of 16 bits are left out. */
static void serial(const world *w, const sh_param *param, size_t index, size_t total,
                   float *result[RANKS_MOST], float *residual[RANKS_MOST]) {
    rig rigs[RANKS_MOST];
    size_t rows, columns;
    float *x[RANKS_MOST], *all = calloc(total, sizeof *all);
    sh_codec_matrix(&param->shape, &rows, &columns);
    for (int k = 0; k < w->ranks; k++) {
        rig_init(&rigs[k], &w->codec, rows, columns, k);
        x[k] = result[k] + param->offset;
    }
    for (int64_t step = 0; step < STEPS; step++) {
        for (int k = 0; k < w->ranks; k++) {
            fill_gradient(all, total, k, step);
            memcpy(x[k], all + param->offset, param->count * sizeof *all);
        }
        round_trip_param(rigs, w->ranks, x, 7, step, index);
    }
    for (int k = 0; k < w->ranks; k++) {
        if (sh_codec_states(&w->codec) > 0)
            memcpy(residual[k] + param->offset, rigs[k].tensor.state[0],
                   param->count * sizeof(float));
        rig_fini(&rigs[k]);
    }
    free(all);
}

/* What a sum by the engine may differ by from a serial one: the order of the additions. */
static double tolerance_of(const sh_codec_kind *kind) {
    if (kind == NULL) return 1e-5;
    if (kind->dtype == SH_DTYPE_F16) return 4e-3;
    if (kind->dtype == SH_DTYPE_BF16) return 3e-2;
    return kind->gathers ? 0 : 2e-5;
}

static void check_plain_sum(const world *w, size_t total, double tolerance) {
    float *want = calloc(total, sizeof *want), *one = calloc(total, sizeof *one);
    for (int k = 0; k < w->ranks; k++) {
        fill_gradient(one, total, k, STEPS - 1);
        for (size_t i = 0; i < total; i++) want[i] += one[i];
    }
    CHECK_CLOSE(w->result[0], want, total, tolerance);
    free(want), free(one);
}

static void check_serial(const world *w, const sh_param_list *params) {
    world s;
    char text[SH_CODEC_TEXT];
    world_init(&s, sh_codec_text(&w->codec, text), w->ranks, params->total);
    for (size_t i = 0; i < params->count; i++)
        serial(w, &params->items[i], i, params->total, s.result, s.residual);
    double tolerance = tolerance_of(w->codec.kind);
    for (int k = 0; k < w->ranks; k++) {
        CHECK_CLOSE(w->result[k], s.result[k], params->total, tolerance);
        CHECK_CLOSE(w->residual[k], s.residual[k], params->total, tolerance);
    }
    world_fini(&s);
}

static void run_world(const char *text, int ranks, bool shared, bool waits) {
    sh_param_list params = {0};
    world w;
    CHECK_OK(make_params(&params));
    world_init(&w, text, ranks, params.total);
    w.shared = shared, w.waits = waits;
    CHECK_OK(run_engines(ranks, NULL, run_rank, &w));
    for (int k = 1; k < ranks; k++)
        assert_memory_equal(w.result[k], w.result[0], params.total * sizeof(float));
    const sh_codec_kind *kind = w.codec.kind;
    if (kind == NULL || (!kind->gathers && kind->dtype != SH_DTYPE_F32))
        check_plain_sum(&w, params.total, tolerance_of(kind));
    else
        check_serial(&w, &params);
    world_fini(&w);
    sh_param_list_fini(&params);
}

TEST(exchange, equals_the_codecs_run_serially_on_all_ranks) {
    for (size_t t = 0; t < SH_COUNT(texts); t++)
        for (int ranks = 1; ranks <= RANKS_MOST; ranks++) run_world(texts[t], ranks, false, true);
}

TEST(exchange, shared_gradients_and_polling_change_nothing) {
    for (size_t t = 0; t < SH_COUNT(texts); t++) run_world(texts[t], 3, true, false);
}

typedef struct steady {
    sh_codec codec;
    _Atomic uint64_t calls;
} steady;

static sh_status run_steady(sh_engine *engine, void *argument) {
    steady *s = argument;
    int rank = sh_engine_rank(engine);
    sh_param_list params = {0};
    sh_exchange *exchange = NULL;
    SH_TRY(make_params(&params));
    float *x = calloc(params.total, sizeof *x);
    SH_TRY(make_exchange(engine, &s->codec, &params, x, NULL, &exchange));
    uint64_t before = 0;
    for (int64_t step = 0; step < 8; step++) {
        if (step == 4) {
            SH_TRY(sh_engine_barrier(engine));
            before = sh_alloc_calls();
            SH_TRY(sh_engine_barrier(engine));
        }
        SH_TRY(run_step(exchange, x, params.total, rank, step, true));
    }
    SH_TRY(sh_engine_barrier(engine));
    if (rank == 0) s->calls = sh_alloc_calls() - before;
    SH_TRY(sh_engine_barrier(engine));
    sh_exchange_destroy(exchange);
    sh_param_list_fini(&params);
    free(x);
    return SH_OK;
}

TEST(exchange, allocates_nothing_after_the_first_steps) {
    for (size_t t = 0; t < SH_COUNT(texts); t++) {
        steady s = {.codec = codec_of(texts[t])};
        CHECK_OK(run_engines(3, NULL, run_steady, &s));
        assert_int_equal(s.calls, 0);
    }
}

static sh_status run_counts(sh_engine *engine, void *argument) {
    sh_exchange_stats *stats = argument;
    sh_codec codec;
    SH_TRY(sh_codec_parse("topk:1%", &codec));
    sh_param_list params = {0};
    sh_exchange *exchange = NULL;
    SH_TRY(make_params(&params));
    float *x = calloc(params.total, sizeof *x);
    SH_TRY(make_exchange(engine, &codec, &params, x, NULL, &exchange));
    SH_TRY(run_step(exchange, x, params.total, sh_engine_rank(engine), 0, true));
    sh_exchange_stats mine = sh_exchange_take_stats(exchange);
    if (sh_engine_rank(engine) == 0) *stats = mine;
    sh_exchange_stats none = sh_exchange_take_stats(exchange);
    SH_ASSERT(none.sent_bytes == 0 && none.message_bytes == 0);
    sh_exchange_destroy(exchange);
    sh_param_list_fini(&params);
    free(x);
    return SH_OK;
}

TEST(exchange, counts_what_it_sends) {
    sh_exchange_stats stats = {0};
    CHECK_OK(run_engines(4, NULL, run_counts, &stats));
    size_t floats = 150 + 6 + 2400 + 16 + 120 * 71 + 1 + 840;
    assert_int_equal(stats.float_bytes, 4 * floats);
    // k = 2, 1, 24, 1, 85, dense, 8
    assert_int_equal(stats.message_bytes, 8 * (2 + 1 + 24 + 1 + 85 + 8) + 4);
    assert_int_equal(stats.dense_bytes / 4, 2 * 3 * floats / 4);
    // Three others get every message; buckets are filled up to cache lines.
    assert_true(stats.sent_bytes >= 3 * stats.message_bytes);
    assert_true(stats.sent_bytes <= 3 * (stats.message_bytes + BUCKETS * SH_ALIGN));
}

/* Saved once, by rank 0, after settling. */
typedef struct saved {
    sh_codec codec;
    int64_t stop, end;  // steps: a checkpoint after `stop`
    float *state[SH_EXCHANGE_STATES], *result;
    size_t state_count;
    bool resumes;
    double mass_before, mass_after;  // of the residual over all ranks, weighted
    int ranks_before;
} saved;

static double mass_of(sh_engine *engine, const float *block, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)block[i] * (double)(i % 13);
    sh_call call = {
        .what = SH_ALLREDUCE, .data = &sum, .count = 1, .dtype = SH_DTYPE_F64, .op = SH_SUM};
    if (sh_engine_run(engine, &call) != SH_OK) abort();
    return sum;
}

static sh_status settle_and_save(sh_engine *engine, sh_exchange *exchange, saved *s) {
    sh_exchange_state states[SH_EXCHANGE_STATES];
    size_t count = sh_exchange_states(exchange, states);
    double before = mass_of(engine, states[0].block, states[0].params->total);
    SH_TRY(sh_exchange_settle(exchange));
    double after = mass_of(engine, states[0].block, states[0].params->total);
    if (sh_engine_rank(engine) != 0) return SH_OK;
    s->mass_before = before, s->mass_after = after, s->state_count = count;
    for (size_t i = 0; i < count; i++) {
        size_t bytes = states[i].params->total * sizeof(float);
        s->state[i] = malloc(bytes);
        memcpy(s->state[i], states[i].block, bytes);
    }
    return SH_OK;
}

static void load(sh_exchange *exchange, const saved *s) {
    sh_exchange_state states[SH_EXCHANGE_STATES];
    size_t count = sh_exchange_states(exchange, states);
    SH_ASSERT(count == s->state_count);
    for (size_t i = 0; i < count; i++)
        memcpy(states[i].block, s->state[i], states[i].params->total * sizeof(float));
    sh_exchange_adopt(exchange, s->ranks_before);
}

static sh_status run_saved(sh_engine *engine, void *argument) {
    saved *s = argument;
    int rank = sh_engine_rank(engine);
    sh_param_list params = {0};
    sh_exchange *exchange = NULL;
    SH_TRY(make_params(&params));
    float *x = calloc(params.total, sizeof *x);
    SH_TRY(make_exchange(engine, &s->codec, &params, x, NULL, &exchange));
    if (s->resumes) load(exchange, s);
    for (int64_t step = s->resumes ? s->stop : 0; step < s->end; step++) {
        if (step == s->stop && !s->resumes) SH_TRY(settle_and_save(engine, exchange, s));
        SH_TRY(run_step(exchange, x, params.total, rank, step, true));
    }
    if (rank == 0) memcpy(s->result, x, params.total * sizeof *x);
    if (s->resumes && rank == 0) s->mass_after = 0;
    sh_exchange_destroy(exchange);
    sh_param_list_fini(&params);
    free(x);
    return SH_OK;
}

TEST(exchange, a_settled_run_resumes_with_equal_bits) {
    const char *const stateful[] = {"int8",     "onebit", "topk:2%",
                                    "randk:5%", "dgc:1%", "powersgd:2"};
    for (size_t t = 0; t < SH_COUNT(stateful); t++) {
        sh_param_list params = {0};
        CHECK_OK(make_params(&params));
        saved s = {.codec = codec_of(stateful[t]), .stop = 3, .end = 6, .ranks_before = 3};
        if (s.codec.kind->owns_momentum) s.codec.options.momentum = 0.9;
        s.result = calloc(params.total, sizeof *s.result);
        CHECK_OK(run_engines(3, NULL, run_saved, &s));
        assert_true(fabs(s.mass_before - s.mass_after) <= 1e-3 * fmax(1, fabs(s.mass_before)));
        float *want = copied(s.result, params.total);
        s.resumes = true;
        CHECK_OK(run_engines(3, NULL, run_saved, &s));
        assert_memory_equal(s.result, want, params.total * sizeof *want);
        free(want), free(s.result);
        for (size_t i = 0; i < s.state_count; i++) free(s.state[i]);
        sh_param_list_fini(&params);
    }
}

typedef struct adopted {
    const float *state;
    double mass;
} adopted;

static sh_status run_adopted(sh_engine *engine, void *argument) {
    adopted *a = argument;
    sh_codec codec;
    sh_param_list params = {0};
    sh_exchange *exchange = NULL;
    SH_TRY(sh_codec_parse("topk:2%", &codec));
    SH_TRY(make_params(&params));
    float *x = calloc(params.total, sizeof *x);
    SH_TRY(make_exchange(engine, &codec, &params, x, NULL, &exchange));
    sh_exchange_state states[SH_EXCHANGE_STATES];
    sh_exchange_states(exchange, states);
    memcpy(states[0].block, a->state, params.total * sizeof *x);
    sh_exchange_adopt(exchange, 4);
    double mass = mass_of(engine, states[0].block, params.total);
    if (sh_engine_rank(engine) == 0) a->mass = mass;
    sh_exchange_destroy(exchange);
    sh_param_list_fini(&params);
    free(x);
    return SH_OK;
}

TEST(exchange, other_rank_counts_keep_the_residuals_sum) {
    sh_param_list params = {0};
    CHECK_OK(make_params(&params));
    float *mean = filled(params.total, 3, 1);
    double want = 0;
    for (size_t i = 0; i < params.total; i++) want += 4 * (double)mean[i] * (double)(i % 13);
    for (int ranks = 1; ranks <= 5; ranks++) {
        adopted a = {.state = mean};
        CHECK_OK(run_engines(ranks, NULL, run_adopted, &a));
        assert_true(fabs(a.mass - want) <= 1e-3 * fmax(1, fabs(want)));
    }
    free(mean);
    sh_param_list_fini(&params);
}

static sh_status run_nan(sh_engine *engine, void *argument) {
    _Atomic int *told = argument;
    sh_codec codec;
    sh_param_list params = {0};
    sh_exchange *exchange = NULL;
    SH_TRY(sh_codec_parse("int8", &codec));
    SH_TRY(make_params(&params));
    float *x = calloc(params.total, sizeof *x);
    SH_TRY(make_exchange(engine, &codec, &params, x, NULL, &exchange));
    if (sh_engine_rank(engine) == 2) x[params.items[4].offset + 5] = NAN;
    sh_exchange_begin(exchange, 0);
    for (size_t b = 0; b < BUCKETS; b++) sh_exchange_start(exchange, b);
    for (size_t b = 0; b < BUCKETS; b++) {
        sh_status status = sh_exchange_wait(exchange, b);
        if ((status == SH_OK) != (b != 1)) return SH_FAIL(SH_E_USAGE, "bucket %zu", b);
        if (status == SH_E_NUMERIC &&
            strstr(sh_error_last()->text, "'p4' from rank 2: the gradient is not finite") != NULL)
            (*told)++;
    }
    sh_exchange_destroy(exchange);
    sh_param_list_fini(&params);
    free(x);
    return SH_OK;
}

TEST(exchange, names_the_rank_whose_gradient_is_not_finite) {
    _Atomic int told = 0;
    CHECK_OK(run_engines(3, NULL, run_nan, &told));
    assert_int_equal(told, 3);
}

static sh_status run_refused(sh_engine *engine, void *argument) {
    (void)argument;
    sh_codec codec;
    sh_param_list params = {0};
    sh_exchange *exchange = NULL;
    SH_TRY(sh_codec_parse("qsgd:4", &codec));
    codec.options.error_feedback = true;
    return make_exchange(engine, &codec, &params, NULL, NULL, &exchange);
}

TEST(exchange, refuses_options_that_do_not_fit) {
    CHECK_FAILS(SH_E_USAGE, "no error feedback", run_engines(1, NULL, run_refused, NULL));
}
