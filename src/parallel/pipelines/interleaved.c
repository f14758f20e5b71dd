/* Interleaved 1F1B (Narayanan et al. 2021): a rank holds v chunks of the net, so that a micro-batch
 * passes all ranks v times and the pipeline fills v times as fast, for v times the messages.
 * Micro-batches go in rounds of about p (sh_pipeline_round), which makes any number of them work.
 */
#include <math.h>

#include "parallel/pipelines/list.h"

/* Other chunks' rounds run ahead, and two forwards for each rank behind. */
static sh_pipe_limits interleaved_limits(const sh_pipeline *pipeline, int rank) {
    int behind = pipeline->ranks - 1 - rank;
    return (sh_pipe_limits){.ahead =
                                (pipeline->chunks - 1) * sh_pipeline_round(pipeline) + 2 * behind};
}

/* Filling and draining take 1/v of 1F1B's time, as the first chunk is 1/v of a rank's work. */
static double interleaved_makespan(const sh_pipeline *pipeline, const sh_pipe_rank_times *times) {
    if (pipeline->micros < pipeline->ranks) return NAN;  // formula holds for full rounds only
    return (pipeline->micros + (pipeline->ranks - 1.0) / pipeline->chunks) * sh_pipe_sum(times);
}

const sh_pipe_schedule sh_pipe_interleaved = {
    .name = "interleaved",
    .help = "1f1b with V chunks of the net on each rank: idle time / V, messages x V",
    .formula = "m (F + B + W) + (p - 1) (F + B + W) / v   for m >= p",
    .chunked = true,
    .limits = interleaved_limits,
    .makespan = interleaved_makespan,
};
