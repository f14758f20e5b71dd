/* A transport joins the ranks of a run: messages by rank and tag, memory that peers can map, and
 * the clock. Implementations: shm (processes of one machine, or threads of one process), mpi, and
 * sim. Whoever uses a transport sees ranks and tags, never which one it is.
 *
 * Messages between two ranks with one tag arrive in the order they were sent; different tags may
 * overtake each other. A message is a struct of the caller's, so sending allocates nothing:
 *
 *   sh_message message = {.peer = right, .tag = tag, .data = x, .bytes = n};
 *   SH_TRY(sh_send(transport, &message));
 *   while (message.state == SH_MESSAGE_PENDING)
 *       if (!sh_transport_progress(transport)) sh_transport_idle(transport);
 *
 * A transport belongs to one task: the main task on shm, the comm task on MPI. */
#ifndef SH_COMM_TRANSPORT_H
#define SH_COMM_TRANSPORT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/clock.h"
#include "base/status.h"
#include "comm/board.h"

enum { SH_ANY_RANK = -1 };

typedef enum sh_message_state {
    SH_MESSAGE_NEW,
    SH_MESSAGE_PENDING,
    SH_MESSAGE_DONE,
    SH_MESSAGE_CANCELLED,
    SH_MESSAGE_FAILED,  // the peer left, or the message was larger than the receiver's buffer
} sh_message_state;

/* Two words that travel with a message, beside its data: what it belongs to. */
typedef struct sh_stamp {
    uint64_t kind, extent;
} sh_stamp;

typedef struct sh_message sh_message;
struct sh_message {
    int peer;        // SH_ANY_RANK in a receive: whoever sends first; then who it was
    uint64_t tag;    // below 2^48
    sh_stamp stamp;  // of a send; the receiver's `on_arrival` sees it
    void *data;      // borrowed until the message is done, cancelled or failed
    size_t bytes;    // a receive: room for the message; then its size
    bool zero_copy;  // a receive: `data` may become exported memory of the sender, until
                     // sh_message_release
    sh_message_state state;
    // The transport's own:
    bool sends;
    size_t moved_bytes;
    sh_message *next;
    uintptr_t own[6];
};

/* Memory of every rank that its peers on the same node can map. */
typedef struct sh_shared {
    size_t bytes;   // the same on all ranks
    char **base;    // per rank; NULL: on another node, only messages reach it
    size_t stride;  // from a rank's part to the next one's, all usable; 0: they do not lie in a row
    void *own;      // the transport's
} sh_shared;

typedef struct sh_transport sh_transport;
struct sh_places;  // comm/schedule.h

typedef struct sh_transport_ops {
    const char *name;
    sh_status (*send)(sh_transport *transport, sh_message *message);
    sh_status (*receive)(sh_transport *transport, sh_message *message);
    void (*cancel)(sh_transport *transport, sh_message *message);
    bool (*progress)(sh_transport *transport);
    void (*idle)(sh_transport *transport);
    sh_status (*health)(sh_transport *transport);
    sh_status (*share)(sh_transport *transport, size_t bytes, sh_shared *shared_out);
    void (*unshare)(sh_transport *transport, sh_shared *shared);
    void *(*export_acquire)(sh_transport *transport, size_t bytes);  // NULL: exports no memory
    void (*export_release)(sh_transport *transport, void *memory);
    // NULL: receives are never zero-copy.
    void (*message_release)(sh_transport *transport, sh_message *message);
    void (*wake)(sh_transport *transport, int peer);
    /* The transport's own all-reduce (MPI's); NULL: it has none. Blocks; in place. */
    sh_status (*allreduce)(sh_transport *transport, void *data, size_t count, int dtype, int op);
    void (*close)(sh_transport *transport);
} sh_transport_ops;

struct sh_transport {
    const sh_transport_ops *ops;
    int rank, ranks;
    const int *node;                 // per rank: which node it is on, from 0
    const struct sh_places *places;  // of all ranks, shared by them; NULL: made from `node`
    int ranks_per_core;              // of this node, rounded up; above 1 nobody spins for long
    const sh_clock *clock;
    // The simulator's: time passes in idle only, so nobody spins; no memory is mapped; a message
    // whose data is NULL moves its size.
    bool virtual_time;
    sh_rank_status *board;    // this rank's, never NULL
    sh_status_board *boards;  // of all ranks where memory is shared; NULL elsewhere
    /* Called by progress for each message that comes in, before a receive gets it, perhaps more
     * than once; it must not use the transport. True: an empty message that nobody receives. NULL:
     * nobody asks. */
    bool (*on_arrival)(void *user, int peer, uint64_t tag, sh_stamp stamp);
    void *on_arrival_user;
};

/* For transports: a message has come in. */
static inline bool sh_transport_arrived(const sh_transport *transport, int peer, uint64_t tag,
                                        sh_stamp stamp) {
    return transport->on_arrival != NULL &&
           transport->on_arrival(transport->on_arrival_user, peer, tag, stamp);
}

/* Starts a send or a receive; completes in progress. */
static inline sh_status sh_send(sh_transport *transport, sh_message *message) {
    return transport->ops->send(transport, message);
}
static inline sh_status sh_receive(sh_transport *transport, sh_message *message) {
    return transport->ops->receive(transport, message);
}
/* A pending receive is taken back; a send that began to travel is finished instead. */
static inline void sh_cancel(sh_transport *transport, sh_message *message) {
    transport->ops->cancel(transport, message);
}
/* Moves what can move, without waiting; true if anything did. */
static inline bool sh_transport_progress(sh_transport *transport) {
    return transport->ops->progress(transport);
}
/* Waits until something may have changed since the last progress: a message, a wake-up, or a few
 * milliseconds, so that callers can look at their watchdogs. Spins first, then sleeps. */
static inline void sh_transport_idle(sh_transport *transport) { transport->ops->idle(transport); }
/* SH_E_PEER, naming the rank, once a peer has left. */
static inline sh_status sh_transport_health(sh_transport *transport) {
    return transport->ops->health(transport);
}
/* Collective: all ranks call it in the same order with the same size. Zeroed, page-aligned. */
static inline sh_status sh_share(sh_transport *transport, size_t bytes, sh_shared *shared_out) {
    return transport->ops->share(transport, bytes, shared_out);
}
static inline void sh_unshare(sh_transport *transport, sh_shared *shared) {
    transport->ops->unshare(transport, shared);
}
/* Memory of this rank's own, out of which peers on its node read long messages themselves, so that
 * they are copied once instead of twice. Not collective; zeroed, page-aligned. NULL: there is none
 * here, and any other memory does as well. */
static inline void *sh_export_acquire(sh_transport *transport, size_t bytes) {
    return transport->ops->export_acquire != NULL ? transport->ops->export_acquire(transport, bytes)
                                                  : NULL;
}
/* When no message from it is pending any more. NULL is welcome. */
static inline void sh_export_release(sh_transport *transport, void *memory) {
    if (memory != NULL) transport->ops->export_release(transport, memory);
}
/* A zero-copy receive is done, and its data is no longer needed. Until then no further message of
 * that sender arrives. */
static inline void sh_message_release(sh_transport *transport, sh_message *message) {
    if (transport->ops->message_release != NULL)
        transport->ops->message_release(transport, message);
}
/* Wakes a peer on this node that is idle, after shared memory was written. */
static inline void sh_wake(sh_transport *transport, int peer) {
    transport->ops->wake(transport, peer);
}
static inline void sh_transport_close(sh_transport *transport) {
    if (transport != NULL) transport->ops->close(transport);
}

#endif
