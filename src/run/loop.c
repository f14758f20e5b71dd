/* The training loop: batches in, metrics and checkpoints out. */
#include "run/loop.h"

#include <math.h>
#include <string.h>

#include "run/learner.h"
#include "run/regroup.h"

double sh_run_training_s(const shoal_run *run, int64_t now_ns) {
    int64_t aside_ns = run->stats.spent.eval_ns + run->stats.spent.checkpoint_ns;
    return sh_seconds_between(run->stats.loop_ns + aside_ns, now_ns);
}

/* An interval that begins after the run's last step. All samples count as learnt from until a
 * meeting tells otherwise. */
static sh_interval interval_from(const shoal_run *run, int64_t begin_ns) {
    return (sh_interval){.begin_ns = begin_ns, .told = run->at.step, .used = 1};
}

/* The end of an interval: when its last step had ended, where that was before the loop heard of
 * it, otherwise now. */
static int64_t end_of(const shoal_run *run, const sh_interval *since) {
    return since->end_ns > 0 ? since->end_ns : sh_run_now(run);
}

/* A multiple of --log-every has been reached since; a free worker may leap over it. */
static bool line_is_due(const shoal_run *run, const sh_interval *since) {
    int64_t every = run->config.log_every;
    return run->at.step / every != since->told / every;
}

/* An epoch ended since. */
static bool epoch_ended(const shoal_run *run, const sh_interval *since) {
    return run->at.step / run->length.steps_per_epoch != since->told / run->length.steps_per_epoch;
}

/* Samples per second that were learnt from. 0 where no time has passed, as may be in virtual
 * time. */
static double rate(const shoal_run *run, const sh_interval *since) {
    double seconds = sh_seconds_between(since->begin_ns, end_of(run, since));
    double samples = since->used * sh_run_samples_between(run, since->told, run->at.step);
    return seconds > 0 ? samples / seconds : 0.0;
}

/* The epoch, from 1, that the last finished step belongs to. */
static int64_t epoch_of_step(const shoal_run *run) {
    return (run->at.step - 1) / run->length.steps_per_epoch + 1;
}

/* A line of metrics, by rank 0. The learner's own fields stand between the position and the
 * times. */
static sh_status write_step(shoal_run *run, const sh_interval *since) {
    if (!sh_team_leads(&run->team)) return SH_OK;
    const sh_learner *learner = &run->learner;
    int64_t end = end_of(run, since);
    const sh_metric before[] = {
        {"step", SH_METRIC_INT, .i = run->at.step},
        {"epoch", SH_METRIC_INT, .i = epoch_of_step(run)},
    };
    const sh_metric after[] = {
        {"samples_per_s", SH_METRIC_REAL, .r = rate(run, since)},
        {"seconds", SH_METRIC_REAL, .r = sh_seconds_between(run->stats.start_ns, end)},
        {"train_s", SH_METRIC_REAL, .r = sh_run_training_s(run, end)},
        {"sent_bytes", SH_METRIC_INT, .i = (int64_t)run->stats.sent_bytes},
        {"dense_bytes", SH_METRIC_INT, .i = (int64_t)run->stats.dense_bytes},
    };
    sh_metric fields[SH_COUNT(before) + SH_LEARNER_METRICS + SH_COUNT(after)];
    size_t count = SH_COUNT(before);
    memcpy(fields, before, sizeof before);
    count += learner->kind->metrics(learner, &since->loss, fields + count);
    memcpy(fields + count, after, sizeof after);
    return sh_metrics_write(run->files.metrics, "step", fields, count + SH_COUNT(after));
}

static sh_status write_eval(shoal_run *run) {
    if (!sh_team_leads(&run->team)) return SH_OK;
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->at.step},
        {"epoch", SH_METRIC_INT, .i = epoch_of_step(run)},
        {"seconds", SH_METRIC_REAL, .r = sh_seconds_between(run->stats.start_ns, sh_run_now(run))},
        {"train_s", SH_METRIC_REAL, .r = sh_run_training_s(run, sh_run_now(run))},
        {"test_loss", SH_METRIC_REAL, .r = run->results.test.loss},
        {"test_accuracy", SH_METRIC_REAL, .r = run->results.test.accuracy},
        {"validation_loss", SH_METRIC_REAL, .r = run->results.validation.loss},
        {"validation_accuracy", SH_METRIC_REAL, .r = run->results.validation.accuracy},
    };
    // Without validation data its two fields, which are the last ones, are left out.
    size_t count = SH_COUNT(fields) - (run->results.validation.samples > 0 ? 0 : 2);
    return sh_metrics_write(run->files.metrics, "eval", fields, count);
}

