/* Endpoints of mail over MPI, for tasks that must not call MPI themselves.
 *
 *   endpoint's task                          the task that owns the transport
 *   send, receive: an entry ── queue ──▶    starts it (mpi_message.c)
 *   progress: takes the ended  ◀── done ──   sh_mpi_mail_ended
 *
 * An entry is a copy of the caller's message, so that each message has one task that touches it. An
 * endpoint that waits sleeps on a condition; the owner polls for all. */
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "comm/transports/mpi_internal.h"

enum {
    IDLE_NS = 5000000,      // how long an endpoint sleeps at most
    CLOSE_NS = 2000000000,  // and waits for its last mail
};

struct sh_mpi_mail {
    sh_message message;  // first; the owner's from when it is handed over until it has ended
    sh_mpi_endpoint *endpoint;
    sh_message *user;             // the endpoint's task's
    sh_mpi_mail *cancels;         // a request to cancel that receive; NULL: a message
    bool answered;                // of a request to cancel; guarded by the queue's lock
    sh_mpi_mail *next;            // on the queue, or ended
    sh_mpi_mail *before, *after;  // under way, or spare; the endpoint's task's
    sh_mpi_mail *next_all;
};

struct sh_mpi_endpoint {
    sh_transport base;
    sh_mpi *mpi;
    const int *hosts;
    int *node;  // (endpoints)
    sh_mpi_mail *under_way, *spare, *all;
    sh_mpi_mail *done, **done_end;  // guarded by the queue's lock
    pthread_cond_t changed;         // something has ended, or everything failed
    _Atomic bool news;              // `done` has any; relaxed: a hint to look under the lock
    sh_mpi_endpoint *next;          // guarded by the queue's lock
    sh_rank_status board;           // where nobody else's is used
};

static sh_mpi_endpoint *endpoint_of(sh_transport *transport) {
    return (sh_mpi_endpoint *)transport;
}

/* ---- the owner's side ---- */

void sh_mpi_mail_queue_init(sh_mpi_mail_queue *queue) {
    pthread_mutex_init(&queue->lock, NULL);
    queue->submitted_end = &queue->submitted;
}

/* The oldest entry, or NULL; `waiting` is cleared with the last one, under the lock. */
static sh_mpi_mail *take_mail(sh_mpi_mail_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    sh_mpi_mail *mail = queue->submitted;
    if (mail != NULL) queue->submitted = mail->next;
    if (queue->submitted == NULL) {
        queue->submitted_end = &queue->submitted;
        atomic_store_explicit(&queue->waiting, false, memory_order_relaxed);
    }
    pthread_mutex_unlock(&queue->lock);
    return mail;
}

/* The endpoint waits for the answer, since its receive's buffer must not be written afterwards. */
static void do_cancel(sh_mpi *mpi, sh_mpi_mail *request) {
    sh_message *message = &request->cancels->message;
    // It may have ended meanwhile; its endpoint has not been told yet, so the mail is still
    // there.
    if (!mpi->failed && message->state == SH_MESSAGE_PENDING) sh_mpi_cancel(&mpi->base, message);
    pthread_mutex_lock(&mpi->queue.lock);
    request->answered = true;
    pthread_cond_signal(&request->endpoint->changed);
    pthread_mutex_unlock(&mpi->queue.lock);
}

/* The owner's side of a send or receive of an endpoint. */
static void start_mail(sh_mpi *mpi, sh_mpi_mail *mail) {
    sh_message *message = &mail->message;
    int own = mail->endpoint->base.rank;
    if (!message->sends) {
        sh_mpi_mail_receive(mpi, message, own);
        return;
    }
    int to = message->peer;
    message->peer = mail->endpoint->hosts[to] - mpi->first;
    if (sh_mpi_mail_send(mpi, message, own, to) == SH_OK || mpi->failed) return;
    message->state = SH_MESSAGE_FAILED;
    sh_mpi_mail_ended(message);
}

