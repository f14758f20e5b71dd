/* Workers that only let time pass: messages have their sizes, and nothing is computed. So a model
 * that would not fit, or ten thousand workers, can be timed. */
#include <string.h>

#include "train/scheme.h"
#include "train/simulate.h"

/* ---- What the workers share --------------------------------------------------------------------
 */

static sh_status check(const sh_simulation *s) {
    const sh_config *config = &s->config;
    const char *other = NULL;
    if (strcmp(config->compress, "none") != 0) other = "--compress: sizes follow from the numbers";
    if (config->exact) other = "--exact: it is about numbers";
    if (config->shard_optimizer) other = "--shard-optimizer";
    if (config->balance) other = "--balance";
    if (config->resume != NULL) other = "--resume";
    if (other == NULL) return SH_OK;
    SH_FAIL(SH_E_UNSUPPORTED, "--numerics off does not go with %s", other);
    return sh_error_hint("leave out one of them");
}

static sh_status count_steps(sh_simulation *s) {
    const sh_config *config = &s->config;
    int64_t samples = (int64_t)s->data.train->info.count, batch = config->batch;
    s->steps_per_epoch = config->drop_last ? samples / batch : (samples + batch - 1) / batch;
    if (s->steps_per_epoch < 1) s->steps_per_epoch = 1;
    s->steps = config->steps > 0 ? config->steps : config->epochs * s->steps_per_epoch;
    return SH_OK;
}

sh_status sh_simulate_timing_open(sh_simulation *s) {
    SH_TRY(check(s));
    const sh_data_info *info = &s->data.train->info;
    bool values = info->target == SH_TARGET_VALUES;
    sh_net_input input = {.sample = info->sample,
                          .tokens = info->tokens,
                          .outputs = values ? info->values : info->classes};
    SH_TRY(sh_net_from_node(s->config.model, &input, &s->net));
    SH_TRY(count_steps(s));
    SH_TRY(sh_optim_init(&s->optim, &s->config.optim, s->net->params.total));
    return sh_schedule_init(&s->schedule, &s->config.schedule, s->optim.options.lr, s->config.batch,
                            s->steps, s->steps_per_epoch);
}

void sh_simulate_timing_close(sh_simulation *s) {
    if (s->net == NULL) return;
    sh_net_destroy(s->net);
    sh_optim_fini(&s->optim);
}

/* ---- Bulk-synchronous steps ---------------------------------------------------------------------
 */

/* As the reducer cuts them: parameters from the last to the first. */
static size_t cut_buckets(const sh_simulation *s, sh_call *calls, double *parts) {
    const sh_param_list *params = &s->net->params;
    double mib = s->config.bucket_mb > 0 ? s->config.bucket_mb : SH_BUCKET_MIB;
    size_t most = (size_t)(mib * 0x1p20) / sizeof(float), count = 0;
    for (size_t end = params->count, first; end > 0; end = first, count++) {
        size_t elements = 0;
        for (first = end; first > 0 && elements < most;) elements += params->items[--first].count;
        if (calls == NULL) continue;
        calls[count] = (sh_call){.what = SH_ALLREDUCE,
                                 .count = elements,
                                 .dtype = SH_DTYPE_F32,
                                 .op = SH_SUM,
                                 .bucket = (int)count};
        parts[count] = 2.0 / 3 * (double)(end - first) / (double)params->count;
    }
    return count;
}

/* Time passes as in train/step.c: a third in forward, and what everyone must know after the step
 * travels beside the gradients. */
static sh_status step(sh_simulated_worker *worker, const sh_seat *seat, int64_t number,
                      sh_call *calls, const double *parts, size_t count) {
    sh_call control = {
        .what = SH_ALLREDUCE, .count = 4, .dtype = SH_DTYPE_F64, .step = number, .bucket = -1};
    bool overlaps = worker->simulation->config.overlap;
    seat->spend(seat->self, number, 1.0 / 3);
    SH_TRY(sh_engine_start(worker->engine, &control));
    for (size_t i = 0; i < count; i++) {
        seat->spend(seat->self, number, parts[i]);
        calls[i].step = number;
        if (overlaps) SH_TRY(sh_engine_start(worker->engine, &calls[i]));
        sh_engine_poll(worker->engine);
    }
    for (size_t i = 0; i < count && !overlaps; i++)
        SH_TRY(sh_engine_start(worker->engine, &calls[i]));
    for (size_t i = 0; i < count; i++) SH_TRY(sh_engine_wait(worker->engine, &calls[i]));
    return sh_engine_wait(worker->engine, &control);
}

static sh_status run_steps(sh_simulated_worker *worker, const sh_seat *seat) {
    const sh_simulation *s = worker->simulation;
    size_t count = cut_buckets(s, NULL, NULL);
    sh_call *calls = sh_alloc(count + 1, sizeof *calls);
    double *parts = sh_alloc(count + 1, sizeof *parts);
    sh_status status = SH_OK;
    if (calls == NULL || parts == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for gradient buckets");
    else
        cut_buckets(s, calls, parts);
    for (int64_t i = 0; status == SH_OK && i < s->steps; i++)
        status = step(worker, seat, i, calls, parts, count);
    if (status != SH_OK) return status;  // calls may be under way
    sh_free(parts);
    sh_free(calls);
    return SH_OK;
}

/* ---- Other schemes
 * ------------------------------------------------------------------------------- */

/* As much of a run as a scheme looks at. */
static shoal_run run_for_scheme(sh_simulated_worker *worker, const sh_seat *seat) {
    const sh_simulation *s = worker->simulation;
    shoal_run run = {.config = s->config,
                     .clock = seat->clock,
                     .model = {.net = s->net},
                     .optim = s->optim,
                     .schedule = s->schedule,
                     .steps = s->steps,
                     .steps_per_epoch = s->steps_per_epoch};
    run.optim.slots[0] = run.optim.slots[1] = NULL;
    run.team = (sh_team){.engine = worker->engine,
                         .rank = worker->rank,
                         .ranks = sh_engine_ranks(worker->engine),
                         .board = seat->board,
                         .seat = *seat};
    return run;
}

static sh_status run_scheme(shoal_run *run) {
    sh_scheme_aim(run, run->steps);
    for (bool meets = false; !meets;) {
        sh_loss_result result;
        sh_team_phase(&run->team, SH_PHASE_STEP, run->step + 1);
        SH_TRY(sh_scheme_step(run, &result, &meets));
    }
    SH_TRY(sh_scheme_meet(run));
    return sh_scheme_finish(run);
}

sh_status sh_simulate_timing(sh_simulated_worker *worker) {
    sh_seat seat = sh_simulated_seat(worker);
    if (worker->simulation->scheme.kind->step == NULL) return run_steps(worker, &seat);
    shoal_run *run = sh_alloc(1, sizeof *run);
    if (run == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a simulated worker");
    *run = run_for_scheme(worker, &seat);
    SH_TRY(sh_scheme_begin(run));
    SH_TRY(run_scheme(run));  // after a failure its services may still look at it
    sh_scheme_end(run);
    sh_free(run);
    return SH_OK;
}
