/* The replica that a scheme works on: what it computes, and where its numbers lie. */
#include "tensor/kernels/vector.h"
#include "run/exact.h"
#include "run/regroup.h"
#include "run/scheme_internal.h"
#include "run/sparse.h"

/* Where a worker takes steps of its own, its own gradient is clipped. */
static void clip(shoal_run *run) {
    float *gradients = run->model.blocks.gradients;
    size_t total = run->model.net->params.total;
    if (run->config.clip_value > 0) sh_clip_value(gradients, total, (float)run->config.clip_value);
    if (!(run->config.clip_norm > 0)) return;
    double factor = sh_clip_norm(gradients, total, run->config.clip_norm, &run->stats.grad_norm);
    if (factor < 1) sh_vector()->scale(gradients, (float)factor, total);
}

/* The mean gradient of a batch. Where the mean is over all workers it is clipped after the sum,
 * by whoever sums. */
static sh_status gradient(shoal_run *run, const sh_batch *batch, sh_mean mean,
                          sh_loss_result *result_out) {
    SH_TRY(sh_run_gradient(run, &run->scheme->replica, batch, mean, result_out));
    if (mean == SH_MEAN_OWN) clip(run);
    return SH_OK;
}

/* In the simulator the time of a step passes when its numbers are there. */
static void pass_time(shoal_run *run) {
    const sh_worker_env *env = &run->team.env;
    const sh_replica *replica = &run->scheme->replica;
    if (replica->hooks.unwanted != NULL)
        env->spend_unless(env->self, replica->step, replica->mail.transport,
                          replica->hooks.unwanted, replica->hooks.who);
    else
        env->spend(env->self, replica->step, 1);
}

/* Whoever sends it whole needs all of its sums; steps of all workers together make them bucket by
 * bucket. */
static sh_status exact_gradient(shoal_run *run, const sh_batch *batch, sh_loss_result *result_out) {
    sh_replica *replica = &run->scheme->replica;
    sh_exact_gradient_state state = {0};
    SH_TRY(sh_exact_gradient(run, replica, batch, result_out, &state));
    replica->batch.broke_off = state.over;
    replica->batch.stops_now = state.stops;
    replica->batch.samples = (int64_t)batch->count;
    replica->gradients = run->model.blocks.gradients;
    const sh_fixed_gradient *fixed = replica->fixed;
    if (!state.over && !sh_scheme_is_together(run))
        fixed->sum(fixed->self, 0, run->model.net->params.count);
    return SH_OK;
}

/* The time of a step passes at once, but where gradients are sent while backward runs. */
static bool passes_at_once(const shoal_run *run) {
    return run->team.env.spend != NULL && run->scheme->replica.hooks.begins == NULL;
}

/* One batch: waits for it, computes its gradient, gives it back. The batch is the loader's, so
 * nothing points into it afterwards. */
static sh_status compute_next(shoal_run *run, sh_mean mean, sh_loss_result *result_out,
                              int64_t *samples_out) {
    const sh_batch *batch;
    sh_replica *replica = &run->scheme->replica;
    int64_t begin = sh_run_now(run);
    SH_TRY(sh_loader_next(run->loader, &batch));
    SH_ASSERT(batch != NULL);
    int64_t loaded = sh_run_now(run), waited = replica->counts.waited_ns;
    sh_trace_end(run->model.trace, "data", "wait for batch", run->at.step, begin);
    bool exact = run->config.exact;
    if (exact && passes_at_once(run)) pass_time(run);  // before the workers wait
    sh_status status =
        exact ? exact_gradient(run, batch, result_out) : gradient(run, batch, mean, result_out);
    *samples_out = (int64_t)batch->count;
    run->scheme->whole = (int64_t)batch->whole;
    sh_loader_release(run->loader, batch);
    // In exact runs the workers wait for each other inside the gradient, so there the time has
    // passed before.
    if (!exact && passes_at_once(run)) pass_time(run);
    run->stats.spent.data_ns += loaded - begin;
    if (!sh_scheme_is_together(run))
        run->stats.spent.compute_ns +=
            sh_run_now(run) - loaded - (replica->counts.waited_ns - waited);
    return status;
}

/* Timing only, where gradients are sent while backward runs: its time passes bucket by bucket, for
 * no more is to be seen of it. */
static sh_status pass_buckets(shoal_run *run) {
    const sh_worker_env *env = &run->team.env;
    const sh_replica *replica = &run->scheme->replica;
    const sh_replica_hooks *hooks = &replica->hooks;
    const size_t count = replica->params->count;
    env->spend(env->self, replica->step, 1.0 / 3);
    SH_TRY(hooks->begins(replica->hooks.who, &(sh_loss_result){0}));
    for (size_t end = count, first; end > 0; end = first) {
        first = hooks->bucket_begin(replica->hooks.who, end);
        env->spend(env->self, replica->step, 2.0 / 3 * (double)(end - first) / (double)count);
        for (size_t i = end; i-- > first;) hooks->ready(replica->hooks.who, i);
    }
    return SH_OK;
}

