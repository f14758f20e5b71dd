/* Pairwise all-to-all: in step s a rank sends to the rank s+1 ahead and hears from the one s+1
 * behind, so that every link carries one message at a time.
 *
 *   latency (P-1) alpha    bytes sent per rank (P-1)/P n
 *
 * Blocks are sent from the source and received into the data; whoever runs it copies the block that
 * a rank keeps for itself. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static sh_moves pairwise_step(const sh_topology *topology, int rank, int step) {
    int ranks = topology->ranks;
    int to = sh_wrap(rank + step + 1, ranks), from = sh_wrap(rank - step - 1, ranks);
    return (sh_moves){.send = {to, to, 1}, .receive = {from, from, 1}, .then = SH_THEN_COPY};
}

static double pairwise_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    return sh_algorithm_allgather_ring.cost(topology, bytes, links);
}

const sh_algorithm sh_algorithm_alltoall_pairwise = {
    .name = "pairwise",
    .help = "P-1 steps, each rank with one peer ahead and one behind",
    .formula = "(P-1) alpha + (P-1)/P n beta",
    .does = SH_ALLTOALL,
    .blocks = sh_blocks_per_rank,
    .steps = sh_steps_peers,
    .step = pairwise_step,
    .cost = pairwise_cost,
};
