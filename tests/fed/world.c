#include "world.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

enum { EVENTS_MOST = 4096 };
static const int64_t END_MS = 48LL * 3600 * 1000;

typedef enum event_kind {
    WAKE,
    QUESTION,
    TASK,
    MODEL_ASKED,
    MODEL,
    TRAINED,
    UPDATE,
    RECEIPT
} event_kind;

typedef struct event {
    int64_t at_ms;
    uint64_t order;
    event_kind kind;
    int client;
    int life;  // of the client; what comes for an earlier life is lost
    sh_fed_task task;
    sh_fed_update update;
    float values[2 * WORLD_VALUES];
    sh_fed_receipt receipt;
} event;

typedef struct durable {
    uint64_t closed, counted[WORLD_CLIENTS_MOST];
    unsigned char hashes[SH_FED_LATE_MOST + 1][SH_FED_HASH];
    float model[2 * WORLD_VALUES], slots[SH_FED_SLOTS_MOST][WORLD_PARAMS];
    uint32_t attempts;
    uint64_t charges;
} durable;

typedef struct world {
    const world_options *options;
    sh_fed_options server_options;
    sh_fed_server *server;
    sh_fed_client clients[WORLD_CLIENTS_MOST];
    float held[WORLD_CLIENTS_MOST][2 * WORLD_VALUES];
    int lives[WORLD_CLIENTS_MOST];
    durable disk;
    sh_fed_accountant cost;  // of a round's privacy
    event events[EVENTS_MOST];
    int event_count;
    uint64_t order;
    sh_rng rng;
    int64_t now_ms;
    world_result result;
} world;

static void fault(world *w, const char *format, ...) {
    va_list arguments;
    if (w->result.fault[0] != '\0') return;
    va_start(arguments, format);
    vsnprintf(w->result.fault, sizeof w->result.fault, format, arguments);
    va_end(arguments);
}

static bool chance(world *w, double p) { return (double)sh_rng_uniform(&w->rng) < p; }

static void push(world *w, event e, int64_t delay_ms) {
    e.at_ms = w->now_ms + delay_ms;
    e.order = w->order++;
    SH_ASSERT(w->event_count < EVENTS_MOST);
    w->events[w->event_count++] = e;
}

static event pop(world *w) {
    int first = 0;
    for (int i = 1; i < w->event_count; i++) {
        const event *a = &w->events[i], *b = &w->events[first];
        if (a->at_ms < b->at_ms || (a->at_ms == b->at_ms && a->order < b->order)) first = i;
    }
    event e = w->events[first];
    w->events[first] = w->events[--w->event_count];
    return e;
}

/* A message: lost, doubled, late. */
static void post(world *w, event e) {
    e.life = w->lives[e.client];
    int copies = chance(w, w->options->lost) ? 0 : chance(w, w->options->doubled) ? 2 : 1;
    for (int i = 0; i < copies; i++)
        push(w, e, 1 + (int64_t)sh_rng_below(&w->rng, (uint64_t)w->options->delay_ms_most));
}

/* What client `client` learns from the model of `round`: as good as random, and the same again. */
static void learn(int client, uint64_t round, float *values_out, size_t count) {
    sh_rng rng = sh_rng_stream(77, SH_RNG_TEST, (uint32_t)client, round);
    for (size_t i = 0; i < count; i++) values_out[i] = sh_rng_normal(&rng);
}

static uint64_t samples_of(int client) { return 1 + (uint64_t)client * 7 % 23; }

static sh_status charge(void *self, uint64_t round, double rate, double noise) {
    world *w = self;
    w->disk.charges++;
    if (round != w->disk.closed + 1 || rate <= 0 || noise <= 0)
        fault(w, "round %d is charged after %d", (int)round, (int)w->disk.closed);
    return SH_OK;
}

