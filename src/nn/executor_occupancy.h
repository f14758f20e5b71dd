/* Which addresses of a block are taken at which times, so that what is placed next finds the lowest
 * address that is free over its whole life.
 *
 * A tree over the times: every node keeps, as sorted disjoint ranges of addresses, what is taken
 * over all of its times (`whole`) and what at any of them (`some`, without what its parents have
 * whole). A life is O(log times) nodes, and ranges that touch become one, so that a search looks at
 * few. */
#ifndef SH_NN_EXECUTOR_OCCUPANCY_H
#define SH_NN_EXECUTOR_OCCUPANCY_H

#include <stddef.h>

#include "base/status.h"

typedef struct sh_occupancy_node sh_occupancy_node;

typedef struct sh_occupancy {
    sh_occupancy_node *nodes;  // the root is 1, the children of i are 2 i and 2 i + 1
    int times;                 // a power of two
} sh_occupancy;

/* Nothing is taken. Lives are within [0, times). */
sh_status sh_occupancy_init(sh_occupancy *occupancy, int times);
void sh_occupancy_fini(sh_occupancy *occupancy);

/* Takes `bytes` from `offset` on, from time `start` to `end`, both included. */
sh_status sh_occupancy_take(sh_occupancy *occupancy, int start, int end, size_t offset,
                            size_t bytes);
/* The lowest place from `offset` on where as many bytes are free over that life. */
size_t sh_occupancy_find(const sh_occupancy *occupancy, int start, int end, size_t offset,
                         size_t bytes);

#endif
