/* The workers that an op exchanges values with while it computes. A step hands them to the ops of
 * an executor (sh_step_context.peers); kinds in this folder use them, those of nn never look
 * inside.
 */
#ifndef SH_PARALLEL_PEERS_H
#define SH_PARALLEL_PEERS_H

#include "nn/spec.h"
#include "parallel/mesh.h"

typedef struct sh_peers {
    sh_engine *engine;
    sh_group *group;           // whose batches have common statistics; NULL: all ranks
    sh_group *above, *below;   // of this worker and its neighbour along space; NULL: none
    sh_group *along[SH_AXES];  // of the dimensions that layers are split along; NULL: none
} sh_peers;

/* A collective that an op has under way: started in forward or backward, waited for in the finish
 * of it (nn/layer.h). The op's kernel, or part of it. */
typedef struct sh_peer_call {
    sh_call call;
    bool under_way;
} sh_peer_call;

/* Starts the collective that `call` describes, with buffers that stay until the finish. The other
 * two do nothing where nothing was started. */
sh_status sh_peer_call_start(sh_peer_call *own, const sh_peers *peers, const sh_call *call);
sh_status sh_peer_call_finish(sh_peer_call *own, const sh_peers *peers);
/* Moves it along between two kernels. */
void sh_peer_call_progress(sh_peer_call *own, const sh_peers *peers);

/* Every batch normalisation of a described net takes the statistics of its peers' batches
 * together; without peers it computes as before, to the bit. */
void sh_sync_batchnorms(sh_net_spec *net);

#endif
