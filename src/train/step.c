/* One step, and one evaluation: the hot path of a run. */
#include <math.h>
#include <string.h>

#include "tensor/kernels/loss.h"
#include "tensor/kernels/reduce.h"
#include "train/run.h"

static int64_t now(void) { return sh_clock_now_ns(&sh_clock_real); }

/* Samples of a global batch of `whole` that this worker takes. */
static int64_t own_count(const shoal_run *run, int64_t whole) {
    sh_batch_share share = sh_team_share(&run->team);
    return (int64_t)(sh_share_end(share, (size_t)whole) - sh_share_begin(share, (size_t)whole));
}

/* A worker's batch is computed in parts of this size (the last may be smaller). */
static int64_t part_size(const shoal_run *run) {
    int64_t own = own_count(run, run->config.batch);
    return (own + run->config.accumulate - 1) / run->config.accumulate;
}

static sh_status prepare_batch(shoal_run *run, int64_t whole) {
    sh_plan *plan;
    int64_t count = own_count(run, whole);
    int64_t part = part_size(run);
    if (count >= part) SH_TRY(sh_model_plan(&run->model, part, true, &plan));
    if (count % part != 0) SH_TRY(sh_model_plan(&run->model, count % part, true, &plan));
    return SH_OK;
}

/* Of all workers together. */
static int64_t eval_batch(const shoal_run *run) {
    if (run->config.eval_batch > 0) return run->config.eval_batch;
    return (run->config.batch + run->config.accumulate - 1) / run->config.accumulate;
}

/* Without shuffling, token data has one window per `context` tokens. */
static sh_status prepare_eval(shoal_run *run, const sh_dataset *dataset) {
    if (dataset == NULL) return SH_OK;
    sh_loader_options options = {.batch = (size_t)eval_batch(run), .epochs = 1};
    sh_loader *loader = NULL;
    SH_TRY(sh_loader_create(dataset, &options, &loader));
    int64_t samples = (int64_t)sh_loader_samples(loader), batch = eval_batch(run);
    sh_loader_destroy(loader);
    const int64_t wholes[] = {samples >= batch ? batch : 0, samples % batch};
    for (size_t i = 0; i < SH_COUNT(wholes); i++) {
        sh_plan *plan;
        int64_t count = own_count(run, wholes[i]);
        if (count > 0) SH_TRY(sh_model_plan(&run->model, count, false, &plan));
    }
    return SH_OK;
}

static bool drops_paths(const sh_net *net) {
    for (size_t i = 0; i < net->layer_count; i++)
        if (net->layers[i]->kind == sh_layer_find("droppath")) return true;
    return false;
}

sh_status sh_run_prepare(shoal_run *run, bool evaluates) {
    run->drops_paths = drops_paths(run->model.net);
    int64_t samples = (int64_t)sh_loader_samples(run->loader), batch = run->config.batch;
    if (samples >= batch) SH_TRY(prepare_batch(run, batch));
    if (samples % batch != 0 && !run->config.drop_last) SH_TRY(prepare_batch(run, samples % batch));
    if (!evaluates) return SH_OK;
    SH_TRY(prepare_eval(run, run->data.test));
    return prepare_eval(run, run->data.validation);
}

typedef struct sizes {
    size_t x_bytes, y_bytes;  // per sample
    int64_t rows;             // loss rows per sample
} sizes;

static sizes sizes_of(const sh_data_info *info) {
    size_t elements = sh_shape_count(&info->sample);
    sizes s = {.x_bytes = elements * sizeof(float), .y_bytes = sizeof(int32_t), .rows = 1};
    if (info->target == SH_TARGET_VALUES) s.y_bytes = (size_t)info->values * sizeof(float);
    if (info->target == SH_TARGET_TOKENS) {
        s.y_bytes = elements * sizeof(int32_t);
        s.rows = (int64_t)elements;
    }
    return s;
}

/* What the mean is taken over: rows of the global batch whose label counts. */
static sh_status counted_rows(shoal_run *run, const sh_batch *batch, const sizes *s,
                              double *rows_out) {
    bool classes = run->model.loss.kind->classes;
    int64_t ignore = run->config.loss.ignore_index;
    *rows_out = (double)((int64_t)batch->whole * s->rows);
    if (!classes || ignore < 0) return SH_OK;  // labels are never negative
    size_t rows = batch->count * (size_t)s->rows;
    *rows_out = (double)sh_loss_counted(batch->y, rows, (int32_t)ignore);
    return sh_team_sum(&run->team, rows_out, 1);
}

