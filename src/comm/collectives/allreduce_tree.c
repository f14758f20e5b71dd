/* Tree all-reduce: a binomial tree reduces to rank 0, the same tree broadcasts. R = ceil(log2 P).
 *
 *   latency 2R alpha    bytes on the longest way 2R n    reduced R n
 *
 * In round k ranks whose lowest set bit is k send to the rank without that bit, and are done until
 * the way back. Few messages in all (2(P-1) over all ranks), so it suits tiny buffers. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static int tree_steps(const sh_topology *topology) { return 2 * sh_rounds(topology->ranks); }

static sh_moves tree_step(const sh_topology *topology, int rank, int step) {
    int rounds = sh_rounds(topology->ranks);
    bool up = step < rounds;
    int bit = 1 << (up ? step : 2 * rounds - 1 - step);
    bool child = rank & bit;
    if (rank & (bit - 1) || (!child && rank + bit >= topology->ranks)) return SH_IDLE;
    sh_move whole = {.peer = rank ^ bit, .first = 0, .count = 1};
    bool sends = child == up;
    return (sh_moves){
        .send = sends ? whole : SH_NO_MOVE,
        .receive = sends ? SH_NO_MOVE : whole,
        .then = up ? SH_THEN_REDUCE : SH_THEN_COPY,
    };
}

static double tree_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    double rounds = sh_rounds(topology->ranks);
    return sh_cost_terms(sh_flat_link(topology, links), 2 * rounds, 2 * rounds * bytes,
                         rounds * bytes);
}

const sh_algorithm sh_algorithm_allreduce_tree = {
    .name = "tree",
    .help = "a binomial tree reduces and broadcasts whole buffers; for tiny ones",
    .formula = "2R alpha + 2R n beta + R n gamma; R = ceil(log2 P)",
    .does = SH_ALLREDUCE,
    .blocks = sh_blocks_one,
    .steps = tree_steps,
    .step = tree_step,
    .cost = tree_cost,
};
