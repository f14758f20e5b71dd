/* The server's state machine: memory, restoring, answers to questions. Rounds open and close in
 * server_round.c, updates are judged in server_take.c. No clock, file or thread: time is an
 * argument. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "fed/server_internal.h"

/* 16 bytes per value for the sum, 4 each for model, mean and every slot of the rule. */
static sh_status take_memory(sh_fed_server *server) {
    size_t values = server->vectors * server->count;
    server->model = sh_alloc(values, sizeof(float));
    server->mean = sh_alloc(values, sizeof(float));
    bool complete = server->model != NULL && server->mean != NULL;
    for (int i = 0; i < server->options.rule.rule->slots; i++) {
        server->slots[i] = sh_alloc(server->params, sizeof(float));
        complete = complete && server->slots[i] != NULL;
    }
    if (!complete) return SH_FAIL(SH_E_MEMORY, "out of memory for a federated model");
    return sh_fed_sum_init(&server->open.sum, values);
}

/* fedbuff takes updates of any age that the ring of hashes still knows. */
sh_status sh_fed_server_create(const sh_fed_options *options, size_t params, size_t count,
                               sh_fed_commit commit, void *self, sh_fed_server **server_out) {
    SH_ASSERT(params <= count && count > 0 && options->rule.rule != NULL);
    sh_fed_server *server = sh_alloc(1, sizeof *server);
    if (server == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a federated server");
    server->options = *options;
    server->params = params;
    server->count = count;
    // Scaffold: control variates follow the model.
    server->vectors = options->rule.rule->controls ? 2 : 1;
    server->commit = commit;
    server->self = self;
    server->round = 1;
    server->attempt = options->attempt;
    if (options->privacy.on)
        // The cost of one round, the same for all.
        sh_fed_accountant_add(&server->cost, sh_fed_rate(server), options->privacy.noise, 1);
    if (sh_fed_buffered(server)) server->options.late_rounds = SH_FED_LATE_MOST;
    sh_status status = take_memory(server);
    if (status != SH_OK)
        sh_fed_server_destroy(server);
    else
        *server_out = server;
    return status;
}

void sh_fed_server_destroy(sh_fed_server *server) {
    if (server == NULL) return;
    for (size_t i = 0; i < server->member_count; i++) sh_free(server->members[i].held);
    for (int i = 0; i < SH_FED_SLOTS_MOST; i++) sh_free(server->slots[i]);
    sh_fed_sum_fini(&server->open.sum);
    sh_free(server->members);
    sh_free(server->model);
    sh_free(server->mean);
    sh_free(server);
}

/* A new client is absent until it asks for the first time. */
int64_t sh_fed_server_add(sh_fed_server *server) {
    void *members = server->members;
    if (server->member_count >= SH_FED_CLIENTS_MOST ||
        // Growing may fail, as clients come from outside.
        sh_grow(&members, &server->member_capacity, server->member_count + 1,
                sizeof *server->members) != SH_OK)
        return -1;
    server->members = members;
    server->members[server->member_count] = (sh_fed_member){.seen_ms = -1};
    return (int64_t)server->member_count++;
}

/* What it has sent for the open round stays in the sum: nobody can take one update out of it. */
void sh_fed_server_revoke(sh_fed_server *server, size_t client) {
    SH_ASSERT(client < server->member_count);
    server->members[client].revoked = true;
}

float *sh_fed_server_model(sh_fed_server *server) { return server->model; }
float *sh_fed_server_slot(sh_fed_server *server, int slot) { return server->slots[slot]; }

/* Goes on behind the last closed round. */
void sh_fed_server_restore_round(sh_fed_server *server, uint64_t closed) {
    server->round = closed + 1;
}

void sh_fed_server_restore_counted(sh_fed_server *server, size_t client, uint64_t round) {
    SH_ASSERT(client < server->member_count);
    server->members[client].counted = round;
}

/* Hashes of earlier models, in a ring of SH_FED_LATE_MOST + 1 rounds: late updates must name
 * them. */
void sh_fed_server_restore_hash(sh_fed_server *server, uint64_t round,
                                const unsigned char hash[SH_FED_HASH]) {
    memcpy(sh_fed_hash_of(server, round), hash, SH_FED_HASH);
    server->known[round % (SH_FED_LATE_MOST + 1)] = true;
}

/* The usual case reuses the cost of a round, which takes a sum over all orders. */
void sh_fed_server_restore_charge(sh_fed_server *server, double rate, double noise) {
    const sh_fed_privacy *privacy = &server->options.privacy;
    if (privacy->on && rate == sh_fed_rate(server) && noise == privacy->noise)
        sh_fed_accountant_repeat(&server->spent, &server->cost, 1);
    else
        sh_fed_accountant_add(&server->spent, rate, noise, 1);
}

/* After restoring, before the first question: the model has its hash from here on. */
void sh_fed_server_begin(sh_fed_server *server) {
    server->over = server->round > (uint64_t)server->options.rounds;
    sh_fed_hash_model(server);
}

/* fedbuff asks whoever has nothing in the open buffer; other rules those who were selected. */
static bool trains(const sh_fed_server *server, const sh_fed_member *member) {
    if (!server->open.collecting || member->folded || member->revoked) return false;
    return sh_fed_buffered(server) || member->selected;
}

/* Keeps a client present that sends chunks instead of questions. */
void sh_fed_server_heard(sh_fed_server *server, int64_t now_ms, size_t client) {
    SH_ASSERT(client < server->member_count);
    server->members[client].seen_ms = now_ms;
}

/* Time passes first, so that the answer is of the state at `now_ms`. */
sh_status sh_fed_server_ask(sh_fed_server *server, int64_t now_ms, size_t client,
                            sh_fed_task *task_out) {
    SH_ASSERT(client < server->member_count);
    server->members[client].seen_ms = now_ms;
    SH_TRY(sh_fed_advance(server, now_ms));  // may close or open a round
    const sh_fed_member *member = &server->members[client];
    const sh_fed_rule_options *rule = &server->options.rule;
    sh_fed_task task = {.action = SH_FED_WAIT,
                        .round = server->round,
                        .attempt = server->attempt,
                        .counted = member->counted,
                        .wait_ms = (uint32_t)server->options.poll_ms,
                        .proximal = rule->rule->proximal ? rule->amount : 0,
                        .vectors = (uint32_t)server->vectors,
                        .holds = member->folded,  // so that the client does not train again
                        .takes_late = server->options.late_rounds > 0};
    memcpy(task.model, sh_fed_hash_of(server, server->round), SH_FED_HASH);
    if (server->over) {
        task.action = SH_FED_OVER;
        server->members[client].told = true;  // the server need not wait for it at the end
    } else if (trains(server, member)) {
        task.action = SH_FED_TRAIN;
    }
    *task_out = task;
    return SH_OK;
}

/* For the main task: deadlines pass without any client's question. */
sh_status sh_fed_server_tick(sh_fed_server *server, int64_t now_ms) {
    return sh_fed_advance(server, now_ms);
}

/* Clients that asked or sent within presence_ms and are not revoked. */
size_t sh_fed_count_present(const sh_fed_server *server, int64_t now_ms) {
    size_t present = 0;
    for (size_t i = 0; i < server->member_count; i++)
        present += sh_fed_present(server, &server->members[i], now_ms);
    return present;
}

/* Present clients that the server should not leave without an answer. */
static size_t count_untold(const sh_fed_server *server, int64_t now_ms) {
    size_t untold = 0;
    for (size_t i = 0; i < server->member_count; i++)
        untold += sh_fed_present(server, &server->members[i], now_ms) && !server->members[i].told;
    return untold;
}

sh_fed_view sh_fed_server_view(const sh_fed_server *server, int64_t now_ms) {
    return (sh_fed_view){.closed = server->round - 1,
                         .attempt = server->attempt,
                         .collecting = server->open.collecting,
                         .over = server->over,
                         .clients = server->member_count,
                         .present = sh_fed_count_present(server, now_ms),
                         .selected = server->open.selected,
                         .target = server->open.target,
                         .counted = server->open.folded,
                         .restarted = server->restarted,
                         .epsilon = sh_fed_spent(server),
                         .untold = server->over ? count_untold(server, now_ms) : 0};
}

const sh_fed_options *sh_fed_server_options(const sh_fed_server *server) {
    return &server->options;
}
size_t sh_fed_server_clients(const sh_fed_server *server) { return server->member_count; }

uint64_t sh_fed_server_counted(const sh_fed_server *server, size_t client) {
    SH_ASSERT(client < server->member_count);
    return server->members[client].counted;
}

const unsigned char *sh_fed_server_hash(const sh_fed_server *server) {
    return server->hashes[server->round % (SH_FED_LATE_MOST + 1)];
}

size_t sh_fed_server_values(const sh_fed_server *server) { return server->vectors * server->count; }
