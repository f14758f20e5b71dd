/* What the learners of this folder share: reading their options, refusing settings that concern
 * gradients, ending a step, and all that the run's net does for them (evaluation, checkpoints). */
#include "learn/learner.h"

#include <string.h>

#include "nn/spec.h"
#include "run/layout.h"
#include "run/loop.h"
#include "tensor/kernels/reduce.h"

/* The options of a named model: all of the map but the name itself. */
static sh_node *without_name(const sh_node *model) {
    sh_node *copy = sh_node_copy(model);
    if (copy == NULL) return NULL;
    // The link to an entry, not the entry: the first child needs no case of its own.
    for (sh_node **link = &copy->child; *link != NULL; link = &(*link)->next) {
        if (strcmp((*link)->key, "name") != 0) continue;
        sh_node *name = *link;
        *link = name->next;
        name->next = NULL;
        sh_node_destroy(name);
        break;
    }
    return copy;
}

/* On failure nothing is left to free; *options_out is not to be used. */
sh_status sh_learner_options(const shoal_run *run, void **options_out) {
    const sh_node *model = run->config.model;
    const sh_model_kind *kind = sh_model_kind_of(model);
    void *options = sh_alloc(1, kind->options_bytes);
    sh_node *map = model->kind == SH_NODE_MAP ? without_name(model) : NULL;
    sh_status status = SH_OK;
    if (options == NULL || (model->kind == SH_NODE_MAP && map == NULL))
        status = SH_FAIL(SH_E_MEMORY, "out of memory for options");
    if (status == SH_OK) status = sh_options_init(kind->options, options);
    if (status == SH_OK && map != NULL)
        status = sh_options_apply(kind->options, map, options, NULL);
    sh_node_destroy(map);
    *options_out = options;
    if (status == SH_OK) return SH_OK;
    sh_learner_options_free(run, options);
    return status;
}

void sh_learner_options_free(const shoal_run *run, void *options) {
    if (options == NULL) return;
    sh_options_fini(sh_model_kind_of(run->config.model)->options, options);
    sh_free(options);
}

/* A run without an engine is a team of one worker. */
sh_learn_team sh_learner_team(const shoal_run *run) {
    int threads = sh_run_threads(run);
    return run->team.engine != NULL ? sh_learn_team_of(run->team.engine, threads)
                                    : sh_learn_alone(threads);
}

/* An option that would have no effect is an error: it would be believed to have one. */
static sh_status refuse(const shoal_run *run, const char *what, const char *hint) {
    SH_FAIL(SH_E_USAGE, "model '%s' does not learn by gradients: %s says nothing here",
            sh_model_kind_of(run->config.model)->name, what);
    return sh_error_hint("%s, or take a model's solver: sgd", hint);
}

/* Refuses settings of gradient training, which this learner would ignore without a word. */
static sh_status check(const shoal_run *run) {
    const sh_config *config = &run->config;
    sh_scheme scheme;
    sh_codec codec;
    SH_TRY(sh_scheme_parse(config->scheme.name, &scheme));
    SH_TRY(sh_codec_make(&config->codec, &codec));
    if (!scheme.kind->family->together)
        return refuse(run, "a scheme other than bsp", "leave --sync out");
    if (codec.kind != NULL) return refuse(run, "--compress", "leave --compress out");
    if (sh_config_pipes(config)) return refuse(run, "a layout", "leave --layout out");
    if (config->data.crop > 0 || config->data.flip)
        return refuse(run, "augmentation", "leave data.crop and data.flip out");
    // The simulator has no time model of learners: its figures would be made up.
    if (run->team.env.timing_only || run->team.env.spend != NULL)
        return SH_FAIL(SH_E_UNSUPPORTED, "model '%s' is not simulated yet",
                       sh_model_kind_of(config->model)->name);
    return SH_OK;
}

/* Settings are refused before any row is copied. The caller finishes `rows_out`. Collective. */
sh_status sh_learner_begin(shoal_run *run, sh_learn_team *team, sh_rows *rows_out) {
    SH_TRY(check(run));
    SH_TRY(sh_run_loader(run, 0, &run->loader));
    SH_TRY(sh_run_prepare_team(run, true));
    return sh_rows_open(run->data.train, team, rows_out);
}

/* One worker that is asked to stop stops all, after the same step. A finished learner shortens the
 * run's length to the steps done. */
sh_status sh_learner_stepped(shoal_run *run, sh_learn_team *team, bool done, double loss_sum,
                             sh_learner_step *step_out) {
    int64_t rows = (int64_t)sh_loader_samples(run->loader);
    // A double, as sh_learn_max takes doubles.
    double stops = run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
    if (team->ranks > 1) SH_TRY(sh_learn_max(team, &stops, 1));
    run->team.stops = stops > 0;
    *step_out =
        (sh_learner_step){.loss = {.sum = loss_sum, .counted = rows, .correct = -1}, .meets = true};
    sh_run_step_done(run, rows);
    run->stats.sent_bytes = team->sent_bytes;
    run->stats.dense_bytes = team->sent_bytes;
    if (!done) return SH_OK;
    run->length.steps = run->length.steps_per_epoch = run->at.step;
    return SH_OK;
}

/* The learned model is in the net's parameters, so that evaluation is a forward pass like any
 * other. */
sh_status sh_learner_evaluate(sh_learner *learner, const sh_dataset *dataset,
                              shoal_result *result_out) {
    return sh_run_evaluate(learner->run, dataset, result_out);
}

/* A model with NaN would be loaded and trusted later, so it is not written. */
sh_status sh_learner_save(sh_learner *learner) {
    const shoal_run *run = learner->run;
    if (!sh_reduce()->all_finite(run->model.blocks.weights, run->model.net->params.total)) {
        SH_FAIL(SH_E_NUMERIC, "the model is not finite; no checkpoint is written");
        return sh_error_hint("scale the data: --data.normalise auto");
    }
    return sh_run_save_together(learner->run);
}

/* Nothing is pending: each step leaves its result in the net. */
sh_status sh_learner_finish(sh_learner *learner) {
    (void)learner;
    return SH_OK;
}

sh_learner_cost sh_learner_net_cost(const sh_learner *learner) {
    return sh_learner_net.cost(learner);
}

/* What every learner saves: weights and states of the net. The run owns the memory. */
sh_checkpoint sh_learner_net_blocks(const sh_learner *learner) {
    const shoal_run *run = learner->run;
    return (sh_checkpoint){.params = &run->model.net->params,
                           .weights = run->model.blocks.weights,
                           .state = &run->model.net->states,
                           .state_values = run->model.blocks.states,
                           .info = {.model = run->model.net->text}};
}
