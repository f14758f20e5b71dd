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
