/* A pipeline run on ranks that are threads: gradients, losses and running statistics have the bits
 * of one worker that accumulates as many parts, for every schedule that can be run. */
#include "nn/rig.h"

#include "comm/ranks.h"
#include "parallel/pipeline_run.h"

enum { RANKS_MOST = 4, STAGES_MOST = 8, PARTS_MOST = 16, STEPS = 2 };

typedef struct trial {
    const char *model, *schedule;
    sh_net_input input;
    int ranks, micros;
    int64_t batch;
    bool tied;  // a parameter may be in several stages

    sh_pipeline pipeline;
    int cut[STAGES_MOST + 1];
    int64_t begin[PARTS_MOST + 1];
    void *x;
    float *y;
    size_t x_bytes, y_bytes;       // of a sample
    float *gradients[RANKS_MOST];  // after the last step
    float *states[RANKS_MOST];
    double loss[RANKS_MOST];
} trial;

/* ---- One worker ------------------------------------------------------------------------------ */

typedef struct worker {
    sh_net *net;
    sh_tuner *tuner;
    sh_blocks blocks;
} worker;

static float *block_of(size_t count) {
    float *block = aligned_alloc(SH_ALIGN, sh_round_up(count * sizeof(float) + 1, SH_ALIGN));
    memset(block, 0, count * sizeof(float));
    return block;
}

static worker make_worker(const trial *t) {
    worker w = {.net = rig_net(t->model, t->input), .tuner = rig_tuner()};
    w.blocks.weights = block_of(w.net->params.total);
    w.blocks.gradients = block_of(w.net->params.total);
    w.blocks.states = block_of(w.net->states.total);
    rig_weights(w.net, w.blocks.weights);
    rig_states(w.net, w.blocks.states);
    return w;
}

static void free_worker(worker *w) {
    free(w->blocks.weights), free(w->blocks.gradients), free(w->blocks.states);
    sh_tuner_destroy(w->tuner);
    sh_net_destroy(w->net);
}

/* So that the second step differs from the first. */
static void descend(worker *w) {
    for (size_t i = 0; i < w->net->params.total; i++)
        w->blocks.weights[i] -= 0.01f * w->blocks.gradients[i];
}

static sh_step_context context_at(int step) {
    return (sh_step_context){.training = true, .seed = 3, .step = step, .position = 40};
}

static double run_whole(const trial *t, worker *w) {
    double sum = 0;
    for (int step = 0; step < STEPS; step++) {
        if (step > 0) descend(w);
        sum = 0;
        for (int m = 0; m < t->micros; m++) {
            int64_t at = t->begin[m], count = t->begin[m + 1] - at;
            sh_executor *e = NULL;
            sh_arena memory = {0};
            CHECK_OK(sh_executor_create(
                w->net,
                &(sh_executor_options){
                    .batch = count, .training = true, .loss = &rig_linear_loss, .tuner = w->tuner},
                &e));
            CHECK_OK(sh_arena_init(&memory, "whole", e->memory_bytes + 64));
            sh_executor_bind(e, &w->blocks, memory.base);
            sh_step_context context = context_at(step);
            context.position += (uint64_t)at;
            context.accumulate = m > 0;
            CHECK_OK(sh_executor_forward(e, &context, (char *)t->x + (size_t)at * t->x_bytes));
            sum += sh_executor_loss(e, (char *)t->y + (size_t)at * t->y_bytes, 0.5).sum;
            CHECK_OK(sh_executor_backward(e, NULL, NULL));
            sh_executor_destroy(e);
            sh_arena_fini(&memory);
        }
    }
    return sum;
}

/* ---- A pipeline of workers ------------------------------------------------------------------- */

static sh_status wire_send(void *self, sh_message *message) { return sh_send(self, message); }
static sh_status wire_receive(void *self, sh_message *message) { return sh_receive(self, message); }
static sh_status wire_wait(void *self, sh_message *message, const char *what) {
    (void)what;
    return wait_message(self, message);
}
static void wire_cancel(void *self, sh_message *message) { sh_cancel(self, message); }

