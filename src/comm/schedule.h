/* Schedules: who sends what to whom, in which step, as a pure function. Four readers use it: the
 * engine runs it, the simulator too, the cost model prices it, `shoal explain` draws it. Nothing is
 * ever listed in full but by explain.
 *
 * A buffer is cut into algorithm->blocks(topology) blocks of nearly equal size (sh_block_range). In
 * step s a rank sends a stretch of blocks to one peer and receives another from one peer, which it
 * then reduces into or copies over its own. A rank may idle in a step (peer -1). Within one step
 * the send reads what stood there before the step.
 *
 * What holds for every row, and is tested:
 *  - a send in step s meets a receive in the same step s of that peer, of the same stretch, and
 *    there is no other;
 *  - stretches lie inside the buffer: 0 <= first, first + count <= blocks, no wrapping around;
 *  - each element of a sum is finished by one rank and copied from there, so that all ranks end
 *    with equal bits;
 *  - one rank alone has no steps.
 * Stretches that hold no elements (more blocks than elements) need not be sent, except in a
 * barrier: its messages are empty (count 0) and must travel. */
#ifndef SH_COMM_SCHEDULE_H
#define SH_COMM_SCHEDULE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef enum sh_collective {
    SH_ALLREDUCE,
    SH_REDUCE_SCATTER,  // rank r ends with the sum of block r; other blocks are spoilt
    SH_ALLGATHER,       // rank r starts with block r
    SH_BROADCAST,       // from the root
    SH_ALLTOALL,        // block j of rank i becomes block i of rank j; a multiple of the ranks
    SH_BARRIER,
} sh_collective;
enum { SH_COLLECTIVES = 6 };

/* Which ranks of a group are on which node, looked up from both sides. */
typedef struct sh_places {
    int nodes, least, most;   // how many nodes; ranks on the smallest and on the largest
    const int *node, *index;  // per rank: its node, numbered by first appearance; its place there
    const int *start;         // per node and one more: where its ranks begin in `member`
    const int *member;        // ranks, node by node, ascending
} sh_places;

/* `node` holds one number per rank, equal where ranks share a node; any numbers, any order. Caller
 * destroys. */
sh_status sh_places_create(const int *node, int ranks, sh_places **places_out);
void sh_places_destroy(sh_places *seen);

/* What a schedule depends on besides rank and step. */
typedef struct sh_topology {
    int ranks;
    int root;                 // broadcast
    const sh_places *places;  // of these ranks; NULL: all on one node
} sh_topology;

typedef enum sh_then { SH_THEN_COPY, SH_THEN_REDUCE } sh_then;

typedef struct sh_move {
    int peer;          // rank in the group, -1: none
    int first, count;  // blocks; all-to-all: sent from the source, received into the data
} sh_move;

typedef struct sh_moves {
    sh_move send, receive;
    sh_then then;
} sh_moves;

/* What a message costs by the alpha-beta-gamma model: seconds per message, per byte sent, per byte
 * reduced. */
typedef struct sh_link {
    double alpha_s, beta_s, gamma_s;
} sh_link;

/* Between nodes beta counts the bytes through a node's wire, which its ranks share. */
typedef struct sh_links {
    sh_link between, inside;
} sh_links;

typedef struct sh_algorithm {
    const char *name, *help;
    const char *formula;  // of the cost, for people: P ranks, n bytes
    sh_collective does;
    bool native;   // the transport's own (MPI_Allreduce): no steps to see, all functions NULL
    bool by_node;  // sums inside each node first: where nodes have one rank, its ring
    bool maps;     // worth choosing where peers' memory is mapped: then run in one pass
    int (*blocks)(const sh_topology *topology);
    int (*steps)(const sh_topology *topology);
    sh_moves (*step)(const sh_topology *topology, int rank, int step);
    /* Closed form for `bytes`; checked against the steps in the tests. Exact where all links are
     * alike (all ranks on one node, or each on its own); sh_algorithm_price does the rest. */
    double (*cost)(const sh_topology *topology, double bytes, const sh_links *links);
} sh_algorithm;

const sh_algorithm *sh_algorithm_find(sh_collective does, const char *name);  // NULL: unknown
const sh_algorithm *sh_algorithm_at(size_t index);                            // NULL: past the end
const char *sh_collective_name(sh_collective does);  // "allreduce", "reduce-scatter"
/* By that name, with dashes or without ("all-reduce"). */
bool sh_collective_find(const char *name, sh_collective *does_out);

/* Seconds for `bytes` in the whole buffer: the closed form where it is exact, otherwise a walk
 * through the steps in which the ranks of a node share its wire. INFINITY for native rows, whose
 * cost only a measurement tells. O(ranks x steps) on mixed topologies: remember the answer. */
double sh_algorithm_price(const sh_algorithm *algorithm, const sh_topology *topology, double bytes,
                          const sh_links *links);

/* Elements [first, first + count) of block `index`. A multiple of `blocks` is cut evenly. Other
 * long buffers are cut at multiples of 16 elements, so that no two ranks write to one cache line.
 */
typedef struct sh_range {
    size_t first, count;
} sh_range;
sh_range sh_block_range(size_t elements, int blocks, int index);
/* The elements of a whole stretch: neighbouring blocks touch. */
sh_range sh_stretch_range(size_t elements, int blocks, int first, int count);

#endif
