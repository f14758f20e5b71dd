/* Between the files of exact runs: exact.c holds the parts together, exact_lane.c computes shards,
 * exact_sum.c adds them up, exact_update.c takes the optimizer's step. */
#ifndef SH_RUN_EXACT_INTERNAL_H
#define SH_RUN_EXACT_INTERNAL_H

#include "base/thread_pool.h"
#include "run/exact.h"

/* What one thread computes in. */
typedef struct sh_lane {
    sh_executor **executors;  // one per batch size it has met
    size_t executor_count, executor_capacity;
    sh_arena work;   // activations of the executor that runs
    sh_arena batch;  // x and y: samples are copied here, so that they always lie alike
    int *exponents;  // per parameter, of the shard at hand
    bool *used;      // per parameter, likewise
    int64_t *notes;  // what exact->notes says of tensors, over the shards of this lane
} sh_lane;

/* One shard of the global batch, and what computing it gave; written by the one thread that
 * computes it. */
typedef struct sh_shard {
    float *gradients, *states;  // blocks of its own
    int64_t at, count;          // samples of the global batch
    sh_loss_result loss;
    int64_t bad_at, bad_count;  // the part whose loss is not finite; bad_count 0: none
} sh_shard;

/* Ranges of parameters, so that threads have equal work. */
typedef struct sh_cuts {
    sh_param_list list;
    size_t *param;  // which one a range belongs to
    size_t *begin;  // per parameter, and once more: its first range
} sh_cuts;

/* What the sums of one step need to know. */
typedef struct sh_exact_summing {
    double per_row;     // 1 / rows counted
    double per_sample;  // 1 / samples of the global batch
    int largest_bits;   // of the samples of a shard
} sh_exact_summing;

/* A run's exact side, made on first use and destroyed with the run. The main task drives it;
 * pieces of the thread pool write their own shard or range alone. */
struct sh_exact {
    shoal_run *run;
    int shards, first, last;  // of a global batch; this worker has [first, last)
    sh_tuner *tuner;          // one thread, and never measures
    sh_thread_pool *pool;
    sh_lane *lanes;  // one per member
    int64_t batch_most;
    sh_sample_sizes sizes;

    // For training:
    sh_shard *own;
    sh_arena blocks;          // of the own shards
    const float **gradients;  // of the own shards that hold samples, and their states
    const float **states;
    double *weights;  // samples of those
    size_t terms;
    bool *unused;  // per parameter: by no shard
    /* Per parameter and per state: the exponent of the largest element over all shards, -1 where
     * no shard used the parameter. Then per shard: loss sum (the bits of the double), rows counted,
     * rows correct; NOT_MINE where another worker has the shard. Last: whether someone was asked to
     * stop. One maximum over the workers makes all of it common. */
    int64_t *notes;
    sh_cuts sums, updates;

    // For training with other workers:
    sh_shared shared;
    int64_t *common;          // in it: sums of the own shards, then of all; parameters, then states
    sh_fixed_gradient fixed;  // the same, as whoever sums it takes it
    sh_exact_summing summing;
    const sh_replica_hooks *hooks;  // of the scheme, that combines numbers of all workers
    bool stops;                     // a worker was asked to
};

#define SH_NOTE_NOT_MINE INT64_MIN

static inline size_t sh_exact_tensors(const sh_exact *exact) {
    return exact->run->model.net->params.count + exact->run->model.net->states.count;
}

static inline size_t sh_exact_notes(const sh_exact *exact) {
    return sh_exact_note_count(exact->run->model.net, exact->shards);
}

/* Where the notes of a shard stand. */
static inline int64_t *sh_exact_note(const sh_exact *exact, int shard) {
    return exact->notes + sh_exact_tensors(exact) + 3 * (size_t)shard;
}

/* Makes the executors of a batch size in all lanes, if they are not there. */
sh_status sh_exact_executor(sh_exact *exact, int64_t batch, bool training);
void sh_lane_fini(sh_lane *lane);

/* A global batch and this worker's samples of it. */
typedef struct sh_exact_batch {
    const void *x, *y;  // from sample `at` on
    int64_t at;
    int64_t count;      // of the whole batch
    uint64_t position;  // of the whole batch's first sample in the epoch
} sh_exact_batch;

/* Forward, loss and backward of all own shards. */
void sh_exact_compute(sh_exact *exact, const sh_exact_batch *batch);
/* Runs the part of a shard whose loss is not finite again and says where it began. */
sh_status sh_exact_explain(sh_exact *exact, const sh_exact_batch *batch, const sh_shard *shard);
/* Forward and loss of a batch of test data; in any lane. */
sh_loss_result sh_lane_evaluate(sh_exact *exact, int index, const sh_batch *batch);

/* Common notes, checked; the result of the step and the new running statistics. The gradient is
 * exact->fixed, for whoever sums it. True in `*over_out`: the workers meet instead, and there is
 * nothing. */
sh_status sh_exact_sum(sh_exact *exact, const sh_exact_batch *batch, sh_loss_result *result_out,
                       bool *over_out);
sh_fixed_gradient sh_exact_describe(sh_exact *exact);

/* Cuts parameters into ranges; those with a trust ratio stay whole if asked for. */
sh_status sh_cuts_init(sh_cuts *cuts, const sh_param_list *params, bool whole);
void sh_cuts_fini(sh_cuts *cuts);

#endif
