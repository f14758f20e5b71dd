/* A server's task: takes requests from whoever sends one, and answers when the policy allows. */
#include <stdio.h>

#include "base/memory.h"
#include "sync/ps_exact.h"
#include "tensor/kernels/vector.h"

static bool holds(const ps_server *server) {
    return server->policy->rounds || server->policy->slack >= 0;
}

static void make_busy(ps_server *server, ps_client *client) {
    if (client->mail.listed) return;
    client->mail.listed = true;
    server->busy.ranks[server->busy.count++] = (int)(client - server->clients);
}

/* ---- Replies ---- */

static sh_status send(ps_server *server, const ps_client *client, sh_message *message, uint64_t tag,
                      const void *data, size_t bytes) {
    *message = (sh_message){.peer = (int)(client - server->clients),
                            .tag = tag,
                            .data = (void *)(uintptr_t)data,
                            .bytes = bytes};
    return sh_mail_send(&server->service->mail, message);
}

static sh_status send_lag(ps_server *server, ps_client *client) {
    bool computes = client->copy.weights != NULL;
    if (computes && !client->copy.packed) SH_TRY(ps_write_lag(server, client));
    client->copy.packed = false;
    return send(server, client, &client->mail.values, SH_PS_VALUES, client->copy.packet,
                server->pull.bytes);
}

static sh_status send_weights(ps_server *server, ps_client *client) {
    if (client->reads == NULL) client->reads = ps_acquire(server);
    const float *data = client->reads != NULL ? client->reads->data : NULL;
    if (client->copy.weights != NULL)
        sh_vector()->copy(data, client->copy.weights, server->shard.params.total);
    return send(server, client, &client->mail.values, SH_PS_VALUES, data,
                sh_ps_shard_bytes(&server->shard));
}

/* With a permit for a step, or none. */
static sh_status send_head(ps_server *server, ps_client *client, bool goes_on) {
    client->reply = (sh_ps_reply){.magic = SH_PS_MAGIC,
                                  .granted = goes_on ? 1 : 0,
                                  .told = client->over.sent,
                                  .version = server->version,
                                  .done = ps_done(server)};
    client->over.sent = false;
    if (goes_on && server->service->index == 0) server->granted++;
    make_busy(server, client);
    return send(server, client, &client->mail.head, SH_PS_ANSWER, &client->reply,
                sizeof client->reply);
}

/* At a meeting whole weights are sent, in a pull perhaps what is new. */
static sh_status reply(ps_server *server, ps_client *client, bool goes_on, bool meeting) {
    client->state = goes_on ? PS_COMPUTES : PS_IDLE;
    client->permit_version = server->version;
    client->own_updates = 0;
    SH_TRY(send_head(server, client, goes_on));
    bool whole = meeting || server->pull.codec.kind == NULL;
    return whole ? send_weights(server, client) : send_lag(server, client);
}

/* Shard 0's word on whether there is anything left to do before the meeting. */
static bool is_over(ps_server *server, const ps_client *client) {
    const sh_service *service = server->service;
    if (service->index != 0) return false;
    server->stops = server->stops || (service->stops != NULL && service->stops(service->user));
    return server->stops || ps_done(server) >= client->request.goal;
}

static int64_t slowest(const ps_server *server) {
    int64_t least = INT64_MAX;
    for (int i = 0; i < server->service->workers; i++)
        if (server->clients[i].state != PS_LEFT && server->clients[i].pushes < least)
            least = server->clients[i].pushes;
    return least;
}

static bool may_go_on(const ps_server *server, const ps_client *client) {
    if (server->policy->rounds) return server->version > client->request.round;
    if (server->policy->slack < 0) return true;
    return client->pushes - slowest(server) <= server->policy->slack;
}

/* Its next gradient is of the weights of this reply: what an earlier one brought, it has not
 * computed with (that one said that it was time to meet). */
static void keep_weights(ps_server *server, ps_client *client) {
    ps_release(client->computed_with);
    client->computed_with = ps_acquire(server);
}

static sh_status answer_pull(ps_server *server, ps_client *client, bool permits) {
    if (server->policy->compensation > 0) keep_weights(server, client);
    return reply(server, client, permits, false);
}

