/* Messages: from the send over the wires to the receive that asked for them. */
#include <string.h>

#include "sim/sim_internal.h"

/* ---- Flights and their payloads -------------------------------------------------------------- */

/* Size class of an eager payload: the least power of two from 64 bytes on that holds it. Longer
 * messages have no payload, so the index stays below SH_SIM_CLASSES. */
static int class_of(size_t bytes) {
    int index = 0;
    while (((size_t)64 << index) < bytes) index++;
    return index;
}

/* The pools reuse the memory at once: the flight must have left every list and must not be tied
 * to a message. */
static void end_flight(sh_sim *sim, sh_flight *flight) {
    if (flight->payload != NULL)
        sh_pool_give(&sim->payloads[class_of(flight->bytes)], flight->payload);
    sh_pool_give(&sim->flights, flight);
}

/* Short messages are copied and their sender goes on; longer ones stay the sender's until the
 * receiver has them, and are copied once. */
static sh_status pack(sh_sim *sim, sh_message *message, sh_flight *flight) {
    flight->payload = NULL;
    flight->message = message;
    if (message->bytes > SH_SIM_EAGER_BYTES) return SH_OK;
    if (message->data != NULL && message->bytes > 0) {
        flight->payload = sh_pool_take(&sim->payloads[class_of(message->bytes)]);
        if (flight->payload == NULL)
            return SH_FAIL(SH_E_MEMORY, "out of memory for a simulated message of %zu bytes",
                           message->bytes);
        memcpy(flight->payload, message->data, message->bytes);
    }
    flight->message = NULL;
    message->state = SH_MESSAGE_DONE;
    return SH_OK;
}

/* A long message and its flight know each other until one of them ends. */
static void tie(sh_sim_rank *from, sh_flight *flight) {
    flight->message->own[0] = (uintptr_t)flight;
    flight->long_before = NULL;
    flight->long_next = from->first_long;
    if (from->first_long != NULL) from->first_long->long_before = flight;
    from->first_long = flight;
}

/* After this, neither the end of the message nor that of the flight reaches the other one. */
static void untie(sh_sim_rank *from, sh_flight *flight) {
    if (flight->long_before != NULL)
        flight->long_before->long_next = flight->long_next;
    else
        from->first_long = flight->long_next;
    if (flight->long_next != NULL) flight->long_next->long_before = flight->long_before;
    flight->message->own[0] = 0;
    flight->message = NULL;
}

/* Tells a sender that waits how its message ended. */
static void tell_sender(sh_sim *sim, sh_flight *flight, sh_message_state state) {
    if (flight->message == NULL) return;
    sh_sim_rank *from = &sim->ranks[flight->from];
    flight->message->state = state;
    untie(from, flight);
    sh_sim_news(from);
}

/* ---- Matching -------------------------------------------------------------------------------- */

/* MPI's rule of matching: equal tags, and the receive names the sender or any rank. */
static bool matches(const sh_message *receive, const sh_flight *flight) {
    return receive->tag == flight->tag &&
           (receive->peer == flight->peer || receive->peer == SH_ANY_RANK);
}

/* The oldest posted receive that matches, unlinked. Posted order is MPI's promise to receives
 * that match the same message. */
static sh_message *take_posted(sh_sim_rank *rank, const sh_flight *flight) {
    for (sh_message **at = &rank->posted; *at != NULL; at = &(*at)->next) {
        sh_message *receive = *at;
        if (!matches(receive, flight)) continue;
        *at = receive->next;
        if (*at == NULL) rank->posted_end = at;
        return receive;
    }
    return NULL;
}

/* The oldest unexpected message that matches, unlinked: messages of one sender and tag are
 * received in the order they arrived. */
static sh_flight *take_come(sh_sim_rank *rank, const sh_message *receive) {
    for (sh_flight **at = &rank->come; *at != NULL; at = &(*at)->next) {
        sh_flight *flight = *at;
        if (!matches(receive, flight)) continue;
        *at = flight->next;
        if (*at == NULL) rank->come_end = at;
        return flight;
    }
    return NULL;
}

/* A message that is longer than its receive fails the receive and not the sender, which cannot
 * know the receiver's room. */
static void hand_over(sh_sim_rank *rank, sh_flight *flight, sh_message *receive) {
    const void *from = flight->message != NULL ? flight->message->data : flight->payload;
    receive->peer = flight->peer;
    if (flight->bytes > receive->bytes) {
        receive->state = SH_MESSAGE_FAILED;
    } else {
        receive->bytes = flight->bytes;
        receive->state = SH_MESSAGE_DONE;
        if (from != NULL && receive->data != NULL && flight->bytes > 0)
            memcpy(receive->data, from, flight->bytes);
    }
    tell_sender(rank->sim, flight, SH_MESSAGE_DONE);
    end_flight(rank->sim, flight);
    sh_sim_news(rank);
}

/* ---- Order where faults reorder: messages of one sender and tag never overtake -----------------
 */

