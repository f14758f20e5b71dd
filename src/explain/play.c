/* A schedule played step by step on real numbers and on sets. Numbers show what each rank
 * computes; sets (bit r: rank r's contribution is in this block) show how complete a block is,
 * also without values. All ranks move at once: a step reads the state before it (`before`, `had`)
 * and writes the new one. */
#include "explain/play.h"

#include <string.h>

#include "base/memory.h"

/* Index of a block's set in (ranks, blocks). */
static size_t at(const sh_play *play, int rank, int block) {
    return (size_t)rank * (size_t)play->blocks + (size_t)block;
}

/* Ranks whose contributions a block holds before the first step. */
static uint64_t first_set(const sh_play *play, int rank, int block) {
    uint64_t own = UINT64_C(1) << rank;
    switch (play->algorithm->does) {
        case SH_ALLGATHER:
        case SH_ALLTOALL:
            return block == rank ? own : 0;
        case SH_BROADCAST:
            return rank == play->topology.root ? own : 0;
        default:
            return own;
    }
}

/* Ranks whose contributions a finished block must hold; 0: this rank need not have the block. */
static uint64_t last_set(const sh_play *play, int rank, int block) {
    int ranks = play->topology.ranks;
    switch (play->algorithm->does) {
        case SH_REDUCE_SCATTER:
            if (block != rank) return 0;
            break;
        case SH_ALLGATHER:
        case SH_ALLTOALL:
            return UINT64_C(1) << block;
        case SH_BROADCAST:
            return UINT64_C(1) << play->topology.root;
        case SH_BARRIER:
        case SH_ALLREDUCE:
            break;
    }
    // A shift by 64 bits is undefined.
    return ranks == 64 ? UINT64_MAX : (UINT64_C(1) << ranks) - 1;
}

/* Tells whether the block is what the collective promises this rank. */
bool sh_play_is_final(const sh_play *play, int rank, int block) {
    uint64_t wanted = last_set(play, rank, block);
    return wanted != 0 && sh_play_has(play, rank, block) == wanted;
}

/* The block holds a value worth printing. A broadcast's buffers hold the user's numbers from the
 * start. */
bool sh_play_shows(const sh_play *play, int rank, int block) {
    sh_collective does = play->algorithm->does;
    return sh_play_has(play, rank, block) != 0 || does == SH_BROADCAST ||
           (does == SH_ALLTOALL && play->step == 0);
}

/* Fills the state before the first step. In an all-gather a rank's values go into its own block of
 * the larger buffer. */
static void fill(sh_play *play, const sh_values *values) {
    int ranks = play->topology.ranks;
    bool gathers = play->algorithm->does == SH_ALLGATHER;
    for (int r = 0; r < ranks; r++) {
        for (int b = 0; b < play->blocks; b++) play->has[at(play, r, b)] = first_set(play, r, b);
        if (values == NULL) continue;
        size_t start = (size_t)r * play->elements + (gathers ? (size_t)r * values->count : 0);
        memcpy(play->now + start, values->x + (size_t)r * values->count,
               values->count * sizeof *play->now);
    }
}

/* At most SH_VALUES_RANKS ranks, so that a set of ranks fits a 64-bit word. */
sh_status sh_play_init(sh_play *play, const sh_algorithm *algorithm, const sh_topology *topology,
                       const sh_values *values) {
    SH_ASSERT(topology->ranks <= SH_VALUES_RANKS);
    SH_ASSERT(!algorithm->native);
    *play = (sh_play){.algorithm = algorithm, .topology = *topology};
    size_t ranks = (size_t)topology->ranks, count = values != NULL ? values->count : 0;
    play->blocks = algorithm->blocks(topology);
    play->steps = algorithm->steps(topology);
    play->elements = algorithm->does == SH_ALLGATHER ? count * ranks : count;
    size_t numbers = ranks * play->elements + 1, sets = ranks * (size_t)play->blocks;
    play->now = sh_alloc(numbers, sizeof *play->now);
    play->before = sh_alloc(numbers, sizeof *play->before);
    play->has = sh_alloc(sets, sizeof *play->has);
    play->had = sh_alloc(sets, sizeof *play->had);
    play->fresh = sh_alloc(sets, sizeof *play->fresh);
    if (!play->now || !play->before || !play->has || !play->had || !play->fresh) {
        sh_play_fini(play);
        return SH_FAIL(SH_E_MEMORY, "out of memory for the steps of %d ranks", topology->ranks);
    }
    fill(play, values);
    memcpy(play->before, play->now, numbers * sizeof *play->now);  // all-to-all's source
    return SH_OK;
}

void sh_play_fini(sh_play *play) {
    sh_free(play->now);
    sh_free(play->before);
    sh_free(play->has);
    sh_free(play->had);
    sh_free(play->fresh);
    *play = (sh_play){0};
}

/* Applies one receive to the values. An all-to-all takes the sender's block for this rank, every
 * other collective the same block. */
static void take_numbers(sh_play *play, int rank, const sh_moves *moves) {
    const sh_move *receive = &moves->receive;
    sh_range to = sh_stretch_range(play->elements, play->blocks, receive->first, receive->count);
    size_t from = to.first;
    if (play->algorithm->does == SH_ALLTOALL)
        from = sh_block_range(play->elements, play->blocks, rank).first;
    const double *theirs = play->before + (size_t)receive->peer * play->elements + from;
    double *mine = play->now + (size_t)rank * play->elements + to.first;
    for (size_t i = 0; i < to.count; i++)
        mine[i] = moves->then == SH_THEN_REDUCE ? mine[i] + theirs[i] : theirs[i];
}

/* Applies the same receive to the sets of contributors. */
static void take_sets(sh_play *play, int rank, const sh_moves *moves) {
    sh_move signal = {.peer = moves->receive.peer, .first = 0, .count = 1};
    bool signals = play->algorithm->does == SH_BARRIER;  // who was heard of takes no bytes
    const sh_move *receive = signals ? &signal : &moves->receive;
    bool swaps = play->algorithm->does == SH_ALLTOALL;  // what arrives is the sender's own
    for (int b = receive->first; b < receive->first + receive->count; b++) {
        uint64_t theirs =
            swaps ? UINT64_C(1) << receive->peer : play->had[at(play, receive->peer, b)];
        uint64_t *mine = &play->has[at(play, rank, b)];
        *mine = signals || moves->then == SH_THEN_REDUCE ? *mine | theirs : theirs;
        play->fresh[at(play, rank, b)] = true;
    }
}

/* Plays one step of all ranks; false after the last. Copies the state first, since messages of one
 * step are simultaneous and must not see each other's results. An all-to-all keeps `before` as its
 * unchanged source. */
bool sh_play_next(sh_play *play) {
    if (play->step == play->steps) return false;
    size_t sets = (size_t)play->topology.ranks * (size_t)play->blocks;
    size_t numbers = (size_t)play->topology.ranks * play->elements;
    if (play->algorithm->does != SH_ALLTOALL)
        memcpy(play->before, play->now, numbers * sizeof *play->now);
    memcpy(play->had, play->has, sets * sizeof *play->has);
    memset(play->fresh, 0, sets * sizeof *play->fresh);
    for (int r = 0; r < play->topology.ranks; r++) {
        sh_moves moves = play->algorithm->step(&play->topology, r, play->step);
        if (moves.receive.peer < 0) continue;
        take_numbers(play, r, &moves);
        take_sets(play, r, &moves);
    }
    play->step++;
    return true;
}
