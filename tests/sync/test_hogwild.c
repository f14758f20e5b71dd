/* Hogwild on threads that share memory. The problem is least squares with a known answer, its
 * gradient a few rows at a time; the oracle is the same SGD by one worker in plain C. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "comm/engines.h"
#include "harness.h"
#include "sync/list.h"

enum { COUNT = 40, RANKS_MOST = 4, STEPS = 20000 };

typedef struct problem {
    const char *scheme, *optimizer;
    int64_t goal;  // steps of all workers
    double momentum, decay;
    bool falls;            // the rate falls from 0.3 to 0 over the steps; every gradient is -1
    float weights[COUNT];  // rank 0's at the end
    int64_t done[RANKS_MOST], own[RANKS_MOST];
    uint64_t stalest;
    int64_t stop_at;  // steps of rank 0 after which it wants to stop; 0: never
} problem;

typedef struct worker {
    problem *problem;
    sh_replica replica;
    float own[COUNT], gradients[COUNT];
    int64_t drawn;
} worker;

static float answer(size_t i) { return (float)((double)(i % 7) - 3) / 4; }

/* Sample s has a handful of features; its target is that of the answer. The gradient is zero
 * elsewhere. Weights are read as Hogwild reads them, but for the sanitizer by relaxed loads. */
static double sample_gradient(const float *weights, uint64_t seed, uint64_t s, float *gradients) {
    sh_rng rng = sh_rng_stream(seed, SH_RNG_TEST, 1, s);
    double error = 0;
    size_t feature[4];
    float value[4];
    memset(gradients, 0, COUNT * sizeof *gradients);
    for (int k = 0; k < 4; k++) {
        feature[k] = (size_t)sh_rng_below(&rng, COUNT / 4) * 4 + (size_t)k;
        value[k] = 0.25f + sh_rng_uniform(&rng);
        float w;
        __atomic_load(&weights[feature[k]], &w, __ATOMIC_RELAXED);
        error += (double)value[k] * (double)(w - answer(feature[k]));
    }
    for (int k = 0; k < 4; k++) gradients[feature[k]] = (float)error * value[k];
    return error * error / 2;
}

static sh_status compute(void *self, sh_mean mean, sh_loss_result *result_out) {
    worker *w = self;
    assert_int_equal(mean, SH_MEAN_OWN);
    uint64_t s = (uint64_t)(w->drawn++ * w->replica.ranks + w->replica.rank);
    double loss = sample_gradient(w->replica.weights, 5, s, w->gradients);
    for (size_t i = 0; i < COUNT && w->problem->falls; i++) w->gradients[i] = -1;
    *result_out = (sh_loss_result){.sum = loss, .counted = 1, .correct = -1};
    return SH_OK;
}

static void place(void *self, float *memory) {
    worker *w = self;
    w->replica.weights = memory != NULL ? memory : w->own;
}

static bool stops(void *self) {
    const worker *w = self;
    return w->problem->stop_at > 0 && w->replica.rank == 0 && w->drawn >= w->problem->stop_at;
}

static sh_status make_optimizer(const problem *p, sh_optim *optim) {
    char name[16];
    snprintf(name, sizeof name, "%s", p->optimizer);
    sh_optim_options options = {.name = name,
                                .lr = 0.3,
                                .momentum = p->momentum,
                                .beta1 = NAN,
                                .beta2 = NAN,
                                .epsilon = NAN,
                                .weight_decay = p->decay,
                                .dampening = NAN,
                                .trust = NAN,
                                .rho = NAN};
    return sh_optim_init(optim, &options, COUNT);
}

static sh_status make_schedule(const problem *p, sh_schedule *schedule) {
    static char constant[] = "constant", linear[] = "linear";
    sh_schedule_options options = {.name = p->falls ? linear : constant, .gamma = 0.1};
    return sh_schedule_init(schedule, &options, 0.3, 1, p->falls ? p->goal / 3 : STEPS, STEPS);
}

