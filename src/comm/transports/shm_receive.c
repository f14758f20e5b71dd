/* Receiving through shared memory. The reader takes one peer's records in order. The message at
 * the head of a ring goes
 *
 *   to its receive              if one was started with its tag,
 *   to the unexpected queue     if this rank waits for something else that may lie behind it,
 *   nowhere: it stays, parked   if this rank waits for nothing; then nothing is copied twice.
 *
 * Matching is by (peer, tag), receives in the order of their starts; a receive from any rank takes
 * part by its number (own[0]). own[3] of a receive is 1 while it holds a zero-copy message. */
#include "comm/transports/shm_internal.h"

#include <string.h>

#include "base/memory.h"
#include "tensor/kernels/peer_copy.h"

bool shm_list_remove(shm_list *list, sh_message *message) {
    sh_message *before = NULL;
    for (sh_message *at = list->first; at != NULL; before = at, at = at->next) {
        if (at != message) continue;
        if (before == NULL)
            list->first = at->next;
        else
            before->next = at->next;
        if (list->last == at) list->last = before;
        return true;
    }
    return false;
}

/* Lists are short (a handful of receives under way), so a walk is faster than an index. */
static sh_message *first_with_tag(const shm_list *list, uint64_t tag) {
    sh_message *message = list->first;
    while (message != NULL && message->tag != tag) message = message->next;
    return message;
}

/* The receive that was started first among those that a message of `rank` and `tag` fits. */
static sh_message *take_receive(shm_transport *shm, int rank, uint64_t tag) {
    shm_list *own = &shm->peers[rank].receives;
    sh_message *a = first_with_tag(own, tag), *b = first_with_tag(&shm->any, tag);
    if (a == NULL && b == NULL) return NULL;
    bool from_any = a == NULL || (b != NULL && b->own[0] < a->own[0]);
    sh_message *message = from_any ? b : a;
    shm_list_remove(from_any ? &shm->any : own, message);
    return message;
}

/* Gives the message under way to `message`; what of it was queued as unexpected is still to be
 * copied. */
static void give_to(shm_peer *peer, int rank, sh_message *message) {
    message->peer = rank;
    bool fits = peer->total <= message->bytes;
    message->bytes = peer->total;
    peer->target = fits ? message : NULL;  // NULL: the rest is dropped
    if (!fits) message->state = SH_MESSAGE_FAILED;
}

/* Begins an unexpected message; its pieces are copied there until a receive claims it. */
static bool queue_unexpected(shm_transport *shm, shm_peer *peer, uint64_t tag) {
    shm_unexpected *early = shm_unexpected_acquire(shm, peer->total);
    if (early == NULL) {
        shm->short_of_memory = true;  // health tells; the sender waits meanwhile
        return false;
    }
    early->next = NULL;
    early->tag = tag;
    early->order = shm->order++;
    early->total = peer->total;
    early->moved = 0;
    if (peer->unexpected == NULL)
        peer->unexpected = early;
    else
        peer->unexpected_last->next = early;
    peer->unexpected_last = peer->queued = early;
    shm->unexpected_count++;
    return true;
}

/* Finds a place for a message whose first piece is next. False: it stays in the ring. */
static bool begin(shm_transport *shm, int rank, const shm_record *record) {
    shm_peer *peer = &shm->peers[rank];
    peer->total = record->total;
    peer->moved = 0;
    peer->target = NULL;
    peer->queued = NULL;
    bool is_notice = sh_transport_arrived(&shm->base, rank, record->tag, record->stamp);
    sh_message *message = is_notice ? NULL : take_receive(shm, rank, record->tag);
    if (message != NULL) {
        give_to(peer, rank, message);
    } else if (!is_notice) {
        // What is waited for may lie behind this message.
        bool wanted = peer->receives.first != NULL || shm->any.first != NULL;
        if (!wanted || !queue_unexpected(shm, peer, record->tag)) {
            peer->parked = true;
            return false;
        }
    }
    peer->active = true;
    return true;
}