static sh_status try_answer_pull(ps_server *server, ps_client *client) {
    if (client->state != PS_WAITS) return SH_OK;
    bool over = is_over(server, client);
    return over || may_go_on(server, client) ? answer_pull(server, client, !over) : SH_OK;
}

/* Tells a worker whose round is over that nobody waits for the gradient it still computes. */
static sh_status try_tell_over(ps_server *server, ps_client *client) {
    const sh_service *service = server->service;
    if (service->index != 0 || !sh_ps_breaks_off(server->policy, service->workers)) return SH_OK;
    if (client->state != PS_COMPUTES || client->over.sent) return SH_OK;
    if (server->version <= client->permit_version) return SH_OK;
    client->over.sent = true;
    client->over.version = server->version;
    make_busy(server, client);
    return send(server, client, &client->mail.over, SH_PS_OVER, &client->over.version,
                sizeof client->over.version);
}

static sh_status reply_to_all(ps_server *server) {
    for (int i = 0; i < server->service->workers; i++) {
        SH_TRY(try_answer_pull(server, &server->clients[i]));
        SH_TRY(try_tell_over(server, &server->clients[i]));
    }
    return SH_OK;
}

/* ---- Numbers of all workers that become one ---- */

static sh_status answer(ps_server *server, ps_client *client, const void *values, bool over) {
    client->state = PS_IDLE;
    SH_TRY(send_head(server, client, !over));
    return send(server, client, &client->mail.values, SH_PS_VALUES, values,
                (size_t)client->request.sum * sizeof(int64_t));
}

/* All workers get the same numbers, or all are told that it is time to meet: a worker that is
 * at the meeting brings no numbers before it is over. */
static sh_status try_combine(ps_server *server) {
    int ready = 0, workers = server->service->workers;
    for (int i = 0; i < workers; i++) ready += server->clients[i].state == PS_COMBINES ? 1 : 0;
    if (ready == workers) SH_TRY(ps_exact_answer(server));
    for (int i = 0; i < workers && ready > 0; i++) {
        ps_client *client = &server->clients[i];
        if (client->state != PS_COMBINES) continue;
        if (ready == workers)
            SH_TRY(answer(server, client, server->exact.combined, false));
        else if (is_over(server, client))
            SH_TRY(answer(server, client, client->pushed.packet, true));
    }
    return SH_OK;
}

/* ---- Meetings ---- */

static sh_status send_slots(ps_server *server, ps_client *client) {
    if (server->policy->elastic > 0) return SH_OK;  // workers have their own
    for (int i = 0; i < server->service->optim->slot_count; i++)
        SH_TRY(send(server, client, &client->mail.slot[i], SH_PS_SLOT,
                    server->has_optim ? server->optim.slots[i] : NULL,
                    sh_ps_shard_bytes(&server->shard)));
    return SH_OK;
}

/* All workers have asked, so every push has been taken in: they get the one model. */
static sh_status try_meet(ps_server *server) {
    if (server->meeting_count == 0 ||
        server->meeting_count + server->left_count < server->service->workers ||
        server->busy.count > 0)
        return SH_OK;
    SH_TRY(ps_settle(server));
    ps_snapshot_save(server);
    server->meeting_count = 0;
    for (int i = 0; i < server->service->workers; i++) {
        ps_client *client = &server->clients[i];
        if (client->state != PS_MEETS) continue;
        SH_TRY(reply(server, client, false, true));
        if (i == 0) SH_TRY(send_slots(server, client));
    }
    return SH_OK;
}

/* ---- Requests ---- */

static sh_status refuse(const ps_server *server, int peer, const char *what) {
    return SH_FAIL(SH_E_FORMAT, "server %d: invalid request from rank %d: %s",
                   server->service->index, peer, what);
}

static bool in_range(int64_t value, int64_t least, int64_t most) {
    return value >= least && value <= most;
}

static bool is_combination(uint32_t what) { return what == SH_PS_MOST || what == SH_PS_SUM; }

static bool is_receiving(const ps_client *client) {
    return client->state == PS_PUSHES || client->state == PS_PUSHES_THEN_MEETS;
}

/* Whether the picture in ps_server.h has an edge from the client's state for this request. A worker
 * may announce that it comes to the meeting while its push or its pull is still open. */