/* Two meetings: in the middle, where all replicas have the same weights, and at the end. */
static sh_status train(worker *w, sh_sync *sync) {
    problem *p = w->problem;
    sh_replica *replica = &w->replica;
    for (int half = 1; half <= 2; half++) {
        replica->all.goal = p->goal * half / 2;
        for (bool meets = false; !meets;) {
            sh_loss_result result = {0};
            SH_TRY(sync->scheme.kind->family->step(sync, &result, &meets));
            if (!meets) replica->step++;
        }
        SH_TRY(sync->scheme.kind->family->meet(sync));
        if (p->stop_at == 0 && replica->all.done != replica->all.goal)
            return SH_FAIL(SH_E_NUMERIC, "%ld steps, not %ld", (long)replica->all.done,
                           (long)replica->all.goal);
        float sum = 0, most;
        for (size_t i = 0; i < COUNT; i++) sum += replica->weights[i] * (float)(i + 1);
        most = sum;
        sh_call call = {
            .what = SH_ALLREDUCE, .data = &most, .count = 1, .op = SH_MAX, .bucket = -1};
        SH_TRY(sh_group_run(replica->group, &call));
        if (most != sum) return SH_FAIL(SH_E_NUMERIC, "replicas differ after a meeting");
        if (p->stop_at > 0) break;
    }
    return SH_OK;
}

static sh_status be_worker(sh_engine *engine, void *argument) {
    problem *p = argument;
    static const sh_sync_options none = {0};
    sh_param param = {.count = COUNT, .decays = true};
    sh_param_list params = {.items = &param, .count = 1, .total = COUNT};
    sh_codec codec = {0};
    sh_optim optim;
    sh_schedule schedule;
    SH_TRY(make_optimizer(p, &optim));
    SH_TRY(make_schedule(p, &schedule));
    worker w = {.problem = p};
    int rank = sh_engine_rank(engine);
    w.replica =
        (sh_replica){.rank = rank,
                     .ranks = sh_engine_ranks(engine),
                     .group = sh_engine_world(engine),
                     .clock = &sh_clock_real,
                     .params = &params,
                     .weights = w.own,
                     .gradients = w.gradients,
                     .optim = &optim,
                     .schedule = &schedule,
                     .codec = &codec,
                     .ops = {.compute = compute, .place = place, .stops = stops, .self = &w}};
    sh_sync sync = {
        .scheme = {sh_sync_find(p->scheme), 0}, .options = &none, .replica = &w.replica};
    sh_status status = sync.scheme.kind->family->create(&sync);
    if (status == SH_OK) status = train(&w, &sync);
    sync.scheme.kind->family->destroy(&sync);
    sh_optim_fini(&optim);
    p->done[rank] = w.replica.all.done;
    p->own[rank] = w.replica.step;
    if (rank == 0) memcpy(p->weights, w.replica.weights, sizeof p->weights);
    if (rank == 0) p->stalest = w.replica.counts.staleness.most;
    return status;
}

/* What one worker does, by the optimizer's own plain update. */
static void serial(const problem *p, float *weights) {
    sh_param param = {.count = COUNT, .decays = true};
    sh_param_list params = {.items = &param, .count = 1, .total = COUNT};
    float gradients[COUNT];
    sh_optim optim;
    CHECK_OK(make_optimizer(p, &optim));
    memset(weights, 0, COUNT * sizeof *weights);
    for (int64_t s = 0; s < p->goal; s++) {
        sample_gradient(weights, 5, (uint64_t)s, gradients);
        sh_optim_step step = {.params = &params,
                              .count = 1,
                              .high = COUNT,
                              .weights = weights,
                              .gradients = gradients,
                              .gradient_scale = 1,
                              .lr = 0.3,
                              .step = s + 1};
        sh_optim_apply(&optim, &step);
    }
    sh_optim_fini(&optim);
}

static double distance(const float *weights) {
    double most = 0;
    for (size_t i = 0; i < COUNT; i++) most = fmax(most, fabs((double)(weights[i] - answer(i))));
    return most;
}

TEST(hogwild, one_worker_is_plain_sgd_bit_for_bit) {
    const char *schemes[] = {"hogwild", "hogwild-locked"};
    const problem variants[] = {
        {.optimizer = "sgd"},
        {.optimizer = "sgd", .decay = 0.01},
        {.optimizer = "momentum", .momentum = 0.8},
        {.optimizer = "momentum", .momentum = 0.8, .decay = 0.01},
    };
    for (size_t i = 0; i < SH_COUNT(schemes); i++)
        for (size_t k = 0; k < SH_COUNT(variants); k++) {
            problem p = variants[k];
            p.scheme = schemes[i];
            p.goal = 200;
            float expected[COUNT];
            serial(&p, expected);
            CHECK_OK(run_engines(1, NULL, be_worker, &p));
            assert_memory_equal(p.weights, expected, sizeof expected);
            assert_int_equal(p.stalest, 0);
        }
}

