/* Direct reduce-scatter: every rank gets its block from all peers, pair by pair; in one pass where
 * their memory is mapped.
 *
 *   latency (P-1) alpha    bytes sent per rank (P-1)/P n    reduced (P-1)/P n */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static sh_moves direct_step(const sh_topology *topology, int rank, int step) {
    return sh_pair_scatter(rank, topology->ranks, step);
}

static double direct_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    return sh_algorithm_reduce_scatter_ring.cost(topology, bytes, links);
}

const sh_algorithm sh_algorithm_reduce_scatter_direct = {
    .name = "direct",
    .help = "each rank sums its block straight from its peers; best where memory is shared",
    .formula =
        "(P-1) alpha + (P-1)/P n beta + (P-1)/P n gamma over messages; one pass where memory "
        "is shared",
    .does = SH_REDUCE_SCATTER,
    .maps = true,
    .blocks = sh_blocks_per_rank,
    .steps = sh_steps_peers,
    .step = direct_step,
    .cost = direct_cost,
};
