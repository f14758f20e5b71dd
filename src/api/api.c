/* A run opened and closed: hooks and data are taken, the model is built for the data, and later
 * the loader and the optimizer for training. The order is fixed by what depends on what: ranks
 * know each other before data in parts is opened, data tells the shapes of the net, the net those
 * of the optimizer.
 *
 * shoal_run_open is the public entry; workers of a team come through sh_run_open with their
 * environment, and checkpoints in use through sh_run_open_known (api/saved.c). */
#include <math.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "api/sink.h"
#include "base/signals.h"
#include "run/exact.h"
#include "run/layout.h"
#include "run/run.h"
#include "run/scheme.h"
#include "run/sparse.h"
#include "shoal/tools.h"

/* Cores that this process may run on, which taskset or a batch system may have cut down; 1 if the
 * system does not tell. */
int sh_cores(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
    return CPU_COUNT(&set);
}

int sh_run_threads(const shoal_run *run) { return sh_tuner_threads(run->model.tuner); }

/* sh_log.line of a run. The hooks are looked up at each line, because the log is made before the
 * run is complete. */
static void hook_line(void *self, sh_log_level level, const char *text) {
    const shoal_run *run = self;
    if (run->hooks.line != NULL) run->hooks.line(run->hooks.user, (shoal_log_level)level, text);
}

/* Keeps the hooks and copies their folders, which callers only lend for the call. What a failure
 * leaves is freed with the run. */
static sh_status take_hooks(shoal_run *run, const shoal_hooks *hooks) {
    if (hooks != NULL) run->hooks = *hooks;
    run->log = (sh_log){.line = hook_line, .self = run};
    const char *data = run->hooks.data_folder, *cache = run->hooks.cache_folder;
    run->folders.data = data != NULL ? sh_strdup(data) : NULL;
    run->folders.cache = cache != NULL ? sh_strdup(cache) : NULL;
    bool failed = (data != NULL && run->folders.data == NULL) ||
                  (cache != NULL && run->folders.cache == NULL);
    return failed ? SH_FAIL(SH_E_MEMORY, "out of memory for names") : SH_OK;
}

/* The config's data settings with what data needs of the run. Borrows texts of the run. */
static sh_data_options data_options(const shoal_run *run) {
    sh_data_options options = run->config.data;
    options.folder = run->folders.data;
    options.seed = (uint64_t)run->config.seed;
    options.ignore = &run->config.loss.ignore_index;
    options.parts = (int)run->config.workers;  // a run alone reads the parts of so many workers
    return options;
}

/* Opens the data, or borrows what the environment holds: simulated workers share one memory.
 * Workers of a team take part together, as data in parts is counted over all of them; rank -1 is a
 * worker that joins, and learns what was agreed on before. */
static sh_status open_data(shoal_run *run) {
    sh_data_options options = data_options(run);
    if (run->team.env.data != NULL) {
        run->data = *run->team.env.data;
        return SH_OK;
    }
    sh_data_team team = sh_team_for_data(&run->team);
    if (run->team.engine != NULL || run->team.rank < 0) options.team = &team;
    return sh_data_open(&options, &run->log, &run->data);
}

/* Names that sh_run_part accepts. */
static bool is_part(const char *name) {
    return strcmp(name, "train") == 0 || strcmp(name, "validation") == 0 ||
           strcmp(name, "test") == 0;
}

/* A part of the data by its name. A run opened with a checkpoint has opened nothing yet: the part
 * is opened on demand, with the normalisation that the checkpoint tells. */
sh_status sh_run_part(shoal_run *run, const char *part, const sh_dataset **dataset_out) {
    const sh_dataset *dataset = NULL;
    if (run->data.train == NULL && is_part(part)) {
        sh_data_options options = data_options(run);
        options.known = &run->data;
        SH_TRY(sh_data_open_part(&options, part, &run->log, &run->data));
    }
    if (strcmp(part, "train") == 0)
        dataset = run->data.train;
    else if (strcmp(part, "validation") == 0)
        dataset = run->data.validation;
    else if (strcmp(part, "test") == 0)
        dataset = run->data.test;
    else
        return SH_FAIL(SH_E_USAGE, "'%s' is not a part of the data: train, validation or test",
                       part);
    if (dataset == NULL) {
        SH_FAIL(SH_E_USAGE, "this run has no %s data", part);
        return sh_error_hint("give it with --%s-data, or --part train", part);
    }
    *dataset_out = dataset;
    return SH_OK;
}

