/* Sending through shared memory: messages go into the ring of (sender, receiver) piece by piece,
 * in the order of their sends; what does not fit waits for the reader (push_sends, from progress).
 *
 * A message out of exported memory is one record that names its place. It is done when the reader
 * has counted its reference as released, so the sender must not write there before.
 *
 * The words of sh_message.own in a send: own[1] is 1 once the first piece is in the ring, from
 * where the message cannot be cancelled; own[2] is 0, or the number of its reference. */
#include "comm/transports/shm_internal.h"

#include <string.h>

#include "tensor/kernels/peer_copy.h"

/* The smaller of two sizes. */
static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Lines whose word is cleared before a record needs them: the length of a short record. */
enum { CLEARED_AHEAD = 2 };

/* The word of the record at a position of the stream; positions only grow, the ring wraps. */
static _Atomic uint64_t *word_at(const sh_shm *fabric, const shm_peer *peer, uint64_t position) {
    return (_Atomic uint64_t *)(peer->out->data + (position & (fabric->ring_bytes - 1)));
}

/* The message lies in exported memory: a reference travels instead of its data. */
static bool is_reference(const sh_message *message) { return message->own[2] != 0; }

/* The piece that follows: at most a sixteenth of the ring, and not across its end. */
static size_t next_piece(const sh_shm *fabric, const shm_peer *peer, const sh_message *message) {
    if (is_reference(message)) return sizeof(shm_reference);  // fits into one line
    size_t longest = fabric->ring_bytes / 16 - sizeof(shm_record);
    size_t to_end = fabric->ring_bytes - (peer->tail & (fabric->ring_bytes - 1));
    return least(least(message->bytes - message->moved_bytes, longest),
                 to_end - sizeof(shm_record));
}

/* Room for a record and for the cleared word behind it. A writer that finds none says so before it
 * looks again, so that the reader wakes it (Dekker, as with sleeping). */
static bool has_room(const sh_shm *fabric, shm_peer *peer, size_t record_bytes) {
    size_t used_most = fabric->ring_bytes - record_bytes - SHM_LINE;
    if (peer->tail - peer->head_seen <= used_most) return true;
    peer->head_seen = atomic_load_explicit(&peer->out->head, memory_order_acquire);
    if (peer->tail - peer->head_seen <= used_most) return true;
    if (!atomic_load_explicit(&peer->out->full, memory_order_relaxed))
        atomic_store(&peer->out->full, true);
    peer->head_seen = atomic_load(&peer->out->head);
    return peer->tail - peer->head_seen <= used_most;
}

/* Clears the word behind the record that comes next, for any short one: a line that the reader last
 * had takes as long to get as the message travels, so it is got while nobody waits. */
static void clear_ahead(const sh_shm *fabric, shm_peer *peer) {
    uint64_t end = peer->tail + (1 + CLEARED_AHEAD) * SHM_LINE;
    if (end - peer->head_seen > fabric->ring_bytes) return;
    uint64_t at = peer->cleared > peer->tail ? peer->cleared : peer->tail + SHM_LINE;
    for (; at < end; at += SHM_LINE)
        atomic_store_explicit(word_at(fabric, peer, at), 0, memory_order_relaxed);
    peer->cleared = at;
}

/* Writes one record and publishes it by its word. Sequentially consistent stores: see the Dekker
 * handshake in shm_internal.h. */
static void push_piece(shm_transport *shm, int rank, sh_message *message, size_t piece) {
    sh_shm *fabric = shm->fabric;
    shm_peer *peer = &shm->peers[rank];
    size_t record_bytes = shm_record_bytes(piece);
    shm_record *record = (shm_record *)word_at(fabric, peer, peer->tail);
    uint64_t end = peer->tail + record_bytes;
    if (end >= peer->cleared)  // published with the record
        atomic_store_explicit(word_at(fabric, peer, end), 0, memory_order_relaxed);
    if (message->own[1] == 0) {
        record->tag = message->tag;
        record->total = message->bytes;
        record->stamp = message->stamp;
        message->own[1] = 1;  // it travels: no longer to be cancelled
    }
    if (is_reference(message)) {
        uint64_t offset = (uint64_t)((const char *)message->data - fabric->exports);
        memcpy(record->data, &(shm_reference){.offset = offset}, sizeof(shm_reference));
        atomic_store(&record->word, shm_reference_word);
    } else {
        if (piece > 0)
            sh_copy_shared(record->data, (const char *)message->data + message->moved_bytes, piece);
        atomic_store(&record->word, shm_word(piece));
        message->moved_bytes += piece;
    }
    peer->tail = end;
    shm_wake(fabric, rank);
    if (record_bytes <= CLEARED_AHEAD * SHM_LINE) clear_ahead(fabric, peer);
}

/* The reader polls only rings that were ever used. */
static void open_ring(shm_transport *shm, int rank) {
    _Atomic uint64_t *row = shm->fabric->opened + (size_t)rank * shm->fabric->opened_words;
    int self = shm->base.rank;
    atomic_fetch_or(&row[self / SHM_BITS], (uint64_t)1 << self % SHM_BITS);
    shm->peers[rank].opened = true;
}

