/* ZB-H1 (Qi et al. 2023): 1F1B whose weight parts wait, as many as there are ranks before this one,
 * and fill what would be idle time at the end. */
#include <math.h>

#include "parallel/pipelines/list.h"

/* Late weight parts: one for each rank before, as that many would idle at the end. */
static sh_pipe_limits h1_limits(const sh_pipeline *pipeline, int rank) {
    return (sh_pipe_limits){.ahead = pipeline->ranks - 1 - rank, .late = rank};
}

static double h1_makespan(const sh_pipeline *pipeline, const sh_pipe_rank_times *times) {
    int p = pipeline->ranks, m = pipeline->micros;
    // Outside the formula's conditions.
    if (m < p || times->weight_s > times->forward_s || times->weight_s > times->data_s) return NAN;
    return m * sh_pipe_sum(times) + (p - 1) * (times->forward_s + times->data_s - times->weight_s);
}

const sh_pipe_schedule sh_pipe_zb_h1 = {
    .name = "zb-h1",
    .help = "1f1b with weight parts apart, which fill idle time at the end",
    .formula = "m (F + B + W) + (p - 1) (F + B - W)   for m >= p, W <= F, W <= B",
    .splits = true,
    .limits = h1_limits,
    .makespan = h1_makespan,
};
