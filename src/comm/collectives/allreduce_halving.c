/* Halving-doubling all-reduce (Rabenseifner 2004): halves travel and are reduced, then the sums are
 * doubled back. W is the largest power of two up to P, e = 1 if P > W, else 0.
 *
 *   latency 2(log2 W + e) alpha    bytes sent 2((W-1)/W + e) n    reduced ((W-1)/W + e) n
 *
 * In round k places that differ in bit k exchange halves of the stretch that both still hold: the
 * one whose bit is 0 keeps the lower half. So the longest messages go to the nearest ranks. After
 * log2 W rounds each place owns one block, and the rounds run backwards with copies. Ranks beyond W
 * fold into a neighbour first and get the result last. */
#include "comm/collectives/list.h"
#include "comm/collectives/parts.h"

static int halving_blocks(const sh_topology *topology) { return sh_fold_of(topology->ranks).width; }

static int halving_steps(const sh_topology *topology) {
    sh_fold fold = sh_fold_of(topology->ranks);
    return 2 * (fold.rounds + sh_fold_steps(&fold));
}

/* The halves that the pair of `place` and its peer of this round hold. */
static sh_moves round_moves(const sh_fold *fold, int place, int round, bool doubles) {
    int first = 0, count = fold->width;
    for (int k = 0; k < round; k++) {
        count /= 2;
        if (place >> k & 1) first += count;
    }
    int half = count / 2;
    bool upper = place >> round & 1;
    int kept = upper ? first + half : first, given = upper ? first : first + half;
    int peer = sh_fold_rank(fold, place ^ 1 << round);
    if (doubles) return (sh_moves){{peer, kept, half}, {peer, given, half}, .then = SH_THEN_COPY};
    return (sh_moves){{peer, given, half}, {peer, kept, half}, .then = SH_THEN_REDUCE};
}

static sh_moves halving_step(const sh_topology *topology, int rank, int step) {
    sh_fold fold = sh_fold_of(topology->ranks);
    int folds = sh_fold_steps(&fold), round = step - folds;
    if (step < folds) return sh_fold_moves(&fold, rank, false, 0, fold.width, SH_THEN_REDUCE);
    if (round >= 2 * fold.rounds)
        return sh_fold_moves(&fold, rank, true, 0, fold.width, SH_THEN_COPY);
    if (sh_fold_hands_over(&fold, rank)) return SH_IDLE;
    bool doubles = round >= fold.rounds;
    if (doubles) round = 2 * fold.rounds - 1 - round;
    return round_moves(&fold, sh_fold_place(&fold, rank), round, doubles);
}

static double halving_cost(const sh_topology *topology, double bytes, const sh_links *links) {
    sh_fold fold = sh_fold_of(topology->ranks);
    double folds = sh_fold_steps(&fold);
    double sent = ((fold.width - 1.0) / fold.width + folds) * bytes;
    return sh_cost_terms(sh_flat_link(topology, links), 2 * (fold.rounds + folds), 2 * sent, sent);
}

const sh_algorithm sh_algorithm_allreduce_halving = {
    .name = "halving-doubling",
    .help = "2 log2 P steps and the ring's bytes at powers of two; best for medium buffers",
    .formula =
        "2(log2 W + e) alpha + 2((W-1)/W + e) n beta + ((W-1)/W + e) n gamma; W the power of "
        "two up to P, e = 1 if P > W",
    .does = SH_ALLREDUCE,
    .blocks = halving_blocks,
    .steps = halving_steps,
    .step = halving_step,
    .cost = halving_cost,
};
