/* ZB-H2 (Qi et al. 2023): about twice as many forwards ahead, so that no rank waits once it has
 * started, also not between steps. One step alone takes as long as in ZB-H1; what falls is the
 * period of many steps, and only if a step starts before the one before it has ended everywhere.
 * Then a gradient norm or a NaN found late has to be undone, so runs do not offer it. */
#include <math.h>

#include "parallel/pipelines/list.h"

static sh_pipe_limits h2_limits(const sh_pipeline *pipeline, int rank) {
    return (sh_pipe_limits){.ahead = 2 * (pipeline->ranks - 1 - rank), .late = 2 * rank};
}

static double h2_makespan(const sh_pipeline *pipeline, const sh_pipe_rank_times *times) {
    // Derived for equal parts and enough micro-batches to fill the pipeline.
    int p = pipeline->ranks, m = pipeline->micros;
    bool equal = times->forward_s == times->data_s && times->data_s == times->weight_s;
    if (!equal || m < 2 * p - 1) return NAN;
    return (3.0 * m + p - 1) * times->forward_s;
}

const sh_pipe_schedule sh_pipe_zb_h2 = {
    .name = "zb-h2",
    .help = "zb-h1 with about twice the live activations and no idle time between steps; not run",
    .formula = "(3 m + p - 1) F   for F = B = W, m >= 2 p - 1",
    .splits = true,
    .needs_rollback = true,
    .limits = h2_limits,
    .makespan = h2_makespan,
};
