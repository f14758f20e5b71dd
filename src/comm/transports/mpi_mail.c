/* Endpoints of mail over MPI, for tasks that must not call MPI themselves.
 *
 *   endpoint's task                          the task that owns the transport
 *   send, receive: a letter  ── desk ──▶     starts it (mpi_message.c)
 *   progress: takes the ended  ◀── done ──   sh_mpi_letter_ended
 *
 * A letter is a copy of the caller's message, so that each message has one task that touches it. An
 * endpoint that waits sleeps on a condition; the owner polls for all. */
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/transports/mpi_internal.h"

enum {
    IDLE_NS = 5000000,      // how long an endpoint sleeps at most
    CLOSE_NS = 2000000000,  // and waits for its last letters
};

struct sh_mpi_letter {
    sh_message message;  // first; the owner's from when it is handed over until it has ended
    sh_mpi_endpoint *endpoint;
    sh_message *user;               // the endpoint's task's
    sh_mpi_letter *cancels;         // an errand: take back that receive
    bool answered;                  // of an errand; guarded by the desk's lock
    sh_mpi_letter *next;            // on the desk, or ended
    sh_mpi_letter *before, *after;  // under way, or spare; the endpoint's task's
    sh_mpi_letter *next_all;
};

struct sh_mpi_endpoint {
    sh_transport base;
    sh_mpi *mpi;
    const int *hosts;
    int *node;  // (endpoints)
    sh_mpi_letter *under_way, *spare, *all;
    sh_mpi_letter *done, **done_end;  // guarded by the desk's lock
    pthread_cond_t changed;           // something has ended, or everything failed
    _Atomic bool news;                // `done` has any; relaxed: a hint to look under the lock
    sh_mpi_endpoint *next;            // guarded by the desk's lock
    sh_rank_status board;             // where nobody else's is used
};

static sh_mpi_endpoint *endpoint_of(sh_transport *transport) {
    return (sh_mpi_endpoint *)transport;
}

/* ---- the owner's side ---- */

void sh_mpi_desk_init(sh_mpi_desk *desk) {
    pthread_mutex_init(&desk->lock, NULL);
    desk->letters_end = &desk->letters;
}

static sh_mpi_letter *take_letter(sh_mpi_desk *desk) {
    pthread_mutex_lock(&desk->lock);
    sh_mpi_letter *letter = desk->letters;
    if (letter != NULL) desk->letters = letter->next;
    if (desk->letters == NULL) {
        desk->letters_end = &desk->letters;
        atomic_store_explicit(&desk->waiting, false, memory_order_relaxed);
    }
    pthread_mutex_unlock(&desk->lock);
    return letter;
}

static void do_errand(sh_mpi *mpi, sh_mpi_letter *errand) {
    sh_message *message = &errand->cancels->message;
    // It may have ended meanwhile; its endpoint has not been told yet, so the letter is still
    // there.
    if (!mpi->failed && message->state == SH_MESSAGE_PENDING) sh_mpi_cancel(&mpi->base, message);
    pthread_mutex_lock(&mpi->desk.lock);
    errand->answered = true;
    pthread_cond_signal(&errand->endpoint->changed);
    pthread_mutex_unlock(&mpi->desk.lock);
}

static void start_letter(sh_mpi *mpi, sh_mpi_letter *letter) {
    sh_message *message = &letter->message;
    int own = letter->endpoint->base.rank;
    if (!message->sends) {
        sh_mpi_receive_letter(mpi, message, own);
        return;
    }
    int to = message->peer;
    message->peer = letter->endpoint->hosts[to] - mpi->first;
    if (sh_mpi_send_letter(mpi, message, own, to) == SH_OK || mpi->failed) return;
    message->state = SH_MESSAGE_FAILED;
    sh_mpi_letter_ended(message);
}

bool sh_mpi_desk_serve(sh_mpi *mpi) {
    if (!atomic_load_explicit(&mpi->desk.waiting, memory_order_relaxed)) return false;
    for (sh_mpi_letter *letter; (letter = take_letter(&mpi->desk)) != NULL;) {
        if (letter->cancels != NULL)
            do_errand(mpi, letter);
        else if (!mpi->failed)  // otherwise its endpoint knows
            start_letter(mpi, letter);
    }
    return true;
}

