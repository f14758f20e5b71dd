/* The workers that an op exchanges values with while it computes. A step hands them to the ops of a
 * executor (sh_step_context.peers); kinds in this folder use them, those of nn never look inside.
 */
#ifndef SH_PARALLEL_PEERS_H
#define SH_PARALLEL_PEERS_H

#include "comm/engine.h"
#include "nn/spec.h"

typedef struct sh_peers {
    sh_engine *engine;
    sh_group *group;  // NULL: all ranks of the engine
} sh_peers;

/* Element-wise sum over the peers; every one of them calls it, in the same order. */
sh_status sh_peers_sum(const sh_peers *peers, double *values, size_t count);

/* Every batch normalisation of a described net takes the statistics of its peers' batches
 * together; without peers it computes as before, to the bit. */
void sh_sync_batchnorms(sh_net_spec *net);

#endif
