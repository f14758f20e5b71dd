/* Direct all-gather: every rank hands its block to all peers, pair by pair; in one pass where their
 * memory is mapped.
 *
 *   latency (P-1) alpha    bytes sent per rank (P-1)/P n */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static sh_moves direct_step(const sh_topology *topology, int rank, int step) {
    return sh_pair_gather(rank, topology->ranks, step);
}

static double direct_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    return sh_algorithm_allgather_ring.cost(topology, bytes, links);
}

const sh_algorithm sh_algorithm_allgather_direct = {
    .name = "direct",
    .help = "each rank hands its block to all peers; best where memory is shared",
    .formula = "(P-1) alpha + (P-1)/P n beta over messages; one pass where memory is shared",
    .does = SH_ALLGATHER,
    .maps = true,
    .blocks = sh_blocks_per_rank,
    .steps = sh_steps_peers,
    .step = direct_step,
    .cost = direct_cost,
};
