/* Naive: a micro-batch goes through all stages and back before the next one starts. One rank works
 * at a time. */
#include "parallel/pipelines/list.h"

/* No forward ahead: a backward follows each forward. */
static sh_pipe_limits naive_limits(const sh_pipeline *pipeline, int rank) {
    (void)pipeline, (void)rank;
    return (sh_pipe_limits){.ahead = 0};
}

static double naive_makespan(const sh_pipeline *pipeline, const sh_pipe_rank_times *times) {
    return (double)pipeline->micros * pipeline->ranks * sh_pipe_sum(times);
}

const sh_pipe_schedule sh_pipe_naive = {
    .name = "naive",
    .help = "one micro-batch at a time through all stages and back: one rank works, the rest wait",
    .formula = "m p (F + B + W)",
    .limits = naive_limits,
    .makespan = naive_makespan,
};
