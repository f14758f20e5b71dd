#include "run/totals.h"

#include <math.h>

#include "run/scheme.h"

sh_status sh_totals_count(shoal_run *run, sh_totals *totals_out) {
    sh_scheme_counts counts = sh_scheme_count(run);
    // Doubles add up such counts exactly as long as they stay below 2^53.
    double sums[] = {(double)run->stats.sent_bytes, (double)run->stats.dense_bytes,
                     (double)counts.updates,        counts.shard_updates,
                     (double)counts.stale_updates,  (double)counts.stale_sum,
                     (double)counts.alone};
    double most = (double)counts.stale_most;
    SH_TRY(sh_team_sum(&run->team, sums, SH_COUNT(sums)));
    SH_TRY(sh_team_max(&run->team, &most, 1));
    sh_totals totals = {.sent_bytes = sums[0],
                        .dense_bytes = sums[1],
                        .updates = sums[2],
                        .staleness_mean = NAN,
                        .staleness_most = NAN};
    // Where servers update the model their updates count, and not those of the workers' replicas.
    if (sums[3] > 0) totals.updates = sums[3];
    if (sums[4] > 0) {
        totals.staleness_mean = sums[5] / sums[4];
        totals.staleness_most = most;
        if (totals.updates == 0) totals.updates = sums[4];  // of one shared model
    }
    totals.updates += sums[6];
    *totals_out = totals;
    return SH_OK;
}

sh_status sh_totals_tell_staleness(const shoal_run *run) {
    const sh_scheme_counts counts = sh_scheme_count(run);
    // The leading server's histogram, as far as it sat on this worker.
    const sh_staleness *staleness = &counts.histogram;
    if (staleness->updates == 0) return SH_OK;
    double mean = (double)staleness->sum / (double)staleness->updates;
    size_t count = SH_COUNT(staleness->count);
    while (count > 1 && staleness->count[count - 1] == 0) count--;
    const sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = run->at.step},
        {"gradients", SH_METRIC_INT, .i = (int64_t)staleness->updates},
        {"dropped", SH_METRIC_INT, .i = (int64_t)counts.dropped},
        {"mean", SH_METRIC_REAL, .r = mean},
        {"most", SH_METRIC_INT, .i = (int64_t)staleness->most},
        {"counts", SH_METRIC_COUNTS, .counts = staleness->count, .count = count},
    };
    SH_INFO(&run->log, "staleness: %.2f on average, %lu at most, of %lu gradients; %lu dropped",
            mean, (unsigned long)staleness->most, (unsigned long)staleness->updates,
            (unsigned long)counts.dropped);
    return sh_metrics_write(run->files.metrics, "staleness", fields, SH_COUNT(fields));
}
