/* What a run that ends, or stops, says of its workers: where the time of each went and who the
 * others waited for, what was sent, who left. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"
#include "run/run.h"

/* Seconds of one worker. Doubles alone, as a sum over the ranks gathers them. */
typedef struct worker_time {
    double data_s, compute_s, update_s, exposed_s;
} worker_time;

/* A worker waits at most as long as it communicates, and no longer than the slowest one computes
 * more than it does itself. */
static double waiting(const worker_time *mine, double slowest_s) {
    double behind = slowest_s - (mine->data_s + mine->compute_s);
    if (behind < 0) behind = 0;
    return behind < mine->exposed_s ? behind : mine->exposed_s;
}

/* In the metrics, as in the log, exposed communication and waiting for the slowest do not
 * overlap. */
static sh_status write_worker(const shoal_run *run, int rank, const worker_time *time,
                              double wait_s) {
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->at.step},
        {"worker", SH_METRIC_INT, .i = rank},
        {"data_s", SH_METRIC_REAL, .r = time->data_s},
        {"compute_s", SH_METRIC_REAL, .r = time->compute_s},
        {"update_s", SH_METRIC_REAL, .r = time->update_s},
        {"exposed_s", SH_METRIC_REAL, .r = time->exposed_s - wait_s},
        {"waiting_s", SH_METRIC_REAL, .r = wait_s},
    };
    return sh_metrics_write(run->files.metrics, "worker", fields, SH_COUNT(fields));
}

/* On rank 0. A straggler is named beyond a fifth and half a second: less is noise. */
static sh_status tell_times(const shoal_run *run, const worker_time *times, int ranks) {
    int slowest = 0;
    double sum = 0;
    for (int r = 0; r < ranks; r++) {
        double own = times[r].data_s + times[r].compute_s;
        sum += own;
        if (own > times[slowest].data_s + times[slowest].compute_s) slowest = r;
    }
    double most = times[slowest].data_s + times[slowest].compute_s;
    for (int r = 0; r < ranks; r++) {
        double wait = waiting(&times[r], most);
        SH_INFO(&run->log,
                "worker %d: data %.1f s, compute %.1f s, update %.1f s, exposed communication %.1f "
                "s, waiting for the slowest %.1f s",
                r, times[r].data_s, times[r].compute_s, times[r].update_s,
                times[r].exposed_s - wait, wait);
        SH_TRY(write_worker(run, r, &times[r], wait));
    }
    double mean = (sum - most) / (ranks > 1 ? ranks - 1 : 1);
    if (ranks > 1 && most > 1.2 * mean && most - mean > 0.5)
        SH_WARN(&run->log, "worker %d is a straggler: it computes %.2f times as long as the others",
                slowest, most / (mean > 0 ? mean : 1));
    return SH_OK;
}

/* Collective. Each rank fills its own entry among zeros, so that a sum gathers all of them. */
static sh_status report_time(shoal_run *run) {
    sh_team *team = &run->team;
    if (team->group == NULL) return SH_OK;
    size_t bytes = (size_t)team->ranks * sizeof(worker_time);
    worker_time *times = sh_alloc((size_t)team->ranks, sizeof *times);
    if (times == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a report");
    const sh_time_spent *s = &run->stats.spent;
    times[team->rank] = (worker_time){.data_s = (double)s->data_ns * 1e-9,
                                      .compute_s = (double)s->compute_ns * 1e-9,
                                      .update_s = (double)s->update_ns * 1e-9,
                                      .exposed_s = (double)s->exposed_ns * 1e-9};
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = times,
                    .count = bytes / sizeof(double),
                    .dtype = SH_DTYPE_F64,
                    .op = SH_SUM,
                    .bucket = -1};
    sh_status status = sh_group_run(team->group, &call);
    if (status == SH_OK && sh_team_leads(team)) status = tell_times(run, times, team->ranks);
    sh_free(times);
    return status;
}

/* Silent for a team that stayed as it was. */
static void report_regroups(const shoal_run *run) {
    if (run->team.generation == 0) return;
    SH_INFO(&run->log, "workers left or joined %d time%s; %ld updates were lost with servers",
            run->team.generation, run->team.generation == 1 ? "" : "s", (long)run->team.lost);
}

/* Bytes of worker 0 for the whole run, as an average over the steps of this process. */
static void report_bytes(const shoal_run *run) {
    if (run->stats.sent_bytes == 0 || run->at.step == 0) return;
    int64_t steps = run->at.step > run->at.first_step ? run->at.step - run->at.first_step : 1;
    char less[64] = "";
    double times = (double)run->stats.dense_bytes / (double)run->stats.sent_bytes;
    sh_codec codec;
    if (sh_codec_make(&run->config.codec, &codec) == SH_OK && codec.kind != NULL)
        sh_snprintf(less, sizeof less, "; %.1f times %s than uncompressed",
                    times < 1 ? 1 / times : times, times < 1 ? "more" : "less");
    SH_INFO(&run->log, "sent by worker 0: %.2f MiB, %.1f KiB a step%s",
            (double)run->stats.sent_bytes / 0x1p20,
            (double)run->stats.sent_bytes / 0x1p10 / (double)steps, less);
}

sh_status sh_team_report(shoal_run *run) {
    SH_TRY(report_time(run));
    if (!sh_team_leads(&run->team)) return SH_OK;
    report_bytes(run);
    report_regroups(run);
    return SH_OK;
}
