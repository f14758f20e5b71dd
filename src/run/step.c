/* One step, and one evaluation: the hot path of a run. */
#include <math.h>
#include <string.h>

#include "tensor/kernels/loss.h"
#include "tensor/kernels/reduce.h"
#include "tensor/kernels/vector.h"
#include "run/exact.h"
#include "run/parts.h"
#include "run/run.h"
#include "run/scheme.h"
#include "run/sparse.h"
#include "run/states.h"

/* Parts have two sizes at most: that of the first, and that of the last. */
static sh_status prepare_batch(shoal_run *run, int64_t count) {
    sh_executor *executor;
    const int64_t parts = sh_part_count(count, run->config.accumulate);
    if (parts == 0) return SH_OK;
    SH_TRY(sh_model_executor(&run->model, sh_part_begin(count, parts, 1), true, &executor));
    return sh_model_executor(&run->model, count - sh_part_begin(count, parts, parts - 1), true,
                             &executor);
}

/* Of all workers together. */
static int64_t eval_batch(const shoal_run *run) {
    if (run->config.eval_batch > 0) return run->config.eval_batch;
    return sh_part_most(run->config.batch, run->config.accumulate);
}

/* Without shuffling, token data has one window per `context` tokens. */
static sh_status prepare_eval(shoal_run *run, const sh_dataset *dataset) {
    if (dataset == NULL) return SH_OK;
    sh_loader_options options = {
        .batch = (size_t)eval_batch(run), .share = sh_team_share(&run->team), .epochs = 1};
    sh_loader *loader = NULL;
    SH_TRY(sh_loader_create(dataset, &options, &loader));
    size_t sizes[2], count = sh_loader_sizes(loader, sizes);
    sh_loader_destroy(loader);
    for (size_t i = 0; i < count; i++) {
        sh_executor *executor;
        SH_TRY(sh_model_executor(&run->model, (int64_t)sizes[i], false, &executor));
    }
    return SH_OK;
}

static bool sums_batchnorms(const shoal_run *run) {
    return run->config.sync_batchnorm && run->team.engine != NULL;
}

/* All workers meet in every synchronised batchnorm: none may skip it. */
static sh_status check_meetings(const shoal_run *run) {
    if (!sums_batchnorms(run)) return SH_OK;
    if (run->drops_paths)
        return SH_FAIL(SH_E_USAGE, "sync_batchnorm does not go with paths that are dropped");
    if (run->config.exact)
        return SH_FAIL(SH_E_USAGE, "in exact runs batch statistics are a shard's own");
    return SH_OK;
}

sh_status sh_run_prepare(shoal_run *run, bool evaluates) {
    SH_TRY(check_meetings(run));
    if (run->config.exact) return sh_exact_prepare(run, evaluates);
    size_t sizes[2], count = sh_loader_sizes(run->loader, sizes);
    for (size_t i = 0; i < count; i++) SH_TRY(prepare_batch(run, (int64_t)sizes[i]));
    if (!evaluates) return SH_OK;
    SH_TRY(prepare_eval(run, run->data.test));
    return prepare_eval(run, run->data.validation);
}

sh_sample_sizes sh_sample_sizes_of(const sh_data_info *info) {
    size_t elements = sh_shape_count(&info->sample);
    sh_sample_sizes s = {
        .x_bytes = elements * sizeof(float), .y_bytes = sizeof(int32_t), .rows = 1};
    if (info->target == SH_TARGET_VALUES) s.y_bytes = (size_t)info->values * sizeof(float);
    if (info->target == SH_TARGET_TOKENS) {
        s.y_bytes = elements * sizeof(int32_t);
        s.rows = (int64_t)elements;
    }
    return s;
}

double sh_run_rows(const sh_batch *batch) {
    return batch->counted > 0 ? batch->counted : 1;  // the gradient is 0 then, not 0 / 0
}