/* Loss settings of the run. With `loss: auto` a model kind may bring a loss of its own; otherwise
 * the targets decide (sh_loss_init). */
static sh_loss_options loss_of(const shoal_run *run) {
    sh_loss_options options = run->config.loss;
    const sh_model_kind *kind = sh_model_kind_of(run->config.model);
    bool own = kind != NULL && kind->loss != NULL && strcmp(options.name, "auto") == 0;
    // A loss of classes says nothing to a model that learns values.
    own = own && (!sh_loss_find(kind->loss)->classes || run->data.info.target == SH_TARGET_CLASS);
    if (own) options.name = (char *)(uintptr_t)kind->loss;
    return options;
}

/* Builds the net for the data, its loss and its kernels, and loads parameters if the config says
 * so. `has_environment`: the run is a worker of a team. The net belongs to the model once
 * sh_model_init has it, and is destroyed here before. */
static sh_status build_model(shoal_run *run, bool has_environment) {
    const sh_data_info *info = &run->data.info;
    sh_net_input input = sh_model_input(info);
    sh_net *net = NULL;
    sh_tuner *tuner = NULL;
    sh_net_spec spec;
    SH_TRY(sh_net_spec_read(run->config.model, &input, &spec));
    // The spec may still be rewritten here: nothing of it is in memory yet.
    if (run->config.sync_batchnorm) sh_sync_batchnorms(&spec);
    sh_status laid_out = sh_run_layout_apply(run, &spec);
    if (laid_out != SH_OK) {
        sh_net_spec_fini(&spec);
        return laid_out;
    }
    SH_TRY(sh_net_build(&spec, &net));
    sh_run_layout *layout = run->model.layout;
    sh_loss loss;
    int threads = run->team.threads > 0 ? run->team.threads : (int)run->config.threads;
    if (threads == 0) threads = sh_cores();
    sh_tuner_options tuning = {.clock = &sh_clock_real,
                               .measure = strcmp(run->config.kernels, "default") != 0,
                               .direct = strcmp(run->config.kernels, "direct") == 0,
                               .threads = threads};
    sh_loss_options loss_options = loss_of(run);
    // The loss sees the outputs of the whole net, of which this worker may hold a part.
    const sh_net *whole = layout != NULL ? layout->whole : net;
    sh_status status = sh_loss_init(&loss, &loss_options, info, sh_net_output(whole));
    if (status == SH_OK) status = sh_tuner_create(&tuning, &tuner);
    if (status != SH_OK) {
        sh_net_destroy(net);
        return status;
    }
    // OpenMP's threads start here, with signals blocked (base/signals.h).
    sh_signals_start_team(threads);
    if (layout != NULL && layout->splits_loss) loss.split = &layout->loss.base;
    status = sh_model_init(&run->model, net, &loss, tuner, (uint64_t)run->config.seed);
    run->model.layout = layout;
    SH_TRY(status);
    sh_team_attach(run);
    // Activations may lie in the gradient block until backward writes there, unless peers still
    // read a team's gradients while the next forward runs here, or several parts add up in it.
    run->model.gradients_idle = !has_environment && run->config.accumulate == 1;
    if (tuning.measure) sh_run_load_kernels(run);
    if (run->config.load == NULL) return SH_OK;
    return sh_run_load_model(run, run->config.load);
}

/* The trace belongs to the run, so the new model goes on with it. */
sh_status sh_run_rebuild(shoal_run *run) {
    const sh_trace *trace = run->model.trace;
    sh_run_layout_destroy(run->model.layout);
    sh_model_fini(&run->model);
    SH_TRY(build_model(run, run->team.engine != NULL));
    run->model.trace = trace;
    return SH_OK;
}

