/* The workers that learn together, seen from one of them, and the few collectives that learners
 * need. All of them are collective: every worker calls them in the same order. */
#ifndef SH_LEARN_TEAM_H
#define SH_LEARN_TEAM_H

#include <stdint.h>

#include "comm/engine.h"

typedef struct sh_learn_team {
    sh_engine *engine;  // borrowed; NULL: one worker
    sh_group *group;    // borrowed; NULL: all ranks of the engine
    int rank, ranks;
    int threads;          // that this worker computes with
    uint64_t sent_bytes;  // by this worker, so far
} sh_learn_team;

/* One worker of so many threads. */
sh_learn_team sh_learn_alone(int threads);
/* All ranks of an engine. */
sh_learn_team sh_learn_team_of(sh_engine *engine, int threads);

sh_status sh_learn_sum(sh_learn_team *team, int64_t *values, size_t count);
sh_status sh_learn_max(sh_learn_team *team, double *values, size_t count);
/* Puts `words` 64-bit words of every worker one behind the other, by rank: (ranks, words). */
sh_status sh_learn_gather(sh_learn_team *team, const int64_t *own, size_t words, int64_t *all_out);
/* The same for data of which every worker has as much as it has, in multiples of four bytes; what
 * comes of it is the caller's to free with sh_free. */
sh_status sh_learn_collect(sh_learn_team *team, const void *own, size_t bytes, void **all_out,
                           size_t *bytes_out);
/* `root`'s bytes, a multiple of four, to everyone. */
sh_status sh_learn_broadcast(sh_learn_team *team, int root, void *data, size_t bytes);

/* A value and the row that has it. */
typedef struct sh_learn_best {
    double value;
    int64_t row;  // counted over all workers; -1: none
} sh_learn_best;

/* The greater value, and of equal ones the lower row. */
bool sh_learn_beats(sh_learn_best a, sh_learn_best b);
/* The best of all workers. */
sh_status sh_learn_best_of(sh_learn_team *team, sh_learn_best *best_inout);

/* Fails on all workers where it has failed on one, so that none waits for another. `status` is what
 * this worker has. */
sh_status sh_learn_agree(sh_learn_team *team, sh_status status);

#if defined(__clang_analyzer__)
/* Tells the analyzer what sh_learn_agree keeps: the failure of this worker stays one. */
static inline sh_status sh_learn_agreed(sh_learn_team *team, sh_status status) {
    sh_status agreed = sh_learn_agree(team, status);
    return status == SH_OK ? agreed : sh_failed(agreed);
}
#define sh_learn_agree(team, status) sh_learn_agreed(team, status)
#endif

#endif
