/* What comes of a closed round in a simulation: control variates settle, the new model is
 * evaluated, metrics are written. */
#include <math.h>
#include <string.h>

#include "fed/simulate_internal.h"
#include "base/memory.h"

/* Seconds that the simulation has taken here, not its virtual time. */
static double seconds(const shoal_run *run) {
    return (double)(sh_run_now(run) - run->stats.start_ns) * 1e-9;
}

/* Clients whose update was counted take the change of their control variates over; the others
 * forget it. */
static void settle_controls(sh_fed_simulation *s, const sh_fed_report *report) {
    size_t params = s->run->model.net->params.total;
    for (size_t c = 0; c < s->settings.clients; c++) {
        if (s->changes[c] == NULL) continue;
        bool counted = sh_fed_server_counted(s->server, c) == report->round;
        for (size_t i = 0; counted && i < params; i++) s->controls[c][i] += s->changes[c][i];
        sh_free(s->changes[c]);
        s->changes[c] = NULL;
    }
}

/* train_s leaves evaluation out, so that rules are compared by what training costs. */
static sh_status write_round(sh_fed_simulation *s, const sh_fed_report *report) {
    shoal_run *run = s->run;
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = (int64_t)report->round},
        {"epoch", SH_METRIC_INT, .i = (int64_t)report->round},
        {"train_loss", SH_METRIC_REAL, .r = report->loss},
        {"lr", SH_METRIC_REAL, .r = sh_schedule_lr(&run->schedule, (int64_t)report->round - 1)},
        {"seconds", SH_METRIC_REAL, .r = seconds(run)},
        {"train_s", SH_METRIC_REAL, .r = seconds(run) - (double)run->stats.spent.eval_ns * 1e-9},
        {"clients", SH_METRIC_INT, .i = (int64_t)report->counted},
        {"selected", SH_METRIC_INT, .i = (int64_t)report->selected},
        {"samples", SH_METRIC_INT, .i = (int64_t)report->samples},
        {"sent_bytes", SH_METRIC_INT, .i = s->result.sent_bytes},
        {"epsilon", SH_METRIC_REAL, .r = report->epsilon > 0 ? report->epsilon : NAN},
        {"client_accuracy", SH_METRIC_REAL, .r = report->accuracy},
        {"client_accuracy_least", SH_METRIC_REAL, .r = report->accuracy_least},
        {"client_accuracy_most", SH_METRIC_REAL, .r = report->accuracy_most},
    };
    size_t count = SH_COUNT(fields) - (isnan(report->accuracy) ? 3 : 0);  // the last three fields
    return sh_metrics_write(run->files.metrics, "step", fields, count);
}

/* Ends the simulation once the accuracy reaches --target. */
static sh_status evaluate(sh_fed_simulation *s, const sh_fed_report *report) {
    shoal_run *run = s->run;
    int64_t begin = sh_run_now(run);
    if (run->data.test == NULL) return SH_OK;  // without test data there is no accuracy
    sh_fed_local_set(run, sh_fed_server_model(s->server));
    SH_TRY(sh_run_evaluate(run, run->data.test, &run->results.test));
    run->stats.spent.eval_ns += sh_run_now(run) - begin;
    const shoal_result *test = &run->results.test;
    s->result.test_loss = test->loss;
    s->result.test_accuracy = test->accuracy;
    if (isnan(run->results.best) || test->accuracy > run->results.best)
        run->results.best = test->accuracy;
    if (run->config.target > 0 && test->accuracy >= run->config.target) {
        s->reached = true;
        s->result.target_round = (int64_t)report->round;
    }
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = (int64_t)report->round},
        {"epoch", SH_METRIC_INT, .i = (int64_t)report->round},
        {"seconds", SH_METRIC_REAL, .r = seconds(run)},
        {"test_loss", SH_METRIC_REAL, .r = test->loss},
        {"test_accuracy", SH_METRIC_REAL, .r = test->accuracy},
    };
    return sh_metrics_write(run->files.metrics, "eval", fields, SH_COUNT(fields));
}

/* Progress of the run: a round is a step; rates leave evaluation out. */
static void tell(sh_fed_simulation *s, const sh_fed_report *report) {
    const shoal_run *run = s->run;
    double training_s = seconds(run) - (double)run->stats.spent.eval_ns * 1e-9;
    shoal_progress progress = {
        .step = (int64_t)report->round,
        .steps = run->length.steps,
        .epoch = 1,
        .epochs = 1,
        .samples = run->at.samples_here,
        .train_loss = report->loss,
        .test_loss = s->result.test_loss,
        .test_accuracy = s->result.test_accuracy,
        .lr = sh_schedule_lr(&run->schedule, (int64_t)report->round - 1),
        .samples_per_s = training_s > 0 ? (double)run->at.samples_here / training_s : 0,
    };
    if (run->hooks.progress != NULL) run->hooks.progress(run->hooks.user, &progress);
}

/* sh_fed_commit of simulations: called by the state machine when a round closes. */
sh_status sh_fed_simulate_report(void *self, const sh_fed_server *server,
                                 const sh_fed_report *report) {
    sh_fed_simulation *s = self;
    shoal_run *run = s->run;
    (void)server;
    settle_controls(s, report);
    s->result.rounds++;
    s->result.updates += (int64_t)report->counted;
    s->result.epsilon = report->epsilon;
    run->at.step = (int64_t)report->round;
    run->at.samples += (int64_t)report->samples;
    SH_TRY(write_round(s, report));
    bool last = run->at.step == run->length.steps;
    if (run->at.step % run->length.eval_every == 0 || last) SH_TRY(evaluate(s, report));
    tell(s, report);
    int64_t every = run->config.checkpoint_every;
    // The last round is saved at the end.
    if (every <= 0 || run->at.step % every != 0 || last) return SH_OK;
    sh_fed_local_set(run, sh_fed_server_model(s->server));
    return sh_run_save(run);
}

/* Saves the last model, whose file is that of any run. */
sh_status sh_fed_simulate_end(sh_fed_simulation *s) {
    shoal_run *run = s->run;
    if (s->settings.personalise != SH_FED_SHARED_ONLY) SH_TRY(sh_fed_simulate_personal(s));
    s->result.restarted = (int64_t)sh_fed_server_view(s->server, s->now_ms).restarted;
    sh_fed_local_set(run, sh_fed_server_model(s->server));
    SH_TRY(sh_run_save(run));
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->at.step},
        {"seconds", SH_METRIC_REAL, .r = seconds(run)},
        {"samples", SH_METRIC_INT, .i = run->at.samples},
        {"updates", SH_METRIC_INT, .i = s->result.updates},
        {"restarted", SH_METRIC_INT, .i = s->result.restarted},
        {"all_sent_bytes", SH_METRIC_INT, .i = s->result.sent_bytes},
        {"best", SH_METRIC_REAL, .r = run->results.best},
    };
    return sh_metrics_write(run->files.metrics, "end", fields, SH_COUNT(fields));
}