/* The team of a worker environment; NULL: one worker without an engine. */
static sh_team team_of(const sh_worker_env *env) {
    if (env == NULL) return (sh_team){.ranks = 1};
    // A worker that joins has no rank before the others have let it in.
    bool joins = env->engine == NULL;  // its rank is known when the others have let it in
    return (sh_team){.engine = env->engine,
                     .rank = joins ? -1 : sh_engine_rank(env->engine),
                     .ranks = joins ? 1 : sh_engine_ranks(env->engine),
                     .threads = env->threads,
                     .board = env->board,
                     .wait_limits = env->wait_limits,
                     .env = *env};
}

/* Opens a run in any of its three ways. `known` is what a checkpoint tells of the data, owned by
 * this call from its start, also on failure; NULL: the data is opened. After a failure
 * shoal_run_close frees what there is, so every member must be valid or zero by then. */
static sh_status open_run(const sh_config *config, const shoal_hooks *hooks,
                          const sh_worker_env *env, sh_data *known, shoal_run **run_out) {
    shoal_run *run = sh_alloc(1, sizeof *run);
    if (run == NULL) {
        if (known != NULL) sh_data_close(known);
        return SH_FAIL(SH_E_MEMORY, "out of memory for a run");
    }
    if (known != NULL) run->data = *known;
    run->results.best = NAN;  // no evaluation yet
    run->team = team_of(env);
    const sh_learner_kind *kind = sh_learner_of(config->model);
    bool pipes = run->team.engine != NULL && sh_config_pipes(config) && kind == &sh_learner_net;
    run->learner = (sh_learner){.kind = pipes ? &sh_learner_pipe : kind, .run = run};
    if (run->team.env.clock == NULL) run->team.env.clock = &sh_clock_real;
    run->clock = run->team.env.clock;
    sh_status status = sh_config_copy(config, &run->config);
    // Without an engine the config's number stays, as it tells how many parts the data has.
    if (run->team.engine != NULL) run->config.workers = run->team.ranks;
    if (status == SH_OK) status = take_hooks(run, hooks);
    if (status == SH_OK && run->team.engine != NULL) status = sh_team_form(&run->team);
    if (status == SH_OK && known == NULL) status = open_data(run);
    if (status == SH_OK) status = build_model(run, env != NULL);
    if (status == SH_OK && run->learner.kind->open != NULL)
        status = run->learner.kind->open(&run->learner);
    if (status != SH_OK)
        shoal_run_close(run);
    else
        *run_out = run;
    return status;
}

/* Checks the config once, before anything is opened. */
sh_status sh_run_open(const sh_config *config, const shoal_hooks *hooks, const sh_worker_env *env,
                      shoal_run **run_out) {
    SH_TRY(sh_config_check(config));
    return open_run(config, hooks, env, NULL, run_out);
}

/* `known` is closed here if the config is refused. */
sh_status sh_run_open_known(const sh_config *config, const shoal_hooks *hooks, sh_data *known,
                            shoal_run **run_out) {
    sh_status status = sh_config_check(config);
    if (status == SH_OK) return open_run(config, hooks, NULL, known, run_out);
    sh_data_close(known);
    return status;
}

/* Public entry: a run of one worker, in the calling process. */
shoal_status shoal_run_open(const shoal_config *config, const shoal_hooks *hooks,
                            shoal_run **run_out) {
    SHOAL_NEED(config);
    SHOAL_NEED(run_out);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    return (shoal_status)sh_run_open(&config->config, &whole, NULL, run_out);
}

/* Closes what a run writes. Failures are reported as warnings, and the error of the run itself is
 * kept for the caller: it came first. */
static void close_files(shoal_run *run) {
    const sh_error error = *sh_error_last();
    sh_metrics_close(run->files.metrics);
    sh_tensorboard_close(run->files.tensorboard);
    if (sh_chrome_trace_close(run->files.trace_file) != SH_OK)
        SH_WARN(&run->log, "the trace is not whole: %s", sh_error_last()->text);
    if (sh_run_log_close(run->files.run_log) != SH_OK && run->hooks.line != NULL)
        run->hooks.line(run->hooks.user, SHOAL_LOG_WARNING, sh_error_last()->text);
    if (run->files.folder_claim > 0) close(run->files.folder_claim);
    if (error.code != SH_OK) sh_error_adopt(&error);
}

