/* How --accumulate cuts a batch: into as many parts as it says, or samples there are, that differ
 * by one sample at most, the larger ones first. */
#ifndef SH_RUN_PARTS_H
#define SH_RUN_PARTS_H

#include <stdint.h>

/* Parts that `count` samples are cut into; 0 for none. */
static inline int64_t sh_part_count(int64_t count, int64_t accumulate) {
    return count < accumulate ? count : accumulate;
}

/* The first sample of part `part` of `parts`; with part == parts, `count`. */
static inline int64_t sh_part_begin(int64_t count, int64_t parts, int64_t part) {
    int64_t larger = count % parts;
    return part * (count / parts) + (part < larger ? part : larger);
}

/* Samples of the largest part; 1 for no sample. */
static inline int64_t sh_part_most(int64_t count, int64_t accumulate) {
    return count == 0 ? 1 : (count + accumulate - 1) / accumulate;
}

#endif