/* After a failure its endpoint has given up everything. */
void sh_mpi_letter_ended(sh_message *message) {
    sh_mpi_letter *letter = (sh_mpi_letter *)message;
    sh_mpi_endpoint *endpoint = letter->endpoint;
    sh_mpi *mpi = endpoint->mpi;
    if (mpi->failed) return;
    pthread_mutex_lock(&mpi->desk.lock);
    letter->next = NULL;
    *endpoint->done_end = letter;
    endpoint->done_end = &letter->next;
    atomic_store_explicit(&endpoint->news, true, memory_order_relaxed);
    pthread_cond_signal(&endpoint->changed);
    pthread_mutex_unlock(&mpi->desk.lock);
}

void sh_mpi_desk_fail(sh_mpi *mpi) {
    sh_mpi_desk *desk = &mpi->desk;
    // The first failure is what is told.
    if (atomic_load_explicit(&desk->failed, memory_order_relaxed)) return;
    pthread_mutex_lock(&desk->lock);
    memcpy(desk->failure, mpi->failure, sizeof desk->failure);
    atomic_store_explicit(&desk->failed, true, memory_order_release);
    for (sh_mpi_endpoint *at = desk->endpoints; at != NULL; at = at->next)
        pthread_cond_signal(&at->changed);
    pthread_mutex_unlock(&desk->lock);
}

void sh_mpi_start_mail(sh_transport *transport) { ((sh_mpi *)transport)->mails = true; }

/* ---- an endpoint's side ---- */

static void hand_over(sh_mpi_endpoint *endpoint, sh_mpi_letter *letter) {
    sh_mpi *mpi = endpoint->mpi;
    letter->next = NULL;
    pthread_mutex_lock(&mpi->desk.lock);
    *mpi->desk.letters_end = letter;
    mpi->desk.letters_end = &letter->next;
    atomic_store_explicit(&mpi->desk.waiting, true, memory_order_relaxed);
    pthread_mutex_unlock(&mpi->desk.lock);
    sh_mpi_ring_rank(mpi, mpi->world.rank);
}

static sh_mpi_letter *letter_acquire(sh_mpi_endpoint *endpoint) {
    sh_mpi_letter *letter = endpoint->spare;
    if (letter != NULL) {
        endpoint->spare = letter->after;
    } else {
        letter = sh_alloc(1, sizeof *letter);
        if (letter == NULL) return NULL;
        letter->endpoint = endpoint;
        letter->next_all = endpoint->all;
        endpoint->all = letter;
    }
    letter->before = NULL;
    letter->after = endpoint->under_way;
    if (letter->after != NULL) letter->after->before = letter;
    endpoint->under_way = letter;
    return letter;
}

static void letter_release(sh_mpi_endpoint *endpoint, sh_mpi_letter *letter) {
    if (letter->after != NULL) letter->after->before = letter->before;
    if (letter->before != NULL)
        letter->before->after = letter->after;
    else
        endpoint->under_way = letter->after;
    letter->after = endpoint->spare;
    endpoint->spare = letter;
}

static sh_status health(sh_transport *transport) {
    sh_mpi_desk *desk = &endpoint_of(transport)->mpi->desk;
    if (!atomic_load_explicit(&desk->failed, memory_order_acquire)) return SH_OK;
    return SH_FAIL(SH_E_PEER, "%s", desk->failure);
}

