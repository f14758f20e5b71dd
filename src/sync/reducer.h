/* The reducer of synchronous data parallelism: gradients are summed over the ranks in buckets while
 * backward still runs (Li et al., "PyTorch Distributed", VLDB 2020).
 *
 * Parameters go into buckets in reverse order, because backward reaches the last layer first. A
 * bucket starts when all its gradients are ready and all buckets before it have started, so every
 * rank starts the same collectives in the same order. When the sum of a bucket has arrived, the
 * listener updates its parameters, while later buckets still travel. */
#ifndef SH_SYNC_REDUCER_H
#define SH_SYNC_REDUCER_H

#include "comm/engine.h"
#include "nn/param.h"

typedef struct sh_reducer sh_reducer;

typedef struct sh_reducer_options {
    sh_engine *engine;
    const sh_param_list *params;
    float *gradients;         // the whole block
    const sh_shared *shared;  // that holds it; NULL: private memory
    size_t bucket_bytes;      // a bucket is closed once it holds so many
    bool overlap;             // false: buckets start when backward has ended, to measure against
    /* The sum over all ranks of parameters [first, first + count) is in place. In bucket order,
     * from ready or finish. */
    void (*arrived)(void *user, size_t first, size_t count);
    void *user;
    const sh_clock *clock;
} sh_reducer_options;

typedef struct sh_reducer_stats {
    int64_t exposed_ns;    // that the worker spent on communication instead of computing
    uint64_t sent_bytes;   // by this rank
    uint64_t dense_bytes;  // that it would have sent without a codec
} sh_reducer_stats;

sh_status sh_reducer_create(const sh_reducer_options *options, sh_reducer **reducer_out);
void sh_reducer_destroy(sh_reducer *reducer);

void sh_reducer_begin(sh_reducer *reducer, int64_t step);
/* The gradient of a parameter is final; fits sh_on_grad_ready. Each parameter once a step. */
void sh_reducer_ready(void *reducer, size_t param);
/* Waits until every bucket has arrived. Fails as the first collective that failed. */
sh_status sh_reducer_finish(sh_reducer *reducer);

size_t sh_reducer_buckets(const sh_reducer *reducer);
/* Sums since the last call. */
sh_reducer_stats sh_reducer_take_stats(sh_reducer *reducer);

#endif
