/* A schedule worked through in memory, step by step, for all ranks at once: the numbers, and what
 * each block is the sum of. For explain and its picture; at most 64 ranks. */
#ifndef SH_EXPLAIN_PLAY_H
#define SH_EXPLAIN_PLAY_H

#include <stdint.h>

#include "comm/schedule.h"
#include "explain/values.h"

typedef struct sh_play {
    const sh_algorithm *algorithm;
    sh_topology topology;
    int blocks, steps, step;  // blocks per rank, steps in all, steps done
    size_t elements;          // float values per rank; 0: only sets are played
    double *now, *before;     // (ranks, elements): after the last step and before it
    // (ranks, blocks) sets of ranks, one bit each: whose contributions a block holds; 0: nothing
    // yet.
    uint64_t *has, *had;
    bool *fresh;  // (ranks, blocks): received in the last step
} sh_play;

/* Ranks start with the values of their lines; in an all-gather a line is the rank's own block. NULL
 * values: none. */
sh_status sh_play_init(sh_play *play, const sh_algorithm *algorithm, const sh_topology *topology,
                       const sh_values *values);
void sh_play_fini(sh_play *play);
/* False when there is no further step. */
bool sh_play_next(sh_play *play);

static inline uint64_t sh_play_has(const sh_play *play, int rank, int block) {
    return play->has[(size_t)rank * (size_t)play->blocks + (size_t)block];
}
/* The block holds numbers worth showing: some arrived, or a broadcast will write over them, or they
 * are what an all-to-all sends. */
bool sh_play_shows(const sh_play *play, int rank, int block);
/* The block of a rank is what the collective promises: complete, and meant to be there. */
bool sh_play_is_final(const sh_play *play, int rank, int block);

#endif
