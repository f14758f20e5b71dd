/* Binomial tree broadcast: the ranks that have the buffer double in every step. R = ceil(log2 P).
 *
 *   latency R alpha    bytes on the longest way R n
 *
 * Ranks count from the root. In round k those below 2^k send to the rank 2^k further. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static int tree_steps(const sh_topology *topology) { return sh_rounds(topology->ranks); }

static sh_moves tree_step(const sh_topology *topology, int rank, int step) {
    int ranks = topology->ranks, place = sh_wrap(rank - topology->root, ranks), reach = 1 << step;
    sh_moves moves = SH_IDLE;
    if (place < reach && place + reach < ranks)
        moves.send = (sh_move){(rank + reach) % ranks, 0, 1};
    if (place >= reach && place < 2 * reach)
        moves.receive = (sh_move){sh_wrap(rank - reach, ranks), 0, 1};
    return moves;
}

static double tree_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    double rounds = sh_rounds(topology->ranks);
    return sh_cost_terms(sh_flat_link(topology, links), rounds, rounds * bytes, 0);
}

const sh_algorithm sh_algorithm_broadcast_tree = {
    .name = "tree",
    .help = "a binomial tree of whole buffers; best for small ones",
    .formula = "R alpha + R n beta; R = ceil(log2 P)",
    .does = SH_BROADCAST,
    .blocks = sh_blocks_one,
    .steps = tree_steps,
    .step = tree_step,
    .cost = tree_cost,
};
