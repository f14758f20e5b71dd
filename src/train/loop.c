/* The training loop: batches in, metrics and checkpoints out. */
#include <math.h>
#include <sys/resource.h>

#include "tensor/kernels/reduce.h"
#include "train/load.h"
#include "train/regroup.h"
#include "train/run.h"
#include "train/scheme.h"
#include "train/server.h"
#include "train/sparse.h"
#include "train/totals.h"
#include "train/need.h"

static double seconds_between(int64_t begin, int64_t end) { return (double)(end - begin) * 1e-9; }

/* Since the first step, without evaluation and checkpoints: what schemes are compared by. */
static double training_s(const shoal_run *run) {
    int64_t aside_ns = run->spent.eval_ns + run->spent.checkpoint_ns;
    return seconds_between(run->loop_ns + aside_ns, sh_run_now(run));
}

/* What has been summed up since the last line of metrics. */
typedef struct interval {
    double loss_sum;
    int64_t counted, correct, begin_ns;
    int64_t told;  // the step of that line
    double used;   // of the samples in the steps since, the part that a scheme has learnt from, as
                   // far as workers have met
} interval;

static interval begin_interval(const shoal_run *run) {
    return (interval){.begin_ns = sh_run_now(run), .told = run->step, .used = 1};
}

/* A multiple of --log-every has been reached since; a free worker may leap over it. */
static bool line_is_due(const shoal_run *run, const interval *since) {
    int64_t every = run->config.log_every;
    return run->step / every != since->told / every;
}

/* An epoch ended since. */
static bool epoch_ended(const shoal_run *run, const interval *since) {
    return run->step / run->steps_per_epoch != since->told / run->steps_per_epoch;
}

/* Samples in the batches of steps `from` to `to`; of data in parts about as many. */
static double samples_between(const shoal_run *run, int64_t from, int64_t to) {
    int64_t batch = run->config.batch, each = run->steps_per_epoch * batch;
    int64_t all = (int64_t)sh_loader_samples(run->loader);
    if (all < each) each = all;  // the last batch of an epoch is short
    int64_t begin = from % run->steps_per_epoch * batch, end = to % run->steps_per_epoch * batch;
    int64_t epochs = to / run->steps_per_epoch - from / run->steps_per_epoch;
    return (double)(epochs * each + end - begin);
}

static double part(int64_t some, int64_t all) { return all > 0 ? (double)some / (double)all : NAN; }

static double rate(const shoal_run *run, const interval *since) {
    double seconds = seconds_between(since->begin_ns, sh_run_now(run));
    double samples = since->used * samples_between(run, since->told, run->step);
    return seconds > 0 ? samples / seconds : 0.0;
}

/* The epoch, from 1, that the last finished step belongs to. */
static int64_t epoch_of_step(const shoal_run *run) {
    return (run->step - 1) / run->steps_per_epoch + 1;
}

static sh_status write_step(shoal_run *run, const interval *since) {
    if (!sh_team_leads(&run->team)) return SH_OK;
    bool classes = run->model.loss.kind->classes;
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->step},
        {"epoch", SH_METRIC_INT, .i = epoch_of_step(run)},
        {"train_loss", SH_METRIC_REAL, .r = since->loss_sum / (double)since->counted},
        {"train_accuracy", SH_METRIC_REAL,
         .r = classes ? part(since->correct, since->counted) : NAN},
        {"lr", SH_METRIC_REAL, .r = sh_schedule_lr(&run->schedule, run->step - 1)},
        {"samples_per_s", SH_METRIC_REAL, .r = rate(run, since)},
        {"seconds", SH_METRIC_REAL, .r = seconds_between(run->start_ns, sh_run_now(run))},
        {"train_s", SH_METRIC_REAL, .r = training_s(run)},
        {"sent_bytes", SH_METRIC_INT, .i = (int64_t)run->sent_bytes},
        {"dense_bytes", SH_METRIC_INT, .i = (int64_t)run->dense_bytes},
        {"grad_norm", SH_METRIC_REAL, .r = run->config.clip_norm > 0 ? run->grad_norm : NAN},
    };
    // The gradient norm is known only when clipping asks for it.
    size_t count = SH_COUNT(fields) - (run->config.clip_norm > 0 ? 0 : 1);
    return sh_metrics_write(run->metrics, "step", fields, count);
}

