/* shoal_train: the whole of a training run, on as many workers as its config says. */
#include "train/launch.h"

static sh_status train_body(shoal_run *run, void *argument) {
    (void)argument;
    return (sh_status)shoal_run_train(run);
}

static sh_status train_alone(const sh_job *job, sh_outcome *outcome) {
    shoal_run *run = NULL;
    SH_TRY(sh_run_open(job->config, job->hooks, NULL, NULL, &run));
    sh_status status = job->body(run, job->argument);
    const char *folder = shoal_run_folder(run);
    if (folder != NULL) outcome->folder = sh_strdup(folder);
    shoal_run_close(run);
    return status;
}

shoal_status shoal_train(const shoal_config *config, const shoal_hooks *hooks, char **folder_out) {
    static const shoal_hooks none;
    sh_job job = {.config = &config->config,
                  .hooks = hooks != NULL ? hooks : &none,
                  .body = train_body,
                  .restarts = true};
    SHOAL_TRY(sh_config_check(job.config));
    sh_outcome outcome = {0};
    sh_status status =
        job.config->workers > 1 ? sh_launch(&job, &outcome) : train_alone(&job, &outcome);
    if (folder_out != NULL)
        *folder_out = outcome.folder;
    else
        sh_free(outcome.folder);
    return (shoal_status)status;
}
