/* The engine runs collectives: it takes a schedule, step by step, over a transport. Long buffers
 * are cut into segments; each is a small collective of its own, several are under way at once, and
 * so sums overlap transfers. Where peers' memory is mapped and the data lies in it, `direct` sums
 * each rank's slice straight from its peers and writes it to all in one pass.
 *
 * Calls are started in the same order by all ranks of a group; they may finish in any order.
 * Starting allocates nothing after the first call of a size. On shm the main task drives the
 * engine: every start, test and wait makes progress, and sh_engine_poll does between kernels. On
 * MPI a comm task drives it and these functions only talk to that task. */
#ifndef SH_COMM_ENGINE_H
#define SH_COMM_ENGINE_H

#include "comm/watchdog.h"
#include "comm/schedule.h"
#include "comm/transport.h"
#include "tensor/dtype.h"

typedef struct sh_engine sh_engine;
typedef struct sh_group sh_group;

struct sh_call;

/* What is made of sums on their way: an all-reduce of mapped memory whose result is not the sum but
 * what `work` makes of it. Ranks take parts of it while they wait, not while they only test or
 * poll: they sum a part into their own data, work on it while it is in the
 * cache, and write the result to all ranks. So `work` gives the same bits on every rank. */
typedef struct sh_fused_work {
    void (*work)(void *self, const struct sh_call *call, sh_range part);  // NULL: nothing
    void *self;
    void *result;             // laid out as the call's data, of the same type
    const sh_shared *shared;  // that holds it, at the same place on every rank
} sh_fused_work;

/* A collective under way; the caller's, borrowed until it is done. */
typedef struct sh_call {
    sh_collective what;
    const char *algorithm;  // NULL: by size, from the measured costs
    sh_group *group;        // NULL: all ranks
    void *data;             // in place; NULL in the simulator: only sizes move
    const void *source;     // all-to-all only: what is sent; data receives
    size_t count;           // elements of the whole buffer, the same on all ranks
    sh_dtype dtype;
    sh_reduce_op op;
    int root;                 // broadcast
    const sh_shared *shared;  // the data lies in this rank's part of it; NULL: private memory
    sh_fused_work fused;      // an all-reduce of mapped memory only, see sh_engine_maps
    int64_t step;             // under way, from 1; for the flight recorder
    int bucket;               // SH_NO_BUCKET: of none
    // Results:
    sh_status status;     // once done
    uint64_t sent_bytes;  // over the wire by this rank
    uint64_t messages;
    int64_t start_ns, end_ns;
    // The engine's own:
    bool done;  // read it through sh_engine_test
    void *own;
    struct sh_call *next;
} sh_call;

/* A call with what is set and the defaults of the rest: SH_CALL(.what = SH_BARRIER). */
enum { SH_NO_BUCKET = -1 };
#define SH_CALL(...) ((sh_call){.bucket = SH_NO_BUCKET, __VA_ARGS__})

enum { SH_TRIED_BYTES = 1 << 20 };  // from here on what was tried counts, not the model alone

/* What messages and sums cost between these ranks, measured. */
typedef struct sh_costs {
    sh_link link, node_link;    // between nodes and inside one; beta 0: the defaults
    const sh_algorithm *large;  // the all-reduce that was the fastest for long buffers when those
                                // that should cost alike were tried; NULL: by the links
} sh_costs;

typedef struct sh_engine_options {
    const char *algorithm;  // forced for all-reduces, NULL or "auto": chosen
    size_t segment_bytes;   // 0: the measured default
    bool task;              // a comm task drives (MPI)
    int64_t timeout_ns;     // a wait longer than this fails and says who waits for whom; 0: never
    const sh_wait_report *wait_report;  // of waits for a comm task; borrowed; NULL: nothing is said
    sh_costs costs;                     // zeros: defaults
} sh_engine_options;

/* Takes the transport over: destroy closes it, so the task that opened it destroys the engine. */
sh_status sh_engine_create(sh_transport *transport, const sh_engine_options *options,
                           sh_engine **engine_out);
void sh_engine_destroy(sh_engine *engine);
int sh_engine_rank(const sh_engine *engine);
int sh_engine_ranks(const sh_engine *engine);
/* Adapts to measured step times. */
void sh_engine_set_timeout(sh_engine *engine, int64_t timeout_ns);
/* Where a comm task drives: from now on it moves the transport along also while no call is under
 * way, for others that send over it (mail). `start`, unless NULL, is called there once before. */
