/* A server's task: takes requests from whoever sends one, and answers when the policy allows. */
#include <stdio.h>

#include "base/memory.h"
#include "sync/ps_exact.h"
#include "tensor/kernels/vector.h"

static bool holds(const ps_server *server) {
    return server->policy->rounds || server->policy->slack >= 0;
}

static void make_busy(ps_server *server, ps_client *client) {
    if (client->busy) return;
    client->busy = true;
    server->busy[server->busy_count++] = (int)(client - server->clients);
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
    bool computes = client->known != NULL;
    if (computes && !client->answers) SH_TRY(ps_write_lag(server, client));
    client->answers = false;
    return send(server, client, &client->values, SH_PS_VALUES, client->answer, server->pull.bytes);
}

static sh_status send_weights(ps_server *server, ps_client *client) {
    if (client->reads == NULL) client->reads = ps_acquire(server);
    const float *data = client->reads != NULL ? client->reads->data : NULL;
    if (client->known != NULL) sh_vector()->copy(data, client->known, server->shard.params.total);
    return send(server, client, &client->values, SH_PS_VALUES, data,
                sh_ps_shard_bytes(&server->shard));
}

/* With leave for a step, or none. */
static sh_status send_head(ps_server *server, ps_client *client, bool goes_on) {
    client->reply = (sh_ps_reply){.magic = SH_PS_MAGIC,
                                  .granted = goes_on ? 1 : 0,
                                  .told = client->told,
                                  .version = server->version,
                                  .done = ps_done(server)};
    client->told = false;
    if (goes_on && server->service->index == 0) server->granted++;
    make_busy(server, client);
    return send(server, client, &client->head, SH_PS_ANSWER, &client->reply, sizeof client->reply);
}

/* At a meeting whole weights are sent, in a pull perhaps what is new. */
static sh_status reply(ps_server *server, ps_client *client, bool goes_on, bool meeting) {
    client->computes = goes_on;
    client->leave = server->version;
    client->own = 0;
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
        if (!server->clients[i].left && server->clients[i].clock < least)
            least = server->clients[i].clock;
    return least;
}

static bool may_go_on(const ps_server *server, const ps_client *client) {
    if (server->policy->rounds) return server->version > client->request.round;
    if (server->policy->slack < 0) return true;
    return client->clock - slowest(server) <= server->policy->slack;
}

/* Its next gradient is of the weights of this reply: what an earlier one brought, it has not
 * computed with (that one said that it was time to meet). */
static void keep_then(ps_server *server, ps_client *client) {
    ps_release(client->then);
    client->then = ps_acquire(server);
}

/* A worker that has come to the meeting computes no more: its pull is answered whatever it is. */
static sh_status try_reply(ps_server *server, ps_client *client) {
    if (!client->waits) return SH_OK;
    bool over = client->meets || is_over(server, client);
    if (!over && !may_go_on(server, client)) return SH_OK;
    client->waits = false;
    if (server->policy->compensation > 0) keep_then(server, client);
    return reply(server, client, !over, false);
}

/* Its round is over, and it still computes: it need not. */
static sh_status try_tell(ps_server *server, ps_client *client) {
    const sh_service *service = server->service;
    if (service->index != 0 || !sh_ps_breaks_off(server->policy, service->workers)) return SH_OK;
    if (!client->computes || client->told || server->version <= client->leave) return SH_OK;
    client->told = true;
    client->over = server->version;
    make_busy(server, client);
    return send(server, client, &client->word, SH_PS_OVER, &client->over, sizeof client->over);
}

static sh_status reply_to_all(ps_server *server) {
    for (int i = 0; i < server->service->workers; i++) {
        SH_TRY(try_reply(server, &server->clients[i]));
        SH_TRY(try_tell(server, &server->clients[i]));
    }
    return SH_OK;
}

/* ---- Numbers of all workers that become one ---- */

static sh_status answer(ps_server *server, ps_client *client, const void *values, bool over) {
    client->combines = false;
    SH_TRY(send_head(server, client, !over));
    return send(server, client, &client->values, SH_PS_VALUES, values,
                (size_t)client->request.sum * sizeof(int64_t));
}

/* All workers get the same numbers, or all hear that it is time to meet: who has left their middle
 * does not come back before the meeting. */
static sh_status try_combine(ps_server *server) {
    int ready = 0, workers = server->service->workers;
    for (int i = 0; i < workers; i++) ready += server->clients[i].combines ? 1 : 0;
    if (ready == workers) SH_TRY(ps_exact_answer(server));
    for (int i = 0; i < workers && ready > 0; i++) {
        ps_client *client = &server->clients[i];
        if (!client->combines) continue;
        if (ready == workers)
            SH_TRY(answer(server, client, server->combined, false));
        else if (is_over(server, client))
            SH_TRY(answer(server, client, client->packet, true));
    }
    return SH_OK;
}

