/* Inside the MPI transport.
 *
 * Tags of Shoal have 48 bits, those of MPI as few as 15. So every message announces itself by a
 * head of 40 bytes, all heads under one MPI tag; a short message travels in the same packet. A
 * long one follows under an MPI tag that its head names, and goes from the sender's buffer to the
 * receiver's without a copy of ours: the receiver posts its buffer when it has met the head and
 * the caller's receive. The sender waits for nothing in between.
 *
 * Heads are received into a ring of packets that are always posted, and are met in the order in
 * which they were posted, so messages of one peer and tag stay in order.
 *
 * Mail (mpi_mail.c) goes the same ways. Its heads say so in the highest bit of the tag, and name
 * the two endpoints instead of a stamp: a receive of an endpoint meets only what was sent to it.
 * What an endpoint sends to another one of the same rank is met at once, without MPI. */
#ifndef SH_COMM_TRANSPORTS_MPI_INTERNAL_H
#define SH_COMM_TRANSPORTS_MPI_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "comm/transport.h"
#include "comm/transports/mpi.h"
#include "comm/transports/mpi_starter.h"
#include "comm/transports/mpi_module.h"

enum {
    SH_MPI_SHORT_BYTES = 8192,  // travel with the head; copied once on each side
    SH_MPI_ARRIVALS = 64,       // heads that can arrive between two calls of progress unexpected
    SH_MPI_BUCKETS = 64,        // lists of receives and of early messages, by tag
    SH_MPI_TAG_HEAD = 1,
    SH_MPI_TAG_DATA = 2,  // the first of those that long messages take in turn
};
static const uint64_t SH_MPI_TAG_MAIL = UINT64_C(1) << 63;  // in Shoal's tag; not MPI's
static const uint64_t SH_MPI_DATA_HERE = UINT64_MAX;

typedef struct sh_mpi_head {
    uint64_t tag;  // of Shoal; with SH_MPI_TAG_MAIL, that of mail
    uint64_t bytes;
    uint64_t data_tag;  // MPI's tag of what follows; 0: it is in this packet; DATA_HERE: it lies in
                        // this process, in `message` of the packet
    sh_stamp stamp;     // of mail: the endpoints from and to
} sh_mpi_head;

/* A head and a short message: arriving, leaving, or early and waiting for its receive. */
typedef struct sh_mpi_packet sh_mpi_packet;
struct sh_mpi_packet {
    sh_mpi_packet *next;      // in the pool or a list of early messages
    sh_mpi_packet *next_all;  // every packet there is
    sh_message *message;      // leaving, or DATA_HERE: whose it is
    int rank;                 // arrived: who sent it,
    int peer;                 // and as its receiver knows the sender
    sh_mpi_head head;         // MPI sends and receives from here on
    char payload[SH_MPI_SHORT_BYTES];
};

/* Messages are met in the order they came in, per tag. */
typedef struct sh_mpi_bucket {
    sh_message *receives, **receives_end;
    sh_mpi_packet *early, **early_end;
} sh_mpi_bucket;

/* Each rank's wake-up word, in memory that its node shares. */
typedef struct sh_mpi_wakeup {
    _Alignas(64) _Atomic uint32_t wakes;
    _Atomic uint32_t sleeps;  // its owner waits on `wakes`
} sh_mpi_wakeup;

typedef struct sh_mpi_mail sh_mpi_mail;
typedef struct sh_mpi_endpoint sh_mpi_endpoint;

/* What passes between the task that owns the transport and those that use endpoints of mail. */
typedef struct sh_mpi_mail_queue {
    pthread_mutex_t lock;
    sh_mpi_mail *submitted, **submitted_end;  // guarded by lock; handed over, in order
    sh_mpi_endpoint *endpoints;               // guarded by lock; the open ones
    char failure[512];                        // guarded by lock
    _Atomic bool waiting;                     // there is mail; relaxed: a hint to look
    _Atomic bool failed;                      // release: `failure` is there
} sh_mpi_mail_queue;

/* The ring of packets into which heads are received, in the order in which they were posted. */
typedef struct sh_mpi_arrivals {
    sh_mpi_packet *packets[SH_MPI_ARRIVALS];
    bool done[SH_MPI_ARRIVALS];  // received, not yet matched
    int at;                      // the next to match
} sh_mpi_arrivals;

typedef struct sh_mpi {
    sh_transport base;
    const sh_mpi_module *module;
    sh_mpi_options options;
    sh_mpi_starter *starter;
    sh_mpi_world world;
    int first;  // the rank, of all that MPI has, that is the first of this transport's
    sh_mpi_mail_queue queue;
    bool mails;                              // since sh_mpi_start_mail
    size_t near_part_bytes, far_part_bytes;  // of long messages, inside the node and beyond

    sh_mpi_arrivals arrivals;
    sh_mpi_bucket buckets[SH_MPI_BUCKETS];
    sh_mpi_packet *pool, *all;
    uint32_t *data_tags;  // (all ranks): long messages sent to each, so far
    int moving;           // long messages under way

    int *node;               // (all ranks)
    sh_shared page;          // wake-up words and boards, brought by each node's first rank
    sh_mpi_wakeup *wakeups;  // (all ranks), those of other nodes unused
    uint32_t wakes_seen;
    int64_t active_ns;  // when something last moved
    bool is_slack_set;

    bool failed;
    char failure[512];
} sh_mpi;

/* Finds, loads and checks a module. */
sh_status sh_mpi_load(const char *where, sh_mpi_flavour flavour, const sh_mpi_module **module_out);

/* Notes an error of MPI as the transport's end and fails with it. */
sh_status sh_mpi_fail(sh_mpi *mpi, int error, const char *what);

sh_status sh_mpi_messages_init(sh_mpi *mpi);
void sh_mpi_messages_fini(sh_mpi *mpi);
sh_status sh_mpi_send(sh_transport *transport, sh_message *message);
sh_status sh_mpi_receive(sh_transport *transport, sh_message *message);
void sh_mpi_cancel(sh_transport *transport, sh_message *message);
bool sh_mpi_progress(sh_transport *transport);
/* Mail: a message whose tag has SH_MPI_TAG_MAIL. A send's `peer` is the rank, counted from the
 * transport's first; a receive's is an endpoint, or any. */
sh_status sh_mpi_mail_send(sh_mpi *mpi, sh_message *message, int from, int to);
void sh_mpi_mail_receive(sh_mpi *mpi, sh_message *message, int to);

void sh_mpi_mail_queue_init(sh_mpi_mail_queue *queue);
/* The owner's: starts what was handed over; true if there was anything. */
bool sh_mpi_mail_queue_serve(sh_mpi *mpi);
void sh_mpi_mail_queue_fail(sh_mpi *mpi);
/* The owner's: its message is done, cancelled or failed. */
void sh_mpi_mail_ended(sh_message *message);

sh_status sh_mpi_share(sh_transport *transport, size_t bytes, sh_shared *shared_out);
void sh_mpi_unshare(sh_transport *transport, sh_shared *shared);
/* Every rank brings its own number of bytes. Where no memory can be shared it gets `private_bytes`
 * for itself, and all other entries are NULL. */
sh_status sh_mpi_share_uneven(sh_mpi *mpi, size_t bytes, size_t private_bytes,
                              sh_shared *shared_out);
bool sh_mpi_is_mapped(const sh_shared *shared);  // peers of the node really share it

void sh_mpi_wake(sh_transport *transport, int peer);
void sh_mpi_wake_rank(sh_mpi *mpi, int rank);  // of all that MPI has
void sh_mpi_idle(sh_transport *transport);

#endif