sh_status sh_engine_keep_polling(sh_engine *engine, void (*start)(sh_transport *transport));

sh_status sh_engine_start(sh_engine *engine, sh_call *call);
/* True once the call is finished; its status tells how. */
bool sh_engine_test(sh_engine *engine, sh_call *call);
sh_status sh_engine_wait(sh_engine *engine, sh_call *call);
void sh_engine_poll(sh_engine *engine);
/* Start and wait. */
sh_status sh_engine_run(sh_engine *engine, sh_call *call);
sh_status sh_engine_barrier(sh_engine *engine);
/* The ranks part: calls under way fail with SH_E_PEER, and so will all others. */
void sh_engine_abandon(sh_engine *engine);
/* Memory of all ranks, mapped where they share a node; through the driving task. */
sh_status sh_engine_share(sh_engine *engine, size_t bytes, sh_shared *shared_out);
void sh_engine_unshare(sh_engine *engine, sh_shared *shared);

/* The memory of all ranks is mapped, and the calling task drives: sums can be worked on on their
 * way (sh_fused_work). Not where an algorithm is forced that goes another way. */
bool sh_engine_maps(const sh_engine *engine);

/* Ranks of the run, in the order of the group; all ranks of the group create it in the same order.
 * Ranks outside it get NULL. */
sh_status sh_group_create(sh_engine *engine, const int *ranks, int count, sh_group **group_out);
/* Another group of the same ranks, whose calls have an order of their own. Collective over them. */
sh_status sh_group_twin(const sh_group *group, sh_group **twin_out);
void sh_group_destroy(sh_group *group);
/* The group of all ranks, in their order; the engine's own. */
sh_group *sh_engine_world(const sh_engine *engine);
/* This rank's place in the group, from 0, and how many ranks it has. */
int sh_group_rank(const sh_group *group);
int sh_group_ranks(const sh_group *group);
sh_engine *sh_group_engine(const sh_group *group);
/* Starts the call, or runs it, among the ranks of the group. */
sh_status sh_group_start(sh_group *group, sh_call *call);
bool sh_group_test(sh_group *group, sh_call *call);
sh_status sh_group_wait(sh_group *group, sh_call *call);
sh_status sh_group_run(sh_group *group, sh_call *call);
sh_status sh_group_barrier(sh_group *group);
/* Collective over the group: memory of each of its ranks, as sh_engine_share. Where it is not all
 * of the engine's ranks nobody maps it, and calls copy what lies in it through memory of the
 * engine's. */
sh_status sh_group_share(sh_group *group, size_t bytes, sh_shared *shared_out);
void sh_group_unshare(sh_group *group, sh_shared *shared);
/* This rank's part. */
void *sh_group_memory(const sh_group *group, const sh_shared *shared);
/* For sh_call.shared: NULL where nobody maps it. */
const sh_shared *sh_group_mapped(const sh_shared *shared);
/* As sh_engine_maps, between the ranks of the group. */
bool sh_group_maps(const sh_group *group);

/* The schedule that an all-reduce of so many bytes would take, and what it should cost. */
const sh_algorithm *sh_engine_choice(const sh_engine *engine, const sh_group *group, size_t bytes,
                                     bool mapped, double *seconds_out);
/* Measures alpha, beta and gamma with all ranks, and tries the best all-reduces where the model
 * cannot tell: a short calibration (under a second). All ranks get the same, and choose by it. */
sh_status sh_engine_calibrate(sh_engine *engine, sh_costs *costs_out);
/* Measures the link between nodes in a few round trips, whatever the engine chooses by; where all
 * ranks are on one node, or the messages were disturbed, `link_inout` stays as it is. All ranks get
 * the same. */
sh_status sh_engine_probe(sh_engine *engine, sh_link *link_inout);
/* Takes costs that were measured before; all ranks take the same, in the same place. */
sh_status sh_engine_set_costs(sh_engine *engine, const sh_costs *costs);
/* Which transport joins the ranks, and on how many nodes they are. */
const char *sh_engine_transport(const sh_engine *engine);
int sh_engine_nodes(const sh_engine *engine);

#endif
