/* One step, and one evaluation: the hot path of a run. */
#include <math.h>
#include <string.h>

#include "tensor/kernels/loss.h"
#include "run/exact.h"
#include "run/parts.h"
#include "run/run.h"

/* Forward and backward over one batch of a worker. */
typedef struct gradient_pass {
    shoal_run *run;
    const sh_replica *replica;
    sh_peers peers;  // of ops that exchange values
    sh_loss_result total;
    bool may_break_off;    // the gradient may become unwanted; simulated: while its time passes
    bool in_time;          // simulated, and gradients are sent while backward runs
    double backward_part;  // then: of the step's time, in the backward of the part at hand
} gradient_pass;

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
        .batch = (size_t)eval_batch(run), .share = sh_run_share(run), .epochs = 1};
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

/* Statistics of the whole batch need the other workers inside forward and backward. */
static bool sums_batchnorms(const shoal_run *run) {
    return run->config.sync_batchnorm && run->team.group != NULL;
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

sh_status sh_run_prepare_evaluation(shoal_run *run) {
    SH_TRY(prepare_eval(run, run->data.test));
    return prepare_eval(run, run->data.validation);
}

sh_status sh_run_prepare(shoal_run *run, bool evaluates) {
    SH_TRY(check_meetings(run));
    if (run->config.exact) return sh_exact_prepare(run, evaluates);
    size_t sizes[2], count = sh_loader_sizes(run->loader, sizes);
    for (size_t i = 0; i < count; i++) SH_TRY(prepare_batch(run, (int64_t)sizes[i]));
    return evaluates ? sh_run_prepare_evaluation(run) : SH_OK;
}

sh_status sh_run_prepare_team(shoal_run *run, bool evaluates) {
    sh_team *team = &run->team;
    if (team->group == NULL) return sh_run_prepare(run, evaluates);
    if (run->config.exact) {  // nothing is measured
        SH_TRY(sh_run_prepare(run, evaluates));
        return sh_group_barrier(team->group);
    }
    // The others wait in the broadcast meanwhile, so that they do not disturb what rank 0 measures.
    if (sh_team_leads(team)) SH_TRY(sh_run_prepare(run, evaluates));
    SH_TRY(sh_team_broadcast_kernels(run));
    if (!sh_team_leads(team)) {
        sh_tuner_forbid(run->model.tuner);
        SH_TRY(sh_run_prepare(run, evaluates));
    }
    return sh_group_barrier(team->group);
}

/* A sample of tokens has a label for every token, hence as many rows in the loss. */
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

/* In the simulator a third of a step's time passes in forward and the rest in backward, evenly over
 * the parameters, so that sums overlap it as they do on real workers. Where nothing is sent while
 * backward runs, the time of the whole step passes when it is over (scheme_replica.c). */
static void pass_time(const gradient_pass *pass, double part) {
    const sh_worker_env *env = &pass->run->team.env;
    if (part > 0) env->spend(env->self, pass->run->at.step, part);
}

/* Simulated: a gradient is handed on only when its part of the backward's time has passed. */
static void ready_in_time(void *self, size_t param) {
    const gradient_pass *pass = self;
    const sh_replica *replica = pass->replica;
    pass_time(pass, pass->backward_part / (double)replica->params->count);
    replica->hooks.ready(replica->hooks.who, param);
}

/* Where the scheme sends nothing during backward, mail still moves between its ops: services
 * and peers wait for answers. */
static void poll(void *self, size_t param) {
    (void)param;
    const gradient_pass *pass = self;
    sh_transport *mail = pass->replica->mail.transport;
    if (mail != NULL) sh_transport_progress(mail);
}

/* Gradients are whole after the last part, so that only its backward announces them to the
 * scheme. */
static sh_status run_backward(gradient_pass *pass, sh_executor *executor, bool last) {
    const sh_replica *replica = pass->replica;
    bool sends = replica->hooks.begins != NULL;
    if (!sends) return sh_executor_backward(executor, poll, pass);
    if (!pass->in_time)
        return sh_executor_backward(executor, last ? replica->hooks.ready : NULL,
                                    replica->hooks.who);
    SH_TRY(sh_executor_backward(executor, last ? ready_in_time : NULL, pass));
    if (!last) pass_time(pass, pass->backward_part);
    return SH_OK;
}

/* A part of a worker's batch. */
typedef struct part {
    int64_t count;
    const void *x, *y;
    double scale;  // of the loss's gradient
    bool last;     // its backward hands gradients on
} part;

static void add_loss(sh_loss_result *total, const sh_loss_result *more) {
    if (total->status == SH_OK) total->status = more->status;
    total->sum += more->sum;
    total->counted += more->counted;
    total->correct += more->correct;
}

/* Forward and backward over one part. */
static sh_status compute_part(gradient_pass *pass, const sh_step_context *step, const part *p) {
    shoal_run *run = pass->run;
    const sh_replica *replica = pass->replica;
    sh_executor *executor;
    SH_TRY(sh_model_executor(&run->model, p->count, true, &executor));
    SH_TRY(sh_executor_forward(executor, step, p->x));
    if (executor->stopped) return SH_OK;  // whoever asked for it knows
    sh_loss_result result = sh_executor_loss(executor, p->y, p->scale);
    SH_TRY(result.status);
    if (!isfinite(result.sum)) return sh_run_explain_bad(run, executor, step, p->x, result.sum);
    if (!step->stands_in) add_loss(&pass->total, &result);
    if (pass->in_time) pass_time(pass, pass->backward_part / 2);
    if (p->last && replica->hooks.begins != NULL)
        SH_TRY(replica->hooks.begins(replica->hooks.who, &pass->total));
    // A part of another size has an executor of its own, which has not seen the parts before.
    const bool *before = run->model.param_unused;
    if (step->accumulate && before != executor->param_unused)
        memcpy(executor->param_unused, before, run->model.net->params.count * sizeof *before);
    SH_TRY(run_backward(pass, executor, p->last));
    run->model.param_unused = executor->param_unused;
    return SH_OK;
}

/* Hook of the executor, asked between ops: the scheme may have no use for the gradient any
 * more. */
static bool unwanted(void *self) {
    const sh_replica *replica = self;
    return replica->hooks.unwanted(replica->hooks.who);
}

/* `at` is the part's first sample in the worker's batch. Random draws go by a sample's
 * position, so that cutting a batch into parts does not change them. */
static sh_step_context context_of(const gradient_pass *pass, const sh_batch *batch, int64_t at) {
    const shoal_run *run = pass->run;
    bool together = sums_batchnorms(run);
    return (sh_step_context){
        .training = true,
        .seed = (uint64_t)run->config.seed,
        .step = run->at.step,
        .position = batch->position + (uint64_t)at,
        .shard = (uint32_t)sh_run_replica(run),
        .accumulate = at > 0,
        .peers = run->model.layout != NULL ? &run->model.layout->peers
                 : together                ? &pass->peers
                                           : NULL,
        .stands_in = together && batch->count == 0,
        .stops = pass->may_break_off ? unwanted : NULL,
        .stops_self = (void *)(uintptr_t)pass->replica,
    };
}

/* A step without samples, where all workers meet: a sample of zeros counts nothing. */
static sh_status stand_in(gradient_pass *pass, const sh_batch *batch) {
    const sh_sample_sizes s = sh_sample_sizes_of(&pass->run->data.train->info);
    char *zeros = sh_alloc(s.x_bytes + s.y_bytes, 1);
    if (zeros == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a sample");
    sh_step_context step = context_of(pass, batch, 0);
    pass->backward_part = 0;
    const part p = {.count = 1, .x = zeros, .y = zeros + s.x_bytes, .last = true};
    sh_status status = compute_part(pass, &step, &p);
    sh_free(zeros);
    return status;
}

/* Forward and backward over a worker's batch, part by part. */
static sh_status compute_batch(gradient_pass *pass, const sh_batch *batch, double rows) {
    shoal_run *run = pass->run;
    const sh_sample_sizes s = sh_sample_sizes_of(&run->data.train->info);
    const int64_t own = (int64_t)batch->count;
    if (sums_batchnorms(run) && own == 0) return stand_in(pass, batch);
    const int64_t parts = sh_part_count(own, run->config.accumulate);
    for (int64_t i = 0; i < parts; i++) {
        int64_t at = sh_part_begin(own, parts, i);
        int64_t count = sh_part_begin(own, parts, i + 1) - at;
        // A sign of life between parts: a long step is no hang.
        if (at > 0) sh_team_beat(&run->team);
        sh_step_context step = context_of(pass, batch, at);
        pass->backward_part = 2.0 / 3 * (double)count / (double)own;
        const part p = {.count = count,
                        .x = (const char *)batch->x + (size_t)at * s.x_bytes,
                        .y = (const char *)batch->y + (size_t)at * s.y_bytes,
                        .scale = 1.0 / rows,
                        .last = at + count == own};
        SH_TRY(compute_part(pass, &step, &p));
    }
    return SH_OK;
}

/* Rows that the mean is over. Workers that step together can count what they cannot see. */
static sh_status mean_rows(shoal_run *run, const sh_replica *replica, const sh_batch *batch,
                           sh_mean mean, double *rows_out) {
    *rows_out = sh_run_rows(batch);
    if (mean == SH_MEAN_OWN) *rows_out /= replica->ranks;
    bool hidden = run->data.train->info.ignores && run->data.train->parts.ranks > 0;
    return hidden && replica->hooks.begins != NULL ? count_parts(run, batch, rows_out) : SH_OK;
}

/* With whom synchronised batchnorms exchange statistics; a worker alone has nobody. */
static sh_peers peers_of(const shoal_run *run) {
    sh_group *group = run->team.group;
    return (sh_peers){.engine = group != NULL ? sh_group_engine(group) : NULL, .group = group};
}

sh_status sh_run_gradient(shoal_run *run, sh_replica *replica, const sh_batch *batch, sh_mean mean,
                          sh_loss_result *result_out) {
    double rows;
    SH_TRY(mean_rows(run, replica, batch, mean, &rows));
    gradient_pass pass = {
        .run = run,
        .replica = replica,
        .peers = peers_of(run),
        .may_break_off = replica->hooks.unwanted != NULL && run->team.env.spend == NULL,
        .in_time = run->team.env.spend != NULL && replica->hooks.begins != NULL};
    // A worker without samples adds a gradient of zeros.
    if (batch->count == 0)
        memset(run->model.blocks.gradients, 0, run->model.net->params.total * sizeof(float));
    replica->batch.samples = (int64_t)batch->count;
    SH_TRY(compute_batch(&pass, batch, rows));
    replica->batch.unused = run->model.param_unused;
    *result_out = pass.total;
    return SH_OK;
}

/* What this worker has found of a dataset. */
typedef struct evaluating {
    shoal_run *run;
    sh_loss_result total;
    int64_t samples;  // of all workers
} evaluating;

/* Visitor of evaluation. Samples are those of all workers, losses this worker's alone until
 * they are summed. */
static void evaluate_batch(void *user, const sh_batch *batch, sh_executor *executor) {
    evaluating *e = user;
    sh_team_beat(&e->run->team);
    e->samples += (int64_t)batch->whole;
    if (executor == NULL) return;
    sh_loss_result result = sh_executor_loss(executor, batch->y, 0.0);
    add_loss(&e->total, &result);
}

/* Collective: each rank evaluates its share of every batch, and all get the same result. */
sh_status sh_run_evaluate(shoal_run *run, const sh_dataset *dataset, shoal_result *result_out) {
    if (run->config.exact) return sh_exact_evaluate(run, dataset, result_out);
    sh_loader_options options = {.batch = (size_t)eval_batch(run),
                                 .share = sh_run_share(run),
                                 .epochs = 1,
                                 .depth = run->team.env.spend != NULL ? 0 : 2};
    evaluating e = {.run = run};
    sh_loader *loader = NULL;
    SH_TRY(sh_loader_create(dataset, &options, &loader));
    sh_status status =
        sh_model_forward_all(&run->model, (uint64_t)run->config.seed, loader, evaluate_batch, &e);
    sh_loader_destroy(loader);
    if (status == SH_OK) status = e.total.status;
    double sums[] = {e.total.sum, (double)e.total.counted, (double)e.total.correct};
    if (status == SH_OK) status = sh_team_sum(&run->team, sums, SH_COUNT(sums));
    if (status == SH_OK)
        *result_out = sh_result_of(&run->model.loss, sums[0], sums[1], sums[2], e.samples);
    return status;
}