/* Where data lies in parts nobody can see which labels of the others count. */
static sh_status count_parts(shoal_run *run, const sh_batch *batch, double *rows_out) {
    const sh_data_info *info = &run->data.train->info;
    size_t rows = batch->count * (size_t)sh_sample_sizes_of(info).rows;
    *rows_out = (double)sh_loss_counted(batch->y, rows, (int32_t)run->config.loss.ignore_index);
    SH_TRY(sh_team_sum(&run->team, rows_out, 1));
    if (*rows_out == 0) *rows_out = 1;
    return SH_OK;
}

sh_status sh_run_explain_bad(shoal_run *run, sh_executor *executor, const sh_step_context *step,
                             const void *x, double loss) {
    (void)sh_model_explain_bad(&run->model, executor, step, x, loss);
    return sh_error_hint("lower --lr, add a warm-up, or clip gradients (--clip-norm 1)%s",
                         run->results.saved ? "; the last good checkpoint is kept" : "");
}

/* The sum over the workers is clipped, or the gradient of a worker alone. */
static bool clips_sum(const shoal_run *run) {
    return (run->config.clip_norm > 0 || run->config.clip_value > 0) && !run->team.clips_own;
}

/* Clipping needs the whole gradient, and dropped paths need to know who used what: then no
 * parameter is updated before all have arrived. */
bool sh_run_updates_at_end(const shoal_run *run) { return clips_sum(run) || run->drops_paths; }

/* Norms of whole parameters, whose elements are spread over the ranks. */
static void sum_norms(void *self, double *values, size_t count) {
    sh_team *team = self;
    sh_call call = {.what = SH_ALLREDUCE,
                    .group = sh_reducer_group(team->reducer),
                    .data = values,
                    .count = count,
                    .dtype = SH_DTYPE_F64,
                    .op = SH_SUM,
                    .bucket = -1};
    sh_status status = sh_engine_run(team->engine, &call);
    if (status != SH_OK) team->status = status;  // the step fails when it ends
}

static void update(shoal_run *run, const sh_bucket *bucket, double scale, const bool *unused) {
    bool shards = run->team.shards && run->team.engine != NULL;
    sh_optim_step step = {
        .params = &run->model.net->params,
        .first = bucket->first,
        .count = bucket->count,
        .windowed = true,
        .low = bucket->low,
        .high = bucket->high,
        .sum = shards ? sum_norms : NULL,
        .sum_self = &run->team,
        .unused = unused,
        .weights = run->model.blocks.weights,
        .gradients = run->model.blocks.gradients,
        .gradient_scale = (float)scale,
        .lr = sh_schedule_lr(&run->schedule, run->at.step),
        .step = run->at.step + 1,
    };
    int64_t begin = sh_run_now(run);
    sh_optim_apply(&run->optim, &step);
    run->stats.spent.update_ns += sh_run_now(run) - begin;
    if (!run->team.fuses_update)  // then there are many, and finish_team tells of them
        sh_trace_end(run->model.trace, "optim", "update", run->at.step, begin);
}

/* The sum of a bucket, or of a part of it, is in place. */
bool sh_run_update_bucket(void *user, const sh_bucket *bucket) {
    shoal_run *run = user;
    if (sh_run_updates_at_end(run)) return false;
    update(run, bucket, 1.0, NULL);
    return true;
}

/* Buckets as the reducer has them; alone, one that holds everything. */
static size_t bucket_count(const shoal_run *run) {
    return run->team.engine == NULL ? 1 : sh_reducer_buckets(run->team.reducer);
}

static sh_bucket bucket_at(const shoal_run *run, size_t index) {
    const sh_param_list *params = &run->model.net->params;
    if (run->team.engine == NULL) return (sh_bucket){0, params->count, 0, params->total};
    return *sh_reducer_bucket(run->team.reducer, index);
}

