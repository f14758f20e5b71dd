/* Pipelined chain broadcast: the buffer passes from neighbour to neighbour in S = 32 blocks, all
 * links busy once the first block has reached the end.
 *
 *   latency (P-2 + S) alpha    bytes on the longest way (P-2 + S)/S n
 *
 * Ranks count from the root; in step s rank i of that count sends block (s - i). */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

enum { CHAIN_BLOCKS = 32 };

static int chain_blocks(const sh_topology *topology) {
    return topology->ranks > 1 ? CHAIN_BLOCKS : 1;
}

static int chain_steps(const sh_topology *topology) {
    return topology->ranks > 1 ? topology->ranks - 2 + CHAIN_BLOCKS : 0;
}

static sh_moves chain_step(const sh_topology *topology, int rank, int step) {
    int ranks = topology->ranks, place = sh_wrap(rank - topology->root, ranks);
    int block = step - place, taken = block + 1;
    sh_moves moves = SH_IDLE;
    if (place < ranks - 1 && block >= 0 && block < CHAIN_BLOCKS)
        moves.send = (sh_move){(rank + 1) % ranks, block, 1};
    if (place > 0 && taken >= 0 && taken < CHAIN_BLOCKS)
        moves.receive = (sh_move){sh_wrap(rank - 1, ranks), taken, 1};
    return moves;
}

static double chain_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    double steps = chain_steps(topology);
    return sh_cost_terms(sh_flat_link(topology, links), steps, steps / CHAIN_BLOCKS * bytes, 0);
}

const sh_algorithm sh_algorithm_broadcast_chain = {
    .name = "chain",
    .help = "32 blocks pass from neighbour to neighbour; best for large buffers, few ranks",
    .formula = "(P-2 + S) alpha + (P-2 + S)/S n beta; S = 32 blocks",
    .does = SH_BROADCAST,
    .blocks = chain_blocks,
    .steps = chain_steps,
    .step = chain_step,
    .cost = chain_cost,
};
