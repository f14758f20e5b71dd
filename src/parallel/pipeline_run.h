/* One worker's part of a pipeline, run: it goes through its row of a schedule (pipeline.h) on
 * executors of the ranges of layers that are its stages (nn/executor.h), and exchanges values and
 * gradients with its neighbours.
 *
 * A micro-batch that is live holds a slot of its chunk: memory and executors of its own.
 * Micro-batch m takes slot m % slots; as live ones follow each other, none is taken twice. What
 * leaves a stage is sent from the executor's own memory, what comes in is received into the slot. A
 * message is waited for before its memory is written again.
 *
 * Each stage sums its gradients over the micro-batches in ascending order, so that they have the
 * bits of one worker that accumulates as many parts, where sh_net_cut_is_exact holds for all cuts;
 * gradients of a parameter that several stages hold (tied weights) are left for the caller to sum.
 * All memory is taken by sh_pipe_worker_prepare. */
#ifndef SH_PARALLEL_PIPELINE_RUN_H
#define SH_PARALLEL_PIPELINE_RUN_H

#include "comm/transport.h"
#include "nn/executor.h"
#include "parallel/pipeline.h"

/* Messages between the ranks of the pipeline, whose numbers `peer` holds (comm/transport.h). */
typedef struct sh_pipe_wire {
    sh_status (*send)(void *self, sh_message *message);
    sh_status (*receive)(void *self, sh_message *message);
    /* Until it is done, or has failed; `what` names it in reports. */
    sh_status (*wait)(void *self, sh_message *message, const char *what);
    void (*cancel)(void *self, sh_message *message);  // after a failure
    void *self;
} sh_pipe_wire;

typedef struct sh_pipe_worker_options {
    sh_pipeline pipeline;  // micro-batches: the most of a step
    int rank;
    const sh_net *net;  // borrowed: the whole, or at least this worker's ranges of it
    const int *cut;     // stages + 1 layers: stage s has layers [cut[s], cut[s + 1]); copied
    const sh_loss *loss;
    sh_tuner *tuner;
    const sh_trace *trace;  // may be NULL
    sh_blocks blocks;
    sh_pipe_wire wire;
} sh_pipe_worker_options;

typedef struct sh_pipe_worker sh_pipe_worker;

/* Borrows net, loss, tuner, trace, blocks. Fails with SH_E_USAGE for schedules that cannot be run
 * and cuts that leave a stage empty. */
sh_status sh_pipe_worker_create(const sh_pipe_worker_options *options, sh_pipe_worker **worker_out);
void sh_pipe_worker_destroy(sh_pipe_worker *worker);

/* A batch cut into micro-batches: number i has samples [begin[i], begin[i + 1]). All workers of the
 * pipeline cut alike. */
typedef struct sh_pipe_parts {
    int count;
    const int64_t *begin;
} sh_pipe_parts;

typedef struct sh_pipe_step {
    sh_step_context context;  // of the batch's first sample; `accumulate` is the worker's own
    sh_pipe_parts parts;
    const void *x, *y;        // of the batch: x on the first stage's rank, y on the last one's
    size_t x_bytes, y_bytes;  // of a sample
    double scale;             // of the loss's gradient
} sh_pipe_step;

/* Executors and memory for such batches, so that a step allocates nothing. */
sh_status sh_pipe_worker_prepare(sh_pipe_worker *worker, const sh_pipe_parts *parts);
/* Leaves this worker's gradients in its block. `result_out`: the loss of the batch on the last
 * stage's rank, zero elsewhere. */
sh_status sh_pipe_worker_step(sh_pipe_worker *worker, const sh_pipe_step *step,
                              sh_loss_result *result_out);

/* Memory of executors, slots and buffers. */
size_t sh_pipe_worker_bytes(const sh_pipe_worker *worker);
/* Per parameter: no op of this worker used it in the last step. */
const bool *sh_pipe_worker_unused(const sh_pipe_worker *worker);

#endif