static float *copy_of(const float *values, size_t count) {
    float *copy = malloc(count * sizeof *copy + 1);
    memcpy(copy, values, count * sizeof *copy);
    return copy;
}

/* A tied parameter's gradient is summed over the stages here as the caller of a worker would. */
static sh_status sum_tied(sh_transport *transport, const trial *t, worker *w) {
    if (!t->tied || t->ranks == 1) return SH_OK;
    const sh_param *p = sh_param_list_find(&w->net->params, "transformer.wte.weight");
    float *own = w->blocks.gradients + p->offset, *other = block_of(p->count);
    int last = t->ranks - 1;
    sh_status status = SH_OK;
    if (transport->rank == 0 || transport->rank == last) {
        int peer = transport->rank == 0 ? last : 0;
        sh_message out = {
            .peer = peer, .tag = UINT64_C(1) << 40, .data = own, .bytes = p->count * 4};
        sh_message in = {
            .peer = peer, .tag = UINT64_C(1) << 40, .data = other, .bytes = p->count * 4};
        status = sh_send(transport, &out);
        if (status == SH_OK) status = sh_receive(transport, &in);
        if (status == SH_OK) status = wait_message(transport, &out);
        if (status == SH_OK) status = wait_message(transport, &in);
        for (size_t i = 0; i < p->count; i++) own[i] += other[i];
    }
    free(other);
    return status;
}

static sh_status run_steps(sh_transport *transport, trial *t, worker *w, sh_pipe_worker *pipe) {
    for (int step = 0; step < STEPS; step++) {
        if (step > 0) descend(w);
        sh_pipe_step s = {.context = context_at(step),
                          .parts = {t->micros, t->begin},
                          .x = t->x,
                          .y = t->y,
                          .x_bytes = t->x_bytes,
                          .y_bytes = t->y_bytes,
                          .scale = 0.5};
        sh_loss_result result;
        SH_TRY(sh_pipe_worker_step(pipe, &s, &result));
        SH_TRY(sum_tied(transport, t, w));
        t->loss[transport->rank] = result.sum;
    }
    return SH_OK;
}

static sh_status run_rank(sh_transport *transport, void *argument) {
    trial *t = argument;
    worker w = make_worker(t);
    sh_pipe_worker_options options = {
        .pipeline = t->pipeline,
        .rank = transport->rank,
        .net = w.net,
        .cut = t->cut,
        .loss = &rig_linear_loss,
        .tuner = w.tuner,
        .blocks = w.blocks,
        .wire = {wire_send, wire_receive, wire_wait, wire_cancel, transport},
    };
    sh_pipe_worker *pipe = NULL;
    sh_status status = sh_pipe_worker_create(&options, &pipe);
    if (status == SH_OK) status = run_steps(transport, t, &w, pipe);
    t->gradients[transport->rank] = copy_of(w.blocks.gradients, w.net->params.total);
    t->states[transport->rank] = copy_of(w.blocks.states, w.net->states.total);
    sh_pipe_worker_destroy(pipe);
    free_worker(&w);
    return status;
}

/* ---- Comparison ------------------------------------------------------------------------------ */

/* Stages of nearly equal numbers of layers, cut where the bits stay. */
static void cut_evenly(trial *t, const sh_net *net) {
    int stages = sh_pipeline_stages(&t->pipeline), layers = (int)net->layer_count;
    t->cut[0] = 0;
    for (int s = 1; s < stages; s++) {
        int at = layers * s / stages;
        if (at <= t->cut[s - 1]) at = t->cut[s - 1] + 1;
        bool exact = false;
        for (; at < layers; at++) {
            CHECK_OK(sh_net_cut_is_exact(net, at, &exact));
            if (exact) break;
        }
        assert_true(exact && at < layers);
        t->cut[s] = at;
    }
    t->cut[stages] = layers;
}