static bool is_in_turn(const ps_client *client, uint32_t what) {
    switch (client->state) {
        case PS_IDLE:
        case PS_COMPUTES:
            return true;
        case PS_PUSHES:
            return what == SH_PS_MEET;
        case PS_WAITS:
            return what == SH_PS_MEET || what == SH_PS_END;
        default:
            return false;
    }
}

static bool is_kind(const ps_server *server, uint32_t what) {
    if (is_combination(what)) return server->exact.combined != NULL;
    if (what == SH_PS_STEP) return server->policy->period > 1;
    if (what == (SH_PS_PULL | SH_PS_VOID) || what == SH_PS_MEET || what == SH_PS_END) return true;
    return what != 0 && (what & ~(uint32_t)(SH_PS_PUSH | SH_PS_PULL)) == 0;
}

/* The versions bound later subtractions and `sum` a length: no number of a request can overflow. */
static bool has_valid_numbers(const ps_server *server, const ps_client *client) {
    const sh_ps_request *request = &server->inbox.request;
    int64_t sum_most =
        is_combination(request->what) ? (int64_t)server->service->combined_most : INT32_MAX;
    return in_range(request->version, 0, server->version - client->own_updates) &&
           in_range(request->round, -1, INT64_MAX / 2) &&
           in_range(request->goal, 0, INT64_MAX / 2) && in_range(request->sum, 1, sum_most);
}

/* A request may come from anybody who can send: nothing in it is trusted. */
static sh_status check(const ps_server *server, int peer, size_t bytes) {
    const sh_ps_request *request = &server->inbox.request;
    if (peer < 0 || peer >= server->service->workers)
        return refuse(server, peer, "the sender is not a worker");
    if (bytes != sizeof *request || request->magic != SH_PS_MAGIC)
        return refuse(server, peer, "wrong length or magic number");
    const ps_client *client = &server->clients[peer];
    if (client->state == PS_LEFT) return refuse(server, peer, "sent after its end");
    if (!is_in_turn(client, request->what))
        return refuse(server, peer, "sent before the one before was answered");
    if (!is_kind(server, request->what)) return refuse(server, peer, "unknown kind");
    if (request->what == SH_PS_MEET || request->what == SH_PS_END) return SH_OK;
    return has_valid_numbers(server, client) ? SH_OK : refuse(server, peer, "numbers out of range");
}

static sh_status expect_request(ps_server *server) {
    server->inbox.message = (sh_message){.peer = SH_ANY_RANK,
                                         .tag = SH_PS_ASK,
                                         .data = &server->inbox.request,
                                         .bytes = sizeof server->inbox.request};
    return sh_mail_receive(&server->service->mail, &server->inbox.message);
}

/* A worker that comes to the meeting computes no more, so an open pull is answered at once. */
static sh_status come_to_meeting(ps_server *server, ps_client *client) {
    if (client->state == PS_WAITS) SH_TRY(answer_pull(server, client, false));
    client->state = PS_MEETS;
    server->meeting_count++;
    return SH_OK;
}

static void end_client(ps_server *server, ps_client *client) {
    client->state = PS_LEFT;
    server->left_count++;
}

/* What the request asks for, after its push has been taken in. */
static sh_status act(ps_server *server, ps_client *client, uint32_t what) {
    if (what == SH_PS_PUSH || what == SH_PS_STEP)
        return send_head(server, client, !is_over(server, client));
    if (what & SH_PS_VOID) server->service->counts.dropped++;
    if (what & SH_PS_PULL) client->state = PS_WAITS;
    if (what & SH_PS_MEET) SH_TRY(come_to_meeting(server, client));
    if (what & SH_PS_END) end_client(server, client);
    SH_TRY(holds(server) ? reply_to_all(server) : try_answer_pull(server, client));
    return try_meet(server);
}

static size_t push_bytes(const ps_server *server, const ps_client *client) {
    const sh_ps_request *request = &client->request;
    return is_combination(request->what) ? (size_t)request->sum * sizeof(int64_t)
                                         : server->push.bytes;
}

