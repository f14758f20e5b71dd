/* 1F1B (Narayanan et al. 2019): after as many forwards as there are ranks behind it, a rank does
 * one forward and one backward in turn. The makespan is GPipe's, the live activations are not. */
#include "parallel/pipelines/list.h"

/* The last rank alternates from the start; the first has p - 1 forwards ahead. */
static sh_pipe_limits limits(const sh_pipeline *pipeline, int rank) {
    return (sh_pipe_limits){.ahead = pipeline->ranks - 1 - rank};
}

static double makespan(const sh_pipeline *pipeline, const sh_pipe_rank_times *times) {
    return (double)(pipeline->micros + pipeline->ranks - 1) * sh_pipe_sum(times);
}

const sh_pipe_schedule sh_pipe_1f1b = {
    .name = "1f1b",
    .help = "one forward, one backward in turn; at most p micro-batches are live",
    .formula = "(m + p - 1) (F + B + W)",
    .limits = limits,
    .makespan = makespan,
};