/* The message under way is complete; the next record begins another. */
static void finish(shm_peer *peer) {
    if (peer->target != NULL) peer->target->state = SH_MESSAGE_DONE;
    peer->target = NULL;
    peer->queued = NULL;
    peer->active = false;
}

/* The writer hears of room in quarters of the ring. It never needs more than a sixteenth at once,
 * so what it has not heard of cannot block it. */
static void publish_head(shm_transport *shm, int rank) {
    shm_peer *peer = &shm->peers[rank];
    if (peer->position - peer->published < shm->fabric->ring_bytes / 4) return;
    peer->published = peer->position;
    atomic_store(&peer->in->head, peer->position);
    if (atomic_load(&peer->in->full)) shm_wake(shm->fabric, rank);
}

/* The next `piece` bytes of the message under way. */
static void take_bytes(shm_peer *peer, const void *from, size_t piece) {
    unsigned char *to = NULL;
    if (peer->target != NULL) to = peer->target->data;
    if (peer->queued != NULL) to = peer->queued->data;
    if (to != NULL && piece > 0) sh_copy_shared(to + peer->moved, from, piece);
    peer->moved += piece;
    if (peer->target != NULL) peer->target->moved_bytes = peer->moved;
    if (peer->queued != NULL) peer->queued->moved = peer->moved;
}

/* Steps over a record, whose space the writer may use once it hears of it. */
static void leave_record(shm_transport *shm, int rank, size_t piece) {
    shm->peers[rank].position += shm_record_bytes(piece);
    publish_head(shm, rank);
}

/* Between two pieces of an exported message other peers get their turn, as with pieces in rings. */
enum { REFERENCE_PIECE = 256 << 10 };

/* The reader has read the exported memory: the record goes, and the sender hears of it. */
static void release_reference(shm_transport *shm, int rank) {
    shm_peer *peer = &shm->peers[rank];
    leave_record(shm, rank, sizeof(shm_reference));
    atomic_store(&peer->in->released, ++peer->released);
    shm_wake(shm->fabric, rank);
}

/* Takes a piece from where the sender has it; the record stays until all has been taken. */
static void take_reference(shm_transport *shm, int rank, const shm_record *record) {
    shm_peer *peer = &shm->peers[rank];
    shm_reference reference;
    memcpy(&reference, record->data, sizeof reference);
    char *data = shm->fabric->exports + reference.offset;
    if (peer->moved == 0 && peer->target != NULL && peer->target->zero_copy) {
        peer->holds_reference = true;
        peer->target->own[3] = 1;
        peer->target->data = data;
        peer->moved = peer->target->moved_bytes = peer->total;
        return;
    }
    size_t left = peer->total - peer->moved;
    take_bytes(peer, data + peer->moved, left < REFERENCE_PIECE ? left : REFERENCE_PIECE);
    if (peer->moved == peer->total) release_reference(shm, rank);
}

/* Takes one piece out of the ring. */
static bool take_piece(shm_transport *shm, int rank) {
    shm_peer *peer = &shm->peers[rank];
    if (peer->holds_reference) return false;
    size_t mask = shm->fabric->ring_bytes - 1;
    shm_record *record = (shm_record *)(peer->in->data + (peer->position & mask));
    uint64_t word = atomic_load_explicit(&record->word, memory_order_acquire);
    if (word == 0) return false;
    if (!peer->active && !begin(shm, rank, record)) return false;

    if (word == shm_reference_word) {
        take_reference(shm, rank, record);
    } else {
        take_bytes(peer, record->data, shm_word_bytes(word));
        leave_record(shm, rank, shm_word_bytes(word));
    }
    if (peer->moved == peer->total) finish(peer);
    return true;
}