static sh_status write_eval(shoal_run *run) {
    if (!sh_team_leads(&run->team)) return SH_OK;
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->step},
        {"epoch", SH_METRIC_INT, .i = epoch_of_step(run)},
        {"seconds", SH_METRIC_REAL, .r = seconds_between(run->start_ns, sh_run_now(run))},
        {"train_s", SH_METRIC_REAL, .r = training_s(run)},
        {"test_loss", SH_METRIC_REAL, .r = run->test.loss},
        {"test_accuracy", SH_METRIC_REAL, .r = run->test.accuracy},
        {"validation_loss", SH_METRIC_REAL, .r = run->validation.loss},
        {"validation_accuracy", SH_METRIC_REAL, .r = run->validation.accuracy},
    };
    size_t count = SH_COUNT(fields) - (run->validation.samples > 0 ? 0 : 2);
    return sh_metrics_write(run->metrics, "eval", fields, count);
}

static sh_status evaluate(shoal_run *run) {
    if (run->data.test == NULL && run->data.validation == NULL) return SH_OK;
    int64_t begin = sh_run_now(run);
    sh_team_phase(&run->team, SH_PHASE_EVALUATE, run->step);
    if (run->data.validation != NULL)
        SH_TRY(sh_run_evaluate(run, run->data.validation, &run->validation));
    if (run->data.test == run->data.validation || run->data.test == NULL)
        run->test = run->validation;
    else
        SH_TRY(sh_run_evaluate(run, run->data.test, &run->test));
    double score = isnan(run->test.accuracy) ? -run->test.loss : run->test.accuracy;
    if (isnan(run->best) || score > run->best) run->best = score;
    run->spent.eval_ns += sh_run_now(run) - begin;
    sh_trace_end(run->model.trace, "eval", "evaluation", run->step, begin);
    sh_team_phase(&run->team, SH_PHASE_STEP, run->step);  // what follows waits as a step does
    return write_eval(run);
}

static sh_status save(shoal_run *run) {
    if (!sh_reduce()->all_finite(run->model.blocks.weights, run->model.net->params.total)) {
        SH_FAIL(SH_E_NUMERIC, "step %ld: parameters are not finite; no checkpoint is written",
                (long)run->step);
        return sh_error_hint("lower --lr, add a warm-up, or clip gradients (--clip-norm 1)");
    }
    int64_t begin = sh_run_now(run);
    SH_TRY(sh_team_gather_slots(run));
    SH_TRY(sh_team_settle_states(&run->team));
    sh_team_writing(&run->team, run->step);
    if (sh_team_leads(&run->team)) {
        SH_TRY(sh_run_save(run));
        sh_team_saved(&run->team, run->step);
    }
    SH_TRY(sh_team_wrote(&run->team, run->step));
    sh_team_drop_slots(run);
    run->saved = true;
    run->spent.checkpoint_ns += sh_run_now(run) - begin;
    sh_trace_end(run->model.trace, "checkpoint", "checkpoint", run->step, begin);
    return SH_OK;
}

static shoal_progress progress_of(const shoal_run *run, double loss, double samples_per_s) {
    return (shoal_progress){
        .step = run->step,
        .steps = run->steps,
        .epoch = epoch_of_step(run),
        .epochs = (run->steps + run->steps_per_epoch - 1) / run->steps_per_epoch,
        .samples = run->samples_here,
        .train_loss = loss,
        .test_loss = run->test.samples > 0 ? run->test.loss : NAN,
        .test_accuracy = run->test.samples > 0 ? run->test.accuracy : NAN,
        .lr = sh_schedule_lr(&run->schedule, run->step - 1),
        .samples_per_s = samples_per_s,
    };
}

static void report(const shoal_run *run, double loss, double samples_per_s, bool epoch_end) {
    if (run->hooks.progress == NULL) return;
    shoal_progress progress = progress_of(run, loss, samples_per_s);
    progress.epoch_end = epoch_end;
    run->hooks.progress(run->hooks.user, &progress);
}

/* Told before the checkpoint is written: a launcher that was stopped itself passes on no words of
 * the last moments. */
static void report_stop(const shoal_run *run, double loss, double samples_per_s) {
    if (run->hooks.progress == NULL) return;
    shoal_progress progress = progress_of(run, loss, samples_per_s);
    progress.stops = true;
    run->hooks.progress(run->hooks.user, &progress);
}

static void add_result(interval *since, const sh_loss_result *result) {
    since->loss_sum += result->sum;
    since->counted += result->counted;
    since->correct += result->correct;
}

