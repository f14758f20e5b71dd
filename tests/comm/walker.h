/* An executor of schedules in memory: all ranks in one array, one step at a time, checking on the
 * way that every send meets its receive. */
#ifndef SH_TESTS_COMM_WALKER_H
#define SH_TESTS_COMM_WALKER_H

#include <stdlib.h>
#include <string.h>

#include "comm/schedule.h"
#include "harness.h"

typedef struct walker {
    const sh_algorithm *algorithm;
    sh_topology topology;
    int blocks;
    size_t elements;
    float *data;    // (ranks, elements)
    float *source;  // (ranks, elements): what stood there before the step, or all-to-all's source
    int *messages;  // per rank: sent
    size_t *sent;   // per rank: elements
} walker;

/* The data starts as `initial` (ranks, elements). */
static inline void walker_init(walker *w, const sh_algorithm *algorithm,
                               const sh_topology *topology, size_t elements, const float *initial) {
    size_t ranks = (size_t)topology->ranks, bytes = (ranks * elements + 1) * sizeof(float);
    *w = (walker){.algorithm = algorithm, .topology = *topology, .elements = elements};
    w->blocks = algorithm->blocks(topology);
    w->data = malloc(bytes);
    w->source = malloc(bytes);
    w->messages = calloc(ranks, sizeof *w->messages);
    w->sent = calloc(ranks, sizeof *w->sent);
    memcpy(w->data, initial, ranks * elements * sizeof(float));
    memcpy(w->source, initial, ranks * elements * sizeof(float));
}

static inline void walker_fini(walker *w) {
    free(w->data);
    free(w->source);
    free(w->messages);
    free(w->sent);
}

static inline void walker_check_move(const walker *w, int rank, const sh_move *move) {
    assert_in_range(move->peer, 0, (uintmax_t)w->topology.ranks - 1);
    assert_int_not_equal(move->peer, rank);
    assert_true(move->first >= 0);
    assert_true(move->count > 0 || w->algorithm->does == SH_BARRIER);
    assert_true(move->first + move->count <= w->blocks);
}

/* What a rank sends is what its peer receives in that step, and the other way round. */
static inline void walker_check(const walker *w, int rank, int step, const sh_moves *moves) {
    const sh_move *send = &moves->send, *receive = &moves->receive;
    bool moved = w->algorithm->does == SH_ALLTOALL;  // lands in another block
    if (send->peer >= 0) {
        walker_check_move(w, rank, send);
        sh_move other = w->algorithm->step(&w->topology, send->peer, step).receive;
        assert_int_equal(other.peer, rank);
        assert_int_equal(other.count, send->count);
        assert_int_equal(other.first, moved ? rank : send->first);
    }
    if (receive->peer >= 0) {
        walker_check_move(w, rank, receive);
        sh_move other = w->algorithm->step(&w->topology, receive->peer, step).send;
        assert_int_equal(other.peer, rank);
        assert_int_equal(other.count, receive->count);
    }
}

static inline void walker_apply(walker *w, int rank, const sh_moves *moves) {
    const sh_move *receive = &moves->receive, *send = &moves->send;
    if (send->peer >= 0) {
        w->messages[rank]++;
        w->sent[rank] += sh_stretch_range(w->elements, w->blocks, send->first, send->count).count;
    }
    if (receive->peer < 0) return;
    sh_range to = sh_stretch_range(w->elements, w->blocks, receive->first, receive->count);
    sh_range from = to;
    if (w->algorithm->does == SH_ALLTOALL) from = sh_block_range(w->elements, w->blocks, rank);
    assert_int_equal(from.count, to.count);
    const float *theirs = w->source + (size_t)receive->peer * w->elements + from.first;
    float *mine = w->data + (size_t)rank * w->elements + to.first;
    bool reduces = moves->then == SH_THEN_REDUCE;
    for (size_t i = 0; i < to.count; i++) mine[i] = reduces ? mine[i] + theirs[i] : theirs[i];
}

static inline void walker_run(walker *w) {
    size_t bytes = (size_t)w->topology.ranks * w->elements * sizeof(float);
    for (int s = 0; s < w->algorithm->steps(&w->topology); s++) {
        for (int r = 0; r < w->topology.ranks; r++) {
            sh_moves moves = w->algorithm->step(&w->topology, r, s);
            walker_check(w, r, s, &moves);
            walker_apply(w, r, &moves);
        }
        if (w->algorithm->does != SH_ALLTOALL) memcpy(w->source, w->data, bytes);
    }
}

#endif
