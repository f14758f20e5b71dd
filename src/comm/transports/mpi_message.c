/* Messages over MPI: heads, short messages in packets, long ones from buffer to buffer. The scheme
 * is told in mpi_internal.h. */
#include <string.h>

#include "base/memory.h"
#include "comm/transports/mpi_internal.h"

enum { CANCEL_WAIT_NS = 2000000000, DONE_AT_ONCE = 256 };

/* What a request was for, in the low bits of its cookie; the rest points to its object. */
enum {
    ARRIVAL,  // the index of the packet in the ring, not a pointer
    PACKET,   // leaving
    HEAD,     // of a long message, leaving
    DATA,     // of a long message, leaving
    BODY,     // of a long message, arriving
    DRAIN,    // of a message that nobody may have, arriving
    KINDS_MASK = 7,
};

/* The words of sh_message.own. */
enum {
    OWN_STATE,                // send: requests still open; receive: WAITS, TRAVELS or WITHDRAWN
    OWN_HEAD,                 // send: the head takes five words
    OWN_DATA_TAG = OWN_HEAD,  // receive
};
enum { WAITS, TRAVELS, WITHDRAWN };

/* A long message that came too large or too late for its receive. */
typedef struct drain {
    int peer, tag;
    size_t left_bytes;
    char bytes[];
} drain;

static uintptr_t cookie_of(const void *object, uintptr_t kind) { return (uintptr_t)object | kind; }

static sh_mpi_bucket *bucket_of(sh_mpi *mpi, uint64_t tag) {
    return &mpi->buckets[tag * 0x9e3779b97f4a7c15u >> 58];
}

/* Both sides cut alike. */
static int part_of(const sh_mpi *mpi, int peer, size_t left_bytes) {
    bool near = mpi->node[peer] == mpi->node[mpi->base.rank];
    size_t part_bytes = near ? mpi->near_part_bytes : mpi->far_part_bytes;
    return (int)(left_bytes < part_bytes ? left_bytes : part_bytes);
}

static sh_mpi_packet *packet_acquire(sh_mpi *mpi) {
    sh_mpi_packet *packet = mpi->pool;
    if (packet != NULL) {
        mpi->pool = packet->next;
    } else {
        packet = sh_alloc(1, sizeof *packet);
        if (packet == NULL) return NULL;
        packet->next_all = mpi->all;
        mpi->all = packet;
    }
    packet->next = NULL;
    packet->message = NULL;
    return packet;
}

static void packet_release(sh_mpi *mpi, sh_mpi_packet *packet) {
    packet->next = mpi->pool;
    mpi->pool = packet;
}

/* ---- sending ---- */

