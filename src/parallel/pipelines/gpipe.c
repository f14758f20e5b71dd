/* GPipe (Huang et al. 2019): all forwards, then all backwards. Backwards here take the
 * micro-batches in ascending order, as every schedule does: the makespan is that of the descending
 * order, and gradients are summed as one worker sums them. */
#include "parallel/pipelines/list.h"

/* No backward begins before the last forward: all m micro-batches are live. */
static sh_pipe_limits gpipe_limits(const sh_pipeline *pipeline, int rank) {
    (void)rank;
    return (sh_pipe_limits){.ahead = pipeline->micros};
}

static double gpipe_makespan(const sh_pipeline *pipeline, const sh_pipe_rank_times *times) {
    return (double)(pipeline->micros + pipeline->ranks - 1) * sh_pipe_sum(times);
}

const sh_pipe_schedule sh_pipe_gpipe = {
    .name = "gpipe",
    .help = "all forwards, then all backwards; every micro-batch is live at once",
    .formula = "(m + p - 1) (F + B + W)",
    .limits = gpipe_limits,
    .makespan = gpipe_makespan,
};