/* Takes one batch through; the position moves past it. */
static sh_status one_step(shoal_run *run, interval *since, double *loss_out, bool *epoch_end_out) {
    const sh_batch *batch;
    int64_t begin = sh_run_now(run);
    SH_TRY(sh_regroup_check(run));
    sh_team_phase(&run->team, SH_PHASE_STEP, run->step + 1);
    SH_TRY(sh_loader_next(run->loader, &batch));
    run->spent.data_ns += sh_run_now(run) - begin;
    sh_trace_end(run->model.trace, "data", "wait for batch", run->step, begin);
    SH_ASSERT(batch != NULL);
    sh_loss_result result;
    int64_t computed = run->spent.compute_ns;
    sh_status status = sh_run_step(run, batch, &result);
    int64_t count = (int64_t)batch->whole, own = (int64_t)batch->count;
    sh_loader_release(run->loader, batch);
    SH_TRY(status);
    run->step++;
    run->samples += count;
    run->samples_here += count;
    add_result(since, &result);
    if (result.counted > 0) *loss_out = result.sum / (double)result.counted;
    *epoch_end_out = ++run->batch == run->steps_per_epoch;
    if (*epoch_end_out) {
        run->batch = 0;
        run->epoch++;
    }
    return sh_team_balance(run, own, run->spent.compute_ns - computed);
}

/* The step after which the workers of a scheme meet again: something is due, or the run ends. */
static int64_t next_meeting(const shoal_run *run) {
    int64_t next = run->steps, every[] = {run->eval_every, run->config.checkpoint_every};
    for (size_t i = 0; i < SH_COUNT(every); i++) {
        int64_t stride = every[i] > 0 ? every[i] : run->steps_per_epoch;
        int64_t due = (run->step / stride + 1) * stride;
        if (due < next) next = due;
    }
    return next;
}

/* Between meetings each worker knows its own loss alone; rank 0 tells its. Where they are to meet
 * after `to`, the meeting tells that of all. */
static sh_status tell(shoal_run *run, interval *since, int64_t to, double loss) {
    bool has_news = since->counted > 0;  // else it had no samples, or its gradients were broken off
    double samples_per_s = rate(run, since);
    bool epoch_end = epoch_ended(run, since) && run->step < to;
    if (epoch_end || (line_is_due(run, since) && run->step < to && has_news)) {
        SH_TRY(write_step(run, since));
        *since = begin_interval(run);
    }
    if (run->step > 0) report(run, loss, samples_per_s, epoch_end);
    return SH_OK;
}

/* Where workers meet, the loss is that of all of them: in a free scheme rank 0 may have done no
 * step since it last told. */
static sh_status add_losses(shoal_run *run, interval *since, double *loss_out) {
    double sums[] = {since->loss_sum, (double)since->counted, (double)since->correct};
    SH_TRY(sh_team_sum(&run->team, sums, SH_COUNT(sums)));
    if (sums[1] > 0) *loss_out = sums[0] / sums[1];
    bool tells = sh_team_leads(&run->team);  // the others begin anew
    since->loss_sum = tells ? sums[0] : 0;
    since->counted = tells ? (int64_t)sums[1] : 0;
    since->correct = tells ? (int64_t)sums[2] : 0;
    return SH_OK;
}

/* The steps of a scheme's worker up to the next meeting, and the meeting. */
static sh_status span(shoal_run *run, interval *since, double *loss_out, bool *epoch_end_out) {
    int64_t to = next_meeting(run), from = run->step;
    int64_t samples = run->samples_here;
    // A free worker hears of its step when it has leave for the next one: that is not in it yet.
    bool late = sh_scheme_is_free(run);
    sh_scheme_aim(run, to);
    for (bool meets = false; !meets;) {
        sh_loss_result result = {0};
        sh_team_phase(&run->team, SH_PHASE_STEP, run->step + 1);
        SH_TRY(sh_scheme_step(run, &result, &meets));
        if (!late) add_result(since, &result);
        if (result.counted > 0) *loss_out = result.sum / (double)result.counted;
        if (!meets) SH_TRY(tell(run, since, to, *loss_out));
        if (late) add_result(since, &result);
    }
    SH_TRY(sh_scheme_meet(run));
    double dealt = samples_between(run, from, run->step);
    if (dealt > 0) since->used = (double)(run->samples_here - samples) / dealt;
    *epoch_end_out = epoch_ended(run, since);
    return add_losses(run, since, loss_out);
}

static bool is_due(int64_t step, int64_t every, bool epoch_end, bool last) {
    return last || (every > 0 ? step % every == 0 : epoch_end);
}