bool sh_mpi_mail_queue_serve(sh_mpi *mpi) {
    if (!atomic_load_explicit(&mpi->queue.waiting, memory_order_relaxed)) return false;
    for (sh_mpi_mail *mail; (mail = take_mail(&mpi->queue)) != NULL;) {
        if (mail->cancels != NULL)
            do_cancel(mpi, mail);
        else if (!mpi->failed)  // otherwise its endpoint knows
            start_mail(mpi, mail);
    }
    return true;
}

/* After a failure its endpoint has given up everything. */
void sh_mpi_mail_ended(sh_message *message) {
    sh_mpi_mail *mail = (sh_mpi_mail *)message;
    sh_mpi_endpoint *endpoint = mail->endpoint;
    sh_mpi *mpi = endpoint->mpi;
    if (mpi->failed) return;
    pthread_mutex_lock(&mpi->queue.lock);
    mail->next = NULL;
    *endpoint->done_end = mail;
    endpoint->done_end = &mail->next;
    atomic_store_explicit(&endpoint->news, true, memory_order_relaxed);
    pthread_cond_signal(&endpoint->changed);
    pthread_mutex_unlock(&mpi->queue.lock);
}

void sh_mpi_mail_queue_fail(sh_mpi *mpi) {
    sh_mpi_mail_queue *queue = &mpi->queue;
    // The first failure is what is told.
    if (atomic_load_explicit(&queue->failed, memory_order_relaxed)) return;
    pthread_mutex_lock(&queue->lock);
    memcpy(queue->failure, mpi->failure, sizeof queue->failure);
    atomic_store_explicit(&queue->failed, true, memory_order_release);
    for (sh_mpi_endpoint *at = queue->endpoints; at != NULL; at = at->next)
        pthread_cond_signal(&at->changed);
    pthread_mutex_unlock(&queue->lock);
}

void sh_mpi_start_mail(sh_transport *transport) { ((sh_mpi *)transport)->mails = true; }

/* ---- an endpoint's side ---- */

static void hand_over(sh_mpi_endpoint *endpoint, sh_mpi_mail *mail) {
    sh_mpi *mpi = endpoint->mpi;
    mail->next = NULL;
    pthread_mutex_lock(&mpi->queue.lock);
    *mpi->queue.submitted_end = mail;
    mpi->queue.submitted_end = &mail->next;
    atomic_store_explicit(&mpi->queue.waiting, true, memory_order_relaxed);
    pthread_mutex_unlock(&mpi->queue.lock);
    sh_mpi_wake_rank(mpi, mpi->world.rank);
}

static sh_mpi_mail *mail_acquire(sh_mpi_endpoint *endpoint) {
    sh_mpi_mail *mail = endpoint->spare;
    if (mail != NULL) {
        endpoint->spare = mail->after;
    } else {
        mail = sh_alloc(1, sizeof *mail);
        if (mail == NULL) return NULL;
        mail->endpoint = endpoint;
        mail->next_all = endpoint->all;
        endpoint->all = mail;
    }
    mail->before = NULL;
    mail->after = endpoint->under_way;
    if (mail->after != NULL) mail->after->before = mail;
    endpoint->under_way = mail;
    return mail;
}

static void mail_release(sh_mpi_endpoint *endpoint, sh_mpi_mail *mail) {
    if (mail->after != NULL) mail->after->before = mail->before;
    if (mail->before != NULL)
        mail->before->after = mail->after;
    else
        endpoint->under_way = mail->after;
    mail->after = endpoint->spare;
    endpoint->spare = mail;
}

static sh_status health(sh_transport *transport) {
    sh_mpi_mail_queue *queue = &endpoint_of(transport)->mpi->queue;
    if (!atomic_load_explicit(&queue->failed, memory_order_acquire)) return SH_OK;
    return SH_FAIL(SH_E_PEER, "%s", queue->failure);
}