/* This rank's gradient, before it is encoded. Its part of the largest value is 1 / ranks, so that
 * the sum keeps to it. Its part of the largest norm is 1 / sqrt(ranks) (Lin et al., ICLR 2018):
 * that of the sum if the ranks' gradients were independent. */
static void clip_own(shoal_run *run) {
    float *gradients = run->model.blocks.gradients;
    size_t total = run->model.net->params.total;
    double ranks = run->team.ranks;
    if (run->config.clip_value > 0)
        sh_clip_value(gradients, total, (float)(run->config.clip_value / ranks));
    if (run->config.clip_norm <= 0) return;
    double squares = ranks * sh_clip_squares(gradients, total);
    double factor = sh_clip_factor(squares, run->config.clip_norm, &run->stats.grad_norm);
    if (factor < 1) sh_vector()->scale(gradients, (float)factor, total);
}

/* Clips by value and gives the squares of this rank's part of the gradient. */
static double clip_bucket(shoal_run *run, const sh_bucket *bucket) {
    float *gradients = run->model.blocks.gradients + bucket->low;
    size_t count = bucket->high - bucket->low;
    if (run->config.clip_value > 0) sh_clip_value(gradients, count, (float)run->config.clip_value);
    return run->config.clip_norm > 0 ? sh_clip_squares(gradients, count) : 0;
}

static sh_status clip_sum(shoal_run *run, double *scale_out) {
    double squares = 0;
    for (size_t i = 0; i < bucket_count(run); i++) {
        sh_bucket bucket = bucket_at(run, i);
        squares += clip_bucket(run, &bucket);
    }
    if (run->config.clip_norm <= 0) return SH_OK;
    if (run->team.shards) SH_TRY(sh_team_sum(&run->team, &squares, 1));
    *scale_out = sh_clip_factor(squares, run->config.clip_norm, &run->stats.grad_norm);
    return SH_OK;
}

/* All gradients are there: clips, updates, and gathers what other ranks updated. */
static sh_status update_all(shoal_run *run) {
    double scale = 1;
    if (clips_sum(run)) SH_TRY(clip_sum(run, &scale));
    for (size_t i = 0; i < bucket_count(run); i++) {
        sh_bucket bucket = bucket_at(run, i);
        update(run, &bucket, scale, run->model.param_unused);
    }
    return run->team.engine != NULL ? sh_reducer_gather(run->team.reducer) : SH_OK;
}

static bool is_zero(const float *x, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (x[i] != 0) return false;
    return true;
}

/* A parameter that no rank used in this step stays as it is, unless a codec delivers what it had
 * kept back of earlier steps: that is taken off the residuals and would be lost. Decoded sums are
 * the same on all ranks, so that all decide alike. */
static sh_status agree_on_unused(shoal_run *run, bool *unused) {
    sh_team *team = &run->team;
    size_t count = run->model.net->params.count;
    for (size_t i = 0; i < count; i++) team->used[i] = !unused[i];
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = team->used,
                    .count = count,
                    .dtype = SH_DTYPE_I32,
                    .op = SH_SUM,
                    .step = run->at.step + 1,
                    .bucket = -1};
    SH_TRY(sh_engine_run(team->engine, &call));
    for (size_t i = 0; i < count; i++) unused[i] = team->used[i] == 0;
    if (sh_team_states(team, NULL) == 0) return SH_OK;
    const sh_param *params = run->model.net->params.items;
    for (size_t i = 0; i < count; i++)
        if (unused[i])
            unused[i] = is_zero(run->model.blocks.gradients + params[i].offset, params[i].count);
    return SH_OK;
}

/* Running statistics are one model's after every step, whatever its evaluations and checkpoints, so
 * that a run may stop after any. Synchronised ones are equal on all workers. */
static bool averages_states(const shoal_run *run) {
    return run->model.net->states.total > 0 && !sums_batchnorms(run);
}