/* Flights are listed at their receiver only where faults reorder: elsewhere the order of events
 * alone keeps messages of one sender and tag from overtaking. */
static void enter_air(sh_sim *sim, sh_flight *flight) {
    sh_sim_rank *to = &sim->ranks[flight->to];
    flight->air_before = NULL;
    flight->air_next = to->first_air;
    if (to->first_air != NULL) to->first_air->air_before = flight;
    to->first_air = flight;
}

static void leave_air(sh_sim *sim, sh_flight *flight) {
    if (flight->air_before != NULL)
        flight->air_before->air_next = flight->air_next;
    else
        sim->ranks[flight->to].first_air = flight->air_next;
    if (flight->air_next != NULL) flight->air_next->air_before = flight->air_before;
}

/* The one that was sent just before with the same tag, or just after, if it is under way. */
static sh_flight *neighbour(sh_sim *sim, const sh_flight *flight, bool before) {
    sh_flight *nearest = NULL;
    for (sh_flight *at = sim->ranks[flight->to].first_air; at != NULL; at = at->air_next) {
        if (at == flight || at->from != flight->from || at->tag != flight->tag) continue;
        if ((at->number < flight->number) != before) continue;
        if (nearest == NULL || (at->number > nearest->number) == before) nearest = at;
    }
    return nearest;
}

/* ---- Under way ------------------------------------------------------------------------------- */

void sh_post_lands(sh_sim *sim, sh_flight *flight) {
    if (sim->reorders && neighbour(sim, flight, true) != NULL) {
        flight->held = true;  // the one before releases it
        return;
    }
    int64_t at_ns =
        sh_network_arrive(&sim->network, flight->from, flight->to, flight->bytes, sim->now_ns);
    if (at_ns > sim->now_ns)
        sh_sim_queue(sim, &flight->event, SH_SIM_ARRIVES, at_ns);
    else
        sh_post_arrives(sim, flight);
}

/* A message that was held back behind this one lands now. */
static void release_next(sh_sim *sim, sh_flight *flight) {
    sh_flight *next = neighbour(sim, flight, false);
    leave_air(sim, flight);
    if (next == NULL || !next->held) return;
    next->held = false;
    sh_sim_queue(sim, &next->event, SH_SIM_LANDS, sim->now_ns);
}

static void deliver(sh_sim *sim, sh_flight *flight) {
    sh_sim_rank *to = &sim->ranks[flight->to];
    if (to->dead || flight->dropped) {
        tell_sender(sim, flight, SH_MESSAGE_FAILED);
        end_flight(sim, flight);
        return;
    }
    if (sh_transport_arrived(&to->base, flight->peer, flight->tag, flight->stamp)) {
        tell_sender(sim, flight, SH_MESSAGE_DONE);
        end_flight(sim, flight);
        sh_sim_news(to);
        return;
    }
    sh_message *receive = take_posted(to, flight);
    if (receive != NULL) {
        hand_over(to, flight, receive);
        return;
    }
    flight->next = NULL;
    *to->come_end = flight;
    to->come_end = &flight->next;
}

/* With the last message of a dead sender delivered, receives that still wait for it can only
 * fail. */
void sh_post_arrives(sh_sim *sim, sh_flight *flight) {
    if (sim->reorders) release_next(sim, flight);
    int from = flight->from;
    deliver(sim, flight);
    if (--sim->ranks[from].air_count == 0 && sim->ranks[from].dead) sh_sim_silence(sim, from);
}

/* The extra delay is a draw of the message's number: the same seed delays the same messages. */
static int64_t landing_ns(sh_sim *sim, const sh_flight *flight) {
    int64_t at_ns =
        sh_network_depart(&sim->network, flight->from, flight->to, flight->bytes, sim->now_ns);
    if (!sim->reorders) return at_ns;
    double delay = sh_faults_delay_s(&sim->options.faults, sim->options.seed, flight->number);
    return at_ns + sh_sim_to_ns(delay);
}

/* ---- The functions of the transport ---------------------------------------------------------- */

/* A dead rank, or one of a simulation that is stuck, gets the cause of that whatever its
 * arguments are. */
static sh_status check_peer(sh_sim_rank *rank, const sh_message *message) {
    if (rank->dead || rank->sim->stuck) return sh_sim_health(&rank->base);
    if (message->peer >= 0 && message->peer < rank->peers) return SH_OK;
    return SH_FAIL(SH_E_USAGE, "rank %d: a message with rank %d of %d", rank->base.rank,
                   message->peer, rank->peers);
}

static sh_status fail_dead(const sh_sim_rank *rank, sh_message *message) {
    message->state = SH_MESSAGE_FAILED;
    return SH_FAIL(SH_E_PEER, "rank %d: rank %d has left", rank->base.rank, message->peer);
}

