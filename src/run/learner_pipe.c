/* The learner `pipe`: a net with a loss whose workers have different layers (parallel/pipeline.h).
 * Every worker of a pipeline sees all of its share of every batch. It computes, and updates, the
 * parameters of its own stages alone; all other memory of the net is touched at meetings only, when
 * all workers get the whole model:
 *
 *   step ... step   each worker's own stages        merge   weights and statistics from their
 * owners save    and the optimizer's state
 *
 * The owner of a parameter is the rank of the first stage that has it. Where several stages have it
 * (tied weights), their gradients are summed in every step, and each of them updates its own copy.
 * Gradients are summed over micro-batches in ascending order, and updates go by elements: without
 * tied weights and clipping by the norm, a run has the bits of one worker with --accumulate. */
#include <math.h>
#include <string.h>

#include "parallel/pipeline_profile.h"
#include "parallel/pipeline_run.h"
#include "tensor/kernels/reduce.h"
#include "run/layout.h"
#include "run/loop.h"
#include "run/parts.h"
#include "run/run.h"
#include "sync/mail.h"

typedef struct pipe_own {
    sh_pipeline pipeline;
    sh_mesh mesh;  // data x pipe: several pipelines share the batch
    int first;     // rank of the first stage of this worker's pipeline
    sh_pipe_worker *worker;
    sh_mail mail;
    int *cut;        // stages + 1 layers
    int64_t *begin;  // of the micro-batches of the batch at hand
    // Per parameter, and per state:
    int *owner, *state_owner;  // rank; -1: no stage has it
    bool *mine;                // this worker's stages have the parameter
    bool *tied;                // stages of several ranks have it
} pipe_own;

static pipe_own *own_of(const sh_learner *learner) { return learner->own; }

/* ---- Who has what ---------------------------------------------------------------------------- */

/* Owners are ranks of the first pipeline, which is that of ranks 0, 1, ... */
static void note_stage(const shoal_run *run, pipe_own *own, int stage) {
    const sh_net *net = run->model.net;
    int rank = stage % own->pipeline.ranks;
    for (int i = own->cut[stage]; i < own->cut[stage + 1]; i++) {
        for (int k = 0; k < net->layers[i]->param_count; k++) {
            size_t param = net->layers[i]->params[k];
            if (own->owner[param] < 0) own->owner[param] = rank;
            if (own->owner[param] != rank) own->tied[param] = true;
            if (rank == own->mesh.along[SH_AXIS_PIPE].at) own->mine[param] = true;
        }
        for (int k = 0; k < net->layers[i]->state_count; k++)
            own->state_owner[net->layers[i]->states[k]] = rank;
    }
}

/* Filled from the cut, so it is the same on all ranks. `tied` lies behind `mine` in one
 * allocation. */