static sh_status start(sh_transport *transport, sh_message *message, bool sends) {
    sh_mpi_endpoint *endpoint = endpoint_of(transport);
    SH_ASSERT(message->tag >> 48 == 0);
    SH_TRY(health(transport));
    sh_mpi_mail *mail = mail_acquire(endpoint);
    if (mail == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for submitted");
    message->sends = sends;
    message->moved_bytes = 0;
    message->state = SH_MESSAGE_PENDING;
    message->own[0] = (uintptr_t)mail;
    mail->user = message;
    mail->message = *message;
    mail->message.tag |= SH_MPI_TAG_MAIL;
    hand_over(endpoint, mail);
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
static void finish_mail(sh_mpi_endpoint *endpoint, sh_mpi_mail *mail) {
    sh_message *user = mail->user;
    if (user->own[0] == (uintptr_t)mail) {
        if (!user->sends) user->peer = mail->message.peer;
        user->bytes = mail->message.bytes;
        user->moved_bytes = mail->message.moved_bytes;
        user->state = mail->message.state;
    }
    mail_release(endpoint, mail);
}

/* The owner stands still, but MPI may still hold mail: that keeps its memory. */
static bool fail_all(sh_mpi_endpoint *endpoint) {
    bool any = endpoint->under_way != NULL;
    for (sh_mpi_mail *mail = endpoint->under_way; mail != NULL; mail = mail->after)
        mail->user->state = SH_MESSAGE_FAILED;
    endpoint->under_way = NULL;
    return any;
}

/* Hands finished messages back to the endpoint's task. */
static bool mail_progress(sh_transport *transport) {
    sh_mpi_endpoint *endpoint = endpoint_of(transport);
    sh_mpi_mail_queue *queue = &endpoint->mpi->queue;
    if (atomic_load_explicit(&queue->failed, memory_order_acquire)) return fail_all(endpoint);
    if (!atomic_load_explicit(&endpoint->news, memory_order_relaxed)) return false;
    pthread_mutex_lock(&queue->lock);
    sh_mpi_mail *mail = endpoint->done, *next;
    endpoint->done = NULL;
    endpoint->done_end = &endpoint->done;
    atomic_store_explicit(&endpoint->news, false, memory_order_relaxed);
    pthread_mutex_unlock(&queue->lock);
    for (; mail != NULL; mail = next) {
        next = mail->next;
        finish_mail(endpoint, mail);
    }
    return true;
}

/* Under the queue's lock. */
static void await_change(sh_mpi_endpoint *endpoint) {
    struct timespec until = sh_deadline_in(IDLE_NS);
    pthread_cond_clockwait(&endpoint->changed, &endpoint->mpi->queue.lock, CLOCK_MONOTONIC, &until);
}

/* Sleeps until something has ended, or for IDLE_NS at most. */
static void mail_idle(sh_transport *transport) {
    sh_mpi_endpoint *endpoint = endpoint_of(transport);
    sh_mpi_mail_queue *queue = &endpoint->mpi->queue;
    pthread_mutex_lock(&queue->lock);
    bool failed = atomic_load_explicit(&queue->failed, memory_order_relaxed);
    if (endpoint->done == NULL && !failed) await_change(endpoint);
    pthread_mutex_unlock(&queue->lock);
}

/* Mail that is still in the queue is removed from it. */
static bool take_back(sh_mpi_mail_queue *queue, const sh_mpi_mail *mail) {
    pthread_mutex_lock(&queue->lock);
    sh_mpi_mail **at = &queue->submitted;
    while (*at != NULL && *at != mail) at = &(*at)->next;
    bool found = *at != NULL;
    if (found) *at = mail->next;
    if (found && *at == NULL) queue->submitted_end = at;
    pthread_mutex_unlock(&queue->lock);
    return found;
}

/* In the queue still: taken out. Started: the owner is asked, and the answer awaited. */
static void mail_cancel(sh_transport *transport, sh_message *message) {
    sh_mpi_endpoint *endpoint = endpoint_of(transport);
    sh_mpi_mail_queue *queue = &endpoint->mpi->queue;
    mail_progress(transport);
    if (message->state != SH_MESSAGE_PENDING) return;
    sh_mpi_mail *mail = (sh_mpi_mail *)message->own[0];
    if (take_back(queue, mail)) {
        mail->message.state = SH_MESSAGE_CANCELLED;
        finish_mail(endpoint, mail);
        return;
    }
    if (message->sends) return;  // it travels: finished by progress
    sh_mpi_mail request = {.endpoint = endpoint, .cancels = mail};
    hand_over(endpoint, &request);
    pthread_mutex_lock(&queue->lock);
    while (!request.answered) await_change(endpoint);
    pthread_mutex_unlock(&queue->lock);
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

static void mail_wake(sh_transport *transport, int peer) {
    (void)transport;
    (void)peer;
}

/* ---- opening and closing ---- */

static void endpoint_destroy(sh_mpi_endpoint *endpoint) {
    while (endpoint->all != NULL) {
        sh_mpi_mail *mail = endpoint->all;
        endpoint->all = mail->next_all;
        sh_free(mail);
    }
    pthread_cond_destroy(&endpoint->changed);
    sh_free(endpoint->node);
    sh_free(endpoint);
}

/* From here on the owner does not know the endpoint. */
static void leave_queue(sh_mpi_endpoint *endpoint) {
    sh_mpi_mail_queue *queue = &endpoint->mpi->queue;
    pthread_mutex_lock(&queue->lock);
    sh_mpi_endpoint **at = &queue->endpoints;
    while (*at != endpoint) at = &(*at)->next;
    *at = endpoint->next;
    pthread_mutex_unlock(&queue->lock);
}

static sh_mpi_mail *pending_receive(const sh_mpi_endpoint *endpoint) {
    sh_mpi_mail *mail = endpoint->under_way;
    while (mail != NULL && mail->message.sends) mail = mail->after;
    return mail;
}

/* Receives are taken back, sends are waited for. What does not end keeps its memory. */
static void mail_close(sh_transport *transport) {
    sh_mpi_endpoint *endpoint = endpoint_of(transport);
    int64_t until_ns = sh_clock_now_ns(transport->clock) + CLOSE_NS;
    for (sh_mpi_mail *mail; (mail = pending_receive(endpoint)) != NULL;) {
        sh_message *receive = mail->user;
        mail_cancel(transport, receive);
        if (receive->state == SH_MESSAGE_PENDING) break;
    }
    while (endpoint->under_way != NULL && sh_clock_now_ns(transport->clock) < until_ns)
        if (!mail_progress(transport)) mail_idle(transport);
    bool failed = atomic_load_explicit(&endpoint->mpi->queue.failed, memory_order_acquire);
    bool ended = endpoint->under_way == NULL && !failed;
    leave_queue(endpoint);
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
    .wake = mail_wake,
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
                               .ranks_per_core = transport->ranks_per_core,
                               .clock = transport->clock,
                               .board = &own->board};
    own->mpi = mpi;
    own->hosts = hosts;
    own->node = node;
    own->done_end = &own->done;
    pthread_cond_init(&own->changed, NULL);
    pthread_mutex_lock(&mpi->queue.lock);
    own->next = mpi->queue.endpoints;
    mpi->queue.endpoints = own;
    pthread_mutex_unlock(&mpi->queue.lock);
    *mail_out = &own->base;
    return SH_OK;
}

int sh_mpi_world_rank(const sh_transport *transport) {
    return ((const sh_mpi *)transport)->world.rank;
}

int sh_mpi_world_ranks(const sh_transport *transport) {
    return ((const sh_mpi *)transport)->world.ranks;
}
