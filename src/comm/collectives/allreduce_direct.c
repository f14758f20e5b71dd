/* Direct all-reduce: every rank gets its slice from all peers, pair by pair, then hands the sum to
 * all of them.
 *
 *   latency 2(P-1) alpha    bytes sent per rank 2(P-1)/P n    reduced (P-1)/P n
 *
 * Over messages it costs what a ring does. Where peers' memory is mapped, the engine does it in one
 * pass: rank r reads block r of all ranks, sums in registers and writes the sum to all, so each
 * byte is read and written once and there are two meetings instead of 2(P-1). */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static int direct_steps(const sh_topology *topology) { return 2 * (topology->ranks - 1); }

static sh_moves direct_step(const sh_topology *topology, int rank, int step) {
    int ranks = topology->ranks, half = ranks - 1;
    return step < half ? sh_pair_scatter(rank, ranks, step)
                       : sh_pair_gather(rank, ranks, step - half);
}

static double direct_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    return sh_algorithm_allreduce_ring.cost(topology, bytes, links);
}

const sh_algorithm sh_algorithm_allreduce_direct = {
    .name = "direct",
    .help = "each rank sums its slice straight from its peers; best where memory is shared",
    .formula =
        "2(P-1) alpha + 2(P-1)/P n beta + (P-1)/P n gamma over messages; one pass where "
        "memory is shared",
    .does = SH_ALLREDUCE,
    .maps = true,
    .blocks = sh_blocks_per_rank,
    .steps = direct_steps,
    .step = direct_step,
    .cost = direct_cost,
};