/* What is published was charged, and no more than there is. */
static void check_budget(world *w, uint64_t closed) {
    const sh_fed_privacy *privacy = &w->server_options.privacy;
    sh_fed_accountant spent = {0};
    if (!privacy->on) return;
    sh_fed_accountant_repeat(&spent, &w->cost, (double)w->disk.charges);
    double epsilon = sh_fed_accountant_epsilon(&spent, privacy->delta);
    if (w->disk.charges < closed || epsilon > privacy->epsilon * (1 + 1e-9))
        fault(w, "%d rounds, %d charges, epsilon %g of %g", (int)closed, (int)w->disk.charges,
              epsilon, privacy->epsilon);
}

/* The oracle: the mean over the clients that the server says it counted, in doubles. */
static sh_status commit(void *self, const sh_fed_server *server, const sh_fed_report *report) {
    world *w = self;
    const sh_fed_rule *rule = w->server_options.rule.rule;
    double sum[WORLD_VALUES] = {0}, weights = 0;
    size_t counted = 0;
    // Between the charge and the commit: the charge is lost, and nothing was published.
    if (w->server_options.privacy.on && chance(w, 0.05)) return SH_FAIL(SH_E_IO, "killed");
    for (int c = 0; c < w->options->clients; c++) {
        uint64_t base = sh_fed_server_counted(server, (size_t)c);
        if (base == w->disk.counted[c]) continue;
        if (base < w->disk.counted[c] || base > report->round)
            fault(w, "client %d: counted %d after %d", c, (int)base, (int)w->disk.counted[c]);
        float values[WORLD_VALUES];
        double weight = rule->equal_weights ? 1 : (double)samples_of(c);
        weight *= rint(65536 / sqrt(1.0 + (double)(report->round - base)));
        learn(c, base, values, WORLD_VALUES);
        for (int i = 0; i < WORLD_VALUES; i++) sum[i] += weight * (double)values[i];
        weights += weight;
        counted++;
        w->disk.counted[c] = base;
    }
    if (counted != report->counted || report->round != w->disk.closed + 1)
        fault(w, "round %d tells of %zu updates, and %zu clients were counted", (int)report->round,
              report->counted, counted);
    float *model = sh_fed_server_model((sh_fed_server *)(uintptr_t)server);
    for (int i = 0; i < WORLD_VALUES && !w->server_options.privacy.on && rule->combine == NULL &&
                    rule->slots == 0;
         i++)
        if (fabs((double)w->disk.model[i] + sum[i] / weights - (double)model[i]) > 1e-5)
            fault(w, "round %d: value %d is %g, not %g + %g", (int)report->round, i,
                  (double)model[i], (double)w->disk.model[i], sum[i] / weights);
    memcpy(w->disk.model, model, sh_fed_server_values(server) * sizeof(float));
    for (int s = 0; s < rule->slots; s++)
        memcpy(w->disk.slots[s], sh_fed_server_slot((sh_fed_server *)(uintptr_t)server, s),
               sizeof w->disk.slots[s]);
    check_budget(w, report->round);
    w->disk.closed = report->round;
    memcpy(w->disk.hashes[(report->round + 1) % (SH_FED_LATE_MOST + 1)], sh_fed_server_hash(server),
           SH_FED_HASH);
    return SH_OK;
}

/* A server begins, or begins again with what is on disk. */
static void start_server(world *w) {
    sh_fed_server_destroy(w->server);
    w->server_options.attempt = w->disk.attempts += 1000;
    SH_ASSERT(sh_fed_server_create(&w->server_options, WORLD_PARAMS, WORLD_VALUES, commit, w,
                                   &w->server) == SH_OK);
    memcpy(sh_fed_server_model(w->server), w->disk.model,
           sh_fed_server_values(w->server) * sizeof(float));
    for (int s = 0; s < w->server_options.rule.rule->slots; s++)
        memcpy(sh_fed_server_slot(w->server, s), w->disk.slots[s], sizeof w->disk.slots[s]);
    sh_fed_server_restore_round(w->server, w->disk.closed);
    for (int c = 0; c < w->options->clients; c++) {
        SH_ASSERT(sh_fed_server_add(w->server) == c);
        sh_fed_server_restore_counted(w->server, (size_t)c, w->disk.counted[c]);
    }
    for (uint64_t c = 0; c < w->disk.charges; c++)
        sh_fed_server_restore_charge(w->server, w->options->fraction < 1 ? w->options->fraction : 1,
                                     w->server_options.privacy.noise);
    for (uint64_t r = 1; r <= w->disk.closed; r++)
        if (r + SH_FED_LATE_MOST > w->disk.closed)
            sh_fed_server_restore_hash(w->server, r, w->disk.hashes[r % (SH_FED_LATE_MOST + 1)]);
    sh_fed_server_begin(w->server);
    memcpy(w->disk.hashes[(w->disk.closed + 1) % (SH_FED_LATE_MOST + 1)],
           sh_fed_server_hash(w->server), SH_FED_HASH);
}

