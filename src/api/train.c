/* shoal_train and shoal_bench: a run on as many workers as its config says. Both are jobs
 * (host/launch.h) with a body that each worker calls on its open run; where workers live is
 * decided here: under MPI this process is one of them, several workers are forked, one alone runs
 * in this process. */
#include "host/launch.h"
#include "run/layout.h"
#include "run/need.h"
#include "shoal/tools.h"

/* sh_job.body of training. */
static sh_status train_body(shoal_run *run, void *argument) {
    (void)argument;
    return (sh_status)shoal_run_train(run);
}

/* One worker in this process: opened, used and closed. The folder's name is copied, as it belongs
 * to the run; it is handed out also after a failure. */
static sh_status run_alone(const sh_job *job, sh_outcome *outcome) {
    shoal_run *run = NULL;
    SH_TRY(sh_run_open(job->config, job->hooks, NULL, &run));
    sh_status status = job->body(run, job->argument);
    const char *folder = shoal_run_folder(run);
    if (folder != NULL) outcome->folder = sh_strdup(folder);
    shoal_run_close(run);
    return status;
}

/* Chooses where workers live. MPI is asked first: under a launcher the number of workers is the
 * launcher's. */
static sh_status run_with_workers(const sh_job *job, sh_outcome *outcome) {
    bool under_mpi = false;
    SH_TRY(sh_launcher_check(job->hooks, job->config->transport, &under_mpi));
    if (under_mpi) return sh_rank_run(job, outcome);
    SH_TRY(sh_config_check(job->config));
    // One worker whose parameter servers have processes of their own needs a parent, too.
    bool many = job->config->workers > 1 || sh_sync_apart(&job->config->scheme);
    return many ? sh_launch(job, outcome) : run_alone(job, outcome);
}

/* Runs a job with the number of workers that the config says or, where it says none, that its
 * layout needs. Works on a copy of the config. */
static sh_status run_job(const sh_job *job, sh_outcome *outcome) {
    sh_config config;
    sh_job whole = *job;
    whole.config = &config;
    SH_TRY(sh_config_copy(job->config, &config));
    sh_status status = sh_layout_workers(job->config, &config.workers);
    if (status == SH_OK) status = run_with_workers(&whole, outcome);
    sh_config_fini(&config);
    return status;
}

/* `restarts`: after a death training goes on from the last checkpoint. The folder is the caller's,
 * or is freed if nobody asked. */
shoal_status shoal_train(const shoal_config *config, const shoal_hooks *hooks, char **folder_out) {
    SHOAL_NEED(config);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    sh_job job = {.config = &config->config, .hooks = &whole, .body = train_body, .restarts = true};
    sh_outcome outcome = {0};
    sh_status status = run_job(&job, &outcome);
    if (folder_out != NULL)
        *folder_out = outcome.folder;
    else
        sh_free(outcome.folder);
    return (shoal_status)status;
}

/* Arguments of shoal_run_bench for the job's body, in each worker. */
typedef struct bench_request {
    int64_t warmup, steps;
    double seconds;
    shoal_timing *timing;  // of this process
} bench_request;

/* sh_job.body of a benchmark. */
static sh_status bench_body(shoal_run *run, void *argument) {
    const bench_request *request = argument;
    return (sh_status)shoal_run_bench(run, request->warmup, request->steps, request->seconds,
                                      request->timing);
}

/* The figures are rank 0's: its body writes them, and the launch brings them here. There are no
 * restarts: a benchmark has no checkpoint to begin again from. */
shoal_status shoal_bench(const shoal_config *config, const shoal_hooks *hooks, int64_t warmup,
                         int64_t steps, double seconds, shoal_timing *timing_out) {
    SHOAL_NEED(config);
    SHOAL_NEED(timing_out);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    sh_outcome outcome = {0};
    bench_request request = {warmup, steps, seconds, &outcome.timing};
    sh_job job = {.config = &config->config,
                  .hooks = &whole,
                  .body = bench_body,
                  .argument = &request,
                  .timing = &outcome.timing};
    sh_status status = run_job(&job, &outcome);
    if (status == SH_OK) *timing_out = outcome.timing;
    return (shoal_status)status;
}
