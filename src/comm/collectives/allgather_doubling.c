/* Recursive doubling all-gather: the stretch that a rank holds doubles in every step. W is the
 * largest power of two up to P, e = 1 if P > W, else 0.
 *
 *   latency (log2 W + 2e) alpha    at P = W: bytes sent (P-1)/P n
 *
 * Places at distance 1, 2, 4, .. exchange all they hold, always one stretch of neighbouring blocks.
 * At other rank counts the odd rank of each folded pair hands over its block first and gets the
 * whole buffer last. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static int doubling_steps(const sh_topology *topology) {
    sh_fold fold = sh_fold_of(topology->ranks);
    return fold.rounds + 2 * sh_fold_steps(&fold);
}

/* The blocks of the places [place, place + places). */
static sh_move stretch(const sh_fold *fold, int ranks, int peer, int place, int places) {
    int first = sh_fold_rank(fold, place);
    int end = place + places < fold->width ? sh_fold_rank(fold, place + places) : ranks;
    return (sh_move){.peer = peer, .first = first, .count = end - first};
}

static sh_moves doubling_step(const sh_topology *topology, int rank, int step) {
    int ranks = topology->ranks;
    sh_fold fold = sh_fold_of(ranks);
    int folds = sh_fold_steps(&fold), round = step - folds;
    if (step < folds) return sh_fold_moves(&fold, rank, false, rank | 1, 1, SH_THEN_COPY);
    if (round >= fold.rounds) return sh_fold_moves(&fold, rank, true, 0, ranks, SH_THEN_COPY);
    if (sh_fold_hands_over(&fold, rank)) return SH_IDLE;
    int distance = 1 << round, place = sh_fold_place(&fold, rank) & ~(distance - 1);
    int peer = sh_fold_rank(&fold, sh_fold_place(&fold, rank) ^ distance);
    return (sh_moves){
        .send = stretch(&fold, ranks, peer, place, distance),
        .receive = stretch(&fold, ranks, peer, place ^ distance, distance),
        .then = SH_THEN_COPY,
    };
}

static double doubling_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    sh_fold fold = sh_fold_of(topology->ranks);
    double folds = sh_fold_steps(&fold), blocks = folds;
    for (int distance = 1; distance < fold.width; distance *= 2)
        blocks += sh_fold_rank(&fold, distance);  // the lowest places stand for most blocks
    return sh_cost_terms(sh_flat_link(topology, links), fold.rounds + 2 * folds,
                         (blocks / topology->ranks + folds) * bytes, 0);
}

const sh_algorithm sh_algorithm_allgather_doubling = {
    .name = "doubling",
    .help = "log2 P steps; best for small buffers",
    .formula = "log2 P alpha + (P-1)/P n beta at powers of two; else 2 alpha and about n beta more",
    .does = SH_ALLGATHER,
    .blocks = sh_blocks_per_rank,
    .steps = doubling_steps,
    .step = doubling_step,
    .cost = doubling_cost,
};
