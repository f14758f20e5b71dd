/* A run as a whole: what its workers agree on first, the loop with the teams that deaths make of
 * them, and what is said at the end. */
#include <math.h>
#include <sys/resource.h>

#include "run/load.h"
#include "run/loop.h"
#include "run/need.h"
#include "run/regroup.h"
#include "run/scheme.h"
#include "run/server.h"
#include "run/sparse.h"
#include "run/totals.h"

/* Collective up to the totals; then rank 0 alone writes the end of log and metrics. */
static sh_status finish(shoal_run *run) {
    sh_totals totals;
    double train_s = sh_run_training_s(run, sh_run_now(run));
    SH_TRY(sh_team_report(run));
    SH_TRY(sh_totals_count(run, &totals));
    if (!sh_team_leads(&run->team)) return SH_OK;
    SH_TRY(sh_totals_tell_staleness(run));
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double total = sh_seconds_between(run->stats.start_ns, sh_run_now(run));
    const sh_time_spent *s = &run->stats.spent;
    bool simulated = run->team.env.spend != NULL;  // writes nothing that differs the next time
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->at.step},
        {"seconds", SH_METRIC_REAL, .r = total},
        {"train_s", SH_METRIC_REAL, .r = train_s},
        {"samples", SH_METRIC_INT, .i = run->at.samples},
        {"data_s", SH_METRIC_REAL, .r = (double)s->data_ns * 1e-9},
        {"compute_s", SH_METRIC_REAL, .r = (double)s->compute_ns * 1e-9},
        {"update_s", SH_METRIC_REAL, .r = (double)s->update_ns * 1e-9},
        {"exposed_s", SH_METRIC_REAL, .r = (double)s->exposed_ns * 1e-9},
        {"eval_s", SH_METRIC_REAL, .r = (double)s->eval_ns * 1e-9},
        {"checkpoint_s", SH_METRIC_REAL, .r = (double)s->checkpoint_ns * 1e-9},
        {"workers", SH_METRIC_INT, .i = run->team.ranks},
        {"updates", SH_METRIC_INT, .i = (int64_t)totals.updates},
        {"all_sent_bytes", SH_METRIC_INT, .i = (int64_t)totals.sent_bytes},
        {"all_dense_bytes", SH_METRIC_INT, .i = (int64_t)totals.dense_bytes},
        {"staleness_mean", SH_METRIC_REAL, .r = totals.staleness_mean},
        {"staleness_most", SH_METRIC_REAL, .r = totals.staleness_most},
        {"regroups", SH_METRIC_INT, .i = run->team.generation},
        {"lost_updates", SH_METRIC_INT, .i = run->team.lost},
        {"peak_rss_mib", SH_METRIC_REAL, .r = simulated ? NAN : (double)usage.ru_maxrss / 1024.0},
    };
    SH_INFO(&run->log,
            "time: %.1f s; data %.1f, forward and backward %.1f, update %.1f, evaluation %.1f, "
            "checkpoints %.1f; peak memory %.0f MiB",
            total, (double)s->data_ns * 1e-9, (double)s->compute_ns * 1e-9,
            (double)s->update_ns * 1e-9, (double)s->eval_ns * 1e-9, (double)s->checkpoint_ns * 1e-9,
            (double)usage.ru_maxrss / 1024.0);
    return sh_metrics_write(run->files.metrics, "end", fields, SH_COUNT(fields));
}

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

/* Rank 0's first lines: what is trained by whom, and what about the settings deserves a
 * warning. */
static void tell_begin(const shoal_run *run) {
    int64_t samples = (int64_t)sh_loader_samples(run->loader);
    int apart = sh_servers_apart(&run->config, run->team.ranks);
    char servers[48] = "";
    if (apart > 0)
        snprintf(servers, sizeof servers, " and %d server process%s", apart,
                 apart == 1 ? "" : "es");
    SH_INFO(&run->log,
            "%s: %ld parameters, %ld samples an epoch, batch %ld, %ld steps, %d worker%s of %d "
            "thread%s%s, in %s",
            run->config.name != NULL ? run->config.name : "run", (long)run->model.net->params.total,
            (long)samples, (long)run->config.batch, (long)run->length.steps, run->team.ranks,
            plural(run->team.ranks), sh_run_threads(run), plural(sh_run_threads(run)), servers,
            run->files.folder);
    sh_load_tell(&run->log, sh_run_threads(run));
    if (samples < run->config.batch)
        SH_WARN(&run->log, "an epoch has only %ld samples: every step takes all of them",
                (long)samples);
    if (!sh_scheme_is_together(run) && !run->config.exact && run->data.train->info.ignores &&
        run->data.train->parts.ranks > 0)
        SH_WARN(&run->log,
                "scheme '%s' cannot count the labels of other parts: each worker assumes that the "
                "same fraction counts in all of them",
                run->config.scheme.name);
    if (run->at.step > 0) SH_INFO(&run->log, "resumed after step %ld", (long)run->at.step);
}

