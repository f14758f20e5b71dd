/* The algorithms of all collectives: one file and one row each. Where two cost the same, the first
 * is taken. */
#ifndef SH_COMM_COLLECTIVES_LIST_H
#define SH_COMM_COLLECTIVES_LIST_H

#include "comm/schedule.h"

#define SH_ALGORITHM_LIST(X)  \
    X(allreduce_ring)         \
    X(allreduce_halving)      \
    X(allreduce_tree)         \
    X(allreduce_hierarchical) \
    X(allreduce_direct)       \
    X(allreduce_mpi)          \
    X(reduce_scatter_ring)    \
    X(reduce_scatter_halving) \
    X(reduce_scatter_direct)  \
    X(allgather_ring)         \
    X(allgather_doubling)     \
    X(allgather_direct)       \
    X(broadcast_tree)         \
    X(broadcast_scatter)      \
    X(broadcast_chain)        \
    X(alltoall_pairwise)      \
    X(barrier_dissemination)

#define X(name) extern const sh_algorithm sh_algorithm_##name;
SH_ALGORITHM_LIST(X)
#undef X

#endif
