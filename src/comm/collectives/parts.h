/* What several algorithms are made of: neighbours in a ring, pairs at a distance, rounds of a tree,
 * rank counts that are no power of two, and the terms of a cost. */
#ifndef SH_COMM_COLLECTIVES_PARTS_H
#define SH_COMM_COLLECTIVES_PARTS_H

#include "comm/schedule.h"

static const sh_move SH_NO_MOVE = {.peer = -1};
static const sh_moves SH_IDLE = {.send = {.peer = -1}, .receive = {.peer = -1}};

/* `value` modulo `ranks`, for values from -ranks on. */
static inline int sh_wrap(int value, int ranks) { return (value + ranks) % ranks; }

static inline int sh_blocks_one(const sh_topology *topology) {
    (void)topology;
    return 1;
}
static inline int sh_blocks_per_rank(const sh_topology *topology) { return topology->ranks; }
static inline int sh_steps_peers(const sh_topology *topology) { return topology->ranks - 1; }

/* Rounds until doubling from 1 reaches all ranks: ceil(log2 P). */
static inline int sh_rounds(int ranks) {
    int rounds = 0;
    while ((1 << rounds) < ranks) rounds++;
    return rounds;
}

/* ---- Ring: every rank sends one block right and takes the block before it from the left. ---- */

static inline sh_moves sh_ring_moves(int rank, int ranks, int block, sh_then then) {
    return (sh_moves){
        .send = {sh_wrap(rank + 1, ranks), sh_wrap(block, ranks), 1},
        .receive = {sh_wrap(rank - 1, ranks), sh_wrap(block - 1, ranks), 1},
        .then = then,
    };
}

/* ---- Pairs: in step s a rank sends to the rank s+1 ahead and hears from the one s+1 behind. ----
 */

/* Everyone sends the receiver's block and reduces its own. */
static inline sh_moves sh_pair_scatter(int rank, int ranks, int step) {
    int to = sh_wrap(rank + step + 1, ranks), from = sh_wrap(rank - step - 1, ranks);
    return (sh_moves){.send = {to, to, 1}, .receive = {from, rank, 1}, .then = SH_THEN_REDUCE};
}

/* Everyone sends its own block and takes the sender's. */
static inline sh_moves sh_pair_gather(int rank, int ranks, int step) {
    int to = sh_wrap(rank + step + 1, ranks), from = sh_wrap(rank - step - 1, ranks);
    return (sh_moves){.send = {to, rank, 1}, .receive = {from, from, 1}, .then = SH_THEN_COPY};
}

/* ---- Fold: any rank count brought to a power of two, W. The first `extra` = P - W pairs of
 * neighbours (0 1)(2 3).. act as one; the odd one hands over first and hears the result last.
 * Neighbours, because they are likely on one node. ---- */

typedef struct sh_fold {
    int width, extra;
    int rounds;  // log2 of the width
} sh_fold;

static inline sh_fold sh_fold_of(int ranks) {
    int rounds = 0;
    while (ranks >> rounds > 1) rounds++;
    return (sh_fold){.width = 1 << rounds, .extra = ranks - (1 << rounds), .rounds = rounds};
}

static inline bool sh_fold_hands_over(const sh_fold *fold, int rank) {
    return rank < 2 * fold->extra && rank % 2 == 1;
}
/* The place among the W, for a rank that does not hand over. */
static inline int sh_fold_place(const sh_fold *fold, int rank) {
    return rank < 2 * fold->extra ? rank / 2 : rank - fold->extra;
}
/* The rank at a place; with one block per rank also the first block that the place stands for. */
static inline int sh_fold_rank(const sh_fold *fold, int place) {
    return place < fold->extra ? 2 * place : place + fold->extra;
}
/* Steps before the power of two, and as many after it: one if any rank hands over. */
static inline int sh_fold_steps(const sh_fold *fold) { return fold->extra > 0 ? 1 : 0; }

/* The stretch travels from the odd rank of a pair to the even one, or back. */
static inline sh_moves sh_fold_moves(const sh_fold *fold, int rank, bool back, int first, int count,
                                     sh_then then) {
    if (rank >= 2 * fold->extra) return SH_IDLE;
    sh_move move = {.peer = rank ^ 1, .first = first, .count = count};
    bool sends = back ? rank % 2 == 0 : rank % 2 == 1;
    return (sh_moves){
        .send = sends ? move : SH_NO_MOVE,
        .receive = sends ? SH_NO_MOVE : move,
        .then = then,
    };
}

/* ---- Cost. ---- */

/* The slowest link that a step of a flat algorithm takes. */
static inline const sh_link *sh_flat_link(const sh_topology *topology, const sh_links *links) {
    bool spread = topology->places != NULL && topology->places->nodes > 1;
    return spread ? &links->between : &links->inside;
}

/* Messages one after another, bytes sent and bytes reduced by the busiest rank. */
static inline double sh_cost_terms(const sh_link *link, double messages, double sent,
                                   double reduced) {
    return messages * link->alpha_s + sent * link->beta_s + reduced * link->gamma_s;
}

#endif