static void check_workers(const char *scheme, int ranks) {
    problem p = {.scheme = scheme, .optimizer = "sgd", .goal = STEPS};
    float expected[COUNT];
    serial(&p, expected);
    assert_true(distance(expected) < 0.01);
    CHECK_OK(run_engines(ranks, NULL, be_worker, &p));
    assert_true(distance(p.weights) < 0.03);
    int64_t own = 0;
    for (int r = 0; r < ranks; r++) own += p.own[r];
    assert_int_equal(own, p.goal);
}

TEST(hogwild, workers_without_a_lock_reach_what_one_reaches) {
    for (int ranks = 2; ranks <= RANKS_MOST; ranks++) check_workers("hogwild", ranks);
}

TEST(hogwild, workers_with_a_lock_reach_what_one_reaches) {
    for (int ranks = 2; ranks <= RANKS_MOST; ranks++) check_workers("hogwild-locked", ranks);
}

/* Step t of all workers has the rate of step t / P of the run, whoever takes it. */
TEST(hogwild, every_step_has_its_own_rate) {
    enum { RANKS = 3, GOAL = 60 };  // as make_schedule expects
    problem p = {.scheme = "hogwild-locked", .optimizer = "sgd", .goal = GOAL, .falls = true};
    sh_schedule schedule;
    double sum = 0;
    CHECK_OK(make_schedule(&p, &schedule));
    for (int64_t t = 0; t < GOAL; t++) sum += sh_schedule_lr(&schedule, t / RANKS);
    CHECK_OK(run_engines(RANKS, NULL, be_worker, &p));
    for (size_t i = 0; i < COUNT; i++) assert_true(fabs((double)p.weights[i] - sum) < 1e-4 * sum);
}

TEST(hogwild, a_wish_to_stop_ends_everyones_steps) {
    problem p = {.scheme = "hogwild", .optimizer = "sgd", .goal = (int64_t)1 << 40, .stop_at = 20};
    CHECK_OK(run_engines(3, NULL, be_worker, &p));
    assert_int_equal(p.done[0], p.own[0] + p.own[1] + p.own[2]);
    for (int r = 1; r < 3; r++) assert_int_equal(p.done[r], p.done[0]);
}

static sh_status check(const char *scheme, const char *optimizer, sh_sync_terms terms) {
    static const sh_sync_options none = {0};
    sh_codec codec = {0};
    terms.workers = 2;
    terms.optim = sh_optim_find(optimizer);
    if (terms.codec == NULL) terms.codec = &codec;
    return sh_scheme_check((sh_scheme){sh_sync_find(scheme), 0}, &none, &terms);
}

TEST(hogwild, what_does_not_go_together_is_refused) {
    sh_codec topk;
    CHECK_OK(sh_codec_parse("topk", &topk));
    CHECK_OK(check("hogwild", "sgd", (sh_sync_terms){0}));
    CHECK_OK(check("hogwild-locked", "momentum", (sh_sync_terms){0}));
    CHECK_FAILS(SH_E_USAGE, "optimizer 'adam'", check("hogwild", "adam", (sh_sync_terms){0}));
    CHECK_FAILS(SH_E_USAGE, "--compress", check("hogwild", "sgd", (sh_sync_terms){.codec = &topk}));
    CHECK_FAILS(SH_E_USAGE, "clip", check("hogwild", "sgd", (sh_sync_terms){.clips = true}));
    CHECK_FAILS(SH_E_USAGE, "simulated",
                check("hogwild-locked", "sgd", (sh_sync_terms){.simulated = true}));
    CHECK_FAILS(SH_E_USAGE, "--exact", check("hogwild", "sgd", (sh_sync_terms){.exact = true}));
}

/* ---- sparse rows ---- */

enum { ROWS = 12, WIDTH = 50, UNITS = 3 };

static void make_rows(sh_sparse *sparse, int32_t *labels) {
    const sh_sparse_spec plan = {.rows = ROWS, .width = WIDTH, .nonzeros = 7, .zipf = 0.9};
    CHECK_OK(sh_sparse_make(&plan, sparse, labels));
}

