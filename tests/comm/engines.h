/* Engines for tests: ranks as threads, one engine each, and values whose reductions are exact in
 * every type, so that the order of a sum cannot show. */
#ifndef SH_TESTS_COMM_ENGINES_H
#define SH_TESTS_COMM_ENGINES_H

#include "comm/engine.h"
#include "comm/ranks.h"

typedef sh_status (*sh_engine_body)(sh_engine *engine, void *argument);

/* `options` may be NULL. */
sh_status run_engines(int ranks, const sh_engine_options *options, sh_engine_body body,
                      void *argument);

/* What rank `rank` holds at `index`, as a small whole number; few twos for products. */
int engine_value(sh_reduce_op op, int rank, size_t index);
/* Sets elements [0, count) to what `rank` holds. */
void engine_fill(void *data, sh_dtype dtype, sh_reduce_op op, int rank, size_t count);
/* Elements [first, first + count) are the reduction over ranks 0..ranks-1 (of the group: `member`,
 * NULL: of the run). Says which is not. */
sh_status engine_check(const void *data, sh_dtype dtype, sh_reduce_op op, const int *member,
                       int ranks, size_t first, size_t count, const char *what);

#endif