/* Waits for the sums of all ranks; most parameters have been updated already when it returns. */
static sh_status finish_team(shoal_run *run, sh_loss_result *total) {
    sh_team *team = &run->team;
    if (team->clips_own) clip_own(run);
    int64_t begin = sh_trace_begin(run->model.trace);
    SH_TRY(sh_reducer_finish(team->reducer));
    if (team->fuses_update)
        sh_trace_end(run->model.trace, "optim", "wait, sum and update", run->at.step, begin);
    SH_TRY(sh_engine_wait(team->engine, &team->control_call));
    sh_reducer_stats stats = sh_reducer_take_stats(team->reducer);
    run->stats.spent.exposed_ns += stats.exposed_ns;
    run->stats.sent_bytes += stats.sent_bytes;
    run->stats.dense_bytes += stats.dense_bytes;
    *total = (sh_loss_result){.sum = team->control[SH_CONTROL_LOSS],
                              .counted = (int64_t)team->control[SH_CONTROL_COUNTED],
                              .correct = (int64_t)team->control[SH_CONTROL_CORRECT]};
    team->stops = team->control[SH_CONTROL_STOP] > 0;
    if (averages_states(run)) sh_states_take(run, team->control + SH_CONTROL_COUNT);
    return run->drops_paths ? agree_on_unused(run, run->model.param_unused) : SH_OK;
}

/* What everyone must know after the step travels beside the gradients. */
static sh_status start_team(shoal_run *run, const sh_loss_result *total) {
    sh_team *team = &run->team;
    bool stop = run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
    bool averages = averages_states(run);
    team->control[SH_CONTROL_LOSS] = total->sum;
    team->control[SH_CONTROL_COUNTED] = (double)total->counted;
    team->control[SH_CONTROL_CORRECT] = (double)total->correct;
    team->control[SH_CONTROL_STOP] = stop ? 1 : 0;
    if (averages) sh_states_weigh(run, team->samples, team->control + SH_CONTROL_COUNT);
    size_t states = averages ? sh_states_sums(run->model.net) : 0;
    team->control_call = (sh_call){.what = SH_ALLREDUCE,
                                   .data = team->control,
                                   .count = SH_CONTROL_COUNT + states,
                                   .dtype = SH_DTYPE_F64,
                                   .op = SH_SUM,
                                   .step = run->at.step + 1,
                                   .bucket = -1};
    sh_reducer_begin(team->reducer, run->at.step);
    return sh_engine_start(team->engine, &team->control_call);
}

/* A rank without samples in a short batch adds zeros. */
static sh_status add_nothing(shoal_run *run) {
    const sh_param_list *params = &run->model.net->params;
    memset(run->model.blocks.gradients, 0, params->total * sizeof(float));
    run->model.param_unused = run->team.unused;
    for (size_t i = 0; i < params->count; i++) run->team.unused[i] = true;
    SH_TRY(start_team(run, &(sh_loss_result){0}));
    for (size_t i = params->count; i-- > 0;) sh_reducer_ready(run->team.reducer, i);
    return SH_OK;
}

/* In the simulator a third of a step's time passes in forward and the rest in backward, evenly over
 * the parameters, so that sums overlap it as they do on real workers. */
static void pass_time(const shoal_run *run, double part) {
    const sh_worker_env *env = &run->team.env;
    if (env->spend != NULL && part > 0) env->spend(env->self, run->at.step, part);
}

static void ready_in_time(void *self, size_t param) {
    shoal_run *run = self;
    pass_time(run, run->backward_part / (double)run->model.net->params.count);
    sh_reducer_ready(run->team.reducer, param);
}

static sh_status run_backward(shoal_run *run, sh_executor *executor, bool sends) {
    if (run->scheme != NULL)  // which lets the time of the whole step pass itself
        return sh_executor_backward(executor, sh_scheme_poll, run);
    if (run->team.env.spend == NULL)
        return sh_executor_backward(executor, sends ? sh_reducer_ready : NULL, run->team.reducer);
    SH_TRY(sh_executor_backward(executor, sends ? ready_in_time : NULL, run));
    if (!sends && run->team.reducer != NULL) pass_time(run, run->backward_part);
    return SH_OK;
}

