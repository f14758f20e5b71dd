/* The shared-memory transport as its users see it: attaching a rank, progress, health, closing.
 * What moves is in shm_send.c and shm_receive.c, memory in shm_share.c and shm_export.c, and how a
 * rank sleeps in shm_wait.c.
 *
 * A rank polls only rings that were ever used, so a fabric of thousands costs a rank what its own
 * traffic costs. */
#include "comm/transports/shm.h"

#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/transports/shm_internal.h"

/* Pending messages with a rank that left fail, after what it had sent was delivered. */
static void fail_dead_peers(shm_transport *shm, uint32_t deaths) {
    shm->deaths_seen = deaths;
    for (int rank = 0; rank < shm->base.ranks; rank++) {
        shm_peer *peer = &shm->peers[rank];
        if (peer->dead || !atomic_load(&shm->base.boards->rank[rank].dead)) continue;
        peer->dead = true;
        shm_receive_fail(shm, rank);
        shm_send_fail(shm, rank);
    }
}

/* True also when the rank was woken: then the caller looks at its shared memory once more, and
 * nothing that was written between its last look and this call is missed. */
static bool shm_progress(sh_transport *transport) {
    shm_transport *shm = shm_of(transport);
    uint32_t wakes = atomic_load_explicit(&shm->wakeup->wakes, memory_order_acquire);
    uint32_t deaths = atomic_load_explicit(&shm->fabric->control->deaths, memory_order_acquire);
    bool moved = wakes != shm->wakes_seen;
    shm->wakes_seen = wakes;
    if (deaths != shm->deaths_seen) {
        fail_dead_peers(shm, deaths);
        moved = true;
    }
    moved |= shm_receive_progress(shm);
    moved |= shm_send_progress(shm);
    return moved;
}

/* A message that is no longer pending has ended already: there is nothing to take back. */
static void shm_cancel(sh_transport *transport, sh_message *message) {
    if (message->state != SH_MESSAGE_PENDING) return;
    if (message->sends)
        shm_send_cancel(shm_of(transport), message);
    else
        shm_receive_cancel(shm_of(transport), message);
}

/* The first fault that a rank cannot wait away: no memory, a team that is over, a peer that died.
 */
static sh_status shm_health(sh_transport *transport) {
    shm_transport *shm = shm_of(transport);
    if (shm->short_of_memory)
        return SH_FAIL(SH_E_MEMORY, "rank %d has no memory for an unexpected message",
                       transport->rank);
    const shm_control *control = shm->fabric->control;
    bool over = atomic_load_explicit(&control->over, memory_order_relaxed);
    if (!over && atomic_load_explicit(&control->deaths, memory_order_acquire) == 0) return SH_OK;
    for (int rank = 0; rank < transport->ranks; rank++) {
        const sh_rank_status *board = &transport->boards->rank[rank];
        if (rank == transport->rank || !atomic_load(&board->dead)) continue;
        char line[SH_BOARD_TEXT];
        sh_board_line(board, rank, sh_clock_now_ns(transport->clock), line, sizeof line);
        return SH_FAIL(SH_E_PEER, "rank %d has left%s%.*s (%s)", rank,
                       board->error[0] != '\0' ? ": " : "", (int)sizeof board->error, board->error,
                       line);
    }
    return over ? SH_FAIL(SH_E_PEER, "rank %d: the team is over", transport->rank) : SH_OK;
}

static void shm_wake_peer(sh_transport *transport, int peer) {
    shm_notify(shm_of(transport)->fabric, peer);
}

static void shm_close(sh_transport *transport) {
    shm_transport *shm = shm_of(transport);
    shm_receive_close(shm);
    sh_free(shm->peers);
    sh_free(shm->sources);
    sh_free(shm->known);
    sh_free(shm->busy);
    sh_free(shm->nodes);
    sh_free(shm);
}

static const sh_transport_ops ops = {
    .name = "shm",
    .send = shm_send,
    .receive = shm_receive,
    .cancel = shm_cancel,
    .progress = shm_progress,
    .idle = shm_idle,
    .health = shm_health,
    .share = shm_share,
    .unshare = shm_unshare,
    .export_acquire = shm_export_acquire,
    .export_release = shm_export_release,
    .message_release = shm_message_release,
    .wake = shm_wake_peer,
    .close = shm_close,
};

static sh_status allocate(shm_transport *shm, int ranks) {
    size_t count = (size_t)ranks;
    shm->peers = sh_alloc(count, sizeof *shm->peers);
    shm->sources = sh_alloc(count, sizeof *shm->sources);
    shm->known = sh_alloc(shm->fabric->opened_words, sizeof *shm->known);
    shm->busy = sh_alloc(count, sizeof *shm->busy);
    shm->nodes = sh_alloc(count, sizeof *shm->nodes);
    if (shm->peers == NULL || shm->sources == NULL || shm->known == NULL || shm->busy == NULL ||
        shm->nodes == NULL)
        return SH_FAIL(SH_E_MEMORY, "no memory for a transport of %d ranks", ranks);
    return SH_OK;
}

sh_status sh_shm_attach(sh_shm *fabric, int rank, int cores, sh_transport **transport_out) {
    SH_ASSERT(rank >= 0 && rank < fabric->ranks);
    shm_transport *shm = sh_alloc(1, sizeof *shm);
    if (shm == NULL) return SH_FAIL(SH_E_MEMORY, "no memory for the transport of rank %d", rank);
    if (cores < 1) cores = 1;
    shm->base = (sh_transport){
        .ops = &ops,
        .rank = rank,
        .ranks = fabric->ranks,
        .ranks_per_core = (fabric->ranks + cores - 1) / cores,
        .clock = &sh_clock_real,
        .board = &fabric->board->rank[rank],
        .boards = fabric->board,
    };
    shm->fabric = fabric;
    shm->wakeup = &fabric->wakeups[rank];
    shm->share_offset = fabric->control_bytes;
    sh_status status = allocate(shm, fabric->ranks);
    if (status != SH_OK) {
        shm_close(&shm->base);
        return status;
    }
    shm->base.node = shm->nodes;
    for (int peer = 0; peer < fabric->ranks; peer++) {
        shm->peers[peer].out = shm_ring_of(fabric, peer, rank);
        shm->peers[peer].in = shm_ring_of(fabric, rank, peer);
    }
    shm->base.board->pid = (int32_t)getpid();
    *transport_out = &shm->base;
    return SH_OK;
}
