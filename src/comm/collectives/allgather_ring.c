/* Ring all-gather: every block travels once round the ring.
 *
 *   latency (P-1) alpha    bytes sent per rank (P-1)/P n
 *
 * In step s a rank sends block (rank - s) right and takes block (rank - s - 1) from the left. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static sh_moves ring_step(const sh_topology *topology, int rank, int step) {
    return sh_ring_moves(rank, topology->ranks, rank - step, SH_THEN_COPY);
}

static double ring_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    double peers = topology->ranks - 1;
    return sh_cost_terms(sh_flat_link(topology, links), peers, peers / topology->ranks * bytes, 0);
}

const sh_algorithm sh_algorithm_allgather_ring = {
    .name = "ring",
    .help = "P-1 steps to the neighbour; best for large buffers",
    .formula = "(P-1) alpha + (P-1)/P n beta",
    .does = SH_ALLGATHER,
    .blocks = sh_blocks_per_rank,
    .steps = sh_steps_peers,
    .step = ring_step,
    .cost = ring_cost,
};
