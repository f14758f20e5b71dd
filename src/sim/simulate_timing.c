/* Workers that only let time pass: messages have their sizes, and nothing is computed. So a model
 * that would not fit, or ten thousand workers, can be timed. */
#include "codec/exchange.h"
#include "run/regroup.h"
#include "run/scheme.h"
#include "sim/simulate.h"
#include "run/states.h"

/* ---- What the workers share --------------------------------------------------------------------
 */

static sh_status check(const sh_simulation *s) {
    const sh_config *config = &s->config;
    const char *other = NULL;
    if (config->exact) other = "--exact: it is about numbers";
    if (config->shard_optimizer) other = "--shard-optimizer";
    if (config->sync_batchnorm) other = "--sync-batchnorm";
    if (config->balance) other = "--balance";
    if (config->resume != NULL) other = "--resume";
    if (other == NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "--numerics off does not go with %s", other);
    return sh_error_hint("leave out one of them");
}

/* As the workers of a run with numbers do, each for itself. */
static sh_status check_scheme(sh_simulation *s) {
    const shoal_run run = {.config = s->config,
                           .data = s->data,
                           .optim = s->optim,
                           .length = {.steps = s->steps},
                           .team = {.ranks = (int)s->config.workers, .env = {.timing_only = true}}};
    SH_TRY(sh_scheme_check_momentum(&run));
    SH_TRY(sh_scheme_check_run(&run));
    return sh_team_codec(&run, &s->codec);
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
    sh_net_input input = sh_model_input(&s->data.train->info);
    SH_TRY(sh_net_from_node(s->config.model, &input, &s->net));
    SH_TRY(count_steps(s));
    SH_TRY(sh_optim_init(&s->optim, &s->config.optim, s->net->params.total));
    SH_TRY(check_scheme(s));
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

/* The gradients of a worker's step: their sizes, and when each bucket is ready. */
typedef struct timed_buckets {
    sh_exchange *exchange;
    double *parts;  // per bucket: of the step's time, in backward
    size_t count;
    size_t started, finished;  // in this step
} timed_buckets;

/* As the reducer cuts them: parameters from the last to the first. */
static size_t cut_buckets(const sh_simulation *s, sh_exchange_bucket *buckets, double *parts) {
    const sh_param_list *params = &s->net->params;
    double mib = s->config.bucket_mb > 0 ? s->config.bucket_mb : SH_BUCKET_MIB;
    size_t most = (size_t)(mib * 0x1p20) / sizeof(float), count = 0;
    for (size_t end = params->count, first; end > 0; end = first, count++) {
        size_t elements = 0;
        first = end;
        do {
            elements += params->items[--first].count;
        } while (first > 0 && elements < most);
        if (buckets == NULL) continue;
        buckets[count] = (sh_exchange_bucket){.first = first, .count = end - first};
        parts[count] = 2.0 / 3 * (double)(end - first) / (double)params->count;
    }
    return count;
}

static sh_status open_buckets(const sh_simulated_worker *worker, timed_buckets *timed) {
    const sh_simulation *s = worker->simulation;
    timed->count = cut_buckets(s, NULL, NULL);
    sh_exchange_bucket *buckets = sh_alloc(timed->count + 1, sizeof *buckets);
    timed->parts = sh_alloc(timed->count + 1, sizeof *timed->parts);
    sh_status status = SH_OK;
    if (buckets == NULL || timed->parts == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for gradient buckets");
    if (status == SH_OK) {
        cut_buckets(s, buckets, timed->parts);
        const sh_exchange_options options = {.engine = worker->engine,
                                             .codec = &s->codec,
                                             .params = &s->net->params,
                                             .buckets = buckets,
                                             .bucket_count = timed->count,
                                             .seed = (uint64_t)s->config.seed};
        status = sh_exchange_create(&options, &timed->exchange);
    }
    sh_free(buckets);
    return status;
}

static void start_bucket(timed_buckets *timed) {
    sh_exchange_start(timed->exchange, timed->started++);
    while (timed->finished < timed->started && sh_exchange_test(timed->exchange, timed->finished))
        timed->finished++;
}

/* Time passes as in run/step.c: a third in forward, and what everyone must know after the step
 * travels beside the gradients. */
static sh_status step(sh_simulated_worker *worker, const sh_worker_env *env, int64_t number,
                      timed_buckets *timed) {
    const sh_simulation *s = worker->simulation;
    sh_call control = {.what = SH_ALLREDUCE,
                       .count = SH_CONTROL_COUNT + sh_states_sums(s->net),
                       .dtype = SH_DTYPE_F64,
                       .step = number,
                       .bucket = -1};
    bool overlaps = s->config.overlap && !sh_team_clips_own(&s->config, &s->codec);
    env->spend(env->self, number, 1.0 / 3);
    timed->started = timed->finished = 0;
    sh_exchange_begin(timed->exchange, number);
    SH_TRY(sh_engine_start(worker->engine, &control));
    for (size_t i = 0; i < timed->count; i++) {
        env->spend(env->self, number, timed->parts[i]);
        if (overlaps) start_bucket(timed);
        sh_engine_poll(worker->engine);
    }
    while (timed->started < timed->count) start_bucket(timed);
    for (size_t i = 0; i < timed->count; i++) SH_TRY(sh_exchange_wait(timed->exchange, i));
    return sh_engine_wait(worker->engine, &control);
}

static sh_status run_steps(sh_simulated_worker *worker, const sh_worker_env *env) {
    timed_buckets timed = {0};
    sh_status status = open_buckets(worker, &timed);
    for (int64_t i = 0; status == SH_OK && i < worker->simulation->steps; i++)
        status = step(worker, env, i, &timed);
    sh_free(timed.parts);
    if (status == SH_OK) sh_exchange_destroy(timed.exchange);  // otherwise calls may be under way
    return status;
}

/* ---- Other schemes
 * ------------------------------------------------------------------------------- */

/* As much of a run as a scheme looks at. */
static shoal_run run_for_scheme(sh_simulated_worker *worker, const sh_worker_env *env) {
    const sh_simulation *s = worker->simulation;
    shoal_run run = {.config = s->config,
                     .clock = env->clock,
                     .model = {.net = s->net},
                     .optim = s->optim,
                     .schedule = s->schedule,
                     .length = {.steps = s->steps, .steps_per_epoch = s->steps_per_epoch}};
    run.optim.slots[0] = run.optim.slots[1] = NULL;
    run.team = (sh_team){.engine = worker->engine,
                         .rank = worker->rank,
                         .ranks = worker->engine != NULL ? sh_engine_ranks(worker->engine) : 1,
                         .board = env->board,
                         .env = *env};
    return run;
}

/* Until the workers meet: at the end, or before it because somebody joins. */
static sh_status run_scheme(shoal_run *run) {
    sh_scheme_aim(run, run->length.steps);
    for (bool meets = false; !meets;) {
        sh_loss_result result;
        sh_team_phase(&run->team, SH_PHASE_STEP, run->at.step + 1);
        SH_TRY(sh_scheme_step(run, &result, &meets));
    }
    double used = 1;
    SH_TRY(sh_scheme_meet(run, &used));
    return sh_scheme_finish(run);
}

/* The steps of a worker that is alone, while the others are dead. */
static sh_status run_alone(shoal_run *run) {
    const sh_worker_env *env = &run->team.env;
    for (; run->at.step < run->length.steps && !sh_regroup_wished(run); run->at.step++) {
        env->spend(env->self, run->at.step, 1);
        SH_TRY(sh_regroup_check(run));
    }
    return SH_OK;
}

static sh_status run_to_end(shoal_run *run, bool joins) {
    sh_status status = joins ? sh_regroup(run) : sh_scheme_begin(run);
    bool regroups = run->team.env.regroup != NULL;
    if (status == SH_OK && !joins && regroups) sh_regroup_ready(run);
    while (status == SH_OK) {
        status = run->scheme != NULL ? run_scheme(run) : run_alone(run);
        if (status == SH_OK && run->at.step >= run->length.steps) break;
        if (status == SH_OK || (status == SH_E_PEER && regroups)) status = sh_regroup(run);
    }
    return status;
}

sh_status sh_simulate_timing(sh_simulated_worker *worker) {
    sh_worker_env env = sh_simulated_env(worker);
    if (worker->simulation->scheme.kind->family->step == NULL) return run_steps(worker, &env);
    shoal_run *run = sh_alloc(1, sizeof *run);
    if (run == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a simulated worker");
    *run = run_for_scheme(worker, &env);
    sh_simulation *s = worker->simulation;
    sh_status status = run_to_end(run, worker->rank < 0);
    const sh_error error = *sh_error_last();
    bool dead = sh_sim_is_dead(s->sim, worker->home);
    if (dead) sh_scheme_leave(run);
    if (status == SH_OK) sh_scheme_end(run);
    // After a failure its services may still look at it.
    if (run->scheme == NULL) sh_free(run);
    return status == SH_OK ? SH_OK : sh_error_adopt(&error);
}