/* The loss is not finite: says where it began. The weights are still those before this step. */
static sh_status explain_bad(shoal_run *run, sh_plan *plan, const sh_step_context *step,
                             const void *x, double loss) {
    const sh_op *op = sh_plan_first_bad(plan, step, x);
    const char *layer = op != NULL ? sh_op_name(op) : "the loss";
    bool bad_weights = false;
    for (int i = 0; op != NULL && op->layer != NULL && i < op->layer->param_count; i++) {
        size_t count = run->model.net->params.items[op->layer->params[i]].count;
        bad_weights = bad_weights || !sh_reduce()->all_finite(op->param[i], count);
    }
    SH_FAIL(SH_E_NUMERIC, "step %ld: the loss is %g; first in layer '%s', %s", (long)run->step + 1,
            isnan(loss) ? NAN : loss, layer,  // no sign on a NaN
            bad_weights ? "whose parameters are not finite since the last update"
                        : "whose output is not finite");
    return sh_error_hint("lower --lr, add a warm-up, or clip gradients (--clip-norm 1)%s",
                         run->saved ? "; the last good checkpoint is kept" : "");
}

/* Clipping needs the whole gradient, and dropped paths need to know who used what: then no
 * parameter is updated before all have arrived. */
static bool updates_at_end(const shoal_run *run) {
    return run->config.clip_norm > 0 || run->config.clip_value > 0 || run->drops_paths;
}

static double clip(shoal_run *run) {
    float *gradients = run->model.blocks.gradients;
    size_t total = run->model.net->params.total;
    if (run->config.clip_value > 0) sh_clip_value(gradients, total, (float)run->config.clip_value);
    if (run->config.clip_norm == 0) return 1.0;
    return sh_clip_norm(gradients, total, run->config.clip_norm, &run->grad_norm);
}

static void update(shoal_run *run, size_t first, size_t count, double scale, const bool *unused) {
    sh_optim_step step = {
        .params = &run->model.net->params,
        .first = first,
        .count = count,
        .unused = unused,
        .weights = run->model.blocks.weights,
        .gradients = run->model.blocks.gradients,
        .gradient_scale = (float)scale,
        .lr = sh_schedule_lr(&run->schedule, run->step),
        .step = run->step + 1,
    };
    int64_t begin = now();
    sh_optim_apply(&run->optim, &step);
    run->spent.update_ns += now() - begin;
    sh_trace_end(run->model.trace, "optim", "update", run->step, begin);
}

/* A bucket's sum is in place. */
void sh_run_update_bucket(void *user, size_t first, size_t count) {
    shoal_run *run = user;
    if (!updates_at_end(run)) update(run, first, count, 1.0, NULL);
}

/* A parameter that no rank used in this step stays as it is. */
static sh_status agree_on_unused(shoal_run *run, bool *unused) {
    sh_team *team = &run->team;
    size_t count = run->model.net->params.count;
    for (size_t i = 0; i < count; i++) team->used[i] = !unused[i];
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = team->used,
                    .count = count,
                    .dtype = SH_DTYPE_I32,
                    .op = SH_SUM,
                    .step = run->step,
                    .bucket = -1};
    SH_TRY(sh_engine_run(team->engine, &call));
    for (size_t i = 0; i < count; i++) unused[i] = team->used[i] == 0;
    return SH_OK;
}

/* Waits for the sums of all ranks; most parameters have been updated already when it returns. */
static sh_status finish_team(shoal_run *run, sh_loss_result *total) {
    sh_team *team = &run->team;
    SH_TRY(sh_reducer_finish(team->reducer));
    SH_TRY(sh_engine_wait(team->engine, &team->control_call));
    run->spent.exposed_ns += sh_reducer_take_stats(team->reducer).exposed_ns;
    *total = (sh_loss_result){.sum = team->control[0],
                              .counted = (int64_t)team->control[1],
                              .correct = (int64_t)team->control[2]};
    team->stops = team->control[3] > 0;
    return run->drops_paths ? agree_on_unused(run, run->model.param_unused) : SH_OK;
}

