/* The pipeline schedules: one file and one row each. */
#ifndef SH_PARALLEL_PIPELINES_LIST_H
#define SH_PARALLEL_PIPELINES_LIST_H

#include "parallel/pipeline.h"

/* From the simplest to the one with the least idle time; explain shows them in this order. */
#define SH_PIPE_SCHEDULE_LIST(X) \
    X(naive)                     \
    X(gpipe)                     \
    X(1f1b)                      \
    X(interleaved)               \
    X(zb_h1)                     \
    X(zb_h2)

#define X(name) extern const sh_pipe_schedule sh_pipe_##name;
SH_PIPE_SCHEDULE_LIST(X)
#undef X

/* Seconds of all three parts. */
static inline double sh_pipe_sum(const sh_pipe_rank_times *times) {
    return times->forward_s + times->data_s + times->weight_s;
}

#endif
