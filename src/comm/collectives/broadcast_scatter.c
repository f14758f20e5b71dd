/* Scatter-gather broadcast (van de Geijn 1994): the root scatters the blocks down a binomial tree,
 * then all ranks gather them round a ring. R = ceil(log2 P).
 *
 *   latency (R + P-1) alpha    bytes on the longest way 2(P-1)/P n
 *
 * Ranks count from the root, and block i belongs to rank i in that count. While scattering, a rank
 * that is a multiple of 2d holds the blocks of the next 2d ranks and hands the upper half to the
 * rank d further. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static int scatter_steps(const sh_topology *topology) {
    return sh_rounds(topology->ranks) + topology->ranks - 1;
}

/* The blocks that the rank at `place`, a multiple of `distance`, gets in its round. */
static sh_move stretch(int ranks, int peer, int place, int distance) {
    int end = place + distance < ranks ? place + distance : ranks;
    return (sh_move){.peer = peer, .first = place, .count = end - place};
}

static sh_moves scatter_step(const sh_topology *topology, int rank, int step) {
    int ranks = topology->ranks, place = sh_wrap(rank - topology->root, ranks);
    int rounds = sh_rounds(ranks);
    if (step >= rounds) {
        sh_moves moves = sh_ring_moves(place, ranks, place - (step - rounds), SH_THEN_COPY);
        moves.send.peer = (moves.send.peer + topology->root) % ranks;
        moves.receive.peer = (moves.receive.peer + topology->root) % ranks;
        return moves;
    }
    int distance = 1 << (rounds - 1 - step), turn = place % (2 * distance);
    sh_moves moves = SH_IDLE;
    if (turn == 0 && place + distance < ranks)
        moves.send = stretch(ranks, (rank + distance) % ranks, place + distance, distance);
    if (turn == distance)
        moves.receive = stretch(ranks, sh_wrap(rank - distance, ranks), place, distance);
    return moves;
}

static double scatter_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    double peers = topology->ranks - 1;
    return sh_cost_terms(sh_flat_link(topology, links), sh_rounds(topology->ranks) + peers,
                         2 * peers / topology->ranks * bytes, 0);
}

const sh_algorithm sh_algorithm_broadcast_scatter = {
    .name = "scatter-gather",
    .help = "a tree scatters the blocks, a ring gathers them; for large buffers, many ranks",
    .formula = "(R + P-1) alpha + 2(P-1)/P n beta; R = ceil(log2 P)",
    .does = SH_BROADCAST,
    .blocks = sh_blocks_per_rank,
    .steps = scatter_steps,
    .step = scatter_step,
    .cost = scatter_cost,
};