sh_status sh_sim_send(sh_transport *transport, sh_message *message) {
    sh_sim_rank *rank = (sh_sim_rank *)transport;
    sh_sim *sim = rank->sim;
    SH_TRY(check_peer(rank, message));
    if (sim->ranks[rank->first + message->peer].dead) return fail_dead(rank, message);
    sh_flight *flight = sh_pool_take(&sim->flights);
    if (flight == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for simulated messages");
    message->sends = true;
    message->state = SH_MESSAGE_PENDING;
    message->own[0] = 0;
    flight->from = rank->first + transport->rank;
    flight->to = rank->first + message->peer;
    flight->peer = transport->rank;
    flight->tag = message->tag;
    flight->stamp = message->stamp;
    flight->bytes = message->bytes;
    flight->number = ++sim->counts.messages;
    flight->held = flight->dropped = false;
    sim->counts.bytes += message->bytes;
    sh_status status = pack(sim, message, flight);
    bool lost = sim->options.faults.cut_count > 0 &&
                sh_faults_lose(&sim->options.faults, rank->host, sim->ranks[flight->to].host,
                               sh_sim_seconds(sim));
    // A long message that is lost stays pending: its sender waits for a receiver that never hears
    // of it.
    if (status != SH_OK || lost) {
        sim->counts.lost += lost;
        end_flight(sim, flight);
        return status;
    }
    rank->air_count++;
    if (flight->message != NULL) tie(rank, flight);
    if (sim->reorders) enter_air(sim, flight);
    sh_sim_queue(sim, &flight->event, SH_SIM_LANDS, landing_ns(sim, flight));
    return SH_OK;
}

sh_status sh_sim_receive(sh_transport *transport, sh_message *message) {
    sh_sim_rank *rank = (sh_sim_rank *)transport;
    message->sends = false;
    message->next = NULL;
    if (message->peer != SH_ANY_RANK) SH_TRY(check_peer(rank, message));
    if (rank->dead || rank->sim->stuck) return sh_sim_health(transport);
    message->state = SH_MESSAGE_PENDING;
    sh_flight *flight = take_come(rank, message);
    if (flight != NULL) {
        hand_over(rank, flight, message);
        return SH_OK;
    }
    if (message->peer != SH_ANY_RANK) {
        // What a dead peer had sent still arrives; a receive fails only when nothing of it is under
        // way.
        const sh_sim_rank *peer = &rank->sim->ranks[rank->first + message->peer];
        if (peer->dead && peer->air_count == 0) return fail_dead(rank, message);
    }
    *rank->posted_end = message;
    rank->posted_end = &message->next;
    return SH_OK;
}

/* No effect where the receive has been matched already: then it is in no list. */
static void unpost(sh_sim_rank *rank, sh_message *message) {
    sh_message **at = &rank->posted;
    while (*at != NULL && *at != message) at = &(*at)->next;
    if (*at == NULL) return;
    *at = message->next;
    if (*at == NULL) rank->posted_end = at;
}

/* What has not been received yet was not seen by anybody, so it can be taken back whole. */
static void recall(sh_sim *sim, sh_message *message) {
    sh_flight *flight = (sh_flight *)message->own[0];
    if (flight == NULL) return;
    untie(&sim->ranks[flight->from], flight);
    flight->dropped = true;
    sh_sim_rank *to = &sim->ranks[flight->to];
    for (sh_flight **at = &to->come; *at != NULL; at = &(*at)->next) {
        if (*at != flight) continue;
        *at = flight->next;
        if (*at == NULL) to->come_end = at;
        end_flight(sim, flight);
        return;
    }
}

void sh_sim_cancel(sh_transport *transport, sh_message *message) {
    sh_sim_rank *rank = (sh_sim_rank *)transport;
    if (message->state != SH_MESSAGE_PENDING) return;
    if (message->sends)
        recall(rank->sim, message);
    else
        unpost(rank, message);
    message->state = SH_MESSAGE_CANCELLED;
}

/* ---- Ends ------------------------------------------------------------------------------------ */

void sh_post_fail_from(sh_sim_rank *rank, int peer) {
    sh_message **at = &rank->posted;
    while (*at != NULL) {
        sh_message *receive = *at;
        if (peer != SH_ANY_RANK && receive->peer != peer) {
            at = &receive->next;
            continue;
        }
        *at = receive->next;
        receive->state = SH_MESSAGE_FAILED;
        sh_sim_news(rank);
    }
    rank->posted_end = at;
}

void sh_post_recall_all(sh_sim_rank *rank) {
    while (rank->first_long != NULL) {
        sh_message *message = rank->first_long->message;
        recall(rank->sim, message);
        message->state = SH_MESSAGE_FAILED;
        sh_sim_news(rank);
    }
}

void sh_post_abandon(sh_sim_rank *rank) {
    sh_post_fail_from(rank, SH_ANY_RANK);
    while (rank->come != NULL) {
        sh_flight *flight = rank->come;
        rank->come = flight->next;
        tell_sender(rank->sim, flight, SH_MESSAGE_FAILED);
        end_flight(rank->sim, flight);
    }
    rank->come_end = &rank->come;
}