static void make_data(trial *t, const sh_net *net) {
    size_t x = sh_shape_count(&net->input.sample), y = sh_shape_count(sh_net_output(net));
    t->x_bytes = x * sizeof(float), t->y_bytes = y * sizeof(float);
    t->x = malloc((size_t)t->batch * t->x_bytes);
    t->y = malloc((size_t)t->batch * t->y_bytes);
    sh_test_fill(t->x, (size_t)t->batch * x, 7);
    sh_test_fill(t->y, (size_t)t->batch * y, 8);
    int32_t *tokens = t->x;
    const float *unit = t->x;
    for (size_t i = 0; net->input.tokens && i < (size_t)t->batch * x; i++)
        tokens[i] = (int32_t)((unit[i] + 1) / 2 * (float)net->input.outputs);
    for (int m = 0; m <= t->micros; m++) {
        int64_t larger = t->batch % t->micros;
        t->begin[m] = m * (t->batch / t->micros) + (m < larger ? m : larger);
    }
}

/* Each stage's gradients are those of its rank. */
static void check_stage(const trial *t, const worker *whole, int stage) {
    const sh_net *net = whole->net;
    const float *seen = t->gradients[stage % t->ranks];
    for (int i = t->cut[stage]; i < t->cut[stage + 1]; i++)
        for (int k = 0; k < net->layers[i]->param_count; k++) {
            const sh_param *p = &net->params.items[net->layers[i]->params[k]];
            const float *wanted = whole->blocks.gradients + p->offset;
            if (t->tied)  // the second step started from weights that were summed in another order
                CHECK_CLOSE(wanted, seen + p->offset, p->count, 1e-4);
            else if (memcmp(wanted, seen + p->offset, p->count * sizeof(float)) != 0)
                fail_msg("%s, %d ranks, %d micro-batches: stage %d, %s differs", t->schedule,
                         t->ranks, t->micros, stage, p->name);
        }
    for (int i = t->cut[stage]; i < t->cut[stage + 1]; i++)
        for (int k = 0; k < net->layers[i]->state_count; k++) {
            const sh_param *p = &net->states.items[net->layers[i]->states[k]];
            assert_memory_equal(whole->blocks.states + p->offset,
                                t->states[stage % t->ranks] + p->offset, p->count * sizeof(float));
        }
}

static void check_trial(trial t) {
    rig_threads = 1;
    CHECK_OK(sh_pipeline_init(&t.pipeline, t.schedule, t.ranks, t.micros));
    worker whole = make_worker(&t);
    cut_evenly(&t, whole.net);
    make_data(&t, whole.net);
    double loss = run_whole(&t, &whole);
    assert_true(rig_norm(whole.blocks.gradients, whole.net->params.total) > 0.01);
    CHECK_OK(run_ranks(t.ranks, run_rank, &t));
    for (int s = 0; s < sh_pipeline_stages(&t.pipeline); s++) check_stage(&t, &whole, s);
    double seen = t.loss[t.ranks - 1];
    if (t.tied)
        assert_true(fabs(seen - loss) < 1e-4 * (1 + fabs(loss)));
    else
        assert_true(seen == loss);
    for (int r = 0; r < t.ranks; r++) free(t.gradients[r]), free(t.states[r]);
    free(t.x), free(t.y);
    free_worker(&whole);
}

static const char *const SCHEDULES[] = {"naive", "gpipe", "1f1b", "interleaved:2"};
enum { SCHEDULE_COUNT = 4 };

/* Sizes of micro-batches differ where their number does not divide the batch; fewer micro-batches
 * than ranks are among the numbers. */
static void check_all(trial t, int ranks_most) {
    static const int micros[] = {1, 3, 5};
    for (int i = 0; i < SCHEDULE_COUNT; i++)
        for (t.ranks = 1; t.ranks <= ranks_most; t.ranks++)
            for (size_t k = 0; k < SH_COUNT(micros); k++) {
                t.schedule = SCHEDULES[i];
                t.micros = micros[k];
                check_trial(t);
            }
}

static const char mlp[] = "{name: mlp, hidden: [24, 20, 16, 12, 8]}";
static const char lenet[] = "{name: lenet, hidden: 32, dropout: 0.3}";
static const char resnet_like[] =
    "[{conv: 8, padding: 1, bias: false}, batchnorm, {relu: , name: x}, {conv: 16, kernel: 1, "
    "stride: 2, bias: false, from: x}, {batchnorm: , name: short}, {conv: 16, stride: 2, padding: "
    "1, bias: false, from: x}, batchnorm, relu, {conv: 16, padding: 1, bias: false}, {batchnorm: , "
    "name: long}, {add: , from: [long, short]}, {relu: , name: y}, {maxpool: 2}, globalpool, "
    "dense]";