/* Collective. A dataset that is both validation and test data is evaluated once. */
static sh_status evaluate(shoal_run *run) {
    if (run->data.test == NULL && run->data.validation == NULL) return SH_OK;
    int64_t begin = sh_run_now(run);
    sh_learner *learner = &run->learner;
    sh_team_phase(&run->team, SH_PHASE_EVALUATE, run->at.step);
    if (run->data.validation != NULL)
        SH_TRY(learner->kind->evaluate(learner, run->data.validation, &run->results.validation));
    if (run->data.test == run->data.validation || run->data.test == NULL)
        run->results.test = run->results.validation;
    else
        SH_TRY(learner->kind->evaluate(learner, run->data.test, &run->results.test));
    // Larger is better: minus the loss for tasks that have no accuracy.
    double score =
        isnan(run->results.test.accuracy) ? -run->results.test.loss : run->results.test.accuracy;
    if (isnan(run->results.best) || score > run->results.best) run->results.best = score;
    run->stats.spent.eval_ns += sh_run_now(run) - begin;
    sh_trace_end(run->model.trace, "eval", "evaluation", run->at.step, begin);
    sh_team_phase(&run->team, SH_PHASE_STEP, run->at.step);  // what follows waits as a step does
    return write_eval(run);
}

/* Collective. Its time counts as that of checkpoints and not of training. */
static sh_status save(shoal_run *run) {
    int64_t begin = sh_run_now(run);
    SH_TRY(run->learner.kind->save(&run->learner));
    run->results.saved = true;
    run->stats.spent.checkpoint_ns += sh_run_now(run) - begin;
    sh_trace_end(run->model.trace, "checkpoint", "checkpoint", run->at.step, begin);
    return SH_OK;
}

static shoal_progress progress_of(const shoal_run *run, double loss, double samples_per_s) {
    return (shoal_progress){
        .step = run->at.step,
        .steps = run->length.steps,
        .epoch = epoch_of_step(run),
        .epochs =
            (run->length.steps + run->length.steps_per_epoch - 1) / run->length.steps_per_epoch,
        .samples = run->at.samples_here,
        .train_loss = loss,
        .test_loss = run->results.test.samples > 0 ? run->results.test.loss : NAN,
        .test_accuracy = run->results.test.samples > 0 ? run->results.test.accuracy : NAN,
        .lr = sh_schedule_lr(&run->schedule, run->at.step - 1),
        .samples_per_s = samples_per_s,
    };
}

/* Every rank calls its hook; the host's hooks let only rank 0 through to the user. */
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

static void add_loss(sh_interval *since, const sh_loss_result *loss) {
    since->loss.sum += loss->sum;
    since->loss.counted += loss->counted;
    since->loss.correct += loss->correct;
}

/* The step after which the workers must have met: something is due, or the run ends. */
static int64_t next_meeting(const shoal_run *run) {
    int64_t next = run->length.steps,
            every[] = {run->length.eval_every, run->config.checkpoint_every};
    for (size_t i = 0; i < SH_COUNT(every); i++) {
        int64_t stride = every[i] > 0 ? every[i] : run->length.steps_per_epoch;
        // The next multiple, never the current step: what was due there has been done.
        int64_t due = (run->at.step / stride + 1) * stride;
        if (due < next) next = due;
    }
    return next;
}

/* Between meetings each worker knows its own loss alone; rank 0 tells its. Where they are to meet
 * after `to`, the meeting tells that of all. */
static sh_status tell(shoal_run *run, sh_interval *since, int64_t to, double loss) {
    bool has_news =
        since->loss.counted > 0;  // else it had no samples, or its gradients were broken off
    double samples_per_s = rate(run, since);
    bool epoch_end = epoch_ended(run, since) && run->at.step < to;
    if (epoch_end || (line_is_due(run, since) && run->at.step < to && has_news)) {
        SH_TRY(write_step(run, since));
        *since = interval_from(run, end_of(run, since));
    }
    if (run->at.step > 0) report(run, loss, samples_per_s, epoch_end);
    return SH_OK;
}

/* Collective. Without a merge the learner has one model after every step, and its loss is that
 * of all workers. */
static sh_status merge(shoal_run *run, sh_loop *at) {
    sh_learner *learner = &run->learner;
    sh_interval *since = &at->since;
    sh_learner_merge merged = {.since = since->loss, .loss = at->loss, .used = since->used};
    if (learner->kind->merge == NULL) return SH_OK;
    SH_TRY(learner->kind->merge(learner, &merged));
    since->loss = merged.since;
    since->used = merged.used;
    at->loss = merged.loss;
    return SH_OK;
}