static void wake_later(world *w, int c) {
    int64_t delay = w->clients[c].at_ms - w->now_ms;
    push(w, (event){.kind = WAKE, .client = c, .life = w->lives[c]}, delay > 0 ? delay : 0);
}

static void note_fate(world *w, int c, sh_fed_fate fate, uint64_t held) {
    if (fate == SH_FED_SERVED) {
        w->result.served++;
        if (w->disk.counted[c] < held) fault(w, "client %d was told that %d counts", c, (int)held);
    }
    if (fate == SH_FED_DROPPED && w->disk.counted[c] == held)
        fault(w, "client %d dropped the counted update %d", c, (int)held);
}

/* The client does what it has to; a patience of 20 s stands for the time-outs of a transport. */
static void act(world *w, int c) {
    sh_fed_client *client = &w->clients[c];
    event e = {.client = c, .task = client->task};
    bool waits = true;
    switch (client->step) {
        case SH_FED_ASK:
            e.kind = QUESTION;
            post(w, e);
            break;
        case SH_FED_FETCH:
            e.kind = MODEL_ASKED;
            post(w, e);
            break;
        case SH_FED_LEARN:
            e.kind = TRAINED;
            e.life = w->lives[c];
            push(w, e, 1 + (int64_t)sh_rng_below(&w->rng, (uint64_t)w->options->train_ms_most));
            waits = false;
            break;
        case SH_FED_SEND:
            e.kind = UPDATE;
            e.update = (sh_fed_update){.round = client->held_round,
                                       .attempt = client->task.attempt,
                                       .samples = samples_of(c),
                                       .steps = 1,
                                       .loss = 1,
                                       .accuracy = NAN,
                                       .vectors = client->task.vectors,
                                       .count = WORLD_VALUES};
            memcpy(e.update.model, client->held_model, SH_FED_HASH);
            memcpy(e.values, w->held[c], sizeof e.values);
            post(w, e);
            break;
        case SH_FED_FINISH:
            return;
    }
    if (!waits) return;
    client->at_ms = w->now_ms + 20000;  // until then an answer is awaited
    wake_later(w, c);
}

static void on_wake(world *w, int c) {
    sh_fed_client *client = &w->clients[c];
    if (w->now_ms < client->at_ms || client->step == SH_FED_FINISH) return;
    act(w, c);
}

static void at_server(world *w, event *e) {
    if (chance(w, w->options->crashes)) {
        w->result.crashes++;
        start_server(w);
        return;  // and the message is lost with it
    }
    sh_status status = SH_OK;
    if (e->kind == QUESTION) {
        status = sh_fed_server_ask(w->server, w->now_ms, (size_t)e->client, &e->task);
        e->kind = TASK;
    } else if (e->kind == UPDATE) {
        e->update.values = e->values;
        status =
            sh_fed_server_take(w->server, w->now_ms, (size_t)e->client, &e->update, &e->receipt);
        e->kind = RECEIPT;
    } else {
        e->kind = MODEL;
    }
    if (status != SH_OK && strcmp(sh_error_last()->text, "killed") == 0) {
        w->result.crashes++;
        start_server(w);
        return;
    }
    if (status != SH_OK) fault(w, "the server fails: %s", sh_error_last()->text);
    post(w, *e);
}