/* A step of a worker that only lets time pass: it has no loss and no samples. */
static sh_status compute_timing(shoal_run *run, sh_loss_result *result_out) {
    int64_t begin = sh_run_now(run);
    *result_out = (sh_loss_result){0};
    if (run->scheme->replica.hooks.begins != NULL) return pass_buckets(run);
    pass_time(run);
    if (!sh_scheme_is_together(run)) run->stats.spent.compute_ns += sh_run_now(run) - begin;
    return SH_OK;
}

void scheme_move_on(shoal_run *run) {
    int64_t step = run->scheme->replica.all.done / sh_run_replicas(run);
    // Not beyond the next meeting, where something is due after that very step.
    if (step >= run->scheme->to) step = run->scheme->to;
    int64_t samples = (step - run->at.step) * run->config.batch;
    run->at.step = step;
    run->at.samples += samples;
    run->at.samples_here += samples;
}

/* sh_replica_ops.compute: one gradient of this worker, or, timing only, the time of one. */
static sh_status compute(void *self, sh_mean mean, sh_loss_result *result_out) {
    shoal_run *run = self;
    sh_replica *replica = &run->scheme->replica;
    int64_t samples = 0;
    replica->batch.broke_off = false;
    if (!sh_scheme_is_together(run)) scheme_move_on(run);  // draws depend on the step
    if (run->team.env.timing_only)
        SH_TRY(compute_timing(run, result_out));
    else
        SH_TRY(compute_next(run, mean, result_out, &samples));
    if (replica->hooks.unwanted != NULL)
        replica->batch.broke_off = replica->hooks.unwanted(replica->hooks.who);
    // Nothing was learnt from a gradient that broke off: its loss and samples do not count.
    if (replica->batch.broke_off)
        *result_out = (sh_loss_result){0};
    else
        run->scheme->samples += samples;
    return SH_OK;
}

/* sh_replica_ops.next_sparse. `whole` of a sparse batch is a worker's mean part, so that times
 * the replicas it is the whole batch again. */
static sh_status next_sparse(void *self, sh_sparse_batch *batch_out) {
    shoal_run *run = self;
    int64_t begin = sh_run_now(run);
    SH_TRY(sh_run_next_sparse(run, batch_out));
    if (sh_scheme_is_together(run)) run->stats.spent.data_ns += sh_run_now(run) - begin;
    run->scheme->samples += (int64_t)batch_out->count;
    run->scheme->whole = (int64_t)(batch_out->whole * sh_run_replicas(run));
    return SH_OK;
}

static void apply_exact(void *self, const sh_optim_step *step) { sh_exact_apply(self, step); }

/* sh_replica_ops.place: the scheme moves the weights into other memory; executors and replica
 * follow. */
static void place(void *self, float *memory) {
    shoal_run *run = self;
    sh_model_place_weights(&run->model, memory);
    run->scheme->replica.weights = run->model.blocks.weights;
}

bool scheme_user_stops(const shoal_run *run) {
    return run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
}

bool scheme_stops(void *self) {
    const shoal_run *run = self;
    return scheme_user_stops(run) || sh_regroup_wished(run);
}

static sh_status whole_squares(void *self, double *squares_out) {
    return sh_run_layout_squares(self, squares_out);
}

static bool user_stops(void *self) { return scheme_user_stops(self); }

/* Where the run is, and where its numbers lie; what the scheme has set or counted stays. */
static void take_position(shoal_run *run, sh_replica *replica) {
    const sh_model *model = &run->model;
    replica->weights = model->blocks.weights;
    replica->gradients = model->blocks.gradients;
    replica->fixed = run->config.exact && run->exact != NULL ? sh_exact_fixed(run) : NULL;
    replica->ops.apply = replica->fixed != NULL ? apply_exact : NULL;
    replica->statistics = (sh_statistics){model->blocks.states, model->net->states.total};
    for (size_t i = 0; i < run->scheme_state.count; i++)
        replica->state[i] = run->scheme_state.slots[i].values;
    replica->ops.sparse = sh_run_sparse_layer(run);
    replica->spare = run->team.spare;
    replica->trace = model->trace;
    replica->step = run->at.step;
    replica->all.done = run->at.step * sh_run_replicas(run);
}

/* Called when the scheme opens and again when it begins, as blocks and position may move in
 * between. */
void scheme_fill_replica(shoal_run *run) {
    sh_team *team = &run->team;
    sh_replica *replica = &run->scheme->replica;
    bool together = sh_scheme_is_together(run);
    replica->rank = sh_run_replica(run);
    replica->ranks = sh_run_replicas(run);
    replica->group = team->group;
    replica->mail =
        (sh_mail){.workers = sh_run_replicas(run), .apart = sh_sync_apart(&run->config.scheme)};
    replica->clock = run->clock;
    replica->params = &run->model.net->params;
    replica->steps = &team->steps;
    replica->optim = &run->optim;
    replica->schedule = &run->schedule;
    replica->codec = &run->scheme->codec;
    replica->seed = (uint64_t)run->config.seed;
    replica->overlap = run->config.overlap;
    replica->all.total = run->length.steps * sh_run_replicas(run);
    replica->ops.compute = compute;
    replica->ops.next_sparse = next_sparse;
    replica->ops.place = place;
    replica->ops.stops = together ? user_stops : scheme_stops;
    replica->ops.squares = run->model.layout != NULL ? whole_squares : NULL;
    replica->ops.self = run;
    take_position(run, replica);
}
