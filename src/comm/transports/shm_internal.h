/* What the files of the shared-memory transport know of each other.
 *
 * The file begins with the control block: the board, a wakeup per rank, a bitmap per rank of who
 * ever sent to it, and the rings. Behind it lie the regions of sh_share, one after the other.
 *
 * A ring is a stretch of records, each at a multiple of 64 bytes. Its single reader looks at the
 * word of the next record only: a word other than 0 publishes the record. The single writer clears
 * the word behind a record before it publishes the record, so a stale word is never seen. A record
 * never crosses the ring's end: a message is cut there into one more piece, as it is anyway when it
 * is longer than a sixteenth of the ring.
 *
 * A long message whose data lies in exported memory (shm_export.c) is one record that tells
 * where; the reader copies the data from there, and counts the reference as released. References of
 * a ring are released in its order.
 *
 * Waking is Dekker's: a writer publishes and then looks whether the reader sleeps; a reader says
 * that it sleeps and then looks once more for records. All four accesses are sequentially
 * consistent, so at least one of the two sees the other. */
#ifndef SH_COMM_TRANSPORTS_SHM_INTERNAL_H
#define SH_COMM_TRANSPORTS_SHM_INTERNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "comm/transports/shm.h"

enum { SHM_LINE = 64, SHM_BITS = 64 };

/* A piece of a message in a ring. */
typedef struct shm_record {
    _Atomic uint64_t word;  // 0: nothing here yet; release
    uint64_t tag;           // of the first piece
    uint64_t total;         // of the first piece: bytes of the whole message
    sh_stamp stamp;         // of the first piece
    unsigned char data[];
} shm_record;

static inline uint64_t shm_word(size_t piece_bytes) { return (uint64_t)piece_bytes + 1; }
static inline size_t shm_word_bytes(uint64_t word) { return (size_t)(word - 1); }

/* The word of a record that holds a reference instead of data: where in exported memory the data
 * lies. */
static const uint64_t shm_reference_word = UINT64_MAX;
typedef struct shm_reference {
    uint64_t offset;  // in the exported memory
} shm_reference;

static inline size_t shm_record_bytes(size_t piece_bytes) {
    return (sizeof(shm_record) + piece_bytes + SHM_LINE - 1) / SHM_LINE * SHM_LINE;
}

typedef struct shm_ring {
    _Alignas(128) _Atomic uint64_t head;  // bytes the reader is done with; written by it alone
    _Atomic uint64_t released;        // references that it has read; release, written by it alone
    _Alignas(128) _Atomic bool full;  // the writer waits for room; written by it alone
    _Alignas(128) unsigned char data[];
} shm_ring;

/* What a rank brings to a share, published by `round`. Two of them in turn: a rank that begins
 * round k + 2 knows that all have read round k. */
typedef struct shm_offer {
    _Atomic uint64_t round;  // release: status and bytes are readable
    int status;
    size_t bytes;
} shm_offer;

typedef struct shm_wakeup {
    _Alignas(128) _Atomic uint32_t wakes;  // futex; counts wake-ups
    _Atomic uint32_t sleeps;               // the owner is about to wait on `wakes`
    _Alignas(128) shm_offer offers[2];
} shm_wakeup;

/* The start of the file. */
typedef struct shm_control {
    _Alignas(128) _Atomic uint32_t deaths;
    _Atomic bool over;         // relaxed: waits fail, though all ranks may live
    _Atomic uint64_t exports;  // bytes of the exported memory that were ever given out
} shm_control;

/* A mapped region; one per process, however many of its threads are ranks. */
typedef struct shm_mapping {
    size_t offset, bytes;  // in the file; the first page counts who is done with the region
    char *base;
    int users;
    struct shm_mapping *next;
} shm_mapping;

struct sh_shm {
    int ranks;
    int file;
    int export_file;      // a second nameless file; -1: nothing is exported
    char *exports;        // all of it that there could be, mapped before any fork
    size_t export_bytes;  // reserved addresses; memory exists for the pieces given out
    size_t control_bytes, ring_bytes, ring_stride;
    char *base;
    shm_control *control;
    sh_status_board *board;
    shm_wakeup *wakeups;       // [ranks]
    _Atomic uint64_t *opened;  // [ranks][words]: bit s of row r: s has sent to r
    char *rings;               // [receiver][sender], ring_stride apart
    size_t opened_words;
    pthread_mutex_t lock;   // of this process
    shm_mapping *mappings;  // guarded by lock
};

static inline shm_ring *shm_ring_of(const sh_shm *fabric, int receiver, int sender) {
    size_t index = (size_t)receiver * (size_t)fabric->ranks + (size_t)sender;
    return (shm_ring *)(fabric->rings + index * fabric->ring_stride);
}