/* Collective. The run's older files are replaced only when the learner has begun: until then it
 * may still fail and must leave them alone. */
static sh_status begin(shoal_run *run) {
    bool leads = sh_team_leads(&run->team);
    SH_TRY(run->learner.kind->begin(&run->learner));
    if (leads) SH_TRY(sh_run_begin_files(run));
    // Nobody holds the model before an older run's files are gone: the others could go on in them.
    SH_TRY(sh_team_wrote(&run->team, run->at.step));
    run->at.first_step = run->team.step = run->at.paid = run->at.step;
    run->stats.loop_ns = sh_run_now(run);
    sh_regroup_ready(run);
    if (leads) sh_run_save_kernels(run);
    if (leads) tell_begin(run);
    return SH_OK;
}

/* A run that ends before its time says so in its own files; its caller has the error. */
static void note_stop(shoal_run *run) {
    if (!sh_team_leads(&run->team) || run->files.metrics == NULL) return;  // or it never began
    const sh_error error = *sh_error_last();
    bool fails = error.code != SH_E_INTERRUPTED;
    sh_run_log_note(run->files.run_log, fails ? SH_LOG_ERROR : SH_LOG_INFO, error.text);
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->at.step},
        {"seconds", SH_METRIC_REAL, .r = sh_seconds_between(run->stats.start_ns, sh_run_now(run))},
        {"reason", SH_METRIC_TEXT, .s = error.text},
    };
    sh_metrics_write(run->files.metrics, "stopped", fields, SH_COUNT(fields));
    // The error that ended the run stays, even if writing it down has failed.
    sh_error_adopt(&error);
}

/* The first generation of the team: rank 0's state becomes everybody's. */
static sh_status set_up(shoal_run *run) {
    // First of all: collectives of ranks with different options would not fit together.
    SH_TRY(sh_team_compare(run));
    SH_TRY(sh_scheme_state_init(run));
    SH_TRY(sh_team_place_blocks(run));
    SH_TRY(sh_scheme_open(run));
    SH_TRY(sh_run_layout_reserve(run));
    if (sh_team_leads(&run->team)) SH_TRY(sh_run_open_folder(run));
    SH_TRY(sh_team_broadcast_folder(run));
    SH_TRY(sh_team_take_costs(run));
    SH_TRY(sh_team_broadcast_state(run));
    sh_scheme_saved(run);  // what was read of other ranks' parts goes again
    run->results.saved = run->at.step > 0;
    return SH_OK;
}

/* A worker that comes back, or is new, while the others train. */
static sh_status join(shoal_run *run) {
    SH_TRY(sh_scheme_state_init(run));
    SH_TRY(sh_run_begin_sparse(run));
    SH_TRY(sh_regroup_prepare(run));
    return sh_regroup(run);
}

/* A death ends a generation of the team, not the run. */
static sh_status train(shoal_run *run) {
    sh_loop at = sh_loop_begin(run);
    for (;;) {
        sh_status status = sh_loop_run(run, &at);
        if (status == SH_OK) status = finish(run);
        if (status != SH_E_PEER || !run->team.holds || !sh_regroup_possible(run)) return status;
        SH_TRY(sh_regroup(run));
    }
}

shoal_status shoal_run_train(shoal_run *run) {
    SHOAL_NEED(run);
    // Rank -1 stands for a worker that joins a team under way: it has no rank yet, and no part in
    // the set-up.
    bool joins = run->team.rank < 0;
    run->stats.start_ns = sh_run_now(run);
    SHOAL_TRY(sh_data_need_targets(run->data.validation, "validation"));
    SHOAL_TRY(sh_data_need_targets(run->data.test, "test"));
    SHOAL_TRY(sh_run_make_optimizer(run));
    if (!joins) SHOAL_TRY(set_up(run));
    if (run->at.step >= run->length.steps) {
        SH_INFO(&run->log, "nothing to do: the run has finished its %ld steps",
                (long)run->length.steps);
        return SHOAL_OK;
    }
    sh_status status = joins ? join(run) : begin(run);
    // In virtual time the length of a folder's name, which travels before, must not show.
    if (run->team.env.spend != NULL && !joins) run->stats.start_ns = sh_run_now(run);
    if (status == SH_OK) status = train(run);
    // A simulated worker that is dead must leave the files to whoever leads the team now.
    if (status != SH_OK && !sh_regroup_gone(run)) note_stop(run);
    return (shoal_status)status;
}