/* Forward and backward over one part of the worker's batch; the last part hands gradients on. */
static sh_status compute_part(shoal_run *run, const sh_step_context *step, int64_t count,
                              const void *x, const void *y, double scale, bool last,
                              sh_loss_result *total) {
    sh_executor *executor;
    SH_TRY(sh_model_executor(&run->model, count, true, &executor));
    SH_TRY(sh_executor_forward(executor, step, x));
    if (executor->stopped) return SH_OK;  // whoever asked for it knows
    sh_loss_result result = sh_executor_loss(executor, y, scale);
    if (!isfinite(result.sum)) return sh_run_explain_bad(run, executor, step, x, result.sum);
    if (!step->stands_in) {
        total->sum += result.sum;
        total->counted += result.counted;
        total->correct += result.correct;
    }
    if (run->team.reducer != NULL) pass_time(run, run->backward_part / 2);
    bool sends = last && run->team.reducer != NULL;
    if (sends) SH_TRY(start_team(run, total));
    // A part of another size has an executor of its own, which has not seen the parts before.
    const bool *before = run->model.param_unused;
    if (step->accumulate && before != executor->param_unused)
        memcpy(executor->param_unused, before, run->model.net->params.count * sizeof *before);
    SH_TRY(run_backward(run, executor, sends));
    run->model.param_unused = executor->param_unused;
    return SH_OK;
}

static sh_step_context context_of(const shoal_run *run, const sh_batch *batch, int64_t at) {
    bool together = sums_batchnorms(run);
    return (sh_step_context){
        .training = true,
        .seed = (uint64_t)run->config.seed,
        .step = run->at.step,
        .position = batch->position + (uint64_t)at,
        .shard = (uint32_t)run->team.rank,
        .accumulate = at > 0,
        .peers = together ? &run->team.peers : NULL,
        .stands_in = together && batch->count == 0,
        .stops = sh_scheme_may_break_off(run) ? sh_scheme_unwanted : NULL,
        .stops_self = (void *)(uintptr_t)run,
    };
}

