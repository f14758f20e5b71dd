/* Recursive halving reduce-scatter. W is the largest power of two up to P, e = 1 if P > W, else 0.
 *
 *   latency (log2 W + 2e) alpha    at P = W: bytes sent (P-1)/P n, reduced (P-1)/P n
 *
 * Places at distance W/2, then W/4, .. exchange the half that the other side needs, so that blocks
 * end in the order of the ranks. Else pairs fold first (n more bytes); a place then stands for the
 * blocks of both ranks of the pair, and the last step hands the odd rank its block. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static int halving_steps(const sh_topology *topology) {
    sh_fold fold = sh_fold_of(topology->ranks);
    return fold.rounds + 2 * sh_fold_steps(&fold);
}

static sh_moves round_moves(const sh_fold *fold, int ranks, int place, int round) {
    int distance = fold->width >> (round + 1), base = place & ~(2 * distance - 1);
    int low = sh_fold_rank(fold, base), middle = sh_fold_rank(fold, base + distance);
    int end = base + 2 * distance < fold->width ? sh_fold_rank(fold, base + 2 * distance) : ranks;
    int peer = sh_fold_rank(fold, place ^ distance);
    sh_move lower = {peer, low, middle - low}, upper = {peer, middle, end - middle};
    bool keeps_upper = place & distance;
    return (sh_moves){
        .send = keeps_upper ? lower : upper,
        .receive = keeps_upper ? upper : lower,
        .then = SH_THEN_REDUCE,
    };
}

static sh_moves halving_step(const sh_topology *topology, int rank, int step) {
    int ranks = topology->ranks;
    sh_fold fold = sh_fold_of(ranks);
    int folds = sh_fold_steps(&fold), round = step - folds;
    if (step < folds) return sh_fold_moves(&fold, rank, false, 0, ranks, SH_THEN_REDUCE);
    if (round >= fold.rounds) return sh_fold_moves(&fold, rank, true, rank | 1, 1, SH_THEN_COPY);
    if (sh_fold_hands_over(&fold, rank)) return SH_IDLE;
    return round_moves(&fold, ranks, sh_fold_place(&fold, rank), round);
}

static double halving_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    sh_fold fold = sh_fold_of(topology->ranks);
    double folds = sh_fold_steps(&fold), blocks = 0;
    for (int distance = fold.width / 2; distance > 0; distance /= 2)
        blocks += sh_fold_rank(&fold, distance);  // the lower half of the lowest pair is longest
    double reduced = folds * bytes + blocks / topology->ranks * bytes;
    return sh_cost_terms(sh_flat_link(topology, links), fold.rounds + 2 * folds,
                         reduced + folds / topology->ranks * bytes, reduced);
}

const sh_algorithm sh_algorithm_reduce_scatter_halving = {
    .name = "halving",
    .help = "log2 P steps; best for small and medium buffers",
    .formula =
        "log2 P alpha + (P-1)/P n beta + (P-1)/P n gamma at powers of two; else 2 alpha and "
        "about n (beta + gamma) more",
    .does = SH_REDUCE_SCATTER,
    .blocks = sh_blocks_per_rank,
    .steps = halving_steps,
    .step = halving_step,
    .cost = halving_cost,
};
