/* Exact runs (`exact: true`): the same bits with any number of workers and threads.
 *
 * The global batch is cut into `shards` parts, whatever the workers: shard s of V holds the samples
 * [count s / V, count (s + 1) / V). A shard is computed alone, by one thread, with kernels that are
 * fixed beforehand, into a gradient block of its own; workers and threads take whole shards. The
 * shards' gradients are then summed in fixed point (tensor/kernels/fixed.h), where the order does
 * not matter. docs/exact.md tells the rest. */
#ifndef SH_RUN_EXACT_H
#define SH_RUN_EXACT_H

#include "run/run.h"

typedef struct sh_exact sh_exact;

/* Everything a run will need, so that nothing is allocated later. Collective. */
sh_status sh_exact_prepare(shoal_run *run, bool evaluates);
void sh_exact_destroy(sh_exact *exact);
/* sh_run_evaluate of an exact run. */
sh_status sh_exact_evaluate(shoal_run *run, const sh_dataset *dataset, shoal_result *result_out);

/* What all workers have told each other. */
typedef struct sh_exact_gradient_state {
    bool over;   // the workers meet instead, and there is no gradient
    bool stops;  // one was asked to stop
} sh_exact_gradient_state;

/* sh_replica_ops.compute of an exact run, without the loader. */
sh_status sh_exact_gradient(shoal_run *run, const sh_replica *replica, const sh_batch *batch,
                            sh_loss_result *result_out, sh_exact_gradient_state *state_out);
/* The optimizer's step on some parameters, range by range, by all threads: sh_replica_ops.apply. */
void sh_exact_apply(shoal_run *run, const sh_optim_step *step);
/* Where that leaves the gradient; after prepare. */
const sh_fixed_gradient *sh_exact_fixed(const shoal_run *run);
/* Numbers of the notes (exact_internal.h). */
static inline size_t sh_exact_note_count(const sh_net *net, int64_t shards) {
    return net->params.count + net->states.count + 3 * (size_t)shards + 1;
}

/* Numbers that it has combined at a time, at most; 0: the run is not exact. */
static inline size_t sh_exact_combined_most(const sh_config *config, const sh_net *net) {
    if (!config->exact) return 0;
    size_t notes = sh_exact_note_count(net, config->shards), states = net->states.total;
    return notes > states ? notes : states;
}

/* What a worker takes of every batch: its whole shards. */
sh_batch_share sh_exact_share(int64_t shards, int rank, int ranks);

#endif