/* ---- Meetings ---- */

static sh_status send_slots(ps_server *server, ps_client *client) {
    if (server->policy->elastic > 0) return SH_OK;  // workers have their own
    for (int i = 0; i < server->service->optim->slot_count; i++)
        SH_TRY(send(server, client, &client->slot[i], SH_PS_SLOT,
                    server->has_optim ? server->optim.slots[i] : NULL,
                    sh_ps_shard_bytes(&server->shard)));
    return SH_OK;
}

/* All workers have asked, so every push has been taken in: they get the one model. */
static sh_status try_meet(ps_server *server) {
    if (server->meeting == 0 || server->meeting + server->left < server->service->workers ||
        server->busy_count > 0)
        return SH_OK;
    SH_TRY(ps_settle(server));
    ps_snapshot_save(server);
    server->meeting = 0;
    for (int i = 0; i < server->service->workers; i++) {
        ps_client *client = &server->clients[i];
        if (!client->meets) continue;
        client->meets = false;
        SH_TRY(reply(server, client, false, true));
        if (i == 0) SH_TRY(send_slots(server, client));
    }
    return SH_OK;
}

/* ---- Requests ---- */

static sh_status refuse(const ps_server *server, int peer, const char *what) {
    return SH_FAIL(SH_E_FORMAT, "server %d: a request of rank %d %s", server->service->index, peer,
                   what);
}

static bool in_range(int64_t value, int64_t least, int64_t most) {
    return value >= least && value <= most;
}

static bool is_combination(uint32_t what) { return what == SH_PS_MOST || what == SH_PS_SUM; }

/* A request may come from anybody who can send: nothing in it is trusted. */
static sh_status check(const ps_server *server, int peer, size_t bytes) {
    const sh_ps_request *ask = &server->ask;
    if (peer < 0 || peer >= server->service->workers) return refuse(server, peer, "is no worker's");
    if (bytes != sizeof *ask || ask->magic != SH_PS_MAGIC) return refuse(server, peer, "is none");
    const ps_client *client = &server->clients[peer];
    if (client->left) return refuse(server, peer, "comes after its end");
    bool early = client->receives && (ask->what != SH_PS_MEET || client->will_meet);
    if (early || client->meets) return refuse(server, peer, "comes too early");
    if (ask->what == SH_PS_MEET || ask->what == SH_PS_END) return SH_OK;
    bool combines = is_combination(ask->what) && server->combined != NULL;
    bool known = (ask->what & ~(uint32_t)(SH_PS_PUSH | SH_PS_PULL)) == 0 && ask->what != 0;
    bool steps = ask->what == SH_PS_STEP && server->policy->period > 1;
    if (client->waits || client->combines ||
        !(known || steps || combines || ask->what == (SH_PS_PULL | SH_PS_VOID)))
        return refuse(server, peer, "is of no kind");
    if (!in_range(ask->version, 0, server->version - client->own) ||
        !in_range(ask->round, -1, INT64_MAX / 2) || !in_range(ask->goal, 0, INT64_MAX / 2) ||
        !in_range(ask->sum, 1, combines ? (int64_t)server->service->combined_most : INT32_MAX))
        return refuse(server, peer, "has numbers that cannot be");
    return SH_OK;
}

static sh_status expect_request(ps_server *server) {
    server->incoming = (sh_message){
        .peer = SH_ANY_RANK, .tag = SH_PS_ASK, .data = &server->ask, .bytes = sizeof server->ask};
    return sh_mail_receive(&server->service->mail, &server->incoming);
}

/* What the request asks for, after its push has been taken in. */
static sh_status act(ps_server *server, ps_client *client, uint32_t what) {
    if (what == SH_PS_PUSH || what == SH_PS_STEP)
        return send_head(server, client, !is_over(server, client));
    if (what & SH_PS_VOID) server->service->counts.dropped++;
    if (what & SH_PS_PULL) client->waits = true;
    if (what & SH_PS_MEET) {
        client->meets = true;
        server->meeting++;
    }
    if (what & SH_PS_END) {
        client->left = true;
        server->left++;
    }
    SH_TRY(holds(server) ? reply_to_all(server) : try_reply(server, client));
    return try_meet(server);
}

static size_t push_bytes(const ps_server *server, const ps_client *client) {
    const sh_ps_request *request = &client->request;
    return is_combination(request->what) ? (size_t)request->sum * sizeof(int64_t)
                                         : server->push.bytes;
}

static sh_status receive_push(ps_server *server, ps_client *client) {
    client->payload = (sh_message){
        .peer = (int)(client - server->clients),
        .tag = SH_PS_PUSHED,
        .data = client->packet != NULL ? (void *)client->packet : (void *)client->gradient,
        .bytes = push_bytes(server, client),
        .zero_copy = ps_reads_once(server)};
    client->receives = true;
    make_busy(server, client);
    return sh_mail_receive(&server->service->mail, &client->payload);
}

