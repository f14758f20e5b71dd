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
    OWN_RANK,                 // receive: from which its data comes
    OWN_TO,                   // receive of mail: the endpoint
};
enum { WAITS, TRAVELS, WITHDRAWN };

/* A long message that came too large or too late for its receive. */
typedef struct drain {
    int rank, tag;
    size_t left_bytes;
    char bytes[];
} drain;

/* Objects are aligned, so the low bits of their addresses are free for the kind. */
static uintptr_t cookie_of(const void *object, uintptr_t kind) { return (uintptr_t)object | kind; }

/* Mail has a bit of its own in the tag, so that it never meets a receive of the engine. */
static bool is_mail(uint64_t tag) { return (tag & SH_MPI_TAG_MAIL) != 0; }

/* Mail belongs to its endpoint again after this. */
static void end(sh_message *message, sh_message_state state) {
    message->state = state;
    if (is_mail(message->tag)) sh_mpi_mail_ended(message);
}

/* Of all ranks that MPI has. */
static int target_of(const sh_mpi *mpi, const sh_message *send) { return mpi->first + send->peer; }

/* Fibonacci hashing: 64 lists, chosen by the top 6 bits. */
static sh_mpi_bucket *bucket_of(sh_mpi *mpi, uint64_t tag) {
    return &mpi->buckets[tag * 0x9e3779b97f4a7c15u >> 58];
}

/* Both sides cut alike. */
static int part_of(const sh_mpi *mpi, int rank, size_t left_bytes) {
    bool near = mpi->node[rank] == mpi->node[mpi->world.rank];
    size_t part_bytes = near ? mpi->near_part_bytes : mpi->far_part_bytes;
    return (int)(left_bytes < part_bytes ? left_bytes : part_bytes);
}

/* Packets are pooled: after the first steps sending allocates nothing. */
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

/* Copied into a packet: the message is the caller's again when MPI has sent it. */
static sh_status send_short(sh_mpi *mpi, sh_message *message) {
    sh_mpi_packet *packet = packet_acquire(mpi);
    if (packet == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a message to rank %d",
                       target_of(mpi, message));
    packet->message = message;
    packet->head =
        (sh_mpi_head){.tag = message->tag, .bytes = message->bytes, .stamp = message->stamp};
    if (message->bytes > 0) memcpy(packet->payload, message->data, message->bytes);
    int error =
        mpi->module->isend(&packet->head, (int)(sizeof packet->head + message->bytes),
                           target_of(mpi, message), SH_MPI_TAG_HEAD, cookie_of(packet, PACKET));
    return error == 0 ? SH_OK : sh_mpi_fail(mpi, error, "a send");
}

/* The next part of a long message; both sides compute the same lengths (part_of). */
static sh_status send_part(sh_mpi *mpi, sh_message *message) {
    const sh_mpi_head *head = (const sh_mpi_head *)&message->own[OWN_HEAD];
    int rank = target_of(mpi, message);
    int error = mpi->module->isend((const char *)message->data + message->moved_bytes,
                                   part_of(mpi, rank, message->bytes - message->moved_bytes), rank,
                                   (int)head->data_tag, cookie_of(message, DATA));
    return error == 0 ? SH_OK : sh_mpi_fail(mpi, error, "a send");
}

/* The head lies in the message itself, which the caller keeps until it is done. */
static sh_status send_long(sh_mpi *mpi, sh_message *message) {
    _Static_assert(sizeof(sh_mpi_head) <= 5 * sizeof(uintptr_t), "a head fits into own[1..5]");
    uint32_t tags = (uint32_t)mpi->world.tag_max - SH_MPI_TAG_DATA;
    int rank = target_of(mpi, message);
    sh_mpi_head *head = (sh_mpi_head *)&message->own[OWN_HEAD];
    *head = (sh_mpi_head){
        .tag = message->tag,
        .bytes = message->bytes,
        .data_tag = SH_MPI_TAG_DATA + mpi->data_tags[rank]++ % tags,
        .stamp = message->stamp,
    };
    message->own[OWN_STATE] = 2;
    mpi->moving++;
    int error =
        mpi->module->isend(head, sizeof *head, rank, SH_MPI_TAG_HEAD, cookie_of(message, HEAD));
    return error == 0 ? send_part(mpi, message) : sh_mpi_fail(mpi, error, "a send");
}

static void begin(sh_message *message, bool sends) {
    message->sends = sends;
    message->moved_bytes = 0;
    message->state = SH_MESSAGE_PENDING;
    message->next = NULL;
}

/* Short messages travel with their head, long ones behind it. */
static sh_status start_send(sh_mpi *mpi, sh_message *message) {
    begin(message, true);
    sh_status status =
        message->bytes <= SH_MPI_SHORT_BYTES ? send_short(mpi, message) : send_long(mpi, message);
    if (status != SH_OK) message->state = SH_MESSAGE_FAILED;
    return status;
}

