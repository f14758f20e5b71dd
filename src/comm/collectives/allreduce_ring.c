/* Ring all-reduce: P-1 steps that reduce, P-1 steps that gather (Patarasuk and Yuan 2009).
 *
 *   latency 2(P-1) alpha    bytes sent per rank 2(P-1)/P n    reduced (P-1)/P n
 *
 * In step s a rank sends block (rank - s) right and folds in block (rank - s - 1) from the left.
 * After P-1 steps rank r owns the sum of block r+1 (mod P). Each block has one owner, so all
 * ranks end with equal bits. No schedule sends fewer bytes, and every link is busy all the time. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static int ring_steps(const sh_topology *topology) { return 2 * (topology->ranks - 1); }

static sh_moves ring_step(const sh_topology *topology, int rank, int step) {
    int ranks = topology->ranks, half = ranks - 1;
    if (step < half) return sh_ring_moves(rank, ranks, rank - step, SH_THEN_REDUCE);
    return sh_ring_moves(rank, ranks, rank + 1 - (step - half), SH_THEN_COPY);
}

static double ring_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    double peers = topology->ranks - 1, part = peers / topology->ranks * bytes;
    return sh_cost_terms(sh_flat_link(topology, links), 2 * peers, 2 * part, part);
}

const sh_algorithm sh_algorithm_allreduce_ring = {
    .name = "ring",
    .help = "2(P-1) steps to the neighbour; fewest bytes, best for large buffers",
    .formula = "2(P-1) alpha + 2(P-1)/P n beta + (P-1)/P n gamma",
    .does = SH_ALLREDUCE,
    .blocks = sh_blocks_per_rank,
    .steps = ring_steps,
    .step = ring_step,
    .cost = ring_cost,
};