/* All of the message is in the ring, or where it lies. */
static bool is_told(const sh_message *message) {
    return is_reference(message) ? message->own[1] != 0 : message->moved_bytes == message->bytes;
}

/* The message needs the ring no more. A reference stays until the reader has released it. */
static void end_send(shm_peer *peer, sh_message *message) {
    peer->sends.first = message->next;
    if (is_reference(message)) {
        message->own[2] = (uintptr_t)++peer->reference_count;
        shm_list_add(&peer->references, message);
    } else {
        message->state = SH_MESSAGE_DONE;
    }
}

/* Pushes what fits; true if anything moved. */
static bool push_sends(shm_transport *shm, int rank) {
    shm_peer *peer = &shm->peers[rank];
    bool moved = false;
    while (peer->sends.first != NULL) {
        sh_message *message = peer->sends.first;
        size_t piece = next_piece(shm->fabric, peer, message);
        if (!has_room(shm->fabric, peer, shm_record_bytes(piece))) return moved;
        if (!peer->opened) open_ring(shm, rank);
        push_piece(shm, rank, message, piece);
        moved = true;
        if (is_told(message)) end_send(peer, message);
    }
    if (atomic_load_explicit(&peer->out->full, memory_order_relaxed))
        atomic_store_explicit(&peer->out->full, false, memory_order_relaxed);
    return moved;
}

/* References are released in the order of their numbers, so a count says which are. */
static bool is_released(const shm_peer *peer, uint64_t released) {
    return peer->references.first != NULL && peer->references.first->own[2] <= released;
}

/* Acquire: the reader has read before the memory is written again. */
static bool end_references(shm_peer *peer) {
    if (peer->references.first == NULL) return false;
    uint64_t released = atomic_load_explicit(&peer->out->released, memory_order_acquire);
    bool moved = false;
    while (is_released(peer, released)) {
        sh_message *message = peer->references.first;
        peer->references.first = message->next;
        message->moved_bytes = message->bytes;
        message->state = SH_MESSAGE_DONE;
        moved = true;
    }
    return moved;
}

/* Progress must come back to this peer. */
static bool has_work(const shm_peer *peer) {
    return peer->sends.first != NULL || peer->references.first != NULL;
}

/* Tries at once, so that a short message needs no progress; the rest is queued behind what the
 * peer has not taken yet. */
sh_status shm_send(sh_transport *transport, sh_message *message) {
    shm_transport *shm = shm_of(transport);
    SH_ASSERT(message->peer >= 0 && message->peer < transport->ranks);
    SH_ASSERT(message->tag >> 48 == 0);
    shm_peer *peer = &shm->peers[message->peer];
    message->sends = true;
    message->moved_bytes = 0;
    message->own[1] = 0;
    message->own[2] = shm_is_exported(shm->fabric, message);
    if (peer->dead) {
        message->state = SH_MESSAGE_FAILED;
        return SH_FAIL(SH_E_PEER, "rank %d has left: rank %d cannot send to it", message->peer,
                       transport->rank);
    }
    message->state = SH_MESSAGE_PENDING;
    int rank = message->peer;
    shm_list_add(&peer->sends, message);
    if (peer->sends.first != message) return SH_OK;
    push_sends(shm, rank);
    if (peer->busy || !has_work(peer)) return SH_OK;
    peer->busy = true;
    shm->busy[shm->busy_count++] = rank;
    return SH_OK;
}

/* Visits peers with unfinished sends only; the list is compacted on the way. */
bool shm_send_progress(shm_transport *shm) {
    bool moved = false;
    int kept = 0;
    for (int i = 0; i < shm->busy_count; i++) {
        int rank = shm->busy[i];
        shm_peer *peer = &shm->peers[rank];
        moved |= push_sends(shm, rank);
        moved |= end_references(peer);
        peer->busy = has_work(peer);
        if (peer->busy) shm->busy[kept++] = rank;
    }
    shm->busy_count = kept;
    return moved;
}

/* Whether progress would move something: asked before a rank sleeps, so it writes nothing but the
 * request for room. */
bool shm_send_ready(shm_transport *shm) {
    for (int i = 0; i < shm->busy_count; i++) {
        shm_peer *peer = &shm->peers[shm->busy[i]];
        if (is_released(peer, atomic_load(&peer->out->released))) return true;
        if (peer->sends.first == NULL) continue;
        size_t piece = next_piece(shm->fabric, peer, peer->sends.first);
        if (has_room(shm->fabric, peer, shm_record_bytes(piece))) return true;
    }
    return false;
}

void shm_send_cancel(shm_transport *shm, sh_message *message) {
    if (message->own[1] != 0) return;  // it travels: finished by progress
    if (shm_list_remove(&shm->peers[message->peer].sends, message))
        message->state = SH_MESSAGE_CANCELLED;
}

/* The peer is dead: nothing will be read any more, and exported memory is free again. */
void shm_send_fail(shm_transport *shm, int rank) {
    shm_list *lists[] = {&shm->peers[rank].references, &shm->peers[rank].sends};
    for (size_t i = 0; i < SH_COUNT(lists); i++)
        for (; lists[i]->first != NULL; lists[i]->first = lists[i]->first->next)
            lists[i]->first->state = SH_MESSAGE_FAILED;
}