static sh_status start(sh_transport *transport, sh_message *message, bool sends) {
    sh_mpi_endpoint *endpoint = endpoint_of(transport);
    SH_ASSERT(message->tag >> 48 == 0);
    SH_TRY(health(transport));
    sh_mpi_letter *letter = letter_acquire(endpoint);
    if (letter == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for letters");
    message->sends = sends;
    message->moved_bytes = 0;
    message->state = SH_MESSAGE_PENDING;
    message->own[0] = (uintptr_t)letter;
    letter->user = message;
    letter->message = *message;
    letter->message.tag |= SH_MPI_TAG_MAIL;
    hand_over(endpoint, letter);
    return SH_OK;
}

static sh_status mail_send(sh_transport *transport, sh_message *message) {
    SH_ASSERT(message->peer >= 0 && message->peer < transport->ranks);
    return start(transport, message, true);
}

static sh_status mail_receive(sh_transport *transport, sh_message *message) {
    SH_ASSERT(message->peer >= SH_ANY_RANK && message->peer < transport->ranks);
    return start(transport, message, false);
}

/* The caller's message gets what became of it, unless it is another one by now: whoever has an
 * answer may ask again before it hears that the question has left. */
static void give_back(sh_mpi_endpoint *endpoint, sh_mpi_letter *letter) {
    sh_message *user = letter->user;
    if (user->own[0] == (uintptr_t)letter) {
        if (!user->sends) user->peer = letter->message.peer;
        user->bytes = letter->message.bytes;
        user->moved_bytes = letter->message.moved_bytes;
        user->state = letter->message.state;
    }
    letter_release(endpoint, letter);
}

/* The owner stands still, but MPI may hold letters yet: they stay as they are. */
static bool fail_all(sh_mpi_endpoint *endpoint) {
    bool any = endpoint->under_way != NULL;
    for (sh_mpi_letter *letter = endpoint->under_way; letter != NULL; letter = letter->after)
        letter->user->state = SH_MESSAGE_FAILED;
    endpoint->under_way = NULL;
    return any;
}

static bool mail_progress(sh_transport *transport) {
    sh_mpi_endpoint *endpoint = endpoint_of(transport);
    sh_mpi_desk *desk = &endpoint->mpi->desk;
    if (atomic_load_explicit(&desk->failed, memory_order_acquire)) return fail_all(endpoint);
    if (!atomic_load_explicit(&endpoint->news, memory_order_relaxed)) return false;
    pthread_mutex_lock(&desk->lock);
    sh_mpi_letter *letter = endpoint->done, *next;
    endpoint->done = NULL;
    endpoint->done_end = &endpoint->done;
    atomic_store_explicit(&endpoint->news, false, memory_order_relaxed);
    pthread_mutex_unlock(&desk->lock);
    for (; letter != NULL; letter = next) {
        next = letter->next;
        give_back(endpoint, letter);
    }
    return true;
}

/* Under the desk's lock. */
static void await_change(sh_mpi_endpoint *endpoint) {
    struct timespec until = sh_deadline_in(IDLE_NS);
    pthread_cond_clockwait(&endpoint->changed, &endpoint->mpi->desk.lock, CLOCK_MONOTONIC, &until);
}

static void mail_idle(sh_transport *transport) {
    sh_mpi_endpoint *endpoint = endpoint_of(transport);
    sh_mpi_desk *desk = &endpoint->mpi->desk;
    pthread_mutex_lock(&desk->lock);
    bool failed = atomic_load_explicit(&desk->failed, memory_order_relaxed);
    if (endpoint->done == NULL && !failed) await_change(endpoint);
    pthread_mutex_unlock(&desk->lock);
}

/* A letter that still lies on the desk is simply taken away again. */
static bool take_back(sh_mpi_desk *desk, const sh_mpi_letter *letter) {
    pthread_mutex_lock(&desk->lock);
    sh_mpi_letter **at = &desk->letters;
    while (*at != NULL && *at != letter) at = &(*at)->next;
    bool found = *at != NULL;
    if (found) *at = letter->next;
    if (found && *at == NULL) desk->letters_end = at;
    pthread_mutex_unlock(&desk->lock);
    return found;
}

static void mail_cancel(sh_transport *transport, sh_message *message) {
    sh_mpi_endpoint *endpoint = endpoint_of(transport);
    sh_mpi_desk *desk = &endpoint->mpi->desk;
    mail_progress(transport);
    if (message->state != SH_MESSAGE_PENDING) return;
    sh_mpi_letter *letter = (sh_mpi_letter *)message->own[0];
    if (take_back(desk, letter)) {
        letter->message.state = SH_MESSAGE_CANCELLED;
        give_back(endpoint, letter);
        return;
    }
    if (message->sends) return;  // it travels: finished by progress
    sh_mpi_letter errand = {.endpoint = endpoint, .cancels = letter};
    hand_over(endpoint, &errand);
    pthread_mutex_lock(&desk->lock);
    while (!errand.answered) await_change(endpoint);
    pthread_mutex_unlock(&desk->lock);
    mail_progress(transport);
}

static sh_status mail_share(sh_transport *transport, size_t bytes, sh_shared *shared_out) {
    (void)transport;
    (void)shared_out;
    return SH_FAIL(SH_E_UNSUPPORTED, "mail shares no memory, and %zu bytes were asked for", bytes);
}

static void mail_unshare(sh_transport *transport, sh_shared *shared) {
    (void)transport;
    (void)shared;
}

static void mail_ring(sh_transport *transport, int peer) {
    (void)transport;
    (void)peer;
}

/* ---- opening and closing ---- */

static void endpoint_destroy(sh_mpi_endpoint *endpoint) {
    while (endpoint->all != NULL) {
        sh_mpi_letter *letter = endpoint->all;
        endpoint->all = letter->next_all;
        sh_free(letter);
    }
    pthread_cond_destroy(&endpoint->changed);
    sh_free(endpoint->node);
    sh_free(endpoint);
}

static void leave_desk(sh_mpi_endpoint *endpoint) {
    sh_mpi_desk *desk = &endpoint->mpi->desk;
    pthread_mutex_lock(&desk->lock);
    sh_mpi_endpoint **at = &desk->endpoints;
    while (*at != endpoint) at = &(*at)->next;
    *at = endpoint->next;
    pthread_mutex_unlock(&desk->lock);
}

static sh_mpi_letter *pending_receive(const sh_mpi_endpoint *endpoint) {
    sh_mpi_letter *letter = endpoint->under_way;
    while (letter != NULL && letter->message.sends) letter = letter->after;
    return letter;
}

/* Receives are taken back, sends are waited for. What does not end keeps its memory. */
static void mail_close(sh_transport *transport) {
    sh_mpi_endpoint *endpoint = endpoint_of(transport);
    int64_t until_ns = sh_clock_now_ns(transport->clock) + CLOSE_NS;
    for (sh_mpi_letter *letter; (letter = pending_receive(endpoint)) != NULL;) {
        sh_message *receive = letter->user;
        mail_cancel(transport, receive);
        if (receive->state == SH_MESSAGE_PENDING) break;
    }
    while (endpoint->under_way != NULL && sh_clock_now_ns(transport->clock) < until_ns)
        if (!mail_progress(transport)) mail_idle(transport);
    bool failed = atomic_load_explicit(&endpoint->mpi->desk.failed, memory_order_acquire);
    bool ended = endpoint->under_way == NULL && !failed;
    leave_desk(endpoint);
    if (ended) endpoint_destroy(endpoint);
}

static const sh_transport_ops mail_ops = {
    .name = "mpi",
    .send = mail_send,
    .receive = mail_receive,
    .cancel = mail_cancel,
    .progress = mail_progress,
    .idle = mail_idle,
    .health = health,
    .share = mail_share,
    .unshare = mail_unshare,
    .ring = mail_ring,
    .close = mail_close,
};

sh_status sh_mpi_open_mail(sh_transport *transport, const int *hosts, int endpoints, int endpoint,
                           sh_transport **mail_out) {
    sh_mpi *mpi = (sh_mpi *)transport;
    SH_ASSERT(hosts[endpoint] == mpi->world.rank);
    sh_mpi_endpoint *own = sh_alloc(1, sizeof *own);
    int *node = sh_alloc((size_t)endpoints, sizeof *node);
    if (own == NULL || node == NULL) {
        sh_free(own);
        sh_free(node);
        return SH_FAIL(SH_E_MEMORY, "out of memory for %d endpoints of mail", endpoints);
    }
    for (int i = 0; i < endpoints; i++) node[i] = mpi->node[hosts[i]];
    own->base = (sh_transport){.ops = &mail_ops,
                               .rank = endpoint,
                               .ranks = endpoints,
                               .node = node,
                               .crowd = transport->crowd,
                               .clock = transport->clock,
                               .board = &own->board};
    own->mpi = mpi;
    own->hosts = hosts;
    own->node = node;
    own->done_end = &own->done;
    pthread_cond_init(&own->changed, NULL);
    pthread_mutex_lock(&mpi->desk.lock);
    own->next = mpi->desk.endpoints;
    mpi->desk.endpoints = own;
    pthread_mutex_unlock(&mpi->desk.lock);
    *mail_out = &own->base;
    return SH_OK;
}

int sh_mpi_world_rank(const sh_transport *transport) {
    return ((const sh_mpi *)transport)->world.rank;
}

int sh_mpi_world_ranks(const sh_transport *transport) {
    return ((const sh_mpi *)transport)->world.ranks;
}
