/* Runs in use: a checkpoint opened as a run that evaluates and predicts, and what any open run can
 * do with a part of its data: evaluate, predict, load, save.
 *
 * A checkpoint tells what its model has to know of the training data (normalisation, classes,
 * characters), so that data need not be there. Older checkpoints tell nothing; then the run is
 * opened with its training data. */
#include <string.h>

#include "nn/spec.h"
#include "run/run.h"
#include "run/need.h"

/* The model that a checkpoint was made of, as the tree of a run file. Caller destroys it. */
static sh_status read_model(const char *path, sh_node **node_out) {
    char *text = NULL;
    SH_TRY(sh_checkpoint_model_text(path, NULL, &text));
    sh_status status = sh_node_parse(path, text, strlen(text), node_out);
    sh_free(text);
    return status;
}

/* Fills in what only the checkpoint knows: a bare model file also tells its model. Data named for
 * testing alone is all the data there is, and stands for the training data. */
static sh_status complete(sh_config *config, const char *path) {
    const sh_model_kind *kind = sh_model_kind_of(config->model);
    bool grew = kind != NULL && kind->learner != NULL && strcmp(kind->learner, "svm") == 0;
    // A support vector machine grows in training: only the model file tells how large it is.
    if (grew) {
        sh_node_destroy(config->model);
        config->model = NULL;
    }
    if (config->model == NULL) SH_TRY(read_model(path, &config->model));
    if (config->data.train != NULL || config->data.test == NULL) return SH_OK;
    config->data.train = sh_strdup(config->data.test);
    return config->data.train != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for names");
}

/* Opens a run without its training data. `known` is taken over, also on failure. */
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

/* A run whose parameters cannot be loaded is closed: the caller gets a run that answers, or none.
 */
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

/* Checks the caller's struct before the work, and fills as much of it as the caller knows. */
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

/* Clusters count as classes: their loss looks at no targets, and the width of the output is their
 * number. */
int64_t shoal_run_classes(const shoal_run *run) {
    SHOAL_NEED_OR(run, 0);
    const sh_shape *output = sh_net_output(run->model.net);
    if (run->model.loss.kind->any_target) return output->dim[output->rank - 1];  // clusters
    return run->model.loss.kind->classes ? run->data.info.classes : 0;
}

/* Parameters and running statistics only; the optimizer's state stays. */
shoal_status shoal_run_load(shoal_run *run, const char *path) {
    SHOAL_NEED(run);
    SHOAL_NEED(path);
    sh_net *net = run->model.net;
    return (shoal_status)sh_checkpoint_load_model(path, &run->log, &net->params,
                                                  run->model.blocks.weights, &net->states,
                                                  run->model.blocks.states);
}

/* With what is known of the data, so that shoal_model_open can read the file. */
shoal_status shoal_run_save(const shoal_run *run, const char *path) {
    SHOAL_NEED(run);
    SHOAL_NEED(path);
    return (shoal_status)sh_model_save(&run->model, &run->data, path);
}

/* State of one prediction: the caller's function, and the index of its next row. */
typedef struct predicting {
    void (*row)(void *user, int64_t index, const float *output, int64_t width);
    void *user;
    int64_t index;
} predicting;

/* Callback per batch: one row per sample, in the order of the part. */
static void predict_batch(void *user, const sh_batch *batch, sh_executor *executor) {
    predicting *p = user;
    // Outputs of a sample; of text, tokens times vocabulary.
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
    // In order, once, never more than the part has; `depth` overlaps reading with computing.
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