/* What uses other parts is freed before them: learner and scheme first, the loader before its
 * data, the files after everything that may write a line. Data that the environment lent is not
 * closed. */
void shoal_run_close(shoal_run *run) {
    if (run == NULL) return;
    if (run->learner.kind->close != NULL) run->learner.kind->close(&run->learner);
    sh_scheme_end(run);
    sh_scheme_state_fini(&run->scheme_state);
    sh_run_end_sparse(run);
    sh_loader_destroy(run->loader);
    sh_team_fini(&run->team);
    sh_exact_destroy(run->exact);
    sh_run_layout_destroy(run->model.layout);
    sh_model_fini(&run->model);
    sh_optim_fini(&run->optim);
    if (run->team.env.data == NULL) sh_data_close(&run->data);
    close_files(run);
    sh_config_fini(&run->config);
    sh_free(run->files.folder);
    sh_free(run->folders.data);
    sh_free(run->folders.cache);
    sh_free(run);
}

const char *shoal_run_folder(const shoal_run *run) {
    SHOAL_NEED_OR(run, NULL);
    return run->files.folder;
}

/* Whole shards of every batch (exact runs). */
static sh_batch_share exact_share(const shoal_run *run) {
    return sh_exact_share(run->config.shards, run->team.rank, run->team.ranks);
}

/* This worker's part of every batch. Stages of a pipeline all see the pipeline's whole share,
 * which depends on their place along the data dimension alone. */
static sh_batch_share training_share(const shoal_run *run) {
    sh_mesh_shape shape;
    if (sh_config_pipes(&run->config) &&
        sh_config_mesh(&run->config, run->team.ranks, &shape) == SH_OK) {
        uint32_t at = (uint32_t)sh_mesh_place_of(&shape, run->team.rank).at[SH_AXIS_DATA];
        uint32_t of = (uint32_t)shape.size[SH_AXIS_DATA];
        if (of == 1) return (sh_batch_share){0};
        return (sh_batch_share){at, at + 1, of};
    }
    return run->config.exact ? exact_share(run) : sh_run_share(run);
}

/* A loader of the training data from the run's position on; `epochs` 0: without end. The caller
 * destroys it. */
sh_status sh_run_loader(shoal_run *run, int64_t epochs, sh_loader **loader_out) {
    if (run->data.train == NULL) {
        SH_FAIL(SH_E_USAGE, "a run that was opened with its checkpoint has no data to train on");
        return sh_error_hint("use shoal_run_open, with 'load' or 'resume' set");
    }
    // After a regroup an epoch keeps its number of steps, so that the schedule and the end of the
    // run stay where they were although data of a dead worker is missing.
    bool regrouped = run->team.generation > 0;
    sh_loader_options options = {
        .batch = (size_t)run->config.batch,
        .share = training_share(run),
        .seed = (uint64_t)run->config.seed,
        .shuffle = true,
        .drop_last = run->config.drop_last,
        .crop = run->config.data.crop,
        .flip = run->config.data.flip,
        .epochs = epochs,
        .epoch = run->at.epoch,
        .index = run->at.batch,
        .batches = regrouped ? (size_t)run->length.steps_per_epoch : 0,
        // Batches made ahead: none on virtual time, which a task would not take, and none where a
        // batch is a list of rows.
        .depth = run->team.env.spend != NULL || run->sparse != NULL ? 0 : 3,
        .rows = run->sparse != NULL,
        .shifts = run->config.balance && run->team.engine != NULL,
        // Exact runs count the rows that are not ignored by shard.
        .ignore = run->config.exact ? NULL : &run->config.loss.ignore_index,
    };
    return sh_loader_create(run->data.train, &options, loader_out);
}