sh_status sh_mpi_send(sh_transport *transport, sh_message *message) {
    SH_ASSERT(message->peer >= 0 && message->peer < transport->ranks);
    SH_ASSERT(message->tag >> 48 == 0);
    SH_TRY(transport->ops->health(transport));
    return start_send((sh_mpi *)transport, message);
}

/* A long send is two requests, head and data; it is done when both are. */
static void send_request_done(sh_mpi *mpi, sh_message *message) {
    if (--message->own[OWN_STATE] > 0) return;
    mpi->moving--;
    end(message, SH_MESSAGE_DONE);
}

/* Parts follow each other: one request per message is open at a time. */
static void send_part_done(sh_mpi *mpi, sh_message *message) {
    message->moved_bytes +=
        (size_t)part_of(mpi, target_of(mpi, message), message->bytes - message->moved_bytes);
    if (message->moved_bytes == message->bytes)
        send_request_done(mpi, message);
    else if (send_part(mpi, message) != SH_OK)
        end(message, SH_MESSAGE_FAILED);
}

/* ---- receiving ---- */

/* Receives into memory of the drain, which nobody reads. */
static void drain_part(sh_mpi *mpi, drain *rest) {
    int error = mpi->module->irecv(rest->bytes, part_of(mpi, rest->rank, rest->left_bytes),
                                   rest->rank, rest->tag, cookie_of(rest, DRAIN));
    if (error != 0) (void)sh_mpi_fail(mpi, error, "a receive");
}

/* Lets a message that is on its way come in and be forgotten, so that its sender gets rid of it. */
static void drain_start(sh_mpi *mpi, int rank, int tag, size_t bytes) {
    drain *rest = sh_alloc(1, sizeof *rest + (size_t)part_of(mpi, rank, bytes));
    if (rest == NULL) return;  // the sender waits, which its watchdog will tell
    *rest = (drain){.rank = rank, .tag = tag, .left_bytes = bytes};
    drain_part(mpi, rest);
}

static void drain_part_done(sh_mpi *mpi, drain *rest) {
    rest->left_bytes -= (size_t)part_of(mpi, rest->rank, rest->left_bytes);
    if (rest->left_bytes > 0)
        drain_part(mpi, rest);
    else
        sh_free(rest);
}

/* The next part of a long message goes straight to the caller's buffer. */
static void body_part(sh_mpi *mpi, sh_message *message) {
    int rank = (int)message->own[OWN_RANK];
    int error = mpi->module->irecv((char *)message->data + message->moved_bytes,
                                   part_of(mpi, rank, message->bytes - message->moved_bytes), rank,
                                   (int)message->own[OWN_DATA_TAG], cookie_of(message, BODY));
    if (error == 0) return;
    (void)sh_mpi_fail(mpi, error, "a receive");
    end(message, SH_MESSAGE_FAILED);
}

/* After a cancellation the rest is drained, so that the sender is not left with it. */
static void body_part_done(sh_mpi *mpi, sh_message *message, bool cancelled) {
    size_t left_bytes = message->bytes - message->moved_bytes;
    int rank = (int)message->own[OWN_RANK];
    if (!cancelled) left_bytes -= (size_t)part_of(mpi, rank, left_bytes);
    message->moved_bytes = message->bytes - left_bytes;
    bool withdrawn = message->own[OWN_STATE] == WITHDRAWN;
    if (left_bytes > 0 && !withdrawn && !cancelled) {
        body_part(mpi, message);
        return;
    }
    mpi->moving--;
    if (left_bytes > 0) drain_start(mpi, rank, (int)message->own[OWN_DATA_TAG], left_bytes);
    end(message, left_bytes > 0 ? SH_MESSAGE_CANCELLED : SH_MESSAGE_DONE);
}

/* A receive and a head have met. */
static void deliver(sh_mpi *mpi, sh_message *message, const sh_mpi_packet *packet) {
    const sh_mpi_head *head = &packet->head;
    bool here = head->data_tag == SH_MPI_DATA_HERE, follows = head->data_tag != 0 && !here;
    bool fits = head->bytes <= message->bytes;
    message->peer = packet->peer;
    message->bytes = (size_t)head->bytes;
    if (!fits) {
        if (follows) drain_start(mpi, packet->rank, (int)head->data_tag, (size_t)head->bytes);
        end(message, SH_MESSAGE_FAILED);
    } else if (follows) {
        mpi->moving++;
        message->own[OWN_STATE] = TRAVELS;
        message->own[OWN_RANK] = (uintptr_t)packet->rank;
        message->own[OWN_DATA_TAG] = (uintptr_t)head->data_tag;
        body_part(mpi, message);
    } else {
        const void *data = here ? packet->message->data : packet->payload;
        if (head->bytes > 0) memcpy(message->data, data, (size_t)head->bytes);
        message->moved_bytes = (size_t)head->bytes;
        end(message, SH_MESSAGE_DONE);
    }
    if (here) end(packet->message, SH_MESSAGE_DONE);
}