static sh_status receive_push(ps_server *server, ps_client *client) {
    client->mail.payload =
        (sh_message){.peer = (int)(client - server->clients),
                     .tag = SH_PS_PUSHED,
                     .data = client->pushed.packet != NULL ? (void *)client->pushed.packet
                                                           : (void *)client->pushed.gradient,
                     .bytes = push_bytes(server, client),
                     .zero_copy = ps_reads_once(server)};
    client->state = PS_PUSHES;
    make_busy(server, client);
    return sh_mail_receive(&server->service->mail, &client->mail.payload);
}

static bool is_pending(const sh_message *message) { return message->state == SH_MESSAGE_PENDING; }

static bool sends(const ps_client *client) {
    return is_pending(&client->mail.head) || is_pending(&client->mail.values) ||
           is_pending(&client->mail.over) || is_pending(&client->mail.slot[0]) ||
           is_pending(&client->mail.slot[1]);
}

/* The peer has its last reply, or waits for one and can only ask to meet. A reply may arrive before
 * the sends here are seen to be complete, so the next request is taken in after that. */
static bool is_answered(const ps_server *server, int peer) {
    if (peer < 0 || peer >= server->service->workers) return true;
    const ps_client *client = &server->clients[peer];
    return client->state == PS_WAITS || (client->reads == NULL && !sends(client));
}

static sh_status take_request(ps_server *server, bool *moved_out) {
    int peer = server->inbox.message.peer;
    if (is_pending(&server->inbox.message) || !is_answered(server, peer)) return SH_OK;
    *moved_out = true;
    if (server->inbox.message.state != SH_MESSAGE_DONE) {
        SH_TRY(sh_service_health(server->service));
        return refuse(server, peer, "longer than a request");
    }
    SH_TRY(check(server, peer, server->inbox.message.bytes));
    ps_client *client = &server->clients[peer];
    uint32_t what = server->inbox.request.what;
    // A gradient that waits for its round keeps its numbers when its worker comes to the meeting.
    bool combines = is_combination(what);
    if (what & (SH_PS_PUSH | SH_PS_PULL | SH_PS_STEP) || combines)
        client->request = server->inbox.request;
    if (client->state == PS_COMPUTES) client->state = PS_IDLE;
    SH_TRY(expect_request(server));
    if (client->state == PS_PUSHES) {  // then it can ask for nothing but to meet
        client->state = PS_PUSHES_THEN_MEETS;
        return SH_OK;
    }
    return what & SH_PS_PUSH || combines ? receive_push(server, client) : act(server, client, what);
}

/* ---- Messages under way ---- */

static sh_status push_came(ps_server *server, ps_client *client) {
    bool meets = client->state == PS_PUSHES_THEN_MEETS;
    client->state = PS_IDLE;
    int peer = (int)(client - server->clients);
    if (client->mail.payload.state != SH_MESSAGE_DONE) SH_TRY(sh_service_health(server->service));
    if (client->mail.payload.state != SH_MESSAGE_DONE ||
        client->mail.payload.bytes != push_bytes(server, client))
        return refuse(server, peer, "pushes something else than its gradient");
    if (is_combination(client->request.what)) {
        client->state = PS_COMBINES;
        return try_combine(server);
    }
    SH_TRY(ps_push(server, client));
    sh_message_release(server->service->mail.transport, &client->mail.payload);
    return act(server, client, client->request.what | (meets ? SH_PS_MEET : 0));
}

static sh_status look_after(ps_server *server, bool *moved_out) {
    int count = server->busy.count, kept_count = 0;
    int *busy = server->busy.ranks;
    for (int i = 0; i < count; i++) {
        ps_client *client = &server->clients[busy[i]];
        if (is_receiving(client) && !is_pending(&client->mail.payload)) {
            *moved_out = true;
            SH_TRY(push_came(server, client));  // may add clients behind `count`
        }
        if (!is_receiving(client) && !sends(client)) {
            *moved_out = true;
            ps_release(client->reads);
            client->reads = NULL;
            client->mail.listed = false;
        } else {
            busy[kept_count++] = busy[i];
        }
    }
    while (count < server->busy.count) busy[kept_count++] = busy[count++];
    server->busy.count = kept_count;
    return try_meet(server);
}

