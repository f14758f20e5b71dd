/* What the files of a parameter server know of each other: ps_server.c talks to the workers,
 * ps_update.c turns what they push into updates. */
#ifndef SH_SYNC_PS_SERVER_H
#define SH_SYNC_PS_SERVER_H

#include "sync/ps.h"

/* The shard's weights at a version. While somebody reads them, the next version is made in another
 * block, so a reply is never torn and no update waits for a slow reader. */
typedef struct ps_block {
    float *data;
    bool lent;  // workers read it themselves
    int users;
} ps_block;

/* A worker, as a server sees it. */
typedef struct ps_client {
    sh_ps_request request;  // the last one to push or pull
    bool receives;          // its push is on its way
    bool pushed;            // rounds: its gradient waits to become part of an update
    bool waits;             // its pull is not answered yet
    bool meets, left;
    bool will_meet;   // asked to while its push was on its way
    bool busy;        // in the server's list
    bool combines;    // shard 0: what it brought waits for that of the others
    bool computes;    // shard 0: it has leave, and has not come back
    bool told;        // that its gradient is unwanted
    int64_t over;     // the version that it was told
    int64_t leave;    // the version that it computes with
    int64_t clock;    // pushes so far
    int64_t own;      // updates that these led to since its last pull
    float *gradient;  // what it pushed last, in the shard's layout
    char *packet;     // the same as it came, compressed or in integers; and a reply as it goes
    char *answer;
    bool answers;     // easgd: the answer was written as its push was taken in
    float *known;     // through a codec: the weights that the worker has; NULL: nobody asks
    ps_block *reads;  // being sent to it
    ps_block *then;   // what it computes with, kept for compensation
    sh_ps_reply reply;
    sh_message payload, head, values, word, slot[2];
} ps_client;

typedef struct ps_server {
    sh_service *service;
    const sh_ps_policy *policy;
    sh_ps_shard shard;
    sh_ps_coder push, pull;
    float *lag;  // room for what a worker lacks
    sh_optim optim;
    bool has_optim;
    bool computes;        // false: timing only
    bool exact;           // pushes are integers
    bool *unused;         // exact: per piece, in the round at hand
    int64_t *combined;    // exact, shard 0: what goes to all
    size_t packet_bytes;  // of a client's
    ps_block *blocks, *current;
    int block_count;
    ps_client *clients;
    int *busy, busy_count;  // clients with messages under way
    int left, meeting;      // how many
    bool stops;
    sh_ps_request ask;    // the request that is received now
    sh_message incoming;  // from anybody
    int64_t version;      // updates of this shard; in rounds, steps
    int64_t updates;      // of the optimizer
    int64_t pushes;       // steps of workers that have been taken in
    int64_t first;        // of these, those before the first one of the update at hand
    int64_t granted;      // steps that shard 0 gave leave for
    // The group under way, where pushes are taken as they come:
    float *sum;  // of gradients times their weights
    double weight;
    int members;
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
