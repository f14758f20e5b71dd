/* Steps timed one by one, as `shoal bench train` and bench/ print them. */
#include <stdlib.h>

#include "train/run.h"

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static sh_status timed_step(shoal_run *run, double *ms_out) {
    const sh_batch *batch;
    int64_t begin = sh_clock_now_ns(&sh_clock_real);
    SH_TRY(sh_loader_next(run->loader, &batch));
    sh_loss_result result;
    sh_status status = sh_run_step(run, batch, &result);
    sh_loader_release(run->loader, batch);
    SH_TRY(status);
    run->step++;
    *ms_out = (double)(sh_clock_now_ns(&sh_clock_real) - begin) * 1e-6;
    if (run->hooks.progress != NULL)
        run->hooks.progress(run->hooks.user, &(shoal_progress){.step = run->step});
    return SH_OK;
}

static sh_status run_steps(shoal_run *run, int64_t warmup, int64_t steps, double seconds,
                           double *times, int64_t *count_out) {
    double ms = 0, spent = 0;
    for (int64_t i = 0; i < warmup; i++) SH_TRY(timed_step(run, &ms));
    int64_t count = 0;
    while (count < steps && (count < 10 || spent < seconds * 1e3)) {
        SH_TRY(timed_step(run, &times[count++]));
        spent += times[count - 1];
    }
    *count_out = count;
    return SH_OK;
}

shoal_status shoal_run_bench(shoal_run *run, int64_t warmup, int64_t steps, double seconds,
                             shoal_timing *timing_out) {
    if (steps < 1) return (shoal_status)SH_FAIL(SH_E_USAGE, "a benchmark needs at least one step");
    run->config.drop_last = true;
    SHOAL_TRY(sh_run_make_optimizer(run));
    SHOAL_TRY(sh_run_loader(run, 0, &run->loader));
    sh_plan *plan;
    if (!run->config.exact) SHOAL_TRY(sh_model_plan(&run->model, run->config.batch, true, &plan));
    sh_run_save_kernels(run);
    double *times = sh_alloc((size_t)steps, sizeof *times);
    if (times == NULL) return (shoal_status)SH_FAIL(SH_E_MEMORY, "out of memory for timings");
    int64_t count = 0;
    sh_status status = run_steps(run, warmup, steps, seconds, times, &count);
    if (status == SH_OK) {
        qsort(times, (size_t)count, sizeof *times, compare);
        double per_sample = run->data.train->info.target == SH_TARGET_TOKENS
                                ? (double)sh_shape_count(&run->data.train->info.sample)
                                : 1.0;
        double median = times[count / 2];
        *timing_out = (shoal_timing){
            .median_ms = median,
            .p10_ms = times[count / 10],
            .p90_ms = times[count * 9 / 10],
            .samples_per_s = (double)run->config.batch * per_sample / median * 1e3,
            .steps = count,
        };
    }
    sh_free(times);
    return (shoal_status)status;
}