/* Steps up to the next meeting, and the meeting. */
static sh_status advance(shoal_run *run, sh_loop *at) {
    sh_learner *learner = &run->learner;
    sh_interval *since = &at->since;
    int64_t to = next_meeting(run);
    sh_learner_step step = {0};
    while (!step.meets) {
        sh_team_phase(&run->team, SH_PHASE_STEP, run->at.step + 1);
        int64_t begin = sh_run_now(run);
        SH_TRY(learner->kind->step(learner, to, &step));
        // A late loss is of a step that had ended before this call: a line told now ends with the
        // call's begin, and the loss counts in the line after it.
        since->end_ns = step.late ? begin : 0;
        if (!step.late) add_loss(since, &step.loss);
        if (step.loss.counted > 0) at->loss = step.loss.sum / (double)step.loss.counted;
        if (!step.meets) SH_TRY(tell(run, since, to, at->loss));
        if (step.late) add_loss(since, &step.loss);
    }
    SH_TRY(merge(run, at));
    since->end_ns = 0;
    at->epoch_end = epoch_ended(run, since);
    return SH_OK;
}

/* Due every so many steps, or at the end of epochs where that number is 0; and in any case at
 * the end. */
static bool is_due(int64_t step, int64_t every, bool epoch_end, bool last) {
    return last || (every > 0 ? step % every == 0 : epoch_end);
}

/* All ranks have the result of the same evaluation, so they stop together. */
static bool reached_target(const shoal_run *run) {
    return run->config.target > 0 && run->results.test.samples > 0 &&
           run->results.test.accuracy >= run->config.target;
}

/* Collective: all ranks have agreed to stop after this step, and save it together unless that
 * was just done. */
static sh_status interrupted(shoal_run *run, bool saved) {
    if (!saved) SH_TRY(save(run));
    const char *folder = run->files.folder != NULL ? run->files.folder : "the run's folder";
    SH_FAIL(SH_E_INTERRUPTED, "stopped after step %ld of %ld; the checkpoint is in '%s'",
            (long)run->at.step, (long)run->length.steps, folder);
    return sh_error_hint("shoal train --resume %s goes on from there", folder);
}

/* Alone it asks; in a team all have agreed during the step. */
static bool wants_stop(const shoal_run *run) {
    if (run->team.group != NULL) return run->team.stops;
    return run->hooks.stop != NULL && run->hooks.stop(run->hooks.user);
}

/* What is due after a step, or after the workers have met. */
static sh_status pay_dues(shoal_run *run, sh_loop *at, bool *saved_out) {
    bool last = run->at.step == run->length.steps, epoch_end = at->epoch_end;
    double samples_per_s = rate(run, &at->since);
    bool moved = run->at.step > at->since.told;  // else they met again before anybody did a step
    if (moved && (line_is_due(run, &at->since) || epoch_end || last)) {
        // Without losses there is no line: whoever knew them has died.
        if (at->since.loss.counted > 0) SH_TRY(write_step(run, &at->since));
        at->since = interval_from(run, sh_run_now(run));
    }
    int64_t paused_ns = sh_run_now(run);
    if (is_due(run->at.step, run->length.eval_every, epoch_end, last)) SH_TRY(evaluate(run));
    bool done = reached_target(run);
    if (is_due(run->at.step, run->config.checkpoint_every, epoch_end, last || done)) {
        SH_TRY(save(run));
        *saved_out = true;
    }
    at->since.begin_ns += sh_run_now(run) - paused_ns;  // neither counts in the speed
    report(run, at->loss, samples_per_s, epoch_end || last || done);
    return SH_OK;
}

/* Not before everything due was done: after a death the last step may be done and its
 * checkpoint still owed. */
static bool is_over(const shoal_run *run) {
    return run->at.paid == run->at.step &&
           (run->at.step >= run->length.steps || reached_target(run));
}

/* All have met, and somebody joins. */
static sh_status let_join(shoal_run *run) {
    if (!sh_regroup_lets_join(run)) return SH_OK;
    SH_TRY(run->learner.kind->finish(&run->learner));
    return sh_regroup(run);
}

sh_loop sh_loop_begin(const shoal_run *run) {
    return (sh_loop){.since = interval_from(run, sh_run_now(run)), .loss = NAN};
}

sh_status sh_loop_run(shoal_run *run, sh_loop *at) {
    while (!is_over(run)) {
        bool saved = false;
        if (run->at.paid == run->at.step)
            SH_TRY(advance(run, at));
        else
            at->epoch_end =
                run->at.step % run->length.steps_per_epoch == 0;  // a death came in between
        SH_TRY(pay_dues(run, at, &saved));
        run->at.paid = run->at.step;
        if (is_over(run)) break;
        // What is under way ends before the last checkpoint, which is of one model of all workers.
        if (wants_stop(run)) {
            SH_TRY(run->learner.kind->finish(&run->learner));
            SH_TRY(sh_team_report(run));
            report_stop(run, at->loss, rate(run, &at->since));
            return interrupted(run, saved);
        }
        SH_TRY(sh_team_check_replicas(run));
        SH_TRY(let_join(run));
    }
    return run->learner.kind->finish(&run->learner);
}
