/* One step, and one evaluation: the hot path of a run. */
#include <math.h>

#include "tensor/kernels/loss.h"
#include "tensor/kernels/reduce.h"
#include "train/exact.h"
#include "train/run.h"

static int64_t now(void) { return sh_clock_now_ns(&sh_clock_real); }

/* A batch is computed in parts of this size (the last may be smaller). */
static int64_t part_size(const shoal_run *run) {
    return (run->config.batch + run->config.accumulate - 1) / run->config.accumulate;
}

static sh_status prepare_batch(shoal_run *run, int64_t count) {
    sh_plan *plan;
    int64_t part = part_size(run);
    if (count >= part) SH_TRY(sh_model_plan(&run->model, part, true, &plan));
    if (count % part != 0) SH_TRY(sh_model_plan(&run->model, count % part, true, &plan));
    return SH_OK;
}

static int64_t eval_batch(const shoal_run *run) {
    return run->config.eval_batch > 0 ? run->config.eval_batch : part_size(run);
}

/* Without shuffling, token data has one window per `context` tokens. */
static sh_status prepare_eval(shoal_run *run, const sh_dataset *dataset) {
    if (dataset == NULL) return SH_OK;
    sh_loader_options options = {.batch = (size_t)eval_batch(run), .epochs = 1};
    sh_loader *loader = NULL;
    SH_TRY(sh_loader_create(dataset, &options, &loader));
    int64_t count = (int64_t)sh_loader_samples(loader), batch = eval_batch(run);
    sh_loader_destroy(loader);
    sh_plan *plan;
    if (count >= batch) SH_TRY(sh_model_plan(&run->model, batch, false, &plan));
    if (count % batch != 0) SH_TRY(sh_model_plan(&run->model, count % batch, false, &plan));
    return SH_OK;
}

sh_status sh_run_prepare(shoal_run *run) {
    if (run->config.exact) return sh_exact_prepare(run);
    int64_t samples = (int64_t)sh_loader_samples(run->loader), batch = run->config.batch;
    if (samples >= batch) SH_TRY(prepare_batch(run, batch));
    if (samples % batch != 0 && !run->config.drop_last) SH_TRY(prepare_batch(run, samples % batch));
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

/* What the mean is taken over: rows whose label counts. */
static int64_t counted_rows(const shoal_run *run, const sh_batch *batch, const sh_sample_sizes *s) {
    int64_t rows = (int64_t)batch->count * s->rows;
    bool classes = run->model.loss.kind->classes;
    int64_t ignore = run->config.loss.ignore_index;
    if (!classes || ignore < 0) return rows;  // labels are never negative
    return (int64_t)sh_loss_counted(batch->y, (size_t)rows, (int32_t)ignore);
}

sh_status sh_run_explain_bad(shoal_run *run, sh_plan *plan, const sh_step_context *step,
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

static void update(shoal_run *run) {
    sh_blocks *blocks = &run->model.blocks;
    const sh_param_list *params = &run->model.net->params;
    double scale = 1.0;
    if (run->config.clip_value > 0)
        sh_clip_value(blocks->gradients, params->total, (float)run->config.clip_value);
    if (run->config.clip_norm > 0)
        scale =
            sh_clip_norm(blocks->gradients, params->total, run->config.clip_norm, &run->grad_norm);
    sh_optim_step step = {
        .params = params,
        .count = params->count,
        .unused = run->model.current->param_unused,
        .weights = blocks->weights,
        .gradients = blocks->gradients,
        .gradient_scale = (float)scale,
        .lr = sh_schedule_lr(&run->schedule, run->step),
        .step = run->step + 1,
    };
    sh_optim_apply(&run->optim, &step);
}

sh_status sh_run_step(shoal_run *run, const sh_batch *batch, sh_loss_result *result_out) {
    if (run->config.exact) return sh_exact_step(run, batch, result_out);
    const sh_sample_sizes s = sh_sample_sizes_of(&run->data.train->info);
    const int64_t part = part_size(run);
    const double scale = 1.0 / (double)counted_rows(run, batch, &s);
    sh_loss_result total = {0};
    int64_t begin = now();
    for (int64_t at = 0; at < (int64_t)batch->count; at += part) {
        int64_t count = (int64_t)batch->count - at < part ? (int64_t)batch->count - at : part;
        sh_step_context step = {
            .training = true,
            .seed = (uint64_t)run->config.seed,
            .step = run->step,
            .position = batch->position + (uint64_t)at,
            .accumulate = at > 0,
        };
        const void *x = (const char *)batch->x + (size_t)at * s.x_bytes;
        const void *y = (const char *)batch->y + (size_t)at * s.y_bytes;
        sh_plan *plan;
        SH_TRY(sh_model_plan(&run->model, count, true, &plan));
        sh_plan_forward(plan, &step, x);
        sh_loss_result result = sh_plan_loss(plan, y, scale);
        if (!isfinite(result.sum)) return sh_run_explain_bad(run, plan, &step, x, result.sum);
        total.sum += result.sum;
        total.counted += result.counted;
        total.correct += result.correct;
        sh_plan_backward(plan, NULL, NULL);
        run->model.current = plan;
    }
    int64_t computed = now();
    update(run);
    sh_trace_end(run->model.trace, "optim", "update", run->step, computed);
    run->spent.compute_ns += computed - begin;
    run->spent.update_ns += now() - computed;
    *result_out = total;
    return SH_OK;
}

sh_status sh_run_evaluate(shoal_run *run, const sh_dataset *dataset, shoal_result *result_out) {
    if (run->config.exact) return sh_exact_evaluate(run, dataset, result_out);
    sh_loader_options options = {.batch = (size_t)eval_batch(run), .epochs = 1, .depth = 2};
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
        SH_TRY_OUT(sh_model_plan(&run->model, (int64_t)batch->count, false, &plan));
        sh_step_context step = {.seed = (uint64_t)run->config.seed};
        sh_plan_forward(plan, &step, batch->x);
        sh_loss_result result = sh_plan_loss(plan, batch->y, 0.0);
        total.sum += result.sum;
        total.counted += result.counted;
        total.correct += result.correct;
        samples += (int64_t)batch->count;
        sh_loader_release(loader, batch);
    }
    bool classes = run->model.loss.kind->classes;
    *result_out = (shoal_result){
        .loss = total.sum / (double)total.counted,
        .accuracy = classes ? (double)total.correct / (double)total.counted : NAN,
        .samples = samples,
    };
out:
    sh_loader_destroy(loader);
    return status;
}
