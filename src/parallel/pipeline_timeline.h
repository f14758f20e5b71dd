/* When everything of a pipeline schedule happens, for given times of the stages and links: each
 * rank goes through its actions in order and waits where a message has not come. The result is
 * exact under these rules, so it is also the proof that a schedule does not deadlock. */
#ifndef SH_PARALLEL_PIPELINE_TIMELINE_H
#define SH_PARALLEL_PIPELINE_TIMELINE_H

#include "parallel/pipeline.h"

/* One stage and one micro-batch. */
typedef struct sh_pipe_stage {
    double forward_s, data_s, weight_s;
    double value_bytes;  // of its output, which it sends on; its gradient comes back as large
} sh_pipe_stage;

typedef struct sh_pipe_setting {
    const sh_pipeline *pipeline;
    const sh_pipe_stage *stages;  // one per stage
    double update_s;              // of a rank
    double alpha_s, beta_s;       // per message, per byte; ranks compute meanwhile
    int buffered;  // messages between two stages, in one direction, before a send waits; 0: any
    int steps;     // at least 1
    bool barrier;  // between steps: all ranks start the next one together
} sh_pipe_setting;

typedef struct sh_pipe_event {
    int rank, step;
    sh_pipe_action action;
    double start_s, end_s;  // of a message: while its sender or receiver waits for it
} sh_pipe_event;

typedef void (*sh_pipe_on_event)(void *self, const sh_pipe_event *event);

typedef struct sh_pipe_rank_result {
    double busy_s, end_s;
    int live_most, late_most;  // as in sh_pipeline_live_most, but counted
    int messages;              // sent
    double sent_bytes;
} sh_pipe_rank_result;

enum { SH_PIPE_CELLS_MOST = 1 << 22 };  // stages x micro-batches x steps of a timeline

/* Fills `ranks_out` (one per rank, zeroed first). `on_event` may be NULL; events of one rank come
 * in order of time, those of different ranks in any. Fails with SH_E_USAGE above
 * SH_PIPE_CELLS_MOST, and with SH_E_PEER, naming who waits for what, on a deadlock. */
sh_status sh_pipe_timeline(const sh_pipe_setting *setting, sh_pipe_on_event on_event, void *self,
                           sh_pipe_rank_result *ranks_out, double *makespan_out);

/* Seconds that one step of many takes, without a barrier between them. */
sh_status sh_pipe_period(const sh_pipe_setting *setting, double *period_out);

#endif