/* A receive fits a message: tag, endpoint of mail, and peer or any. */
static bool meet(const sh_message *receive, const sh_mpi_packet *packet) {
    const sh_mpi_head *head = &packet->head;
    if (receive->tag != head->tag) return false;
    if (is_mail(head->tag) && receive->own[OWN_TO] != head->stamp.extent) return false;
    return receive->peer == SH_ANY_RANK || receive->peer == packet->peer;
}

/* The first unexpected message that fits a receive, in the order of arrival. */
static sh_mpi_packet *take_early(sh_mpi_bucket *bucket, const sh_message *message) {
    for (sh_mpi_packet **at = &bucket->early; *at != NULL; at = &(*at)->next) {
        sh_mpi_packet *packet = *at;
        if (!meet(message, packet)) continue;
        *at = packet->next;
        if (*at == NULL) bucket->early_end = at;
        return packet;
    }
    return NULL;
}

/* The first receive that fits a message, in the order of their starts. */
static sh_message *take_receive(sh_mpi_bucket *bucket, const sh_mpi_packet *packet) {
    for (sh_message **at = &bucket->receives; *at != NULL; at = &(*at)->next) {
        sh_message *message = *at;
        if (!meet(message, packet)) continue;
        *at = message->next;
        if (*at == NULL) bucket->receives_end = at;
        return message;
    }
    return NULL;
}

/* An unexpected message that fits is delivered at once; otherwise the receive waits. */
static void start_receive(sh_mpi *mpi, sh_message *message) {
    begin(message, false);
    message->own[OWN_STATE] = WAITS;
    sh_mpi_bucket *bucket = bucket_of(mpi, message->tag);
    sh_mpi_packet *packet = take_early(bucket, message);
    if (packet != NULL) {
        deliver(mpi, message, packet);
        packet_release(mpi, packet);
    } else {
        *bucket->receives_end = message;
        bucket->receives_end = &message->next;
    }
}

sh_status sh_mpi_receive(sh_transport *transport, sh_message *message) {
    SH_ASSERT(message->peer == SH_ANY_RANK ||
              (message->peer >= 0 && message->peer < transport->ranks));
    SH_ASSERT(message->tag >> 48 == 0);
    SH_TRY(transport->ops->health(transport));
    start_receive((sh_mpi *)transport, message);
    return SH_OK;
}

/* A head is in: it meets its receive, or waits for it. False: the packet is the caller's again. */
static bool keep_packet(sh_mpi *mpi, sh_mpi_packet *packet) {
    sh_mpi_bucket *bucket = bucket_of(mpi, packet->head.tag);
    sh_message *message = take_receive(bucket, packet);
    if (message != NULL) {
        deliver(mpi, message, packet);
        return false;
    }
    packet->next = NULL;
    *bucket->early_end = packet;
    bucket->early_end = &packet->next;
    return true;
}

/* Sends travel on: MPI cannot take them back. A receive whose data flows in is cancelled through
 * MPI and waited for. */
