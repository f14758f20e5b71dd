#include "run/regroup.h"

#include <math.h>
#include <string.h>

#include "tensor/kernels/vector.h"
#include "run/scheme.h"
#include "run/sparse.h"
#include "run/server_snapshots.h"

/* Floats of the largest block that members agree on; one spare block serves all of them in
 * turn. */
static size_t largest_block(const shoal_run *run) {
    size_t most = run->model.net->params.total;
    if (run->model.net->states.total > most) most = run->model.net->states.total;
    for (size_t i = 0; i < run->scheme_state.count; i++) {
        const sh_param_list *params = run->scheme_state.slots[i].params;
        if (params != NULL && params->total > most) most = params->total;
    }
    return most;
}

sh_status sh_regroup_prepare(shoal_run *run) {
    if (!sh_regroup_possible(run)) return SH_OK;
    run->team.spare = sh_alloc(largest_block(run) + 1, sizeof *run->team.spare);
    if (run->team.spare != NULL) return SH_OK;
    return SH_FAIL(SH_E_MEMORY, "out of memory for a copy of the model");
}

void sh_regroup_ready(shoal_run *run) {
    run->team.holds = run->team.joined = true;
    // Runs that only let time pass have no weights, which sh_regroup_possible asks for, and regroup
    // all the same.
    if (run->team.env.timing_only || sh_regroup_possible(run))
        run->team.env.regroup->joined(run->team.env.self);
}

/* ---- What the members agree on ---- */

/* Where the run is, by those who hold it. */
typedef struct position {
    int64_t step, samples;
    int64_t elapsed_ns,
        trained_ns;  // since the start, and since the first step without evaluations and
                     // checkpoints
    int64_t first_step;
    int generation;
    double best;
    bool saved;
    shoal_result test, validation;
} position;

static int64_t aside_ns(const shoal_run *run) {
    return run->stats.spent.eval_ns + run->stats.spent.checkpoint_ns;
}

/* Times are told as durations: the clocks of two processes need not have the same origin. */
static position position_of(const shoal_run *run) {
    int64_t now = sh_run_now(run);
    return (position){.step = run->at.step,
                      .samples = run->at.samples,
                      .elapsed_ns = now - run->stats.start_ns,
                      .trained_ns = now - run->stats.loop_ns - aside_ns(run),
                      .first_step = run->at.first_step,
                      .generation = run->team.generation,
                      .best = run->results.best,
                      .saved = run->results.saved,
                      .test = run->results.test,
                      .validation = run->results.validation};
}

static void take_position(shoal_run *run, const position *at) {
    int64_t now = sh_run_now(run);
    run->at.samples = at->samples;
    run->results.best = at->best;
    run->results.saved = at->saved;
    run->results.test = at->test;
    run->results.validation = at->validation;
    run->team.generation = at->generation;
    // Who held the model keeps its own clock; a newcomer continues that of rank 0.
    if (run->team.holds) return;
    run->at.first_step = at->first_step;
    run->stats.start_ns = now - at->elapsed_ns;
    run->stats.loop_ns = now - at->trained_ns;
}

/* A block becomes its mean over those whose `part` of it is 1; `parts` of them. */
static sh_status agree_on(shoal_run *run, float *block, size_t count, bool part, double parts) {
    // Summed in the spare block: a death during the sum leaves the model as it was, for the next
    // generation.
    float *spare = run->team.spare;
    if (run->team.group == NULL || count == 0) return SH_OK;
    if (part)
        memcpy(spare, block, count * sizeof *block);
    else
        memset(spare, 0, count * sizeof *block);
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = spare,
                    .count = count,
                    .dtype = SH_DTYPE_F32,
                    .op = SH_SUM,
                    .step = run->at.step,
                    .bucket = -1};
    SH_TRY(sh_group_run(run->team.group, &call));
    if (parts > 1) sh_vector()->scale(spare, (float)(1 / parts), count);
    memcpy(block, spare, count * sizeof *block);
    return SH_OK;
}

/* Where servers hold the model, all who were there have read the same from their snapshots. */
static sh_status agree_on_model(shoal_run *run, bool served, double holders) {
    const sh_net *net = run->model.net;
    bool holds = run->team.holds, part = served ? sh_team_leads(&run->team) : holds;
    double parts = served ? 1 : holders;
    SH_TRY(agree_on(run, run->model.blocks.weights, net->params.total, part, parts));
    SH_TRY(agree_on(run, run->model.blocks.states, net->states.total, holds, holders));
    for (int i = 0; i < run->optim.slot_count; i++)
        SH_TRY(agree_on(run, run->optim.slots[i], run->optim.total, part, parts));
    for (size_t i = 0; i < run->scheme_state.count; i++) {
        const sh_checkpoint_slot *slot = &run->scheme_state.slots[i];
        size_t count = slot->params != NULL ? slot->params->total : net->params.total;
        SH_TRY(agree_on(run, slot->values, count, holds, holders));
    }
    return SH_OK;
}

/* ---- Telling ---- */

/* All members read the same snapshots and add up the lost updates; rank 0 alone warns and
 * counts for the run. */
static void tell_server(shoal_run *run, int service, const sh_recovered *recovered) {
    const sh_server_snapshots *left = &run->team.left;
    run->team.lost += recovered->lost;
    if (!left->counted && sh_team_leads(&run->team))
        sh_scheme_add_service(&run->counts, service, left->services, &recovered->counts);
    if (recovered->ended || !sh_team_leads(&run->team)) return;
    SH_WARN(&run->log,
            "server %d was restored from its snapshot at update %ld; %ld update%s %s lost", service,
            (long)recovered->updates, (long)recovered->lost, recovered->lost == 1 ? "" : "s",
            recovered->lost == 1 ? "is" : "are");
}