/* Who sent for the first time is polled from now on. */
static void find_sources(shm_transport *shm) {
    const _Atomic uint64_t *row =
        shm->fabric->opened + (size_t)shm->base.rank * shm->fabric->opened_words;
    for (size_t i = 0; i < shm->fabric->opened_words; i++) {
        uint64_t fresh = atomic_load_explicit(&row[i], memory_order_acquire) & ~shm->known[i];
        shm->known[i] |= fresh;
        for (; fresh != 0; fresh &= fresh - 1)
            shm->sources[shm->source_count++] = (int)i * SHM_BITS + __builtin_ctzll(fresh);
    }
}

/* At most so many pieces of one peer in a row: others wait too. */
enum { PIECES_IN_A_ROW = 64 };

/* Takes what has come, peer by peer. */
bool shm_receive_progress(shm_transport *shm) {
    bool moved = false;
    find_sources(shm);
    for (int i = 0; i < shm->source_count; i++) {
        int rank = shm->sources[i];
        if (shm->peers[rank].parked) continue;
        for (int n = 0; n < PIECES_IN_A_ROW && take_piece(shm, rank); n++) moved = true;
    }
    return moved;
}

/* Whether progress would find something: asked before a rank sleeps. Parked rings do not count,
 * for nobody asked for what they hold. */
bool shm_receive_ready(shm_transport *shm) {
    const _Atomic uint64_t *row =
        shm->fabric->opened + (size_t)shm->base.rank * shm->fabric->opened_words;
    for (size_t i = 0; i < shm->fabric->opened_words; i++)
        if (atomic_load(&row[i]) != shm->known[i]) return true;
    for (int i = 0; i < shm->source_count; i++) {
        shm_peer *peer = &shm->peers[shm->sources[i]];
        if (peer->parked || peer->holds_reference) continue;
        size_t at = peer->position & (shm->fabric->ring_bytes - 1);
        if (atomic_load(&((shm_record *)(peer->in->data + at))->word) != 0) return true;
    }
    return false;
}

/* The earliest of a peer's messages with a tag, and the one before it. */
static shm_unexpected *find_unexpected(shm_peer *peer, uint64_t tag, shm_unexpected **before_out) {
    shm_unexpected *before = NULL, *at = peer->unexpected;
    for (; at != NULL && at->tag != tag; at = at->next) before = at;
    *before_out = before;
    return at;
}

/* The peer whose queued message a receive takes: of all that fit, the one that arrived first. -1:
 * none. */
static int rank_with_unexpected(shm_transport *shm, const sh_message *message) {
    if (shm->unexpected_count == 0) return -1;
    shm_unexpected *before = NULL;
    if (message->peer != SH_ANY_RANK)
        return find_unexpected(&shm->peers[message->peer], message->tag, &before) ? message->peer
                                                                                  : -1;
    int best = -1;
    uint64_t order = UINT64_MAX;
    for (int i = 0; i < shm->source_count; i++) {
        int rank = shm->sources[i];
        shm_unexpected *early = find_unexpected(&shm->peers[rank], message->tag, &before);
        if (early == NULL || early->order > order) continue;
        order = early->order;
        best = rank;
    }
    return best;
}

/* Hands a queued unexpected message to its receive; the rest of one under way goes there directly.
 */
static void claim_unexpected(shm_transport *shm, int rank, sh_message *message) {
    shm_peer *peer = &shm->peers[rank];
    shm_unexpected *before = NULL, *early = find_unexpected(peer, message->tag, &before);
    if (before == NULL)
        peer->unexpected = early->next;
    else
        before->next = early->next;
    if (peer->unexpected_last == early) peer->unexpected_last = before;
    shm->unexpected_count--;

    bool fits = early->total <= message->bytes;
    if (fits && early->moved > 0) memcpy(message->data, early->data, early->moved);
    message->moved_bytes = fits ? early->moved : 0;
    if (early == peer->queued) {
        peer->queued = NULL;
        give_to(peer, rank, message);
    } else {
        message->peer = rank;
        message->bytes = early->total;
        message->state = fits ? SH_MESSAGE_DONE : SH_MESSAGE_FAILED;
    }
    shm_unexpected_release(shm, early);
}

