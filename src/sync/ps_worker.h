/* What the files of a worker of parameter servers know of each other: ps_link.c talks to the
 * servers, ps_worker.c computes. */
#ifndef SH_SYNC_PS_WORKER_H
#define SH_SYNC_PS_WORKER_H

#include "sync/ps.h"

/* One server, as a worker sees it. */
typedef struct ps_link {
    sh_ps_shard shard;
    int64_t version;  // of the values that it sent last
    sh_ps_coder push, pull;
    float *lag;                   // what came compressed
    float *pushes, *pulls;        // what travels, where the shard is no stretch of the block
    int64_t *integers;            // exact: a push
    bool asked;                   // a reply is due
    sh_ps_request request, last;  // last: MEET or END
    sh_ps_reply reply;
    sh_message ask, pushed, head, values, last_ask, slot[2];
} ps_link;

typedef struct ps_worker {
    sh_ps_policy policy;
    ps_link *links;
    int count;
    bool asked;            // replies are due
    bool met;              // no step since the meeting
    bool failed;           // nobody is told anything any more
    bool ready;            // all of it was there once
    int64_t since;         // steps since its last pull
    int64_t first;         // shard 0's version as the run began
    int64_t round;         // shard 0's version with the permit
    int64_t over_version;  // shard 0 ended the round; valid when `over` is done
    sh_message over;
    float *sum;      // of gradients that are not pushed yet; NULL: each is pushed
    int64_t summed;  // how many
    float *centre;   // easgd: as this worker knows it from the servers,
    float *own;      // its own weights while the meeting has the centre's,
    float *seen;     // and through a codec, those that the servers know of; NULL: without
} ps_worker;

/* What is pushed: the gradient, the sum of some, or with elastic averaging the weights. */
float *ps_pushed_block(const sh_sync *sync, const ps_worker *w);
float *ps_pulled_block(const sh_sync *sync, const ps_worker *w);
/* Starts a message with a server. */
sh_status ps_start(sh_replica *replica, sh_message *message, bool sends, int server, uint64_t tag,
                   void *data, size_t bytes);
/* Where the shard lies in a block, or the link's own memory that holds it. */
float *ps_place_of(const ps_link *link, float *block, float *own);
/* Starts to receive the head of a reply alone. */
sh_status ps_expect_head(sh_replica *replica, ps_link *link, int server);
/* Starts to receive a reply, of a pull or at a meeting. */
sh_status ps_expect(sh_sync *sync, ps_worker *w, int server, float *block, bool pulls);
/* A request to all servers, or for a step alone to the first. */
sh_status ps_ask(sh_sync *sync, ps_worker *w, uint32_t what);
sh_status ps_read_head(sh_sync *sync, ps_link *link, int server);
/* The values of a reply, into `block`. */
sh_status ps_read_values(sh_sync *sync, ps_link *link, int server, float *block, bool pulls);
/* All gradients have been pushed. */
void ps_forget_sum(const sh_sync *sync, ps_worker *w);
/* The rest of a pull whose first head was read. */
sh_status ps_finish_pull(sh_sync *sync, ps_worker *w);

/* What the codec left out of this worker's pushes goes on from replica->state[0], which has the
 * mean over the workers. */
void ps_residual_take(const sh_sync *sync, ps_worker *w);
/* The other way: this worker's residual alone, for those who regroup. */
void ps_residual_give(const sh_sync *sync, const ps_worker *w);
/* Collective, at a meeting: the residual of every worker becomes the mean over the workers. */
sh_status ps_residual_settle(const sh_sync *sync, ps_worker *w);

#endif
