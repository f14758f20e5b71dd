/* A lane: one thread's executors and memory, and what is computed in them. */
#include <math.h>
#include <string.h>

#include "tensor/kernels/fixed.h"
#include "run/exact_internal.h"
#include "run/parts.h"

static sh_executor *find(const sh_lane *lane, int64_t batch, bool training) {
    for (size_t i = 0; i < lane->executor_count; i++)
        if (lane->executors[i]->batch == batch && lane->executors[i]->training == training)
            return lane->executors[i];
    return NULL;
}

/* Bytes of the samples in a lane's batch memory; the labels lie behind them. */
static size_t x_room(const sh_exact *exact) {
    return sh_round_up((size_t)exact->batch_most * exact->sizes.x_bytes, SH_ALIGN);
}

/* All lanes grow alike, so the machine must have the memory for as many. */
static sh_status grow(sh_arena *arena, const char *name, size_t bytes, int lanes) {
    if (bytes <= arena->size_bytes) return SH_OK;
    SH_TRY(sh_memory_check("a step of all threads", bytes * (size_t)lanes));
    sh_arena_fini(arena);
    return sh_arena_init(arena, name, bytes);
}

/* The tuner measures nothing: choices by time would differ from run to run, and the bits with
 * them. */
static sh_status add_executor(sh_exact *exact, sh_lane *lane, int64_t batch, bool training) {
    const sh_model *model = &exact->run->model;
    sh_executor_options options = {.batch = batch,
                                   .training = training,
                                   .loss = &model->loss,
                                   .tuner = exact->tuner,
                                   .trace = model->trace};
    SH_TRY(sh_grow((void **)&lane->executors, &lane->executor_capacity, lane->executor_count + 1,
                   sizeof *lane->executors));
    SH_TRY(sh_executor_create(model->net, &options, &lane->executors[lane->executor_count]));
    lane->executor_count++;
    return SH_OK;
}

sh_status sh_exact_executor(sh_exact *exact, int64_t batch, bool training) {
    int lanes = sh_thread_pool_size(exact->pool);
    if (find(&exact->lanes[0], batch, training) != NULL) return SH_OK;
    if (batch > exact->batch_most) exact->batch_most = batch;
    size_t room = x_room(exact) + (size_t)exact->batch_most * exact->sizes.y_bytes + SH_ALIGN;
    for (int i = lanes - 1; i >= 0; i--) {  // lane 0 last: it tells that all have the executor
        sh_lane *lane = &exact->lanes[i];
        if (find(lane, batch, training) == NULL) SH_TRY(add_executor(exact, lane, batch, training));
        size_t work = lane->executors[lane->executor_count - 1]->memory_bytes;
        SH_TRY(grow(&lane->work, "activations", work, lanes));
        SH_TRY(grow(&lane->batch, "samples", room, lanes));
    }
    return SH_OK;
}

void sh_lane_fini(sh_lane *lane) {
    for (size_t i = 0; i < lane->executor_count; i++) sh_executor_destroy(lane->executors[i]);
    sh_free(lane->executors);
    sh_arena_fini(&lane->work);
    sh_arena_fini(&lane->batch);
    sh_free(lane->exponents);
    sh_free(lane->used);
    sh_free(lane->notes);
}

/* Samples are copied to the lane's own memory: kernels may choose by alignment, which must not
 * depend on where a sample lies in the batch. */
static const void *copy(void *to, const void *from, int64_t at, int64_t count, size_t bytes) {
    return memcpy(to, (const char *)from + (size_t)at * bytes, (size_t)count * bytes);
}

/* The executor of so many samples, bound to the shard's blocks. */
static sh_executor *bound_executor(const sh_exact *exact, const sh_lane *lane,
                                   const sh_shard *shard, int64_t count) {
    sh_executor *executor = find(lane, count, true);
    SH_ASSERT(executor != NULL);
    sh_blocks blocks = {.weights = exact->run->model.blocks.weights,
                        .gradients = shard->gradients,
                        .states = shard->states};
    sh_executor_bind(executor, &blocks, lane->work.base);
    return executor;
}

/* `at` is a sample of the global batch: every draw depends on where a sample stands in it. */
static sh_step_context context(const sh_exact *exact, const sh_exact_batch *batch,
                               const sh_shard *shard, int64_t at) {
    return (sh_step_context){
        .training = true,
        .seed = (uint64_t)exact->run->config.seed,
        .step = exact->run->at.step,
        .position = batch->position + (uint64_t)at,
        .shard = (uint32_t)(exact->first + (shard - exact->own)),
        .accumulate = at > shard->at,
    };
}

typedef struct pass {
    sh_exact *exact;
    const sh_exact_batch *batch;
} pass;

/* A gradient that has just become whole is still in the cache. */
typedef struct watch {
    const sh_param_list *params;
    const float *gradients;
    int *exponents;
} watch;

/* Hook of the executor: a parameter's gradient in this shard is complete. */
static void note_gradient(void *user, size_t param) {
    const watch *w = user;
    const sh_param *range = &w->params->items[param];
    w->exponents[param] = sh_fixed()->exponent(w->gradients + range->offset, range->count);
}

/* One part of a shard, from sample `at` of the global batch on; false when its loss is not finite.
 */
