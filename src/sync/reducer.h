/* The reducer of synchronous data parallelism: gradients are summed over the ranks in buckets while
 * backward still runs (Li et al., "PyTorch Distributed", VLDB 2020).
 *
 * Parameters go into buckets in reverse order, because backward reaches the last layer first. A
 * bucket starts when all its gradients are ready and all buckets before it have started, so every
 * rank starts the same collectives in the same order. When the sum of a bucket has arrived, the
 * listener updates its parameters, while later buckets still travel.
 *
 * With a sharded optimizer (Rajbhandari et al., "ZeRO", SC 2020) a rank gets the sum of its part of
 * each bucket only, updates that part, and the parts of the weights are gathered: the two phases of
 * an all-reduce with the update in between, and each rank keeps the optimizer's state of its parts.
 *
 * Where ranks map each other's memory, also the weights and one optimizer state for all, sum and
 * update are one pass (`fuses_update`, sh_fused_work): when backward has ended, whoever waits for
 * the others takes parts of the buckets, updates them while their sums are in the cache, and writes
 * the new weights to all.
 *
 * How the numbers of a bucket travel is a row of a table in reducer.c: floats as they are, through
 * a codec (codec/exchange.h), or as the integers of an exact run. Buckets are cut, started and
 * received in the same place for all of them. */
#ifndef SH_SYNC_REDUCER_H
#define SH_SYNC_REDUCER_H

#include "codec/exchange.h"
#include "nn/param.h"

typedef struct sh_reducer sh_reducer;

typedef struct sh_bucket {
    size_t first, count;  // parameters
    size_t low, high;     // elements of the block that this rank updates: all, or its shard
} sh_bucket;

/* The gradient of a worker of an exact run (tensor/kernels/fixed.h): integers that add up to that
 * of all workers in any order. */
typedef struct sh_fixed_gradient {
    int64_t *sums;            // (params->total); NULL: one worker, that needs none
    const sh_shared *shared;  // that holds them; NULL: private memory
    const int64_t *notes;  // per parameter: the largest exponent of all workers; -1: nobody used it
    int64_t counted;       // rows of all workers, which the mean is over
    /* Of `count` parameters from `first` on: this worker's own numbers become integers in `sums`.
     */
    void (*sum)(void *self, size_t first, size_t count);
    /* And what is in `sums` becomes the mean, in the gradient block. */
    void (*mean)(void *self, size_t first, size_t count);
    void *self;
} sh_fixed_gradient;

typedef struct sh_reducer_options {
    sh_group *group;  // whose ranks hold copies of the parameters
    const sh_param_list *params;
    float *gradients;         // the whole block; NULL: timing only, messages have sizes alone
    const sh_shared *shared;  // that holds it; NULL: private memory
    const sh_fixed_gradient *fixed;  // what is summed instead, of an exact run; NULL: it is none
    const sh_codec *codec;           // kind NULL: gradients travel as they are
    uint64_t seed;                   // of the codec's draws
    size_t bucket_bytes;             // a bucket is closed once it holds so many
    bool shards;     // the optimizer is sharded: `weights` are gathered after the update
    float *weights;  // the whole block
    const sh_shared *weights_shared;  // that holds it; NULL: private memory
    bool fuses_update;  // `arrived` updates parts of buckets on their way; weights go to all
    bool overlap;       // false: buckets start when backward has ended, to measure against
    /* The sums of a bucket are in place; in bucket order, from ready or finish. True: its
     * parameters have been updated. False: sh_reducer_gather follows later. Where the
     * reducer fuses_update, of a part that this rank has taken: it has to be updated. */
    bool (*arrived)(void *user, const sh_bucket *bucket);
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
void sh_reducer_ready(void *self, size_t param);
/* Waits until every bucket has arrived. Fails as the first collective that failed. */
sh_status sh_reducer_finish(sh_reducer *reducer);

size_t sh_reducer_buckets(const sh_reducer *reducer);
/* The first parameter of the bucket that holds the last of `end` parameters. */
size_t sh_reducer_bucket_begin(const sh_reducer *reducer, size_t end);
const sh_bucket *sh_reducer_bucket(const sh_reducer *reducer, size_t index);
/* Sharded, and `arrived` said false: gathers the weights of all buckets after their update. */
sh_status sh_reducer_gather(sh_reducer *reducer);
/* Sharded: gathers any block of the parameters' layout (the optimizer's state), bucket by bucket.
 */
sh_status sh_reducer_gather_block(sh_reducer *reducer, float *block);
/* What the codec keeps between steps; NULL: there is none. */
sh_exchange *sh_reducer_exchange(const sh_reducer *reducer);
/* The group whose calls follow the arrival of buckets; NULL: not sharded. */
sh_group *sh_reducer_group(const sh_reducer *reducer);
/* Sums since the last call. */
sh_reducer_stats sh_reducer_take_stats(sh_reducer *reducer);

#endif
