/* What an engine does on any transport: run by threads over shared memory, and under mpirun. Each
 * is a body for run_engines. */
#ifndef SH_TESTS_COMM_ENGINE_CASES_H
#define SH_TESTS_COMM_ENGINE_CASES_H

#include "comm/engines.h"

typedef struct engine_ways {
    bool every_pair;  // of operator and type; else some of them, others each time
    bool native;      // the transport's own all-reduce, too
} engine_ways;

/* Every all-reduce equals the serial result; argument: engine_ways. */
sh_status engine_all_reduces(sh_engine *engine, void *argument);
/* The same on groups of the first 1, 2, 3, ... ranks, up to all; no argument. */
sh_status engine_every_count(sh_engine *engine, void *argument);
/* All ranks end with equal bits; argument: the number of floats, a size_t. */
sh_status engine_equal_bits(sh_engine *engine, void *argument);
/* Reduce-scatter, all-gather, broadcast, all-to-all and barrier; no argument. */
sh_status engine_collectives(sh_engine *engine, void *argument);
/* The same on groups of five ranks; no argument. */
sh_status engine_groups(sh_engine *engine, void *argument);
/* Groups of five ranks that share ranks, with calls of all of them under way; no argument. */
sh_status engine_overlapping_groups(sh_engine *engine, void *argument);
/* Many all-reduces under way, ended in any order; argument: whether they are polled, a bool. */
sh_status engine_many_at_once(sh_engine *engine, void *argument);

/* Two calls that ranks must not start in one place. */
typedef struct engine_difference {
    const char *name;
    sh_call call[2];  // of rank 1 is the second, of all others the first
    bool shared[2];
    const char *words[2];  // that name them
} engine_difference;
extern const engine_difference engine_differences[];  // up to one without a name

typedef struct engine_dispute {
    const engine_difference *row;
    char text[3][1024];  // what each rank was told
} engine_dispute;
/* Fails on all ranks; argument: engine_dispute. */
sh_status engine_differs(sh_engine *engine, void *argument);

#endif