static bool compute_part(const pass *p, sh_lane *lane, sh_shard *shard, int64_t at, int64_t count) {
    const sh_exact *exact = p->exact;
    const sh_exact_batch *batch = p->batch;
    const sh_param_list *params = &exact->run->model.net->params;
    const void *x = copy(lane->batch.base, batch->x, at - batch->at, count, exact->sizes.x_bytes);
    const void *y = copy(lane->batch.base + x_room(exact), batch->y, at - batch->at, count,
                         exact->sizes.y_bytes);
    sh_executor *executor = bound_executor(exact, lane, shard, count);
    sh_step_context step = context(exact, batch, shard, at);
    sh_status status = sh_executor_forward(executor, &step, x);
    SH_ASSERT(status == SH_OK);  // no op of a shard has peers, and computing cannot fail
    // The gradient of the sum over rows; it becomes that of the mean when shards are added up.
    sh_loss_result result = sh_executor_loss(executor, y, 1.0);
    shard->loss.sum += result.sum;
    shard->loss.counted += result.counted;
    shard->loss.correct += result.correct;
    if (!isfinite(result.sum)) return false;
    bool last = at + count == shard->at + shard->count;
    watch w = {params, shard->gradients, lane->exponents};
    status = sh_executor_backward(executor, last ? note_gradient : NULL, &w);
    SH_ASSERT(status == SH_OK);
    for (size_t i = 0; i < params->count; i++) lane->used[i] |= !executor->param_unused[i];
    return true;
}

static void raise_note(int64_t *note, int value) {
    if (value > *note) *note = value;
}

/* The lane's notes are maxima over its shards, in which the order of the shards does not show. */
static void note_tensors(const sh_exact *exact, sh_lane *lane, const sh_shard *shard) {
    const sh_net *net = exact->run->model.net;
    for (size_t i = 0; i < net->params.count; i++)
        if (lane->used[i]) raise_note(&lane->notes[i], lane->exponents[i]);
    for (size_t i = 0; i < net->states.count; i++) {
        const sh_param *state = &net->states.items[i];
        raise_note(&lane->notes[net->params.count + i],
                   sh_fixed()->exponent(shard->states + state->offset, state->count));
    }
}

/* A piece of the thread pool: one shard, computed by one thread from its first part to its
 * last. */
static void compute_shard(void *user, int member, size_t piece) {
    const pass *p = user;
    const sh_exact *exact = p->exact;
    const sh_net *net = exact->run->model.net;
    sh_lane *lane = &exact->lanes[member];
    sh_shard *shard = &exact->own[piece];
    const int64_t parts = sh_part_count(shard->count, exact->run->config.accumulate);
    // Each shard updates a copy of the model's running statistics; the copies are averaged later.
    memcpy(shard->states, exact->run->model.blocks.states, net->states.total * sizeof(float));
    memset(lane->used, 0, net->params.count * sizeof *lane->used);
    for (int64_t part = 0; part < parts; part++) {
        int64_t first = sh_part_begin(shard->count, parts, part), at = shard->at + first;
        int64_t count = sh_part_begin(shard->count, parts, part + 1) - first;
        if (compute_part(p, lane, shard, at, count)) continue;
        // The rest of the shard is void. Its loss is not finite, which all workers see in the
        // notes.
        shard->bad_at = at;
        shard->bad_count = count;
        return;
    }
    if (shard->count > 0) note_tensors(exact, lane, shard);
}

void sh_exact_compute(sh_exact *exact, const sh_exact_batch *batch) {
    const size_t own = (size_t)(exact->last - exact->first), tensors = sh_exact_tensors(exact);
    exact->terms = 0;
    for (size_t i = 0; i < own; i++) {
        sh_shard *shard = &exact->own[i];
        int64_t s = exact->first + (int64_t)i;
        shard->at = batch->count * s / exact->shards;
        shard->count = batch->count * (s + 1) / exact->shards - shard->at;
        shard->loss = (sh_loss_result){0};
        shard->bad_count = 0;
        if (shard->count == 0) continue;
        exact->gradients[exact->terms] = shard->gradients;
        exact->states[exact->terms] = shard->states;
        exact->weights[exact->terms++] = (double)shard->count;
    }
    // -1 says that no shard of the lane has used the parameter.
    for (int k = 0; k < sh_thread_pool_size(exact->pool); k++)
        for (size_t i = 0; i < tensors; i++) exact->lanes[k].notes[i] = -1;
    sh_thread_pool_run(exact->pool, compute_shard, &(pass){exact, batch}, own);
}

sh_status sh_exact_explain(sh_exact *exact, const sh_exact_batch *batch, const sh_shard *shard) {
    const sh_lane *lane = &exact->lanes[0];
    sh_executor *executor = bound_executor(exact, lane, shard, shard->bad_count);
    sh_step_context step = context(exact, batch, shard, shard->bad_at);
    const void *x = copy(lane->batch.base, batch->x, shard->bad_at - batch->at, shard->bad_count,
                         exact->sizes.x_bytes);
    return sh_run_explain_bad(exact->run, executor, &step, x, shard->loss.sum);
}

sh_loss_result sh_lane_evaluate(sh_exact *exact, int index, const sh_batch *batch) {
    const sh_lane *lane = &exact->lanes[index];
    const int64_t count = (int64_t)batch->count;
    const void *x = copy(lane->batch.base, batch->x, 0, count, exact->sizes.x_bytes);
    const void *y =
        copy(lane->batch.base + x_room(exact), batch->y, 0, count, exact->sizes.y_bytes);
    sh_executor *executor = find(lane, count, false);
    SH_ASSERT(executor != NULL);
    sh_executor_bind(executor, &exact->run->model.blocks, lane->work.base);
    sh_step_context step = {.seed = (uint64_t)exact->run->config.seed};
    sh_status status = sh_executor_forward(executor, &step, x);
    SH_ASSERT(status == SH_OK);
    return sh_executor_loss(executor, y, 0.0);
}