/* A step without samples, where all workers meet: a sample of zeros counts nothing. */
static sh_status stand_in(shoal_run *run, const sh_batch *batch, sh_loss_result *total) {
    const sh_sample_sizes s = sh_sample_sizes_of(&run->data.train->info);
    char *zeros = sh_alloc(s.x_bytes + s.y_bytes, 1);
    if (zeros == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a sample");
    sh_step_context step = context_of(run, batch, 0);
    run->backward_part = 0;
    sh_status status = compute_part(run, &step, 1, zeros, zeros + s.x_bytes, 0, true, total);
    sh_free(zeros);
    return status;
}

/* Forward and backward over a worker's batch, part by part. */
static sh_status compute_batch(shoal_run *run, const sh_batch *batch, double rows,
                               sh_loss_result *total) {
    const sh_sample_sizes s = sh_sample_sizes_of(&run->data.train->info);
    const int64_t own = (int64_t)batch->count;
    run->team.peers = (sh_peers){.engine = run->team.engine};
    if (sums_batchnorms(run) && own == 0) return stand_in(run, batch, total);
    const int64_t parts = sh_part_count(own, run->config.accumulate);
    for (int64_t part = 0; part < parts; part++) {
        int64_t at = sh_part_begin(own, parts, part);
        int64_t count = sh_part_begin(own, parts, part + 1) - at;
        if (at > 0) sh_team_beat(&run->team);
        sh_step_context step = context_of(run, batch, at);
        const void *x = (const char *)batch->x + (size_t)at * s.x_bytes;
        const void *y = (const char *)batch->y + (size_t)at * s.y_bytes;
        run->backward_part = 2.0 / 3 * (double)count / (double)own;
        SH_TRY(compute_part(run, &step, count, x, y, 1.0 / rows, at + count == own, total));
    }
    return SH_OK;
}

sh_status sh_run_gradient(shoal_run *run, const sh_batch *batch, double rows,
                          sh_loss_result *result_out) {
    *result_out = (sh_loss_result){0};
    if (batch->count == 0)
        memset(run->model.blocks.gradients, 0, run->model.net->params.total * sizeof(float));
    return compute_batch(run, batch, rows, result_out);
}

sh_status sh_run_step(shoal_run *run, const sh_batch *batch, sh_loss_result *result_out) {
    if (run->config.exact) {
        pass_time(run, 1);
        return sh_exact_step(run, batch, result_out);
    }
    if (run->sparse != NULL) return sh_run_step_sparse(run, batch, result_out);
    double rows = sh_run_rows(batch);
    if (run->data.train->info.ignores && run->data.train->parts.ranks > 0)
        SH_TRY(count_parts(run, batch, &rows));
    sh_loss_result total = {0};
    run->team.samples = (int64_t)batch->count;
    int64_t begin = sh_run_now(run), updating = run->stats.spent.update_ns,
            exposed = run->stats.spent.exposed_ns;
    SH_TRY(compute_batch(run, batch, rows, &total));
    if (run->team.engine == NULL) pass_time(run, 1);  // simulated, and left alone
    if (batch->count == 0 && !sums_batchnorms(run)) SH_TRY(add_nothing(run));
    if (run->team.engine != NULL) SH_TRY(finish_team(run, &total));
    if (run->team.engine == NULL || sh_run_updates_at_end(run)) SH_TRY(update_all(run));
    SH_TRY(run->team.status);
    run->stats.spent.compute_ns += sh_run_now(run) - begin -
                                   (run->stats.spent.update_ns - updating) -
                                   (run->stats.spent.exposed_ns - exposed);
    *result_out = total;
    return SH_OK;
}

sh_status sh_run_evaluate(shoal_run *run, const sh_dataset *dataset, shoal_result *result_out) {
    if (run->config.exact) return sh_exact_evaluate(run, dataset, result_out);
    sh_loader_options options = {.batch = (size_t)eval_batch(run),
                                 .share = sh_team_share(&run->team),
                                 .epochs = 1,
                                 .depth = run->team.env.spend != NULL ? 0 : 2};
    sh_loader *loader = NULL;
    SH_TRY(sh_loader_create(dataset, &options, &loader));
    sh_loss_result total = {0};
    int64_t samples = 0;
    sh_status status = SH_OK;
    for (;;) {
        const sh_batch *batch;
        sh_executor *executor;
        SH_TRY_OUT(sh_loader_next(loader, &batch));
        if (batch == NULL) break;
        sh_team_beat(&run->team);
        samples += (int64_t)batch->whole;
        if (batch->count > 0) {
            SH_TRY_OUT(sh_model_executor(&run->model, (int64_t)batch->count, false, &executor));
            sh_step_context step = {.seed = (uint64_t)run->config.seed};
            SH_TRY_OUT(sh_executor_forward(executor, &step, batch->x));
            sh_loss_result result = sh_executor_loss(executor, batch->y, 0.0);
            total.sum += result.sum;
            total.counted += result.counted;
            total.correct += result.correct;
        }
        sh_loader_release(loader, batch);
    }
    double sums[] = {total.sum, (double)total.counted, (double)total.correct};
    SH_TRY_OUT(sh_team_sum(&run->team, sums, SH_COUNT(sums)));
    bool classes = run->model.loss.kind->classes;
    *result_out = (shoal_result){
        .loss = sums[0] / sums[1],
        .accuracy = classes ? sums[2] / sums[1] : NAN,
        .samples = samples,
    };
out:
    sh_loader_destroy(loader);
    return status;
}