/* Deep gradient compression corrects momentum before it drops values, so the optimizer must apply
 * none: it is replaced by plain SGD with the same rate and decay, and the codec gets its momentum.
 * Other codecs change nothing. */
static sh_status hand_momentum_over(shoal_run *run) {
    sh_codec codec;
    SH_TRY(sh_codec_make(&run->config.codec, &codec));
    if (run->team.engine == NULL || codec.kind == NULL || !codec.kind->owns_momentum) return SH_OK;
    SH_TRY(sh_scheme_check_momentum(run));
    run->codec_momentum.momentum = run->optim.options.momentum;
    run->codec_momentum.nesterov = run->optim.kind->nesterov;
    sh_optim_options plain = run->config.optim;
    plain.name = (char *)(uintptr_t)sh_optim_plain()->name;
    plain.lr = run->optim.options.lr;
    plain.weight_decay = run->optim.options.weight_decay;
    plain.momentum = 0;
    plain.dampening = NAN;
    sh_optim_fini(&run->optim);
    return sh_optim_init(&run->optim, &plain, run->model.net->params.total);
}

/* Whether the net skips branches in training: parameters may then go unused in a step, which the
 * update has to know. */
static bool drops_paths(const sh_net *net) {
    for (size_t i = 0; i < net->layer_count; i++)
        if (net->layers[i]->kind->drops_branch) return true;
    return false;
}

/* Steps between evaluations. A fraction is a part of the run, rounded up to whole periods of the
 * scheme: evaluating makes workers average their models, and doing that within a period would
 * change the training that is measured. */
static sh_status choose_evaluations(shoal_run *run) {
    double every = run->config.eval_every;
    if (every > 0 && every < 1) {
        sh_scheme scheme;
        SH_TRY(sh_scheme_parse(run->config.scheme.name, &scheme));
        double period = scheme.kind->periodic ? scheme.amount : 1;
        every = ceil(every * (double)run->length.steps / period - 1e-9) * period;
    }
    run->length.eval_every = (int64_t)every;
    return SH_OK;
}

/* Writes the chosen loss and optimizer into the config. From here on it says what is done instead
 * of "auto", as run.yaml must, from which a resume has to make the same choices. */
static sh_status resolve(shoal_run *run) {
    sh_config *config = &run->config;
    char *loss = sh_strdup(run->model.loss.kind->name);
    if (loss == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a name");
    sh_optim_resolve(&run->optim, &config->optim);
    sh_free(config->loss.name);
    config->loss.name = loss;
    return SH_OK;
}

/* Makes everything that depends on the length of the run. A loader is made and dropped, as it
 * knows how many batches an epoch has and checks the batch against the data. */
sh_status sh_run_make_optimizer(shoal_run *run) {
    sh_loader *loader = NULL;
    SH_TRY(sh_run_loader(run, 0, &loader));
    run->length.steps_per_epoch = (int64_t)sh_loader_batches(loader);
    sh_loader_destroy(loader);
    const sh_config *config = &run->config;
    const sh_learner *learner = &run->learner;
    if (learner->kind->steps != NULL) run->length.steps_per_epoch = learner->kind->steps(learner);
    run->length.steps = config->steps > 0 ? config->steps
                        : learner->kind->steps != NULL
                            ? run->length.steps_per_epoch
                            : config->epochs * run->length.steps_per_epoch;
    SH_TRY(choose_evaluations(run));
    size_t total = run->model.net->params.total;
    SH_TRY(sh_optim_init(&run->optim, &config->optim, total));
    SH_TRY(resolve(run));
    SH_TRY(hand_momentum_over(run));
    // Fails with a message here, where writing to memory that is not there would end the process.
    SH_TRY(sh_memory_check("the optimizer's state",
                           total * sizeof(float) * (size_t)run->optim.slot_count));
    run->drops_paths = drops_paths(run->model.net);
    SH_TRY(sh_scheme_check_run(run));
    return sh_schedule_init(&run->schedule, &config->schedule, run->optim.options.lr, config->batch,
                            run->length.steps, run->length.steps_per_epoch);
}