static sh_status send_short(sh_mpi *mpi, sh_message *message) {
    sh_mpi_packet *packet = packet_acquire(mpi);
    if (packet == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a message to rank %d", message->peer);
    packet->message = message;
    packet->head =
        (sh_mpi_head){.tag = message->tag, .bytes = message->bytes, .stamp = message->stamp};
    if (message->bytes > 0) memcpy(packet->payload, message->data, message->bytes);
    int error = mpi->module->isend(&packet->head, (int)(sizeof packet->head + message->bytes),
                                   message->peer, SH_MPI_TAG_HEAD, cookie_of(packet, PACKET));
    return error == 0 ? SH_OK : sh_mpi_fail(mpi, error, "a send");
}

static sh_status send_part(sh_mpi *mpi, sh_message *message) {
    const sh_mpi_head *head = (const sh_mpi_head *)&message->own[OWN_HEAD];
    int error =
        mpi->module->isend((const char *)message->data + message->moved_bytes,
                           part_of(mpi, message->peer, message->bytes - message->moved_bytes),
                           message->peer, (int)head->data_tag, cookie_of(message, DATA));
    return error == 0 ? SH_OK : sh_mpi_fail(mpi, error, "a send");
}

/* The head lies in the message itself, which the caller keeps until it is done. */
static sh_status send_long(sh_mpi *mpi, sh_message *message) {
    _Static_assert(sizeof(sh_mpi_head) <= 5 * sizeof(uintptr_t), "a head fits into own[1..5]");
    uint32_t tags = (uint32_t)mpi->world.tag_max - SH_MPI_TAG_DATA;
    sh_mpi_head *head = (sh_mpi_head *)&message->own[OWN_HEAD];
    *head = (sh_mpi_head){
        .tag = message->tag,
        .bytes = message->bytes,
        .data_tag = SH_MPI_TAG_DATA + mpi->data_tags[message->peer]++ % tags,
        .stamp = message->stamp,
    };
    message->own[OWN_STATE] = 2;
    mpi->moving++;
    int error = mpi->module->isend(head, sizeof *head, message->peer, SH_MPI_TAG_HEAD,
                                   cookie_of(message, HEAD));
    return error == 0 ? send_part(mpi, message) : sh_mpi_fail(mpi, error, "a send");
}

sh_status sh_mpi_send(sh_transport *transport, sh_message *message) {
    sh_mpi *mpi = (sh_mpi *)transport;
    SH_ASSERT(message->peer >= 0 && message->peer < transport->ranks);
    SH_ASSERT(message->tag >> 48 == 0);
    SH_TRY(transport->ops->health(transport));
    message->sends = true;
    message->moved_bytes = 0;
    message->state = SH_MESSAGE_PENDING;
    sh_status status =
        message->bytes <= SH_MPI_SHORT_BYTES ? send_short(mpi, message) : send_long(mpi, message);
    if (status != SH_OK) message->state = SH_MESSAGE_FAILED;
    return status;
}

static void send_request_done(sh_mpi *mpi, sh_message *message) {
    if (--message->own[OWN_STATE] > 0) return;
    mpi->moving--;
    message->state = SH_MESSAGE_DONE;
}

static void send_part_done(sh_mpi *mpi, sh_message *message) {
    message->moved_bytes +=
        (size_t)part_of(mpi, message->peer, message->bytes - message->moved_bytes);
    if (message->moved_bytes == message->bytes)
        send_request_done(mpi, message);
    else if (send_part(mpi, message) != SH_OK)
        message->state = SH_MESSAGE_FAILED;
}

/* ---- receiving ---- */

static void drain_part(sh_mpi *mpi, drain *rest) {
    int error = mpi->module->irecv(rest->bytes, part_of(mpi, rest->peer, rest->left_bytes),
                                   rest->peer, rest->tag, cookie_of(rest, DRAIN));
    if (error != 0) (void)sh_mpi_fail(mpi, error, "a receive");
}

/* Lets a message that is on its way come in and be forgotten, so that its sender gets rid of it. */
static void drain_start(sh_mpi *mpi, int peer, int tag, size_t bytes) {
    drain *rest = sh_alloc(1, sizeof *rest + (size_t)part_of(mpi, peer, bytes));
    if (rest == NULL) return;  // the sender waits, which its watchdog will tell
    *rest = (drain){.peer = peer, .tag = tag, .left_bytes = bytes};
    drain_part(mpi, rest);
}

static void drain_part_done(sh_mpi *mpi, drain *rest) {
    rest->left_bytes -= (size_t)part_of(mpi, rest->peer, rest->left_bytes);
    if (rest->left_bytes > 0)
        drain_part(mpi, rest);
    else
        sh_free(rest);
}

static void body_part(sh_mpi *mpi, sh_message *message) {
    int error = mpi->module->irecv(
        (char *)message->data + message->moved_bytes,
        part_of(mpi, message->peer, message->bytes - message->moved_bytes), message->peer,
        (int)message->own[OWN_DATA_TAG], cookie_of(message, BODY));
    if (error == 0) return;
    (void)sh_mpi_fail(mpi, error, "a receive");
    message->state = SH_MESSAGE_FAILED;
}

static void body_part_done(sh_mpi *mpi, sh_message *message, bool cancelled) {
    size_t left_bytes = message->bytes - message->moved_bytes;
    if (cancelled) {
        mpi->moving--;
        message->state = SH_MESSAGE_CANCELLED;
        drain_start(mpi, message->peer, (int)message->own[OWN_DATA_TAG], left_bytes);
        return;
    }
    message->moved_bytes += (size_t)part_of(mpi, message->peer, left_bytes);
    if (message->moved_bytes < message->bytes) {
        body_part(mpi, message);
        return;
    }
    mpi->moving--;
    message->state = SH_MESSAGE_DONE;
}

/* A receive and a head have met. */
static void deliver(sh_mpi *mpi, sh_message *message, const sh_mpi_packet *packet) {
    const sh_mpi_head *head = &packet->head;
    bool fits = head->bytes <= message->bytes, follows = head->data_tag != 0;
    message->peer = packet->peer;
    message->bytes = (size_t)head->bytes;
    if (!fits) {
        message->state = SH_MESSAGE_FAILED;
        if (follows) drain_start(mpi, packet->peer, (int)head->data_tag, (size_t)head->bytes);
    } else if (follows) {
        mpi->moving++;
        message->own[OWN_STATE] = TRAVELS;
        message->own[OWN_DATA_TAG] = (uintptr_t)head->data_tag;
        body_part(mpi, message);
    } else {
        if (head->bytes > 0) memcpy(message->data, packet->payload, (size_t)head->bytes);
        message->moved_bytes = (size_t)head->bytes;
        message->state = SH_MESSAGE_DONE;
    }
}

static sh_mpi_packet *take_early(sh_mpi_bucket *bucket, const sh_message *message) {
    for (sh_mpi_packet **at = &bucket->early; *at != NULL; at = &(*at)->next) {
        sh_mpi_packet *packet = *at;
        bool meets = packet->head.tag == message->tag &&
                     (message->peer == SH_ANY_RANK || message->peer == packet->peer);
        if (!meets) continue;
        *at = packet->next;
        if (*at == NULL) bucket->early_end = at;
        return packet;
    }
    return NULL;
}

static sh_message *take_receive(sh_mpi_bucket *bucket, const sh_mpi_packet *packet) {
    for (sh_message **at = &bucket->receives; *at != NULL; at = &(*at)->next) {
        sh_message *message = *at;
        bool meets = message->tag == packet->head.tag &&
                     (message->peer == SH_ANY_RANK || message->peer == packet->peer);
        if (!meets) continue;
        *at = message->next;
        if (*at == NULL) bucket->receives_end = at;
        return message;
    }
    return NULL;
}

sh_status sh_mpi_receive(sh_transport *transport, sh_message *message) {
    sh_mpi *mpi = (sh_mpi *)transport;
    SH_ASSERT(message->peer == SH_ANY_RANK ||
              (message->peer >= 0 && message->peer < transport->ranks));
    SH_ASSERT(message->tag >> 48 == 0);
    SH_TRY(transport->ops->health(transport));
    message->sends = false;
    message->moved_bytes = 0;
    message->state = SH_MESSAGE_PENDING;
    message->own[OWN_STATE] = WAITS;
    message->next = NULL;
    sh_mpi_bucket *bucket = bucket_of(mpi, message->tag);
    sh_mpi_packet *packet = take_early(bucket, message);
    if (packet != NULL) {
        deliver(mpi, message, packet);
        packet_release(mpi, packet);
    } else {
        *bucket->receives_end = message;
        bucket->receives_end = &message->next;
    }
    return SH_OK;
}

void sh_mpi_cancel(sh_transport *transport, sh_message *message) {
    sh_mpi *mpi = (sh_mpi *)transport;
    if (message->state != SH_MESSAGE_PENDING || message->sends) return;
    if (message->own[OWN_STATE] == WAITS) {
        sh_mpi_bucket *bucket = bucket_of(mpi, message->tag);
        sh_message **at = &bucket->receives;
        while (*at != message) at = &(*at)->next;
        *at = message->next;
        if (*at == NULL) bucket->receives_end = at;
        message->state = SH_MESSAGE_CANCELLED;
        return;
    }
    // Its data may be flowing in already: the buffer is the caller's again only after that.
    message->own[OWN_STATE] = WITHDRAWN;
    int error = mpi->module->cancel(cookie_of(message, BODY));
    if (error != 0) (void)sh_mpi_fail(mpi, error, "a cancellation");
    int64_t end_ns = sh_clock_now_ns(transport->clock) + CANCEL_WAIT_NS;
    while (message->state == SH_MESSAGE_PENDING && sh_clock_now_ns(transport->clock) < end_ns)
        if (!sh_mpi_progress(transport)) sh_mpi_idle(transport);
}

/* ---- progress ---- */

static bool is_well_formed(const sh_mpi_packet *packet, int bytes) {
    if (bytes < (int)sizeof packet->head) return false;
    size_t payload_bytes = (size_t)bytes - sizeof packet->head;
    if (packet->head.data_tag == 0) return packet->head.bytes == payload_bytes;
    return payload_bytes == 0 && packet->head.bytes > SH_MPI_SHORT_BYTES;
}

static sh_status post_arrival(sh_mpi *mpi, int index) {
    sh_mpi_packet *packet = mpi->arrivals[index];
    if (packet == NULL) packet = mpi->arrivals[index] = packet_acquire(mpi);
    if (packet == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for messages");
    mpi->arrived[index] = false;
    int error =
        mpi->module->irecv(&packet->head, (int)(sizeof packet->head + SH_MPI_SHORT_BYTES),
                           SH_MPI_ANY_PEER, SH_MPI_TAG_HEAD, (uintptr_t)index << 3 | ARRIVAL);
    return error == 0 ? SH_OK : sh_mpi_fail(mpi, error, "a receive");
}

/* Meets the heads that are in, in the order of their packets. */
static void meet_arrivals(sh_mpi *mpi) {
    while (mpi->arrived[mpi->arrivals_at] && !mpi->failed) {
        int index = mpi->arrivals_at;
        sh_mpi_packet *packet = mpi->arrivals[index];
        const sh_mpi_head *head = &packet->head;
        bool is_notice = sh_transport_meets(&mpi->base, packet->peer, head->tag, head->stamp);
        sh_mpi_bucket *bucket = bucket_of(mpi, head->tag);
        sh_message *message = is_notice ? NULL : take_receive(bucket, packet);
        if (message != NULL) {
            deliver(mpi, message, packet);
        } else if (!is_notice) {
            packet->next = NULL;
            *bucket->early_end = packet;
            bucket->early_end = &packet->next;
            mpi->arrivals[index] = NULL;  // another takes its place in the ring
        }
        mpi->arrivals_at = (index + 1) % SH_MPI_ARRIVALS;
        if (post_arrival(mpi, index) != SH_OK && !mpi->failed)
            (void)sh_mpi_fail(mpi, 0, "memory for messages");
    }
}

static void arrival_done(sh_mpi *mpi, const sh_mpi_done *done) {
    int index = (int)(done->cookie >> 3);
    if (!is_well_formed(mpi->arrivals[index], done->bytes)) {
        (void)sh_mpi_fail(mpi, 0, "a head that makes no sense: do all ranks run the same program?");
        return;
    }
    mpi->arrivals[index]->peer = done->peer;
    mpi->arrived[index] = true;
}

static void packet_done(sh_mpi *mpi, sh_mpi_packet *packet) {
    packet->message->state = SH_MESSAGE_DONE;
    packet_release(mpi, packet);
}

static void request_done(sh_mpi *mpi, const sh_mpi_done *done) {
    uintptr_t kind = done->cookie & KINDS_MASK;
    void *object = (void *)(done->cookie & ~(uintptr_t)KINDS_MASK);
    if (done->error != 0) {
        (void)sh_mpi_fail(mpi, done->error, "a message");
        if (kind == PACKET) ((sh_mpi_packet *)object)->message->state = SH_MESSAGE_FAILED;
        if (kind == HEAD || kind == DATA || kind == BODY)
            ((sh_message *)object)->state = SH_MESSAGE_FAILED;
        return;
    }
    switch (kind) {
        case ARRIVAL:
            arrival_done(mpi, done);
            break;
        case PACKET:
            packet_done(mpi, object);
            break;
        case HEAD:
            send_request_done(mpi, object);
            break;
        case DATA:
            send_part_done(mpi, object);
            break;
        case BODY:
            body_part_done(mpi, object, done->cancelled != 0);
            break;
        default:
            drain_part_done(mpi, object);
            break;
    }
}

bool sh_mpi_progress(sh_transport *transport) {
    sh_mpi *mpi = (sh_mpi *)transport;
    if (mpi->failed) return false;
    sh_mpi_done done[DONE_AT_ONCE];
    int count = 0;
    int error = mpi->module->test(done, DONE_AT_ONCE, &count);
    if (error != 0) (void)sh_mpi_fail(mpi, error, "progress");
    for (int i = 0; i < count; i++) request_done(mpi, &done[i]);
    if (count == 0) return false;
    meet_arrivals(mpi);
    mpi->active_ns = sh_clock_now_ns(transport->clock);
    return true;
}

/* ---- life ---- */

sh_status sh_mpi_messages_init(sh_mpi *mpi) {
    for (int b = 0; b < SH_MPI_BUCKETS; b++) {
        mpi->buckets[b].receives_end = &mpi->buckets[b].receives;
        mpi->buckets[b].early_end = &mpi->buckets[b].early;
    }
    mpi->data_tags = sh_alloc((size_t)mpi->base.ranks, sizeof *mpi->data_tags);
    if (mpi->data_tags == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for messages");
    for (int i = 0; i < SH_MPI_ARRIVALS; i++) SH_TRY(post_arrival(mpi, i));
    return SH_OK;
}

void sh_mpi_messages_fini(sh_mpi *mpi) {
    while (mpi->all != NULL) {
        sh_mpi_packet *packet = mpi->all;
        mpi->all = packet->next_all;
        sh_free(packet);
    }
    sh_free(mpi->data_tags);
}
