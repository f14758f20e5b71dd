/* Schedules: who sends what to whom, in which step, as a pure function. Four readers use it: the
 * engine runs it, the simulator too, the cost model prices it, `shoal explain` draws it. Nothing is
 * ever listed in full but by explain.
 *
 * A buffer is cut into schedule->blocks(ranks) blocks of nearly equal size. In step s a rank sends
 * a stretch of blocks to one peer and receives another from one peer, which it then reduces into or
 * copies over its own. A rank may idle in a step (peer -1). Within one step the send reads what
 * stood there before the step. */
#ifndef SH_COMM_SCHEDULE_H
#define SH_COMM_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

typedef enum sh_collective {
    SH_ALLREDUCE,
    SH_REDUCE_SCATTER,  // rank r ends with the sum of block r; other blocks are spoilt
    SH_ALLGATHER,       // rank r starts with block r
    SH_BROADCAST,       // from the root
    SH_ALLTOALL,        // block j of rank i becomes block i of rank j
    SH_BARRIER,
} sh_collective;

/* Where the ranks of a group are. */
typedef struct sh_topology {
    int ranks;
    int root;         // broadcast
    const int *node;  // per rank of the group, NULL: all on one node
} sh_topology;

typedef enum sh_then { SH_THEN_COPY, SH_THEN_REDUCE } sh_then;

typedef struct sh_move {
    int peer;          // rank in the group, -1: none
    int first, count;  // blocks
} sh_move;

typedef struct sh_moves {
    sh_move send, receive;
    sh_then then;
} sh_moves;

/* What a schedule costs by the alpha-beta-gamma model: seconds per message, per byte sent, per byte
 * reduced. */
typedef struct sh_link {
    double alpha_s, beta_s, gamma_s;
} sh_link;

typedef struct sh_schedule {
    const char *name, *help;
    sh_collective does;
    bool native;  // the transport's own (MPI_Allreduce): no steps to see
    bool maps;    // worth choosing where peers' memory is mapped: then run in one pass
    int (*blocks)(const sh_topology *topology);
    int (*steps)(const sh_topology *topology);
    sh_moves (*step)(const sh_topology *topology, int rank, int step);
    /* Closed form for `bytes` on a uniform link; checked against the steps in the tests. */
    double (*cost)(const sh_topology *topology, double bytes, const sh_link *link);
} sh_schedule;

const sh_schedule *sh_schedule_find(sh_collective does, const char *name);  // NULL: unknown
const sh_schedule *sh_schedule_at(size_t index);                            // NULL: past the end

/* Elements [first, first + count) of block `index`. Long buffers are cut at multiples of 16
 * elements, so that no two ranks write to one cache line. */
typedef struct sh_range {
    size_t first, count;
} sh_range;
sh_range sh_block_range(size_t elements, int blocks, int index);

#endif
