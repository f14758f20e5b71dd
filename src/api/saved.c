/* shoal_run_open_saved: a run that only evaluates and predicts, from what its checkpoint knows. */
#include <string.h>

#include "nn/spec.h"
#include "run/run.h"
#include "run/need.h"

static sh_status read_model(const char *path, sh_node **node_out) {
    char *text = NULL;
    SH_TRY(sh_checkpoint_model_text(path, NULL, &text));
    sh_status status = sh_node_parse(path, text, strlen(text), node_out);
    sh_free(text);
    return status;
}

/* A model file alone says which model it is, and what it is tested on is all the data there is. */
static sh_status complete(sh_config *config, const char *path) {
    const sh_model_kind *kind = sh_model_kind_of(config->model);
    bool grew = kind != NULL && kind->learner != NULL && strcmp(kind->learner, "svm") == 0;
    if (grew) {  // in training, so that the model file alone tells how large it is
        sh_node_destroy(config->model);
        config->model = NULL;
    }
    if (config->model == NULL) SH_TRY(read_model(path, &config->model));
    if (config->data.train != NULL || config->data.test == NULL) return SH_OK;
    config->data.train = sh_strdup(config->data.test);
    return config->data.train != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for names");
}

/* Takes `known` over. */
static sh_status open_known(const sh_config *config, const char *path, const shoal_hooks *hooks,
                            sh_data *known, shoal_run **run_out) {
    sh_config whole;
    sh_status status = sh_config_copy(config, &whole);
    if (status == SH_OK) status = complete(&whole, path);
    if (status == SH_OK)
        status = sh_run_open_known(&whole, hooks, known, run_out);
    else
        sh_data_close(known);
    sh_config_fini(&whole);
    return status;
}

shoal_status shoal_run_open_saved(const shoal_config *config, const char *path,
                                  const shoal_hooks *hooks, shoal_run **run_out) {
    SHOAL_NEED(config);
    SHOAL_NEED(path);
    SHOAL_NEED(run_out);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    sh_data known;
    bool has = false;
    shoal_run *run = NULL;
    SHOAL_TRY(sh_model_known(path, NULL, &has, &known));
    SHOAL_TRY(has ? open_known(&config->config, path, &whole, &known, &run)
                  : sh_run_open(&config->config, &whole, NULL, &run));
    shoal_status status = shoal_run_load(run, path);
    if (status != SHOAL_OK)
        shoal_run_close(run);
    else
        *run_out = run;
    return status;
}

/* ---- use ---- */

shoal_status shoal_run_evaluate(shoal_run *run, const char *part, shoal_result *result_out) {
    SHOAL_NEED(run);
    SHOAL_NEED(part);
    SHOAL_NEED(result_out);
    SHOAL_TRY(sh_struct_check(result_out, "shoal_result"));
    const sh_dataset *dataset = NULL;
    shoal_result result;
    SHOAL_TRY(sh_run_part(run, part, &dataset));
    SHOAL_TRY(sh_data_need_targets(dataset, part));
    SHOAL_TRY(sh_run_evaluate(run, dataset, &result));
    sh_struct_give(&result, sizeof result, result_out);
    return SHOAL_OK;
}

int64_t shoal_run_classes(const shoal_run *run) {
    SHOAL_NEED_OR(run, 0);
    const sh_shape *output = sh_net_output(run->model.net);
    if (run->model.loss.kind->any_target) return output->dim[output->rank - 1];  // clusters
    return run->model.loss.kind->classes ? run->data.info.classes : 0;
}

shoal_status shoal_run_load(shoal_run *run, const char *path) {
    SHOAL_NEED(run);
    SHOAL_NEED(path);
    sh_net *net = run->model.net;
    return (shoal_status)sh_checkpoint_load_model(path, &run->log, &net->params,
                                                  run->model.blocks.weights, &net->states,
                                                  run->model.blocks.states);
}

shoal_status shoal_run_save(const shoal_run *run, const char *path) {
    SHOAL_NEED(run);
    SHOAL_NEED(path);
    return (shoal_status)sh_model_save(&run->model, &run->data, path);
}

typedef struct predicting {
    void (*row)(void *user, int64_t index, const float *output, int64_t width);
    void *user;
    int64_t index;
} predicting;

static void predict_batch(void *user, const sh_batch *batch, sh_executor *executor) {
    predicting *p = user;
    int64_t width = (int64_t)(executor->output->count / batch->count);
    const float *output = executor->output->data;
    for (size_t i = 0; i < batch->count; i++)
        p->row(p->user, p->index++, output + (int64_t)i * width, width);
}

shoal_status shoal_run_predict(shoal_run *run, const char *part,
                               void (*row)(void *user, int64_t index, const float *output,
                                           int64_t width),
                               void *user) {
    SHOAL_NEED(run);
    SHOAL_NEED(part);
    SHOAL_NEED(row);
    const sh_dataset *dataset = NULL;
    SHOAL_TRY(sh_run_part(run, part, &dataset));
    sh_loader_options options = {.batch = (size_t)run->config.batch, .epochs = 1, .depth = 2};
    if (options.batch > dataset->info.count) options.batch = dataset->info.count;
    sh_loader *loader = NULL;
    SHOAL_TRY(sh_loader_create(dataset, &options, &loader));
    predicting p = {.row = row, .user = user};
    sh_status status =
        sh_model_forward_all(&run->model, (uint64_t)run->config.seed, loader, predict_batch, &p);
    sh_loader_destroy(loader);
    return (shoal_status)status;
}
