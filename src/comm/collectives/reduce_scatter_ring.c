/* Ring reduce-scatter: the first half of the ring all-reduce, started one block earlier so that
 * rank r ends with block r.
 *
 *   latency (P-1) alpha    bytes sent per rank (P-1)/P n    reduced (P-1)/P n
 *
 * In step s a rank sends block (rank - s - 1) right and folds in block (rank - s - 2). */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static sh_moves ring_step(const sh_topology *topology, int rank, int step) {
    int ranks = topology->ranks;
    return sh_ring_moves(rank, ranks, sh_wrap(rank - step - 1, ranks), SH_THEN_REDUCE);
}

static double ring_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    double peers = topology->ranks - 1, part = peers / topology->ranks * bytes;
    return sh_cost_terms(sh_flat_link(topology, links), peers, part, part);
}

const sh_algorithm sh_algorithm_reduce_scatter_ring = {
    .name = "ring",
    .help = "P-1 steps to the neighbour; best for large buffers",
    .formula = "(P-1) alpha + (P-1)/P n beta + (P-1)/P n gamma",
    .does = SH_REDUCE_SCATTER,
    .blocks = sh_blocks_per_rank,
    .steps = sh_steps_peers,
    .step = ring_step,
    .cost = ring_cost,
};