/* Twice is once: own[3] says whether the message is still held. */
void shm_message_release(sh_transport *transport, sh_message *message) {
    if (message->own[3] == 0) return;
    message->own[3] = 0;
    shm_of(transport)->peers[message->peer].holds_reference = false;
    release_reference(shm_of(transport), message->peer);
}

/* A new receive may fit what waits at the head of a ring. */
static void unpark(shm_transport *shm, int rank) {
    if (rank != SH_ANY_RANK) {
        shm->peers[rank].parked = false;
        return;
    }
    for (int i = 0; i < shm->source_count; i++) shm->peers[shm->sources[i]].parked = false;
}

sh_status shm_receive(sh_transport *transport, sh_message *message) {
    shm_transport *shm = shm_of(transport);
    SH_ASSERT(message->peer >= SH_ANY_RANK && message->peer < transport->ranks);
    SH_ASSERT(message->tag >> 48 == 0);
    message->sends = false;
    message->moved_bytes = 0;
    message->own[0] = (uintptr_t)shm->order++;
    message->own[3] = 0;
    message->state = SH_MESSAGE_PENDING;
    int rank = rank_with_unexpected(shm, message);
    if (rank >= 0) {
        claim_unexpected(shm, rank, message);
    } else {
        rank = message->peer;
        unpark(shm, rank);
        shm_list_add(rank == SH_ANY_RANK ? &shm->any : &shm->peers[rank].receives, message);
    }
    if (message->state != SH_MESSAGE_PENDING || rank == SH_ANY_RANK || !shm->peers[rank].dead)
        return SH_OK;
    shm_receive_fail(shm, rank);  // unless it had sent all of the message before it left
    if (message->state != SH_MESSAGE_FAILED) return SH_OK;
    return SH_FAIL(SH_E_PEER, "rank %d has left: rank %d waits in vain for its message", rank,
                   transport->rank);
}

/* A receive is cancelled while its message arrives: the message becomes an unexpected one. */
static void requeue_unexpected(shm_transport *shm, shm_peer *peer, sh_message *message) {
    if (!queue_unexpected(shm, peer, message->tag)) return;  // no memory: it is finished instead
    if (peer->moved > 0) memcpy(peer->queued->data, message->data, peer->moved);
    peer->queued->moved = peer->moved;
    peer->target = NULL;
    message->state = SH_MESSAGE_CANCELLED;
}

/* Three cases: not matched yet; its message is arriving; done already, which stays so. */
void shm_receive_cancel(shm_transport *shm, sh_message *message) {
    bool any = message->peer == SH_ANY_RANK;
    shm_list *list = any ? &shm->any : &shm->peers[message->peer].receives;
    if (shm_list_remove(list, message))
        message->state = SH_MESSAGE_CANCELLED;
    else if (!any && shm->peers[message->peer].target == message)
        requeue_unexpected(shm, &shm->peers[message->peer], message);
}

/* Delivers what a dead peer had sent, then fails what still waits for it. */
void shm_receive_fail(shm_transport *shm, int rank) {
    shm_peer *peer = &shm->peers[rank];
    find_sources(shm);
    if (peer->receives.first != NULL) peer->parked = false;
    while (!peer->parked && take_piece(shm, rank)) continue;
    if (peer->target != NULL) {
        peer->target->state = SH_MESSAGE_FAILED;
        peer->target = NULL;
    }
    shm_list *receives = &peer->receives;
    for (; receives->first != NULL; receives->first = receives->first->next)
        receives->first->state = SH_MESSAGE_FAILED;
}

static void free_unexpected(shm_unexpected *early) {
    while (early != NULL) {
        shm_unexpected *next = early->next;
        sh_free(early);
        early = next;
    }
}

/* Unexpected messages that nobody asked for, and those kept for reuse. */
void shm_receive_close(shm_transport *shm) {
    for (int rank = 0; shm->peers != NULL && rank < shm->base.ranks; rank++)
        free_unexpected(shm->peers[rank].unexpected);
    free_unexpected(shm->spare);
}