/* The new generation in the log and the metrics, by rank 0, which may have become rank 0 just
 * now. */
static sh_status tell_team(shoal_run *run, double holders, int64_t lost) {
    if (!sh_team_leads(&run->team)) return SH_OK;
    int ranks = run->team.ranks, joined = ranks - (int)holders;
    SH_INFO(&run->log, "after step %ld the team goes on with %d worker%s%s", (long)run->at.step,
            ranks, ranks == 1 ? "" : "s", joined > 0 ? ", of whom some have joined now" : "");
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->at.step},
        {"generation", SH_METRIC_INT, .i = run->team.generation},
        {"workers", SH_METRIC_INT, .i = ranks},
        {"joined", SH_METRIC_INT, .i = joined},
        {"lost_updates", SH_METRIC_INT, .i = lost},
        {"seconds", SH_METRIC_REAL, .r = (double)(sh_run_now(run) - run->stats.start_ns) * 1e-9},
    };
    return sh_metrics_write(run->files.metrics, "regroup", fields, SH_COUNT(fields));
}

/* ---- Regrouping ---- */

/* Engine, board and mesh of the generation that begins. What was agreed in the last one, to
 * stop or to regroup, is void. */
static sh_status take_env(shoal_run *run, const sh_worker_env *env) {
    sh_team *team = &run->team;
    team->env.engine = team->engine = env->engine;
    team->env.board = team->board = env->board;
    team->stops = team->regroups = false;
    return sh_team_form(team);
}

/* All that belongs to the generation that ends. */
static void leave_generation(shoal_run *run) {
    sh_scheme_leave(run);
    sh_mesh_fini(&run->team.mesh);
    run->team.group = NULL;
    run->team.engine = NULL;
    sh_run_drop_sparse(run);
    sh_loader_destroy(run->loader);
    run->loader = NULL;
    run->team.step = run->at.step;  // counted
    // In a generation that this worker never trained in, those of the one before are still to be
    // read.
    if (run->team.joined) run->team.left = run->team.snapshots;
    run->team.snapshots = (sh_server_snapshots){0};
    run->team.joined = false;
}

/* What whoever joins must know besides the model. */
static sh_status tell_newcomers(shoal_run *run) {
    SH_TRY(sh_team_broadcast_folder(run));
    SH_TRY(sh_team_broadcast_kernels(run));
    if (!sh_team_leads(&run->team)) sh_tuner_forbid(run->model.tuner);
    return SH_OK;
}

/* Collective. All that depends on the number of ranks is made anew: costs, shares of the data,
 * loader, executors and the scheme. */
static sh_status begin_again(shoal_run *run) {
    SH_TRY(sh_team_keep_costs(run));
    const sh_data_team team = sh_team_for_data(&run->team);
    SH_TRY(sh_data_regroup(&run->data, &team));
    SH_TRY(sh_run_loader(run, 0, &run->loader));
    SH_TRY(sh_run_prepare(run, true));
    SH_TRY(sh_model_take_gradients(&run->model));  // the last scheme may have had them elsewhere
    SH_TRY(sh_team_place_blocks(run));
    SH_TRY(sh_scheme_open(run));
    return sh_scheme_begin(run);
}

/* Collective over the generation that begins. May fail with SH_E_PEER anywhere: until `holds`
 * is set, a newcomer counts as one that has nothing, and the holders still have their model. */
static sh_status join(shoal_run *run) {
    sh_team *team = &run->team;
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(run->config.scheme.name, &scheme));
    sh_team_phase(team, SH_PHASE_START, run->at.step);
    double most[] = {team->holds ? (double)run->at.step : -1,
                     team->holds ? (double)run->at.paid : -1};
    double holders = team->holds;
    SH_TRY(sh_team_max(team, most, SH_COUNT(most)));
    SH_TRY(sh_team_sum(team, &holders, 1));  // here, all services of before have ended
    position at = position_of(run);
    at.generation++;
    SH_TRY(sh_team_broadcast(team, &at, sizeof at));
    // The member that is furthest sets the position of all; those behind leave steps out rather
    // than repeat them.
    sh_run_move_to(run, (int64_t)most[0]);
    run->at.paid = (int64_t)most[1];
    team->step = run->at.step;
    take_position(run, &at);
    if (team->env.timing_only) {
        SH_TRY(sh_team_place_blocks(run));
        SH_TRY(sh_scheme_open(run));
        return sh_scheme_begin(run);
    }
    if (sh_team_leads(team) && run->files.metrics == NULL) SH_TRY(sh_run_take_over_folder(run));
    int64_t lost = team->lost;
    SH_TRY(sh_server_snapshots_restore(run, tell_server));
    SH_TRY(tell_team(run, holders, team->lost - lost));
    // Whoever joins has read no snapshot, and may lead the team one day.
    SH_TRY(sh_team_broadcast(team, &team->lost, sizeof team->lost));
    SH_TRY(agree_on_model(run, scheme.kind->family->restore != NULL, holders));
    // Only who knows all of it counts as one who was there when the next generation begins.
    if ((int)holders < team->ranks) SH_TRY(tell_newcomers(run));
    team->holds = true;
    return begin_again(run);
}

sh_status sh_regroup(shoal_run *run) {
    for (;;) {
        const sh_worker_env *env = &run->team.env;
        leave_generation(run);
        sh_worker_env next = *env;
        sh_status status = env->regroup->next(env->self, &next);
        if (status == SH_OK) {
            status = take_env(run, &next);
            if (status == SH_OK) status = join(run);
        }
        if (status == SH_OK) sh_regroup_ready(run);
        // Another death meanwhile: the generation that follows is tried.
        if (status != SH_E_PEER) return status;
    }
}
