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

static sh_status gradient(shoal_run *run, const sh_batch *batch, sh_mean mean,
                          sh_loss_result *result_out) {
    double rows = sh_run_rows(batch);
    if (mean == SH_MEAN_OWN) rows /= run->team.ranks;
    SH_TRY(sh_run_gradient(run, batch, rows, result_out));
    if (mean == SH_MEAN_OWN) clip(run);
    return SH_OK;
}

/* A simulated worker breaks off while its time passes. */
bool sh_scheme_may_break_off(const shoal_run *run) {
    return run->scheme != NULL && run->scheme->replica.unwanted != NULL &&
           run->team.env.spend == NULL;
}

bool sh_scheme_unwanted(void *self) {
    const sh_replica *replica = &((const shoal_run *)self)->scheme->replica;
    return replica->unwanted(replica->who);
}

/* In the simulator the time of a step passes when its numbers are there. */
static void pass_time(shoal_run *run) {
    const sh_worker_env *env = &run->team.env;
    const sh_replica *replica = &run->scheme->replica;
    if (replica->unwanted != NULL)
        env->spend_unless(env->self, replica->step, replica->mail.transport, replica->unwanted,
                          replica->who);
    else
        env->spend(env->self, replica->step, 1);
}

sh_status sh_scheme_combine(shoal_run *run, sh_reduce_op op, int64_t *values, size_t count,
                            bool *over_out) {
    const sh_replica *replica = &run->scheme->replica;
    return replica->combine(replica->who, op, values, count, over_out);
}

/* What a worker waits for in it is no computing. */
static sh_status exact_gradient(shoal_run *run, const sh_batch *batch, sh_loss_result *result_out) {
    sh_replica *replica = &run->scheme->replica;
    int64_t waited = replica->waited_ns;
    sh_status status = sh_exact_gradient(run, batch, result_out, &replica->broke_off);
    run->stats.spent.compute_ns -= replica->waited_ns - waited;
    return status;
}

static sh_status compute_next(shoal_run *run, sh_mean mean, sh_loss_result *result_out,
                              int64_t *samples_out) {
    const sh_batch *batch;
    int64_t begin = sh_run_now(run);
    SH_TRY(sh_loader_next(run->loader, &batch));
    SH_ASSERT(batch != NULL);
    int64_t loaded = sh_run_now(run);
    bool exact = run->config.exact;
    if (exact && run->team.env.spend != NULL) pass_time(run);  // before the workers wait
    sh_status status =
        exact ? exact_gradient(run, batch, result_out) : gradient(run, batch, mean, result_out);
    *samples_out = (int64_t)batch->count;
    sh_loader_release(run->loader, batch);
    if (!exact && run->team.env.spend != NULL) pass_time(run);
    run->stats.spent.data_ns += loaded - begin;
    run->stats.spent.compute_ns += sh_run_now(run) - loaded;
    return status;
}

void scheme_move_on(shoal_run *run) {
    int64_t step = run->scheme->replica.done / run->team.ranks;
    if (step >= run->scheme->to) step = run->scheme->to;
    int64_t samples = (step - run->at.step) * run->config.batch;
    run->at.step = step;
    run->at.samples += samples;
    run->at.samples_here += samples;
}

static sh_status compute(void *self, sh_mean mean, sh_loss_result *result_out) {
    shoal_run *run = self;
    sh_replica *replica = &run->scheme->replica;
    int64_t begin = sh_run_now(run), samples = 0;
    replica->broke_off = false;
    scheme_move_on(run);  // draws depend on the step
    if (run->team.env.timing_only) {
        *result_out = (sh_loss_result){0};
        pass_time(run);
        run->stats.spent.compute_ns += sh_run_now(run) - begin;
    } else {
        SH_TRY(compute_next(run, mean, result_out, &samples));
    }
    if (replica->unwanted != NULL) replica->broke_off = sh_scheme_unwanted(run);
    if (replica->broke_off)
        *result_out = (sh_loss_result){0};
    else
        run->scheme->samples += samples;
    return SH_OK;
}

static sh_status next_sparse(void *self, sh_sparse_batch *batch_out) {
    shoal_run *run = self;
    SH_TRY(sh_run_next_sparse(run, batch_out));
    run->scheme->samples += (int64_t)batch_out->count;
    return SH_OK;
}

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

sh_replica scheme_replica_of(shoal_run *run) {
    sh_team *team = &run->team;
    return (sh_replica){
        .rank = team->rank,
        .ranks = team->ranks,
        .engine = team->engine,
        .mail = {.workers = team->ranks, .apart = sh_sync_apart(&run->config.scheme)},
        .clock = run->clock,
        .params = &run->model.net->params,
        .weights = run->model.blocks.weights,
        .gradients = run->model.blocks.gradients,
        .fixed = run->config.exact ? sh_exact_fixed(run) : NULL,
        .spare = team->spare,
        .optim = &run->optim,
        .schedule = &run->schedule,
        .codec = &run->scheme->codec,
        .seed = (uint64_t)run->config.seed,
        .overlap = run->config.overlap,
        .step = run->at.step,
        .done = run->at.step * team->ranks,
        .total = run->length.steps * team->ranks,
        .compute = compute,
        .sparse = sh_run_sparse_layer(run),
        .next_sparse = next_sparse,
        .place = place,
        .stops = scheme_stops,
        .self = run,
    };
}

void sh_scheme_poll(void *self, size_t param) {
    (void)param;
    const shoal_run *run = self;
    sh_transport *mail = run->scheme->replica.mail.transport;
    if (mail != NULL) sh_transport_progress(mail);
}
