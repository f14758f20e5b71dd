/* Workers that only let time pass: messages have their sizes, and nothing is computed. So a model
 * that would not fit, or ten thousand workers, can be timed. */
#include "run/layout.h"
#include "run/regroup.h"
#include "run/scheme.h"
#include "sim/simulate.h"

/* ---- What the workers share --------------------------------------------------------------------
 */

/* Options that are about numbers would be accepted and have no effect, so they are refused. */
static sh_status check(const sh_simulation *s) {
    const sh_config *config = &s->config;
    const char *other = NULL;
    if (config->exact) other = "--exact: it is about numbers";
    if (config->shard_optimizer) other = "--shard-optimizer";
    if (config->sync_batchnorm) other = "--sync-batchnorm";
    if (config->balance) other = "--balance";
    if (config->resume != NULL) other = "--resume";
    if (sh_config_splits(config)) other = "--layout: only sums of gradients are timed";
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

/* As a run with numbers counts its steps; short data still makes one step per epoch. */
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

/* ---- A worker ---------------------------------------------------------------------------------
 */

/* As much of a run as a scheme looks at, in place: ten thousand stacks would hold a copy each. */
static void fill_run(sh_simulated_worker *worker, const sh_worker_env *env, shoal_run *run) {
    const sh_simulation *s = worker->simulation;
    run->config = s->config;
    run->clock = env->clock;
    run->model.net = s->net;
    run->optim = s->optim;
    run->optim.slots[0] = run->optim.slots[1] = NULL;
    run->schedule = s->schedule;
    run->length.steps = s->steps;
    run->length.steps_per_epoch = s->steps_per_epoch;
    run->team.engine = worker->engine;
    run->team.rank = worker->rank;
    run->team.ranks = 1;
    run->team.board = env->board;
    run->team.env = *env;
}

/* Until the workers meet: at the end, or before it because somebody joins. */
static sh_status run_to_meeting(shoal_run *run) {
    double used = 1;
    sh_scheme_aim(run, run->length.steps);
    for (bool meets = false; !meets;) {
        sh_loss_result result;
        sh_team_phase(&run->team, SH_PHASE_STEP, run->at.step + 1);
        SH_TRY(sh_scheme_step(run, &result, &meets));
    }
    return sh_scheme_meet(run, &used);
}

/* Until the last step, or until somebody is let in. SH_E_PEER: a member died, and the caller
 * regroups. */
static sh_status run_generation(shoal_run *run) {
    while (run->at.step < run->length.steps && !sh_regroup_lets_join(run))
        SH_TRY(run_to_meeting(run));
    return sh_scheme_finish(run);
}

/* A worker that joins regroups first, the others begin the scheme. Each round of the loop is
 * one generation of the team. */
static sh_status run_to_end(shoal_run *run, bool joins) {
    sh_status status = SH_OK;
    if (joins) {
        status = sh_regroup(run);
    } else {
        SH_TRY(sh_team_place_blocks(run));
        SH_TRY(sh_scheme_open(run));
        status = sh_scheme_begin(run);
    }
    bool regroups = run->team.env.regroup != NULL;
    if (status == SH_OK && !joins && regroups) sh_regroup_ready(run);
    while (status == SH_OK) {
        status = run_generation(run);
        if (status == SH_OK && run->at.step >= run->length.steps) break;
        if (status == SH_OK || (status == SH_E_PEER && regroups)) status = sh_regroup(run);
    }
    return status;
}

sh_status sh_simulate_timing(sh_simulated_worker *worker) {
    sh_worker_env env = sh_simulated_env(worker);
    shoal_run *run = sh_alloc(1, sizeof *run);
    if (run == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a simulated worker");
    fill_run(worker, &env, run);
    sh_simulation *s = worker->simulation;
    sh_status status = sh_team_form(&run->team);
    if (status == SH_OK) status = run_to_end(run, worker->rank < 0);
    const sh_error error = *sh_error_last();
    bool dead = sh_sim_is_dead(s->sim, worker->home);
    if (dead) sh_scheme_leave(run);
    if (status == SH_OK || !sh_scheme_serves(run)) sh_scheme_end(run);
    // After a failure its services may still look at it.
    if (run->scheme == NULL) sh_free(run);
    return status == SH_OK ? SH_OK : sh_error_adopt(&error);
}