static void at_client(world *w, event *e) {
    sh_fed_client *client = &w->clients[e->client];
    sh_fed_step before = client->step;
    uint64_t held = client->held_round;
    int64_t now = w->now_ms;
    if (chance(w, w->options->dies)) {
        w->lives[e->client]++;
        sh_fed_client_forget(client, now + (int64_t)sh_rng_below(&w->rng, 60000));
        wake_later(w, e->client);
        return;
    }
    if (e->kind == TASK)
        note_fate(w, e->client, sh_fed_client_on_task(client, now, &e->task), held);
    if (e->kind == MODEL) sh_fed_client_on_model(client, now);
    if (e->kind == RECEIPT)
        note_fate(w, e->client, sh_fed_client_on_receipt(client, now, &e->receipt), held);
    if (e->kind == TRAINED && client->step == SH_FED_LEARN) {
        learn(e->client, client->task.round, w->held[e->client], WORLD_VALUES);
        sh_fed_client_on_trained(client, now);
    }
    if (client->step != before || client->at_ms > now) wake_later(w, e->client);
}

static void handle(world *w, event *e) {
    bool to_server = e->kind == QUESTION || e->kind == MODEL_ASKED || e->kind == UPDATE;
    if (to_server) {
        at_server(w, e);
        return;
    }
    if (e->life != w->lives[e->client]) return;
    if (e->kind == WAKE)
        on_wake(w, e->client);
    else
        at_client(w, e);
}

static bool all_know(const world *w) {
    for (int c = 0; c < w->options->clients; c++)
        if (w->clients[c].step != SH_FED_FINISH) return false;
    return true;
}

world_result world_run(const world_options *options) {
    world *w = sh_alloc(1, sizeof *w);
    SH_ASSERT(w != NULL && options->clients <= WORLD_CLIENTS_MOST);
    w->options = options;
    w->rng = sh_rng_stream(options->seed, SH_RNG_TEST, 1, 0);
    w->server_options = (sh_fed_options){.rounds = options->rounds,
                                         .fraction = options->fraction,
                                         .clients_min = options->clients_min,
                                         .over = options->over,
                                         .quorum = options->quorum,
                                         .deadline_ms = 60000,
                                         .presence_ms = 120000,
                                         .poll_ms = 5000,
                                         .late_rounds = options->late_rounds,
                                         .seed = options->seed};
    SH_ASSERT(sh_fed_rule_parse(options->rule, &w->server_options.rule) == SH_OK);
    if (options->privacy != NULL) {
        double rate = options->fraction < 1 ? options->fraction : 1;
        SH_ASSERT(sh_fed_privacy_parse(options->privacy, rate, options->rounds,
                                       &w->server_options.privacy) == SH_OK);
        sh_fed_privacy_seed_key(&w->server_options.privacy, options->seed);
        w->server_options.charge = charge;
        sh_fed_accountant_add(&w->cost, rate, w->server_options.privacy.noise, 1);
    }
    start_server(w);
    for (int c = 0; c < options->clients; c++) {
        sh_fed_client_init(&w->clients[c], options->seed, (uint64_t)c);
        w->clients[c].at_ms = (int64_t)sh_rng_below(&w->rng, 5000);
        wake_later(w, c);
    }
    while (w->event_count > 0 && !all_know(w) && w->result.fault[0] == '\0') {
        event e = pop(w);
        w->now_ms = e.at_ms;
        if (w->now_ms > END_MS) fault(w, "no end after 48 hours, in round %d", (int)w->disk.closed);
        handle(w, &e);
    }
    if (w->disk.closed != (uint64_t)options->rounds && options->privacy == NULL)
        fault(w, "%d rounds", (int)w->disk.closed);
    world_result result = w->result;
    result.restarted = sh_fed_server_view(w->server, w->now_ms).restarted;
    result.closed = w->disk.closed;
    result.charged = w->disk.charges;
    result.end_ms = w->now_ms;
    memcpy(result.model, w->disk.model, sizeof result.model);
    sh_fed_server_destroy(w->server);
    sh_free(w);
    return result;
}
