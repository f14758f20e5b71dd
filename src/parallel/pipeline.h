/* Pipeline schedules: which part of which micro-batch a rank computes next, as a pure function.
 * The run, the timeline (pipeline_timeline.h), the costs and `shoal explain pipeline` all read this
 * one object; nothing is listed in full but by explain.
 *
 * A net is cut into ranks x chunks stages. Stage s lies on rank s % ranks and is there chunk
 * s / ranks. A batch is cut into micro-batches, each of which goes forward through all stages and
 * back again. The backward part of a stage has a data part (the gradient of its input, for which
 * the stage before waits) and a weight part (for which nobody waits).
 *
 * Every schedule here does all its forwards in one order and all its backwards in another, and
 * differs from the rest in two numbers per rank: how many forwards it does before the first
 * backward, and how many weight parts it may put off (sh_pipe_limits). What holds for every row,
 * and is tested:
 *  - each stage meets each micro-batch once in every part, micro-batches in ascending order, so
 * that gradients are summed in the order in which one worker would;
 *  - no deadlock for any stage times, where a receive waits for its message, and a send waits while
 *    sh_pipeline_room messages of the same edge were not taken yet;
 *  - never more micro-batches are live than sh_pipeline_live_most says. */
#ifndef SH_PARALLEL_PIPELINE_H
#define SH_PARALLEL_PIPELINE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum sh_pipe_kind {
    SH_PIPE_FORWARD,
    SH_PIPE_BACKWARD,         // data and weight part in one
    SH_PIPE_BACKWARD_DATA,    // the gradient of the stage's input
    SH_PIPE_BACKWARD_WEIGHT,  // the gradient of its parameters
    SH_PIPE_SEND_VALUE,       // what the stage computed, to the rank of the stage behind it
    SH_PIPE_RECEIVE_VALUE,
    SH_PIPE_SEND_GRADIENT,  // of the stage's input, to the rank of the stage before it
    SH_PIPE_RECEIVE_GRADIENT,
    SH_PIPE_UPDATE,  // the optimizer, once, after all else
} sh_pipe_kind;
enum { SH_PIPE_KINDS = 9 };

typedef struct sh_pipe_action {
    sh_pipe_kind kind;
    int micro, chunk;  // not of the update
    int peer;          // of a message: the other rank; -1: none
} sh_pipe_action;

typedef struct sh_pipeline sh_pipeline;

typedef struct sh_pipe_limits {
    int ahead;  // forwards that are done when the next one waits for a backward
    int late;   // weight parts that may wait while forwards are left
} sh_pipe_limits;

/* Seconds of a whole rank for one micro-batch, equal on all ranks. */
typedef struct sh_pipe_rank_times {
    double forward_s, data_s, weight_s;
} sh_pipe_rank_times;

typedef struct sh_pipe_schedule {
    const char *name, *help;
    const char *formula;  // of the makespan, for people: p ranks, m micro-batches, v chunks
    bool chunked;         // takes ":V", the chunks of a rank
    bool splits;          // data and weight parts of backward are apart
    bool needs_rollback;  // pays only if steps overlap, which a run cannot undo: never run
    sh_pipe_limits (*limits)(const sh_pipeline *pipeline, int rank);
    /* The makespan of one step in closed form for equal ranks, messages that take no time and an
     * update that takes none; NAN where the form does not hold. */
    double (*makespan)(const sh_pipeline *pipeline, const sh_pipe_rank_times *times);
} sh_pipe_schedule;

enum {
    SH_PIPE_RANKS_MOST = 4096,
    SH_PIPE_MICROS_MOST = 65536,
    SH_PIPE_CHUNKS_MOST = 64,
    SH_PIPE_TEXT = 32,
};

struct sh_pipeline {
    const sh_pipe_schedule *schedule;
    int ranks, micros, chunks;
};

const sh_pipe_schedule *sh_pipe_schedule_at(size_t index);  // NULL: past the end

/* From "1f1b" or "interleaved:2". Fails with SH_E_USAGE when the text or a count is not valid. */
sh_status sh_pipeline_init(sh_pipeline *pipeline, const char *schedule, int ranks, int micros);
/* The schedule as sh_pipeline_init takes it. */
const char *sh_pipeline_text(const sh_pipeline *pipeline, char text_out[SH_PIPE_TEXT]);

static inline int sh_pipeline_stages(const sh_pipeline *pipeline) {
    return pipeline->ranks * pipeline->chunks;
}
static inline int sh_pipeline_stage(const sh_pipeline *pipeline, int rank, int chunk) {
    return chunk * pipeline->ranks + rank;
}
/* The most forwards of a rank, over all its chunks, that wait for their (data part of) backward. */
int sh_pipeline_live_most(const sh_pipeline *pipeline, int rank);
/* The most weight parts that wait after their data part; 0 where backward is in one. */
int sh_pipeline_late_most(const sh_pipeline *pipeline, int rank);
/* Micro-batches of the first round: interleaved chunks take turns round by round. */
int sh_pipeline_round(const sh_pipeline *pipeline);

/* Messages from one stage to the next, not yet taken, for which there must be room. At least 1 is
 * needed: in 1F1B neighbours send to each other at the same time. */
int sh_pipeline_room(const sh_pipeline *pipeline);

/* Where a rank is in its step; zero at the start. */
typedef struct sh_pipe_cursor {
    int forwards, backwards, weights;  // done
    int phase;                         // of an action that is received, computed, sent
    sh_pipe_action now;
    bool updated;
} sh_pipe_cursor;

/* The rank's next action in a step; false after the update. O(1). */
bool sh_pipeline_next(const sh_pipeline *pipeline, int rank, sh_pipe_cursor *cursor,
                      sh_pipe_action *action_out);

/* "forward", "send value". */
const char *sh_pipe_kind_name(sh_pipe_kind kind);

#endif