/* Whose requests are still to come, for the board. */
static void note_waits(const ps_server *server) {
    uint64_t waits = 0;
    for (int i = 0; i < server->service->workers && i < SH_BOARD_WAITS; i++) {
        const ps_client *client = &server->clients[i];
        if (client->state != PS_LEFT && client->state != PS_MEETS && client->state != PS_WAITS)
            waits |= UINT64_C(1) << i;
    }
    // Relaxed: only reports read it.
    atomic_store_explicit(&server->service->mail.transport->board->mail_from, waits,
                          memory_order_relaxed);
}

static sh_status run(ps_server *server) {
    sh_transport *transport = server->service->mail.transport;
    SH_TRY(expect_request(server));
    while (server->left_count < server->service->workers || server->busy.count > 0) {
        bool moved = sh_transport_progress(transport);
        SH_TRY(take_request(server, &moved));
        SH_TRY(look_after(server, &moved));
        if (moved) continue;
        SH_TRY(sh_service_health(server->service));  // nobody else tells that a worker has died
        if (holds(server)) SH_TRY(reply_to_all(server));  // the user may want to stop
        SH_TRY(try_combine(server));
        note_waits(server);
        sh_transport_idle(transport);
    }
    sh_cancel(transport, &server->inbox.message);
    return SH_OK;
}

/* Nothing is written or read any more when the memory is gone. */
static void abandon(ps_server *server) {
    sh_transport *transport = server->service->mail.transport;
    sh_cancel(transport, &server->inbox.message);
    for (int i = 0; i < server->service->workers; i++) {
        ps_client *client = &server->clients[i];
        sh_message *messages[] = {&client->mail.payload, &client->mail.head,
                                  &client->mail.values,  &client->mail.over,
                                  &client->mail.slot[0], &client->mail.slot[1]};
        for (size_t k = 0; k < SH_COUNT(messages); k++)
            if (is_pending(messages[k])) sh_cancel(transport, messages[k]);
    }
}

/* A worker waits for its next reply; this one tells it why there is none. */
static void tell_failure(ps_server *server) {
    const sh_error error = *sh_error_last();
    sh_ps_reply words = {.magic = SH_PS_MAGIC, .failed = (int32_t)error.code};
    snprintf(words.text, sizeof words.text, "%.*s", SH_PS_TEXT - 1, error.text);
    for (int i = 0; i < server->service->workers; i++) {
        if (server->clients[i].state == PS_LEFT) continue;
        sh_message message = {
            .peer = i, .tag = SH_PS_ANSWER, .data = &words, .bytes = sizeof words};
        if (sh_mail_send(&server->service->mail, &message) != SH_OK) continue;
        for (int tries = 0; tries < 64 && is_pending(&message); tries++)
            sh_transport_progress(server->service->mail.transport);
        sh_cancel(server->service->mail.transport, &message);
    }
    sh_error_adopt(&error);
}

static sh_status init(ps_server *server) {
    const sh_service *service = server->service;
    server->clients = sh_alloc((size_t)service->workers, sizeof *server->clients);
    // Twice: a client can leave the list and come back before the list is tidied.
    server->busy.ranks = sh_alloc(2 * (size_t)service->workers, sizeof *server->busy.ranks);
    if (server->clients == NULL || server->busy.ranks == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a parameter server");
    SH_TRY(sh_ps_shard_init(&server->shard, service->params, service->options->placement,
                            service->index, service->count));
    return ps_update_init(server);
}

sh_status sh_ps_serve(sh_service *service) {
    sh_scheme scheme = service->scheme;
    sh_ps_policy policy = scheme.kind->policy(scheme, service->options, service->workers);
    ps_server server = {.service = service, .policy = &policy};
    sh_status status = init(&server);
    if (status == SH_OK) {
        ps_snapshot_save(&server);
        status = run(&server);
        // Any other failure ends the run; and a simulated server that is dead writes nothing.
        if (status == SH_OK || status == SH_E_PEER) ps_snapshot_end(&server);
    }
    if (status != SH_OK && server.clients != NULL) {
        abandon(&server);
        tell_failure(&server);
    }
    ps_update_fini(&server);
    sh_ps_shard_fini(&server.shard);
    sh_free(server.busy.ranks);
    sh_free(server.clients);
    return status;
}