void sh_mpi_cancel(sh_transport *transport, sh_message *message) {
    sh_mpi *mpi = (sh_mpi *)transport;
    if (message->state != SH_MESSAGE_PENDING || message->sends) return;
    if (message->own[OWN_STATE] == WAITS) {
        sh_mpi_bucket *bucket = bucket_of(mpi, message->tag);
        sh_message **at = &bucket->receives;
        while (*at != message) at = &(*at)->next;
        *at = message->next;
        if (*at == NULL) bucket->receives_end = at;
        end(message, SH_MESSAGE_CANCELLED);
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

/* ---- mail ---- */

void sh_mpi_mail_receive(sh_mpi *mpi, sh_message *message, int to) {
    message->own[OWN_TO] = (uintptr_t)to;
    start_receive(mpi, message);
}

/* Both endpoints are here. Short mail is copied, long mail is read where it lies. */
static sh_status send_here(sh_mpi *mpi, sh_message *message) {
    sh_mpi_packet *packet = packet_acquire(mpi);
    if (packet == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a message of mail");
    bool is_short = message->bytes <= SH_MPI_SHORT_BYTES;
    begin(message, true);
    packet->head = (sh_mpi_head){.tag = message->tag,
                                 .bytes = message->bytes,
                                 .data_tag = is_short ? 0 : SH_MPI_DATA_HERE,
                                 .stamp = message->stamp};
    packet->rank = mpi->world.rank;
    packet->peer = (int)message->stamp.kind;
    packet->message = message;
    if (is_short && message->bytes > 0) memcpy(packet->payload, message->data, message->bytes);
    if (!keep_packet(mpi, packet)) packet_release(mpi, packet);
    if (is_short) end(message, SH_MESSAGE_DONE);
    return SH_OK;
}

sh_status sh_mpi_mail_send(sh_mpi *mpi, sh_message *message, int from, int to) {
    message->stamp = (sh_stamp){.kind = (uint64_t)from, .extent = (uint64_t)to};
    int rank = target_of(mpi, message);
    if (rank == mpi->world.rank) return send_here(mpi, message);
    SH_TRY(start_send(mpi, message));
    sh_mpi_wake_rank(mpi, rank);  // it may sleep between two looks at MPI
    return SH_OK;
}

/* ---- progress ---- */

static bool is_well_formed(const sh_mpi *mpi, const sh_mpi_packet *packet, int bytes) {
    if (bytes < (int)sizeof packet->head) return false;
    size_t payload_bytes = (size_t)bytes - sizeof packet->head;
    if (packet->head.data_tag == 0) return packet->head.bytes == payload_bytes;
    return payload_bytes == 0 && packet->head.bytes > SH_MPI_SHORT_BYTES &&
           packet->head.data_tag <= (uint64_t)mpi->world.tag_max;
}

static sh_status post_arrival(sh_mpi *mpi, int index) {
    sh_mpi_packet *packet = mpi->arrivals.packets[index];
    if (packet == NULL) packet = mpi->arrivals.packets[index] = packet_acquire(mpi);
    if (packet == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for messages");
    mpi->arrivals.done[index] = false;
    int error =
        mpi->module->irecv(&packet->head, (int)(sizeof packet->head + SH_MPI_SHORT_BYTES),
                           SH_MPI_ANY_PEER, SH_MPI_TAG_HEAD, (uintptr_t)index << 3 | ARRIVAL);
    return error == 0 ? SH_OK : sh_mpi_fail(mpi, error, "a receive");
}

/* Meets the heads that are in, in the order of their packets. */
static void meet_arrivals(sh_mpi *mpi) {
    while (mpi->arrivals.done[mpi->arrivals.at] && !mpi->failed) {
        int index = mpi->arrivals.at;
        sh_mpi_packet *packet = mpi->arrivals.packets[index];
        const sh_mpi_head *head = &packet->head;
        bool is_notice = !is_mail(head->tag) &&
                         sh_transport_arrived(&mpi->base, packet->peer, head->tag, head->stamp);
        if (!is_notice && keep_packet(mpi, packet))
            mpi->arrivals.packets[index] = NULL;  // another takes its place in the ring
        mpi->arrivals.at = (index + 1) % SH_MPI_ARRIVALS;
        if (post_arrival(mpi, index) != SH_OK && !mpi->failed)
            (void)sh_mpi_fail(mpi, 0, "memory for messages");
    }
}

static void arrival_done(sh_mpi *mpi, const sh_mpi_done *done) {
    int index = (int)(done->cookie >> 3);
    sh_mpi_packet *packet = mpi->arrivals.packets[index];
    if (!is_well_formed(mpi, packet, done->bytes)) {
        (void)sh_mpi_fail(mpi, 0, "a head that makes no sense: do all ranks run the same program?");
        return;
    }
    packet->rank = done->peer;
    bool mail = is_mail(packet->head.tag);
    packet->peer = mail ? (int)packet->head.stamp.kind : done->peer - mpi->first;
    mpi->arrivals.done[index] = true;
}

static void packet_done(sh_mpi *mpi, sh_mpi_packet *packet) {
    end(packet->message, SH_MESSAGE_DONE);
    packet_release(mpi, packet);
}

static void request_done(sh_mpi *mpi, const sh_mpi_done *done) {
    uintptr_t kind = done->cookie & KINDS_MASK;
    void *object = (void *)(done->cookie & ~(uintptr_t)KINDS_MASK);
    if (done->error != 0) {
        (void)sh_mpi_fail(mpi, done->error, "a message");
        if (kind == PACKET) end(((sh_mpi_packet *)object)->message, SH_MESSAGE_FAILED);
        if (kind == HEAD || kind == DATA || kind == BODY)
            end((sh_message *)object, SH_MESSAGE_FAILED);
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
    bool served = sh_mpi_mail_queue_serve(mpi);
    if (mpi->failed) return false;
    sh_mpi_done done[DONE_AT_ONCE];
    int count = 0;
    int error = mpi->module->test(done, DONE_AT_ONCE, &count);
    if (error != 0) (void)sh_mpi_fail(mpi, error, "progress");
    for (int i = 0; i < count; i++) request_done(mpi, &done[i]);
    if (count == 0 && !served) return false;
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
    mpi->data_tags = sh_alloc((size_t)mpi->world.ranks, sizeof *mpi->data_tags);
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