static const char gpt[] = "{name: gpt, layers: 3, heads: 2, width: 8, dropout: 0.1}";

/* The first stage may have no parameter at all: nothing comes back to it. */
TEST(pipeline_run, an_mlp_has_the_bits_of_one_worker) {
    check_all((trial){.model = mlp, .input = RIG_IMAGE(1, 4, 3), .batch = 13}, 4);
}

TEST(pipeline_run, lenet_with_dropout_has_the_bits_of_one_worker) {
    check_all(
        (trial){
            .model = lenet, .input = {.sample = SH_SHAPE(1, 12, 12), .outputs = 10}, .batch = 7},
        3);
}

/* Values pass stages that do not use them, and running statistics go on over micro-batches. */
TEST(pipeline_run, skip_connections_and_batchnorm_have_the_bits_of_one_worker) {
    check_all((trial){.model = resnet_like, .input = RIG_IMAGE(3, 9, 8), .batch = 7}, 3);
}

TEST(pipeline_run, a_gpt_with_tied_embeddings_follows_one_worker) {
    check_all((trial){.model = gpt, .input = RIG_TOKENS(6, 17), .batch = 6, .tied = true}, 3);
}

TEST(pipeline_run, what_cannot_be_run_is_refused) {
    rig_threads = 1;
    trial t = {.model = mlp, .input = RIG_VECTOR(10)};
    worker w = make_worker(&t);
    int layers = (int)w.net->layer_count;
    int cut[] = {0, 1, layers}, empty[] = {0, layers, layers};
    sh_pipe_worker_options options = {.net = w.net, .cut = cut, .blocks = w.blocks};
    sh_pipe_worker *pipe = NULL;
    CHECK_OK(sh_pipeline_init(&options.pipeline, "zb-h2", 2, 4));
    CHECK_FAILS(SH_E_USAGE, "its steps overlap", sh_pipe_worker_create(&options, &pipe));
    CHECK_OK(sh_pipeline_init(&options.pipeline, "zb-h1", 2, 4));
    CHECK_FAILS(SH_E_UNSUPPORTED, "backward in one", sh_pipe_worker_create(&options, &pipe));
    CHECK_OK(sh_pipeline_init(&options.pipeline, "1f1b", 2, 4));
    options.cut = empty;
    CHECK_FAILS(SH_E_USAGE, "stage 1 has no layers", sh_pipe_worker_create(&options, &pipe));
    CHECK_OK(sh_pipeline_init(&options.pipeline, "1f1b", 100, 4));
    CHECK_FAILS(SH_E_USAGE, "100 stages for", sh_pipe_worker_create(&options, &pipe));
    free_worker(&w);
}

/* Rank 1 leaves: the others' waits end with its name, and nothing of theirs is left behind. */
static sh_status leave_or_run(sh_transport *transport, void *argument) {
    if (transport->rank == 1) return SH_FAIL(SH_E_IO, "rank 1 leaves");
    return run_rank(transport, argument);
}

TEST(pipeline_run, a_rank_that_leaves_ends_the_step_of_the_others) {
    rig_threads = 1;
    trial t = {.model = mlp,
               .schedule = "1f1b",
               .input = RIG_VECTOR(10),
               .ranks = 3,
               .micros = 4,
               .batch = 8};
    CHECK_OK(sh_pipeline_init(&t.pipeline, t.schedule, t.ranks, t.micros));
    worker w = make_worker(&t);
    cut_evenly(&t, w.net);
    make_data(&t, w.net);
    CHECK_FAILS(SH_E_IO, "rank 1 leaves", run_ranks(t.ranks, leave_or_run, &t));
    for (int r = 0; r < t.ranks; r++) free(t.gradients[r]), free(t.states[r]);
    free(t.x), free(t.y);
    free_worker(&w);
}