/* A message that arrived before its receive was started. */
typedef struct shm_unexpected {
    struct shm_unexpected *next;
    uint64_t tag, order;  // order: of arrival over all peers
    size_t total, moved;
    size_t room;
    unsigned char data[];
} shm_unexpected;

typedef struct shm_list {
    sh_message *first, *last;
} shm_list;

typedef struct shm_peer {
    // To it:
    shm_ring *out;
    uint64_t tail;       // bytes written to the ring
    uint64_t head_seen;  // the reader was at least here
    uint64_t cleared;    // words behind the tail and before this are 0
    shm_list sends;
    shm_list references;       // announced, not yet read by the peer
    uint64_t reference_count;  // that were announced
    bool busy;                 // it is in shm->busy
    bool opened;               // it knows that this rank sends to it
    // From it:
    shm_ring *in;
    uint64_t position;   // bytes read from the ring
    uint64_t published;  // what `head` says
    sh_message *target;  // receives the message under way; NULL: queued as unexpected, or dropped
    shm_unexpected *queued;  // of the message under way, where no receive waits for it
    bool active;             // a message is under way
    bool holds_reference;  // the next message is read where it lies: nothing to do until it is back
    bool parked;           // the next message has no taker: nothing to do until a receive starts
    size_t total, moved;   // of the message under way
    uint64_t released;     // what `released` of its ring says
    shm_list receives;
    shm_unexpected *unexpected, *unexpected_last;  // complete or, the last one, under way
    bool dead;
} shm_peer;

typedef struct shm_transport {
    sh_transport base;
    sh_shm *fabric;
    shm_wakeup *wakeup;
    shm_peer *peers;  // [ranks]
    int *sources;     // [source_count]: who ever sent to this rank
    int source_count;
    uint64_t *known;  // [opened_words]: sources as bits
    int *busy;        // [busy_count]: peers with unfinished sends or references
    int busy_count;
    shm_list any;             // receives from SH_ANY_RANK
    uint64_t order;           // numbers receives, and unexpected messages
    size_t unexpected_count;  // finished or not, without a taker
    shm_unexpected *spare;    // for reuse
    size_t spare_bytes;
    uint32_t wakes_seen, deaths_seen;
    uint64_t share_round;
    size_t share_offset;
    bool short_of_memory;  // an unexpected message found no memory
    int *nodes;
} shm_transport;

static inline shm_transport *shm_of(sh_transport *transport) { return (shm_transport *)transport; }

static inline void shm_list_add(shm_list *list, sh_message *message) {
    message->next = NULL;
    if (list->first == NULL)
        list->first = message;
    else
        list->last->next = message;
    list->last = message;
}

/* False: it is not in the list. */
bool shm_list_remove(shm_list *list, sh_message *message);

/* After a lack of at least so many bytes: the limit that they are beyond (shared memory counts as a
 * file), otherwise `hint`. Ends a function as sh_error_hint does. */
sh_status shm_limit_hint(size_t bytes, const char *hint);

/* shm_send.c */
sh_status shm_send(sh_transport *transport, sh_message *message);
bool shm_send_progress(shm_transport *shm);
bool shm_send_ready(shm_transport *shm);
void shm_send_cancel(shm_transport *shm, sh_message *message);
void shm_send_fail(shm_transport *shm, int rank);

/* shm_receive.c */
sh_status shm_receive(sh_transport *transport, sh_message *message);
bool shm_receive_progress(shm_transport *shm);
bool shm_receive_ready(shm_transport *shm);
void shm_receive_cancel(shm_transport *shm, sh_message *message);
void shm_receive_fail(shm_transport *shm, int rank);
void shm_receive_close(shm_transport *shm);
void shm_message_release(sh_transport *transport, sh_message *message);

/* shm_export.c */
void shm_export_init(sh_shm *fabric, int fabrics);
void shm_export_fini(sh_shm *fabric);
void *shm_export_acquire(sh_transport *transport, size_t bytes);
void shm_export_release(sh_transport *transport, void *memory);
/* False: the data is to be copied into the ring. */
bool shm_is_exported(const sh_shm *fabric, const sh_message *message);

/* shm_unexpected.c */
shm_unexpected *shm_unexpected_acquire(shm_transport *shm, size_t bytes);
void shm_unexpected_release(shm_transport *shm, shm_unexpected *early);

/* shm_share.c */
sh_status shm_share(sh_transport *transport, size_t bytes, sh_shared *shared_out);
void shm_unshare(sh_transport *transport, sh_shared *shared);

/* shm_wait.c: wakes a rank if it sleeps; the caller has published what it should see. */
void shm_wake(sh_shm *fabric, int rank);
void shm_notify(sh_shm *fabric, int rank);
void shm_idle(sh_transport *transport);

#endif