static bool reached_target(const shoal_run *run) {
    return run->config.target > 0 && run->test.samples > 0 &&
           run->test.accuracy >= run->config.target;
}

static sh_status interrupted(shoal_run *run, bool saved) {
    if (!saved) SH_TRY(save(run));
    const char *folder = run->folder != NULL ? run->folder : "the run's folder";
    SH_FAIL(SH_E_INTERRUPTED, "stopped after step %ld of %ld; the checkpoint is in '%s'",
            (long)run->step, (long)run->steps, folder);
    return sh_error_hint("shoal train --resume %s goes on from there", folder);
}

/* Alone it asks; in a team all have agreed during the step. */
static bool wants_stop(const shoal_run *run) {
    if (run->team.engine != NULL) return run->team.stops;
    return run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
}

/* What the loop carries from round to round. */
typedef struct progress {
    interval since;
    double loss;
    bool epoch_end;
} progress;

/* What is due after a step, or after the workers have met. */
static sh_status pay_dues(shoal_run *run, progress *at, bool *saved_out) {
    bool last = run->step == run->steps, epoch_end = at->epoch_end;
    double samples_per_s = rate(run, &at->since);
    // Without losses there is no line: no step was done since the last meeting, or whoever knew its
    // loss has died.
    bool moved = run->step > at->since.told && at->since.counted > 0;
    if (moved && (line_is_due(run, &at->since) || epoch_end || last)) {
        SH_TRY(write_step(run, &at->since));
        at->since = begin_interval(run);
    }
    int64_t aside = sh_run_now(run);
    if (is_due(run->step, run->eval_every, epoch_end, last)) SH_TRY(evaluate(run));
    bool done = reached_target(run);
    if (is_due(run->step, run->config.checkpoint_every, epoch_end, last || done)) {
        SH_TRY(save(run));
        *saved_out = true;
    }
    at->since.begin_ns += sh_run_now(run) - aside;  // neither counts in the speed
    report(run, at->loss, samples_per_s, epoch_end || last || done);
    return SH_OK;
}

static bool is_over(const shoal_run *run) {
    return run->paid == run->step && (run->step >= run->steps || reached_target(run));
}

/* All have met, and somebody joins: alone it sees for itself, in a team all have agreed. */
static sh_status let_join(shoal_run *run) {
    bool joins = run->team.engine != NULL ? run->team.regroups : sh_regroup_wished(run);
    if (!joins) return SH_OK;
    SH_TRY(sh_scheme_finish(run));
    return sh_regroup(run);
}

static sh_status loop(shoal_run *run, progress *at) {
    while (!is_over(run)) {
        bool saved = false;
        if (run->paid == run->step)
            SH_TRY((run->scheme != NULL ? span : one_step)(run, &at->since, &at->loss,
                                                           &at->epoch_end));
        else
            at->epoch_end = run->step % run->steps_per_epoch == 0;  // a death came in between
        SH_TRY(pay_dues(run, at, &saved));
        run->paid = run->step;
        if (is_over(run)) break;
        if (wants_stop(run)) {
            SH_TRY(sh_scheme_finish(run));
            SH_TRY(sh_team_report(run));
            report_stop(run, at->loss, rate(run, &at->since));
            return interrupted(run, saved);
        }
        SH_TRY(sh_team_check_replicas(run));
        SH_TRY(let_join(run));
    }
    return sh_scheme_finish(run);
}

static sh_status finish(shoal_run *run) {
    sh_totals totals;
    double train_s = training_s(run);
    SH_TRY(sh_team_report(run));
    SH_TRY(sh_totals_count(run, &totals));
    if (!sh_team_leads(&run->team)) return SH_OK;
    SH_TRY(sh_totals_tell_staleness(run));
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    double total = seconds_between(run->start_ns, sh_run_now(run));
    const sh_time_spent *s = &run->spent;
    bool simulated = run->team.seat.spend != NULL;  // writes nothing that differs the next time
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->step},
        {"seconds", SH_METRIC_REAL, .r = total},
        {"train_s", SH_METRIC_REAL, .r = train_s},
        {"samples", SH_METRIC_INT, .i = run->samples},
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
    return sh_metrics_write(run->metrics, "end", fields, SH_COUNT(fields));
}

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

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
            (long)samples, (long)run->config.batch, (long)run->steps, run->team.ranks,
            plural(run->team.ranks), sh_run_threads(run), plural(sh_run_threads(run)), servers,
            run->folder);
    sh_load_tell(&run->log, sh_run_threads(run));
    if (samples < run->config.batch)
        SH_WARN(&run->log, "an epoch has only %ld samples: every step takes all of them",
                (long)samples);
    if (run->scheme != NULL && !run->config.exact && run->data.train->info.ignores &&
        run->data.train->parts.ranks > 0)
        SH_WARN(&run->log,
                "scheme '%s' cannot count the labels of other parts: each worker assumes that the "
                "same fraction counts in all of them",
                run->config.scheme.name);
    if (run->step > 0) SH_INFO(&run->log, "resumed after step %ld", (long)run->step);
}

