/* What the main task of a federated server does about closed rounds: metrics, evaluation, progress.
 * The model is copied under the lock and evaluated outside it, so that clients do not wait. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/memory.h"
#include "fed/serve_internal.h"

int64_t sh_fed_now_ms(void) { return sh_clock_now_ns(&sh_clock_real) / 1000000; }
int64_t sh_fed_unix_s(void) { return (int64_t)time(NULL); }

/* Seconds since the server process began, not since the first round of a resumed training. */
static double seconds(const shoal_run *run) {
    return (double)(sh_run_now(run) - run->stats.start_ns) * 1e-9;
}

/* Accuracies of clients come last, and are left out where no client holds data out. */
static sh_status write_round(const sh_fed_serving *s, const sh_fed_report *report) {
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = (int64_t)report->round},
        {"epoch", SH_METRIC_INT, .i = (int64_t)report->round},
        {"train_loss", SH_METRIC_REAL, .r = report->loss},
        {"seconds", SH_METRIC_REAL, .r = seconds(s->run)},
        {"round_s", SH_METRIC_REAL, .r = (report->closed_ms - report->opened_ms) * 1e-3},
        {"clients", SH_METRIC_INT, .i = (int64_t)report->counted},
        {"selected", SH_METRIC_INT, .i = (int64_t)report->selected},
        {"late", SH_METRIC_INT, .i = (int64_t)report->late},
        {"samples", SH_METRIC_INT, .i = (int64_t)report->samples},
        // Not recorded without a privacy budget.
        {"epsilon", SH_METRIC_REAL, .r = report->epsilon > 0 ? report->epsilon : NAN},
        {"client_accuracy", SH_METRIC_REAL, .r = report->accuracy},
        {"client_accuracy_least", SH_METRIC_REAL, .r = report->accuracy_least},
        {"client_accuracy_most", SH_METRIC_REAL, .r = report->accuracy_most},
    };
    size_t count = SH_COUNT(fields) - (isnan(report->accuracy) ? 3 : 0);  // the last three fields
    return sh_metrics_write(s->run->files.metrics, "step", fields, count);
}

/* On the server's own test data, if it has any. */
static sh_status evaluate(sh_fed_serving *s, const float *model, int64_t round) {
    shoal_run *run = s->run;
    sh_fed_local_set(run, model);
    if (run->data.test == NULL) return SH_OK;  // no test data: the model is set all the same
    SH_TRY(sh_run_evaluate(run, run->data.test, &run->results.test));
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = round},
        {"epoch", SH_METRIC_INT, .i = round},
        {"seconds", SH_METRIC_REAL, .r = seconds(run)},
        {"test_loss", SH_METRIC_REAL, .r = run->results.test.loss},
        {"test_accuracy", SH_METRIC_REAL, .r = run->results.test.accuracy},
    };
    return sh_metrics_write(run->files.metrics, "eval", fields, SH_COUNT(fields));
}

/* Progress of the run: a round is a step. */
static void tell(const sh_fed_serving *s, const sh_fed_report *report) {
    const shoal_run *run = s->run;
    bool tested = run->results.test.samples > 0;
    shoal_progress progress = {
        .step = (int64_t)report->round,
        .steps = s->settings.server.rounds,
        .epoch = 1,
        .epochs = 1,
        .samples = run->at.samples,
        .train_loss = report->loss,
        .test_loss = tested ? run->results.test.loss : NAN,
        .test_accuracy = tested ? run->results.test.accuracy : NAN,
        .samples_per_s = (double)run->at.samples / fmax(seconds(run), 1e-9),
    };
    if (run->hooks.progress != NULL) run->hooks.progress(run->hooks.user, &progress);
}

/* The model of the newest round; rounds that closed while the one before was evaluated have none of
 * their own left. */
sh_status sh_fed_serve_report(sh_fed_serving *s) {
    sh_fed_report reports[SH_FED_REPORTS];
    size_t values = s->count;
    float *model = sh_alloc(values, sizeof *model);
    if (model == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a model");
    pthread_mutex_lock(&s->lock);
    size_t count = s->report_count;
    memcpy(reports, s->reports, count * sizeof *reports);
    s->report_count = 0;
    // The next round may close during the evaluation.
    memcpy(model, sh_fed_server_model(s->server), values * sizeof *model);
    pthread_mutex_unlock(&s->lock);
    sh_status status = SH_OK;
    for (size_t i = 0; i < count && status == SH_OK; i++) {
        s->run->at.step = (int64_t)reports[i].round;
        s->run->at.samples += (int64_t)reports[i].samples;
        status = write_round(s, &reports[i]);
        // Only the newest round has its model still.
        if (status == SH_OK && i + 1 == count) status = evaluate(s, model, s->run->at.step);
        tell(s, &reports[i]);
    }
    sh_free(model);
    return status;
}