static sh_status note_owners(const shoal_run *run, pipe_own *own) {
    const sh_net *net = run->model.net;
    size_t params = net->params.count, states = net->states.count;
    own->owner = sh_alloc(params + 1, sizeof *own->owner);
    own->state_owner = sh_alloc(states + 1, sizeof *own->state_owner);
    own->mine = sh_alloc(2 * params + 1, sizeof *own->mine);
    if (own->owner == NULL || own->state_owner == NULL || own->mine == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a pipeline");
    own->tied = own->mine + params;
    for (size_t i = 0; i < params; i++) own->owner[i] = -1;
    for (int s = 0; s < sh_pipeline_stages(&own->pipeline); s++) note_stage(run, own, s);
    return SH_OK;
}

/* Everyone gets each range of a block from the rank that owns it. */
static sh_status gather(const shoal_run *run, const sh_param_list *list, const int *owner,
                        float *block) {
    for (size_t first = 0, end; first < list->count; first = end) {
        // Neighbours of one owner travel in one broadcast.
        for (end = first + 1; end < list->count && owner[end] == owner[first];) end++;
        const sh_param *last = &list->items[end - 1];
        sh_call call = {.what = SH_BROADCAST,
                        .data = block + list->items[first].offset,
                        .count = last->offset + last->count - list->items[first].offset,
                        .dtype = SH_DTYPE_F32,
                        .root = owner[first] < 0 ? 0 : owner[first],
                        .step = run->at.step,
                        .bucket = -1};
        SH_TRY(sh_engine_run(run->team.engine, &call));
    }
    return SH_OK;
}

/* ---- Stages ---------------------------------------------------------------------------------- */

/* Parts of a batch of `count` samples. */
static sh_pipe_parts parts_of(pipe_own *own, int64_t count) {
    int64_t parts = sh_part_count(count, own->pipeline.micros);
    for (int64_t i = 0; i <= parts; i++) own->begin[i] = sh_part_begin(count, parts, i);
    return (sh_pipe_parts){.count = (int)parts, .begin = own->begin};
}

/* The most samples of a batch that one pipeline takes. */
static int64_t share_of(const shoal_run *run, const pipe_own *own) {
    int pipelines = own->mesh.along[SH_AXIS_DATA].size;
    return (run->config.batch + pipelines - 1) / pipelines;
}

/* Rank 0 looks at every layer; its measurements choose everybody's kernels, too. */
static sh_status profile(shoal_run *run, const pipe_own *own, sh_cut_layer *layers) {
    sh_model *model = &run->model;
    sh_profile_options options = {
        .net = model->net,
        .samples = sh_part_most(share_of(run, own), own->pipeline.micros),
        .param_bytes = sizeof(float) * (2. + run->optim.slot_count),
        .loss = &model->loss,
        .tuner = model->tuner,
        .clock = run->clock,
        .blocks = model->blocks,
    };
    if (strcmp(run->config.kernels, "default") == 0) return sh_profile_estimate(&options, layers);
    size_t states = model->net->states.total;
    float *kept = sh_alloc(states + 1, sizeof *kept);
    if (kept == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for statistics");
    memcpy(kept, model->blocks.states, states * sizeof *kept);
    sh_status status = sh_profile_measure(&options, layers);
    memcpy(model->blocks.states, kept, states * sizeof *kept);
    sh_free(kept);
    return status;
}

/* On rank 0 alone: other ranks would measure other times, and cut elsewhere. */
static sh_status find_cut(shoal_run *run, const pipe_own *own) {
    int count = (int)run->model.net->layer_count;
    sh_cut_layer *layers = sh_alloc((size_t)count, sizeof *layers);
    if (layers == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %d layers", count);
    double bound = run->config.pipe.memory_mb;
    sh_cut_problem problem = {.pipeline = &own->pipeline,
                              .layers = layers,
                              .layer_count = count,
                              .memory_bytes = bound > 0 ? bound * 0x1p20 : INFINITY};
    sh_cut_result result;
    sh_status status = profile(run, own, layers);
    if (status == SH_OK) status = sh_cut_find(&problem, own->cut, &result);
    sh_free(layers);
    return status;
}

/* Rank 0 cuts and the others hear where; a failure of rank 0 is everybody's. */
static sh_status agree_on_cut(shoal_run *run, pipe_own *own) {
    const sh_net *net = run->model.net;
    int stages = sh_pipeline_stages(&own->pipeline);
    const char *asked = run->config.pipe.cut;
    // All ranks have the same run file, so a cut that it gives needs no message.
    if (asked != NULL) return sh_cut_parse(net, asked, stages, own->cut);
    char *text = NULL, *told = NULL;
    sh_status status = SH_OK;
    if (sh_team_leads(&run->team)) {
        SH_TRY(find_cut(run, own));
        text = sh_cut_text(net, own->cut, stages);
        if (text == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a cut");
    }
    status = sh_team_tell(&run->team, text, &told);
    if (status == SH_OK) status = sh_cut_parse(net, told, stages, own->cut);
    sh_free(text);
    sh_free(told);
    return status;
}

/* The cut in the log, as an option: a later run can have the same one without measuring. */
static void tell_cut(const shoal_run *run, const pipe_own *own) {
    char name[SH_PIPE_TEXT];
    int stages = sh_pipeline_stages(&own->pipeline);
    char *text = sh_cut_text(run->model.net, own->cut, stages);
    if (sh_team_leads(&run->team) && text != NULL)
        SH_INFO(&run->log, "pipeline %s: %d stages, %d micro-batches a batch; --cut %s",
                sh_pipeline_text(&own->pipeline, name), stages, own->pipeline.micros, text);
    sh_free(text);
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* A pipeline counts its own ranks. */
static sh_status wire_send(void *self, sh_message *message) {
    pipe_own *own = self;
    message->peer += own->first;
    return sh_mail_send(&own->mail, message);
}
static sh_status wire_receive(void *self, sh_message *message) {
    pipe_own *own = self;
    message->peer += own->first;
    return sh_mail_receive(&own->mail, message);
}
static sh_status wire_wait(void *self, sh_message *message, const char *what) {
    return sh_mail_wait(&((pipe_own *)self)->mail, message, what);
}
static void wire_cancel(void *self, sh_message *message) {
    const pipe_own *own = self;
    sh_cancel(own->mail.transport, message);
}

/* Activations and their gradients travel as mail, beside the collectives of the engine. */
static sh_status open_mail(shoal_run *run, pipe_own *own) {
    const sh_worker_env *env = &run->team.env;
    if (env->open_mail == NULL || env->spend != NULL || env->timing_only) {
        SH_FAIL(SH_E_UNSUPPORTED, "pipelines are not simulated by whole runs yet");
        return sh_error_hint("shoal explain pipeline shows a schedule in its own time");
    }
    own->mail.workers = run->team.ranks;
    return env->open_mail(env->self, run->team.rank, &own->mail.transport);
}

/* Where no parent watches over the workers, a message of the next step is waited for as long as
 * the measured step times allow. */
static void set_wait_limits(const shoal_run *run, pipe_own *own) {
    const sh_wait_limits *limits = run->team.wait_limits;
    own->mail.step = run->at.step + 1;
    if (limits == NULL) return;
    own->mail.timeout_ns = (int64_t)(limits->limit_s * 1e9);
    own->mail.wait_report = &limits->wait_report;
}

/* ---- Begin ----------------------------------------------------------------------------------- */

/* Collective, as the groups of the mesh are. The batch is divided over the pipelines (axis
 * data), the layers over the ranks of each (axis pipe). */
static sh_status make_pipeline(shoal_run *run, pipe_own *own) {
    sh_mesh_shape shape;
    SH_TRY(sh_config_mesh(&run->config, run->team.ranks, &shape));
    SH_TRY(sh_mesh_init(&shape, run->team.engine, &own->mesh));
    own->first = run->team.rank - own->mesh.along[SH_AXIS_PIPE].at;
    if (shape.size[SH_AXIS_DATA] > 1 && run->model.net->states.total > 0) {
        SH_FAIL(SH_E_UNSUPPORTED, "running statistics of several pipelines are not averaged yet");
        return sh_error_hint("--layout pipe=%d, or a net without batchnorm", run->team.ranks);
    }
    int ranks = shape.size[SH_AXIS_PIPE];
    SH_TRY(sh_pipeline_init(&own->pipeline, run->config.pipe.schedule, ranks, 1));
    int stages = sh_pipeline_stages(&own->pipeline);
    int64_t micros = sh_config_micros(&run->config, stages);
    own->pipeline.micros = (int)micros;
    own->cut = sh_alloc((size_t)stages + 1, sizeof *own->cut);
    own->begin = sh_alloc((size_t)micros + 1, sizeof *own->begin);
    if (own->cut == NULL || own->begin == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a pipeline");
    return SH_OK;
}

static sh_status make_worker(shoal_run *run, pipe_own *own) {
    sh_pipe_worker_options options = {
        .pipeline = own->pipeline,
        .rank = own->mesh.along[SH_AXIS_PIPE].at,
        .net = run->model.net,
        .cut = own->cut,
        .loss = &run->model.loss,
        .tuner = run->model.tuner,
        .trace = run->model.trace,
        .blocks = run->model.blocks,
        .wire = {wire_send, wire_receive, wire_wait, wire_cancel, own},
    };
    SH_TRY(sh_pipe_worker_create(&options, &own->worker));
    // Executors of every size that micro-batches will have are made now, so that steps allocate
    // nothing.
    size_t sizes[2], count = sh_loader_sizes(run->loader, sizes);
    for (size_t i = 0; i < count; i++) {
        if (sizes[i] == 0) continue;
        sh_pipe_parts parts = parts_of(own, (int64_t)sizes[i]);
        SH_TRY(sh_pipe_worker_prepare(own->worker, &parts));
    }
    return SH_OK;
}

/* Evaluation is shared as in runs that share the batch. */
static sh_status prepare_evaluation(shoal_run *run) {
    if (sh_team_leads(&run->team)) SH_TRY(sh_run_prepare_evaluation(run));
    SH_TRY(sh_team_broadcast_kernels(run));
    if (sh_team_leads(&run->team)) return SH_OK;
    sh_tuner_forbid(run->model.tuner);
    return sh_run_prepare_evaluation(run);
}

static sh_status pipe_begin(sh_learner *learner) {
    shoal_run *run = learner->run;
    pipe_own *own = learner->own = sh_alloc(1, sizeof *own);
    if (own == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a pipeline");
    SH_TRY(make_pipeline(run, own));
    SH_TRY(open_mail(run, own));
    SH_TRY(sh_run_loader(run, 0, &run->loader));
    SH_TRY(sh_model_take_gradients(&run->model));
    SH_TRY(agree_on_cut(run, own));
    SH_TRY(note_owners(run, own));
    SH_TRY(prepare_evaluation(run));
    SH_TRY(make_worker(run, own));
    // The barrier below keeps set-up, which takes different times on different stages, out of the
    // waits of the first step.
    tell_cut(run, own);
    return sh_engine_barrier(run->team.engine);
}

/* ---- Step ------------------------------------------------------------------------------------ */

/* Forward and backward of this worker's stages over all micro-batches; only the last stage gets
 * a loss. */
static sh_status compute(shoal_run *run, pipe_own *own, const sh_batch *batch,
                         sh_loss_result *result_out) {
    *result_out = (sh_loss_result){0};
    if (batch->count == 0) {  // a short batch has fewer samples than there are pipelines
        memset(run->model.blocks.gradients, 0, run->model.net->params.total * sizeof(float));
        return SH_OK;
    }
    const sh_sample_sizes sizes = sh_sample_sizes_of(&run->data.train->info);
    sh_pipe_step step = {
        .context = {.training = true,
                    .seed = (uint64_t)run->config.seed,
                    .step = run->at.step,
                    .position = batch->position},
        .parts = parts_of(own, (int64_t)batch->count),
        .x = batch->x,
        .y = batch->y,
        .x_bytes = sizes.x_bytes,
        .y_bytes = sizes.y_bytes,
        .scale = 1.0 / sh_run_rows(batch),
    };
    uint64_t sent = own->mail.sent_bytes;
    int64_t begin = sh_run_now(run);
    SH_TRY(sh_pipe_worker_step(own->worker, &step, result_out));
    run->stats.spent.compute_ns += sh_run_now(run) - begin;
    // No codec acts on activations: what is sent is what would be sent without one.
    run->stats.sent_bytes += own->mail.sent_bytes - sent;
    run->stats.dense_bytes += own->mail.sent_bytes - sent;
    return SH_OK;
}

/* The last stage knows the loss, and any worker may be asked to stop. */
static sh_status agree(shoal_run *run, sh_loss_result *result) {
    bool stop = run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
    double sums[] = {result->sum, (double)result->counted, (double)result->correct, stop};
    SH_TRY(sh_team_sum(&run->team, sums, SH_COUNT(sums)));
    *result =
        (sh_loss_result){.sum = sums[0], .counted = (int64_t)sums[1], .correct = (int64_t)sums[2]};
    run->team.stops = sums[3] > 0;
    if (isfinite(result->sum)) return SH_OK;
    SH_FAIL(SH_E_NUMERIC, "step %ld: the loss is %g", (long)run->at.step + 1, result->sum);
    return sh_error_hint("lower --lr, add a warm-up, or clip gradients (--clip-norm 1)%s",
                         run->results.saved ? "; the last good checkpoint is kept" : "");
}

/* Ranks without the parameter add zeros. */
static sh_status sum_tied(shoal_run *run, const pipe_own *own) {
    const sh_param_list *params = &run->model.net->params;
    for (size_t i = 0; i < params->count; i++) {
        if (!own->tied[i]) continue;
        float *gradient = run->model.blocks.gradients + params->items[i].offset;
        size_t count = params->items[i].count;
        if (!own->mine[i]) memset(gradient, 0, count * sizeof *gradient);
        sh_call call = {.what = SH_ALLREDUCE,
                        .data = gradient,
                        .count = count,
                        .dtype = SH_DTYPE_F32,
                        .op = SH_SUM,
                        .step = run->at.step + 1,
                        .bucket = -1};
        SH_TRY(sh_engine_run(run->team.engine, &call));
    }
    return SH_OK;
}

/* The next parameters in a row from `*first` on that are this worker's; false: there are none. */
static bool next_mine(const shoal_run *run, const pipe_own *own, size_t *first, size_t *end_out) {
    size_t count = run->model.net->params.count;
    while (*first < count && !own->mine[*first]) ++*first;
    for (*end_out = *first; *end_out < count && own->mine[*end_out];) ++*end_out;
    return *first < count;
}

/* Pipelines have the same stages: their gradients are summed, but for those summed over all. */
static sh_status sum_pipelines(shoal_run *run, const pipe_own *own) {
    const sh_param_list *params = &run->model.net->params;
    sh_group *group = own->mesh.along[SH_AXIS_DATA].group;
    if (group == NULL) return SH_OK;
    for (size_t first = 0, end; first < params->count; first = end) {
        for (end = first; end < params->count && own->mine[end] && !own->tied[end];) end++;
        if (end == first) {
            end++;
            continue;
        }
        const sh_param *last = &params->items[end - 1];
        sh_call call = {.what = SH_ALLREDUCE,
                        .data = run->model.blocks.gradients + params->items[first].offset,
                        .count = last->offset + last->count - params->items[first].offset,
                        .dtype = SH_DTYPE_F32,
                        .op = SH_SUM,
                        .step = run->at.step + 1,
                        .bucket = -1};
        SH_TRY(sh_group_run(group, &call));
    }
    return SH_OK;
}

/* A parameter that several ranks have counts once. */
static sh_status clip(shoal_run *run, const pipe_own *own, double *scale_out) {
    const sh_param_list *params = &run->model.net->params;
    double squares = 0;
    for (size_t i = 0; i < params->count; i++) {
        float *gradient = run->model.blocks.gradients + params->items[i].offset;
        size_t count = params->items[i].count;
        if (!own->mine[i]) continue;
        if (run->config.clip_value > 0)
            sh_clip_value(gradient, count, (float)run->config.clip_value);
        if (own->owner[i] == run->team.rank) squares += sh_clip_squares(gradient, count);
    }
    *scale_out = 1;
    if (!(run->config.clip_norm > 0)) return SH_OK;
    SH_TRY(sh_team_sum(&run->team, &squares, 1));
    *scale_out = sh_clip_factor(squares, run->config.clip_norm, &run->stats.grad_norm);
    return SH_OK;
}

/* This worker's parameters alone: its gradients and optimizer state of others are not up to
 * date. */
static void update(shoal_run *run, const pipe_own *own, double scale) {
    int64_t begin = sh_run_now(run);
    for (size_t first = 0, end; next_mine(run, own, &first, &end); first = end) {
        sh_optim_step step = {
            .params = &run->model.net->params,
            .first = first,
            .count = end - first,
            .unused = run->drops_paths ? sh_pipe_worker_unused(own->worker) : NULL,
            .weights = run->model.blocks.weights,
            .gradients = run->model.blocks.gradients,
            .gradient_scale = (float)scale,
            .lr = sh_schedule_lr(&run->schedule, run->at.step),
            .step = run->at.step + 1,
        };
        sh_optim_apply(&run->optim, &step);
    }
    run->stats.spent.update_ns += sh_run_now(run) - begin;
    sh_trace_end(run->model.trace, "optim", "update", run->at.step, begin);
}

/* The order is that of one worker: gradients are whole before they are clipped, and clipped
 * before the update. Collective over all ranks. */
static sh_status learn(shoal_run *run, pipe_own *own, const sh_batch *batch,
                       sh_loss_result *result_out) {
    double scale;
    SH_TRY(compute(run, own, batch, result_out));
    SH_TRY(agree(run, result_out));
    SH_TRY(sum_tied(run, own));
    SH_TRY(sum_pipelines(run, own));
    SH_TRY(clip(run, own, &scale));
    update(run, own, scale);
    return SH_OK;
}

static sh_status pipe_step(sh_learner *learner, int64_t to, sh_learner_step *step_out) {
    shoal_run *run = learner->run;
    pipe_own *own = own_of(learner);
    const sh_batch *batch;
    *step_out = (sh_learner_step){0};
    set_wait_limits(run, own);
    int64_t begin = sh_run_now(run);
    SH_TRY(sh_loader_next(run->loader, &batch));
    SH_ASSERT(batch != NULL);
    run->stats.spent.data_ns += sh_run_now(run) - begin;
    sh_trace_end(run->model.trace, "data", "wait for batch", run->at.step, begin);
    sh_status status = learn(run, own, batch, &step_out->loss);
    // Samples of all pipelines, read before the batch goes back to the loader.
    int64_t count = (int64_t)batch->whole;
    sh_loader_release(run->loader, batch);
    SH_TRY(status);
    sh_run_step_done(run, count);
    step_out->meets = run->team.stops || run->at.step >= to;
    return SH_OK;
}

/* The loss is that of all workers already. */
static sh_status pipe_merge(sh_learner *learner, sh_learner_merge *merge) {
    const shoal_run *run = learner->run;
    const pipe_own *own = own_of(learner);
    const sh_net *net = run->model.net;
    (void)merge;
    SH_TRY(gather(run, &net->params, own->owner, run->model.blocks.weights));
    return gather(run, &net->states, own->state_owner, run->model.blocks.states);
}

/* Collective, after a merge: the weights are whole already, and the optimizer's state is
 * gathered only for checkpoints. */
static sh_status pipe_save(sh_learner *learner) {
    shoal_run *run = learner->run;
    const pipe_own *own = own_of(learner);
    const sh_param_list *params = &run->model.net->params;
    if (!sh_reduce()->all_finite(run->model.blocks.weights, params->total)) {
        SH_FAIL(SH_E_NUMERIC, "step %ld: parameters are not finite; no checkpoint is written",
                (long)run->at.step);
        return sh_error_hint("lower --lr, add a warm-up, or clip gradients (--clip-norm 1)");
    }
    for (int i = 0; i < run->optim.slot_count; i++)
        SH_TRY(gather(run, params, own->owner, run->optim.slots[i]));
    return sh_run_save_together(run);
}

/* ---- As the learner `net` has it ------------------------------------------------------------- */

static sh_status pipe_evaluate(sh_learner *learner, const sh_dataset *dataset,
                               shoal_result *result_out) {
    return sh_run_evaluate(learner->run, dataset, result_out);
}

static sh_checkpoint pipe_blocks(const sh_learner *learner, sh_checkpoint_slot *slots) {
    return sh_learner_net.blocks(learner, slots);
}

static size_t pipe_metrics(const sh_learner *learner, const sh_loss_result *since,
                           sh_metric *fields) {
    return sh_learner_net.metrics(learner, since, fields);
}

static sh_learner_cost pipe_cost(const sh_learner *learner) { return sh_learner_net.cost(learner); }

static sh_status pipe_finish(sh_learner *learner) {
    (void)learner;
    return SH_OK;  // a step ends when all its messages have arrived
}

/* After a failed begin, too: whatever it had not made is NULL. */
static void pipe_close(sh_learner *learner) {
    pipe_own *own = own_of(learner);
    if (own == NULL) return;
    sh_pipe_worker_destroy(own->worker);
    sh_mesh_fini(&own->mesh);
    sh_transport_close(own->mail.transport);
    sh_free(own->cut);
    sh_free(own->begin);
    sh_free(own->owner);
    sh_free(own->state_owner);
    sh_free(own->mine);
    sh_free(own);
    learner->own = NULL;
}

const sh_learner_kind sh_learner_pipe = {
    .name = "pipe",
    .help = "a net whose layers are spread over the workers",
    .begin = pipe_begin,
    .step = pipe_step,
    .merge = pipe_merge,
    .evaluate = pipe_evaluate,
    .save = pipe_save,
    .blocks = pipe_blocks,
    .metrics = pipe_metrics,
    .cost = pipe_cost,
    .finish = pipe_finish,
    .close = pipe_close,
};