static sh_status begin(shoal_run *run) {
    bool leads = sh_team_leads(&run->team);
    SH_TRY(sh_run_begin_sparse(run));
    SH_TRY(sh_run_loader(run, 0, &run->loader));
    SH_TRY(sh_team_prepare(run, true));
    SH_TRY(sh_regroup_prepare(run));
    SH_TRY(sh_scheme_begin(run));
    if (leads) SH_TRY(sh_run_begin_files(run));
    // Nobody holds the model before an older run's files are gone: the others could go on in them.
    SH_TRY(sh_team_wrote(&run->team, run->step));
    run->first_step = run->team.step = run->paid = run->step;
    run->loop_ns = sh_run_now(run);
    sh_regroup_ready(run);
    if (leads) sh_run_save_kernels(run);
    if (leads) tell_begin(run);
    return SH_OK;
}

/* A run that ends before its time says so in its own files; its caller has the error. */
static void note_stop(shoal_run *run) {
    if (!sh_team_leads(&run->team) || run->metrics == NULL) return;  // or it never began
    const sh_error error = *sh_error_last();
    bool fails = error.code != SH_E_INTERRUPTED;
    sh_run_log_note(run->run_log, fails ? SH_LOG_ERROR : SH_LOG_INFO, error.text);
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->step},
        {"seconds", SH_METRIC_REAL, .r = seconds_between(run->start_ns, sh_run_now(run))},
        {"reason", SH_METRIC_TEXT, .s = error.text},
    };
    sh_metrics_write(run->metrics, "stopped", fields, SH_COUNT(fields));
    sh_error_adopt(&error);
}

/* The first generation of the team: rank 0's state becomes everybody's. */
static sh_status set_up(shoal_run *run) {
    SH_TRY(sh_team_compare(run));
    SH_TRY(sh_kept_init(run));
    SH_TRY(sh_team_start_reducer(run, sh_run_update_bucket));
    if (sh_team_leads(&run->team)) SH_TRY(sh_run_open_folder(run));
    SH_TRY(sh_team_spread_folder(run));
    SH_TRY(sh_team_take_costs(run));
    SH_TRY(sh_team_spread(run));
    run->saved = run->step > 0;
    return SH_OK;
}

/* A worker that comes back, or is new, while the others train. */
static sh_status join(shoal_run *run) {
    SH_TRY(sh_kept_init(run));
    SH_TRY(sh_run_begin_sparse(run));
    SH_TRY(sh_regroup_prepare(run));
    return sh_regroup(run);
}

/* A death ends a generation of the team, not the run. */
static sh_status train(shoal_run *run) {
    progress at = {.since = begin_interval(run), .loss = NAN};
    for (;;) {
        sh_status status = loop(run, &at);
        if (status == SH_OK) status = finish(run);
        if (status != SH_E_PEER || !run->team.holds || !sh_regroup_possible(run)) return status;
        SH_TRY(sh_regroup(run));
    }
}

shoal_status shoal_run_train(shoal_run *run) {
    SHOAL_NEED(run);
    bool joins = run->team.rank < 0;
    run->start_ns = sh_run_now(run);
    SHOAL_TRY(sh_data_need_targets(run->data.validation, "validation"));
    SHOAL_TRY(sh_data_need_targets(run->data.test, "test"));
    SHOAL_TRY(sh_run_make_optimizer(run));
    if (!joins) SHOAL_TRY(set_up(run));
    if (run->step >= run->steps) {
        SH_INFO(&run->log, "nothing to do: the run has finished its %ld steps", (long)run->steps);
        return SHOAL_OK;
    }
    sh_status status = joins ? join(run) : begin(run);
    // In virtual time the length of a folder's name, which travels before, must not show.
    if (run->team.seat.spend != NULL && !joins) run->start_ns = sh_run_now(run);
    if (status == SH_OK) status = train(run);
    if (status != SH_OK && !sh_regroup_gone(run)) note_stop(run);
    return (shoal_status)status;
}
