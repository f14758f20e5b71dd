/* What the files of a parameter server know of each other: ps_server.c talks to the workers,
 * ps_update.c turns what they push into updates. */
#ifndef SH_SYNC_PS_SERVER_H
#define SH_SYNC_PS_SERVER_H

#include "sync/ps.h"

/* The shard's weights at a version. While somebody reads them, the next version is made in another
 * block, so a reply is never torn and no update waits for a slow reader. */
typedef struct ps_block {
    float *data;
    bool exported;  // workers map the memory and read it themselves
    int users;
} ps_block;

typedef struct ps_blocks {
    ps_block *items, *current;
    int count;
} ps_blocks;

/* The state of a worker's conversation with a server. An edge is a request that arrives, or the
 * server's answer to it; a request without an edge in the state is refused (is_in_turn).
 *
 *          +---------------- PULL, or PULL and VOID -------------+
 *          |                                                     v
 *   IDLE, COMPUTES -- PUSH, MOST or SUM --> PUSHES -- came --> WAITS -- permit --> COMPUTES
 *     |    ^  ^                            |   |                 | \--- none ----> IDLE
 *     |    |  |                       came |   | MEET            |
 *     |    |  |                            v   |                 |
 *     |    |  +-- combined, none ---- COMBINES |                 | MEET
 *     |    |                                   v                 |
 *     |    |                            PUSHES_THEN_MEETS        |
 *     |    |                                   | came            |
 *     |    |                                   v                 |
 *     |    +---------- all have come -------- MEETS <------------+
 *     +------------------- MEET ---------------^
 *
 * "came": the values of the push have arrived. PUSH with PULL leads to WAITS, MOST or SUM to
 * COMBINES, PUSH alone is answered and leads to IDLE. "none": the answer has no permit, as it is
 * time to meet. STEP is answered in IDLE. END leads from IDLE, COMPUTES and WAITS to LEFT. */
typedef enum ps_client_state {
    PS_IDLE,               // has all answers that it asked for, and no permit from a pull
    PS_COMPUTES,           // its pull was answered with a permit
    PS_PUSHES,             // its push is on its way
    PS_PUSHES_THEN_MEETS,  // and it asked to meet behind that push
    PS_WAITS,              // its pull is not answered yet
    PS_COMBINES,           // shard 0, exact runs: its numbers wait for those of the others
    PS_MEETS,              // waits for the others at the meeting
    PS_LEFT,
} ps_client_state;

/* What a worker pushed last. */
typedef struct ps_pushed {
    bool waits;       // rounds: the gradient waits to become part of an update
    float *gradient;  // in the shard's layout
    char *packet;     // the same as it came, compressed or in integers
} ps_pushed;

/* Pulls through a codec: a worker gets what its copy of the weights lacks. */
typedef struct ps_copy {
    float *weights;  // those that the worker has; NULL: pulls are whole
    char *packet;    // the reply as it travels
    bool packed;     // easgd: the packet was written as the push was taken in
} ps_copy;

/* The message that tells a worker that its round is over and its gradient unwanted. */
typedef struct ps_over {
    bool sent;        // since the last reply
    int64_t version;  // that the round led to
} ps_over;

typedef struct ps_client_mail {
    bool listed;  // in ps_server.busy
    sh_message payload, head, values, over, slot[2];
} ps_client_mail;

/* A worker, as a server sees it. */
typedef struct ps_client {
    ps_client_state state;
    sh_ps_request request;   // the last one to push or pull
    int64_t permit_version;  // the version that it computes with
    int64_t pushes;          // so far: its clock in ssp
    int64_t own_updates;     // updates that its pushes led to since its last pull
    ps_pushed pushed;
    ps_copy copy;
    ps_block *reads;          // being sent to it
    ps_block *computed_with;  // what it computes with, held for delay compensation
    ps_over over;
    sh_ps_reply reply;
    ps_client_mail mail;
} ps_client;

/* Clients with messages under way: only these are looked at while the server waits. */
typedef struct ps_busy {
    int *ranks, count;
} ps_busy;

/* The next request, of whichever worker is first. */
typedef struct ps_inbox {
    sh_ps_request request;
    sh_message message;
} ps_inbox;

/* Exact runs: pushes are integers (ps_exact.h). */
typedef struct ps_exact {
    bool on;
    bool *unused;       // per piece, in the round at hand
    int64_t *combined;  // shard 0: what goes to all
} ps_exact;

/* The gradients of the next update, where they are taken in as they come. */
typedef struct ps_group {
    float *sum;  // of gradients times their weights; exact: the mean
    double weight;
    int members;
    int64_t first;  // pushes that had been taken in before the first of them
} ps_group;

typedef struct ps_server {
    sh_service *service;
    const sh_ps_policy *policy;
    sh_ps_shard shard;
    sh_ps_coder push, pull;
    float *lag;  // room for what a worker's copy lacks
    sh_optim optim;
    bool has_optim;
    bool computes;  // false: timing only
    ps_exact exact;
    size_t packet_bytes;  // of ps_pushed.packet
    ps_blocks blocks;
    ps_client *clients;
    ps_busy busy;
    int left_count, meeting_count;  // clients in PS_LEFT and PS_MEETS
    bool stops;
    ps_inbox inbox;
    int64_t version;  // updates of this shard; in rounds, steps
    int64_t updates;  // of the optimizer
    int64_t pushes;   // steps of workers that have been taken in
    int64_t granted;  // steps that shard 0 gave permits for
    ps_group group;
    int64_t saved;  // the version in the snapshot
} ps_server;

/* The weights as they are now, for a reader; give back with ps_release. NULL: timing only. */
ps_block *ps_acquire(ps_server *server);
void ps_release(ps_block *block);

/* The block for the next version: the current one, unless somebody reads it. */
sh_status ps_next_block(ps_server *server, ps_block **next_out);

/* Compressed pulls: what the worker lacks, into client->answer; then it counts as known. */
sh_status ps_write_lag(ps_server *server, ps_client *client);

sh_status ps_update_init(ps_server *server);
void ps_update_fini(ps_server *server);
/* A push is read as it is taken in, and never again: it may stay in its worker's memory. */
static inline bool ps_reads_once(const ps_server *server) {
    return !server->policy->rounds && server->policy->compensation == 0;
}
/* The client's push has arrived. */
sh_status ps_push(ps_server *server, ps_client *client);
/* All workers meet: what is left of a group becomes an update, or is dropped. */
sh_status ps_settle(ps_server *server);

/* After updates: the snapshot is renewed when it is due. */
void ps_snapshot_note(ps_server *server);
void ps_snapshot_save(ps_server *server);
/* The last one, by a server that nobody took by surprise. */
void ps_snapshot_end(ps_server *server);

static inline int64_t ps_done(const ps_server *server) {
    return server->policy->rounds ? server->version * server->service->workers : server->granted;
}

#endif