static bool is_pending(const sh_message *message) { return message->state == SH_MESSAGE_PENDING; }

static bool sends(const ps_client *client) {
    return is_pending(&client->head) || is_pending(&client->values) || is_pending(&client->word) ||
           is_pending(&client->slot[0]) || is_pending(&client->slot[1]);
}

/* It has the last reply, or asks no more than to meet; that the reply has left may be heard later.
 */
static bool is_answered(const ps_server *server, int peer) {
    if (peer < 0 || peer >= server->service->workers) return true;
    const ps_client *client = &server->clients[peer];
    return client->waits || (client->reads == NULL && !sends(client));
}

static sh_status take_request(ps_server *server, bool *moved_out) {
    int peer = server->incoming.peer;
    if (is_pending(&server->incoming) || !is_answered(server, peer)) return SH_OK;
    *moved_out = true;
    if (server->incoming.state != SH_MESSAGE_DONE) {
        SH_TRY(sh_service_health(server->service));
        return refuse(server, peer, "is too long");
    }
    SH_TRY(check(server, peer, server->incoming.bytes));
    ps_client *client = &server->clients[peer];
    uint32_t what = server->ask.what;
    // A gradient that waits for its round keeps its numbers when its worker comes to the meeting.
    bool combines = is_combination(what);
    if (what & (SH_PS_PUSH | SH_PS_PULL | SH_PS_STEP) || combines) client->request = server->ask;
    client->computes = false;
    SH_TRY(expect_request(server));
    client->will_meet = client->receives;  // then it can ask for nothing else
    if (client->receives) return SH_OK;
    return what & SH_PS_PUSH || combines ? receive_push(server, client) : act(server, client, what);
}

/* ---- Messages under way ---- */

static sh_status push_came(ps_server *server, ps_client *client) {
    client->receives = false;
    int peer = (int)(client - server->clients);
    if (client->payload.state != SH_MESSAGE_DONE) SH_TRY(sh_service_health(server->service));
    if (client->payload.state != SH_MESSAGE_DONE ||
        client->payload.bytes != push_bytes(server, client))
        return refuse(server, peer, "pushes something else than its gradient");
    client->combines = is_combination(client->request.what);
    if (client->combines) return try_combine(server);
    SH_TRY(ps_push(server, client));
    sh_message_release(server->service->mail.transport, &client->payload);
    uint32_t what = client->request.what | (client->will_meet ? SH_PS_MEET : 0);
    client->will_meet = false;
    return act(server, client, what);
}

static sh_status look_after(ps_server *server, bool *moved_out) {
    int count = server->busy_count, kept = 0;
    int *busy = server->busy;
    for (int i = 0; i < count; i++) {
        ps_client *client = &server->clients[busy[i]];
        if (client->receives && !is_pending(&client->payload)) {
            *moved_out = true;
            SH_TRY(push_came(server, client));  // may add clients behind `count`
        }
        if (!client->receives && !sends(client)) {
            *moved_out = true;
            ps_release(client->reads);
            client->reads = NULL;
            client->busy = false;
        } else {
            busy[kept++] = busy[i];
        }
    }
    while (count < server->busy_count) busy[kept++] = busy[count++];
    server->busy_count = kept;
    return try_meet(server);
}

/* Whose requests are still to come, for the board. */
static void note_waits(const ps_server *server) {
    uint64_t waits = 0;
    for (int i = 0; i < server->service->workers && i < SH_BOARD_WAITS; i++) {
        const ps_client *client = &server->clients[i];
        if (!client->left && !client->meets && !client->waits) waits |= UINT64_C(1) << i;
    }
    // Relaxed: only reports read it.
    atomic_store_explicit(&server->service->mail.transport->board->mail_from, waits,
                          memory_order_relaxed);
}

static sh_status run(ps_server *server) {
    sh_transport *transport = server->service->mail.transport;
    SH_TRY(expect_request(server));
    while (server->left < server->service->workers || server->busy_count > 0) {
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
    sh_cancel(transport, &server->incoming);
    return SH_OK;
}

/* Nothing is written or read any more when the memory is gone. */
static void abandon(ps_server *server) {
    sh_transport *transport = server->service->mail.transport;
    sh_cancel(transport, &server->incoming);
    for (int i = 0; i < server->service->workers; i++) {
        ps_client *client = &server->clients[i];
        sh_message *messages[] = {&client->payload, &client->head,    &client->values,
                                  &client->word,    &client->slot[0], &client->slot[1]};
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
        if (server->clients[i].left) continue;
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
    server->busy = sh_alloc(2 * (size_t)service->workers, sizeof *server->busy);
    if (server->clients == NULL || server->busy == NULL)
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
    sh_free(server.busy);
    sh_free(server.clients);
    return status;
}