/* What everyone must know after the step travels beside the gradients. */
static sh_status start_team(shoal_run *run, const sh_loss_result *total) {
    sh_team *team = &run->team;
    bool stop = run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
    team->control[0] = total->sum;
    team->control[1] = (double)total->counted;
    team->control[2] = (double)total->correct;
    team->control[3] = stop ? 1 : 0;
    team->control_call = (sh_call){.what = SH_ALLREDUCE,
                                   .data = team->control,
                                   .count = SH_COUNT(team->control),
                                   .dtype = SH_DTYPE_F64,
                                   .op = SH_SUM,
                                   .step = run->step,
                                   .bucket = -1};
    sh_reducer_begin(team->reducer, run->step);
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

/* Forward and backward over one part of the worker's batch; the last part hands gradients on. */
static sh_status compute_part(shoal_run *run, const sh_step_context *step, int64_t count,
                              const void *x, const void *y, double scale, bool last,
                              sh_loss_result *total) {
    sh_plan *plan;
    SH_TRY(sh_model_plan(&run->model, count, true, &plan));
    sh_plan_forward(plan, step, x);
    sh_loss_result result = sh_plan_loss(plan, y, scale);
    if (!isfinite(result.sum)) return explain_bad(run, plan, step, x, result.sum);
    total->sum += result.sum;
    total->counted += result.counted;
    total->correct += result.correct;
    bool sends = last && run->team.engine != NULL;
    if (sends) SH_TRY(start_team(run, total));
    sh_plan_backward(plan, sends ? sh_reducer_ready : NULL, run->team.reducer);
    run->model.param_unused = plan->param_unused;
    return SH_OK;
}

sh_status sh_run_step(shoal_run *run, const sh_batch *batch, sh_loss_result *result_out) {
    const sizes s = sizes_of(&run->data.train->info);
    const int64_t part = part_size(run), own = (int64_t)batch->count;
    double rows;
    SH_TRY(counted_rows(run, batch, &s, &rows));
    sh_loss_result total = {0};
    int64_t begin = now(), updating = run->spent.update_ns, exposed = run->spent.exposed_ns;
    for (int64_t at = 0; at < own; at += part) {
        int64_t count = own - at < part ? own - at : part;
        sh_step_context step = {
            .training = true,
            .seed = (uint64_t)run->config.seed,
            .step = run->step,
            .position = batch->position + (uint64_t)at,
            .accumulate = at > 0,
        };
        const void *x = (const char *)batch->x + (size_t)at * s.x_bytes;
        const void *y = (const char *)batch->y + (size_t)at * s.y_bytes;
        SH_TRY(compute_part(run, &step, count, x, y, 1.0 / rows, at + count == own, &total));
    }
    if (own == 0) SH_TRY(add_nothing(run));
    if (run->team.engine != NULL) SH_TRY(finish_team(run, &total));
    if (run->team.engine == NULL || updates_at_end(run))
        update(run, 0, run->model.net->params.count, clip(run), run->model.param_unused);
    run->spent.compute_ns +=
        now() - begin - (run->spent.update_ns - updating) - (run->spent.exposed_ns - exposed);
    *result_out = total;
    return SH_OK;
}

sh_status sh_run_evaluate(shoal_run *run, const sh_dataset *dataset, shoal_result *result_out) {
    sh_loader_options options = {.batch = (size_t)eval_batch(run),
                                 .share = sh_team_share(&run->team),
                                 .epochs = 1,
                                 .depth = 2};
    sh_loader *loader = NULL;
    SH_TRY(sh_loader_create(dataset, &options, &loader));
    sh_loss_result total = {0};
    int64_t samples = 0;
    sh_status status = SH_OK;
    for (;;) {
        const sh_batch *batch;
        sh_plan *plan;
        SH_TRY_OUT(sh_loader_next(loader, &batch));
        if (batch == NULL) break;
        samples += (int64_t)batch->whole;
        if (batch->count > 0) {
            SH_TRY_OUT(sh_model_plan(&run->model, (int64_t)batch->count, false, &plan));
            sh_step_context step = {.seed = (uint64_t)run->config.seed};
            sh_plan_forward(plan, &step, batch->x);
            sh_loss_result result = sh_plan_loss(plan, batch->y, 0.0);
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