/* Softmax regression on dense rows, in doubles: the loss, and the weights after one step. */
static double dense_step(const sh_sparse *sparse, const int32_t *labels, double lr, double *w) {
    enum { BIAS = UNITS * WIDTH };
    double gradient[BIAS + UNITS] = {0}, loss = 0;
    float x[WIDTH];
    for (size_t r = 0; r < ROWS; r++) {
        double z[UNITS], sum = 0;
        sh_sparse_expand(sparse, r, x);
        for (size_t k = 0; k < UNITS; k++) {
            z[k] = w[BIAS + k];
            for (size_t i = 0; i < WIDTH; i++) z[k] += w[k * WIDTH + i] * (double)x[i];
            sum += exp(z[k]);
        }
        loss += log(sum) - z[labels[r]];
        for (size_t k = 0; k < UNITS; k++) {
            double error = (exp(z[k]) / sum - (labels[r] == (int32_t)k)) / ROWS;
            gradient[BIAS + k] += error;
            for (size_t i = 0; i < WIDTH; i++) gradient[k * WIDTH + i] += error * (double)x[i];
        }
    }
    for (size_t i = 0; i < BIAS + UNITS; i++) w[i] -= lr * gradient[i];
    return loss;
}

TEST(hogwild, a_sparse_step_is_the_dense_step_up_to_rounding) {
    sh_sparse sparse;
    int32_t labels[ROWS];
    uint32_t rows[ROWS];
    make_rows(&sparse, labels);
    for (uint32_t r = 0; r < ROWS; r++) rows[r] = r;
    static char name[] = "cross-entropy";
    sh_loss loss = {.kind = sh_loss_find(name), .options = {.name = name, .ignore_index = -1}};
    float outputs[ROWS * UNITS], weights[UNITS * (WIDTH + 1)], expected[UNITS * (WIDTH + 1)];
    double reference[UNITS * (WIDTH + 1)];
    sh_test_fill(weights, SH_COUNT(weights), 9);
    for (size_t i = 0; i < SH_COUNT(weights); i++) reference[i] = (double)weights[i];
    const sh_sparse_layer layer = {
        .features = WIDTH, .units = UNITS, .has_bias = true, .loss = &loss, .outputs = outputs};
    const sh_sparse_batch batch = {&sparse, rows, labels, ROWS, ROWS};
    for (int step = 0; step < 20; step++) {
        double want = dense_step(&sparse, labels, 0.5, reference);
        sh_loss_result result = sh_sparse_step(&layer, &batch, 0.5, weights);
        assert_int_equal(result.counted, ROWS);
        assert_true(fabs(result.sum - want) < 1e-4);
    }
    for (size_t i = 0; i < SH_COUNT(weights); i++) expected[i] = (float)reference[i];
    CHECK_CLOSE(weights, expected, SH_COUNT(weights), 1e-5);
    sh_sparse_fini(&sparse);
}

TEST(hogwild, a_sparse_step_leaves_other_weights_alone) {
    sh_sparse sparse;
    int32_t labels[ROWS];
    make_rows(&sparse, labels);
    uint32_t row = 4;
    float weights[WIDTH], before[WIDTH], x[WIDTH];
    sh_test_fill(weights, WIDTH, 3);
    memcpy(before, weights, sizeof before);
    sh_sparse_expand(&sparse, row, x);
    sh_shared_add(weights, sh_sparse_at(&sparse, row), 0.5f);
    for (size_t i = 0; i < WIDTH; i++) assert_true((weights[i] != before[i]) == (x[i] != 0));
    sh_sparse_fini(&sparse);
}

TEST(sparse, made_rows_keep_their_promises) {
    const sh_sparse_spec plan = {
        .rows = 400, .width = 1000, .nonzeros = 20, .zipf = 1.1, .seed = 2};
    sh_sparse sparse;
    int32_t labels[400];
    size_t uses[1000] = {0}, most = 0, ones = 0;
    CHECK_OK(sh_sparse_make(&plan, &sparse, labels));
    for (size_t r = 0; r < plan.rows; r++) {
        sh_sparse_row row = sh_sparse_at(&sparse, r);
        double squares = 0;
        assert_int_equal(row.count, plan.nonzeros);
        for (size_t i = 0; i < row.count; i++) {
            assert_true(row.index[i] < plan.width);
            assert_true(i == 0 || row.index[i] > row.index[i - 1]);
            squares += (double)row.value[i] * (double)row.value[i];
            if (++uses[row.index[i]] > most) most = uses[row.index[i]];
        }
        assert_true(fabs(squares - 1) < 1e-5);
        ones += (size_t)labels[r];
    }
    assert_true(most > 300);  // evenly drawn, a feature would come in 8 rows
    assert_true(ones > 100 && ones < 300);
    sh_sparse_fini(&sparse);
    const sh_sparse_spec dense = {.rows = 1, .width = 8, .nonzeros = 3};
    CHECK_FAILS(SH_E_USAGE, "not sparse", sh_sparse_make(&dense, &sparse, labels));
}
