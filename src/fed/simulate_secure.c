/* Rounds with secure aggregation: the real protocol between simulated clients, which may drop out
 * at each of its steps. The server's state machine gets the sum alone. */
#include <sodium.h>
#include <string.h>

#include "base/memory.h"
#include "fed/quantise.h"
#include "fed/secure.h"
#include "fed/simulate_internal.h"

enum { STEPS = 5, DRAW_SECURE = 4 };  // of the protocol (secure.h); a stream of draws

/* A round's clients, numbered 0 to n - 1 in the order of the server's. */
typedef struct party {
    sh_fed_simulation *s;
    size_t n;
    size_t *ids;  // of the server
    sh_fed_task task;
    sh_secure_terms terms;
    sh_secure_client **clients;
    unsigned char (*signers)[SH_SECURE_KEY];  // verify what clients sign
    unsigned char (*signatures)[SH_SECURE_SIGNATURE];
    sh_secure_advert *adverts;
    sh_secure_sealed *sealed, *to_one;  // (n, n) [from][to], and (n)
    sh_secure_reveal **reveals;
    bool *flags[STEPS];  // (n) who takes each step: there, shared, came, agreed, revealed
    uint32_t *values, *sum;
} party;

enum { THERE, SHARED, CAME, AGREED, REVEALED };

/* Seeds of simulated clients: functions of the run's seed. Real ones are drawn from the system. */
static void put_name(unsigned char out[SH_SECURE_KEY], const party *p, const char *use, size_t id) {
    crypto_generichash_state state;
    uint64_t name[] = {(uint64_t)p->s->run->config.seed, id, p->task.round, p->task.attempt};
    // A client's signing key is the same in every round.
    size_t bytes = strcmp(use, "sign") == 0 ? 2 * sizeof *name : sizeof name;
    crypto_generichash_init(&state, NULL, 0, SH_SECURE_KEY);
    crypto_generichash_update(&state, (const unsigned char *)use, strlen(use) + 1);
    crypto_generichash_update(&state, (const unsigned char *)name, bytes);
    crypto_generichash_update(&state, p->task.model, bytes == sizeof name ? SH_FED_HASH : 0);
    crypto_generichash_final(&state, out, SH_SECURE_KEY);
}

/* Each step loses a fifth of those who drop out in a round. */
static void draw_steps(party *p) {
    // Apart from other draws of this seed.
    sh_rng rng = sh_rng_stream((uint64_t)p->s->run->config.seed, SH_RNG_FED_SELECT,
                               DRAW_SECURE << 28, p->task.round * 1000003 + p->task.attempt);
    for (int step = 0; step < STEPS; step++)
        for (size_t i = 0; i < p->n; i++) {
            bool stays = (double)sh_rng_uniform(&rng) >= p->s->settings.dropout / STEPS;
            // Who is gone does not come back.
            p->flags[step][i] = stays && (step == 0 || p->flags[step - 1][i]);
        }
}

/* O(n^2) for sealed shares, O(n + count) for the rest; fini frees what there is. */
static sh_status take_memory(party *p) {
    size_t n = p->n, count = sh_fed_count(p->s->run);
    p->clients = sh_alloc(n, sizeof *p->clients);
    p->signers = sh_alloc(n, sizeof *p->signers);
    p->signatures = sh_alloc(n, sizeof *p->signatures);
    p->adverts = sh_alloc(n, sizeof *p->adverts);
    p->sealed = sh_alloc(n * n, sizeof *p->sealed);
    p->to_one = sh_alloc(n, sizeof *p->to_one);
    p->reveals = sh_alloc(n, sizeof *p->reveals);
    p->values = sh_alloc(count, sizeof *p->values);
    p->sum = sh_alloc(count, sizeof *p->sum);
    bool complete = p->clients != NULL && p->signers != NULL && p->signatures != NULL &&
                    p->adverts != NULL && p->sealed != NULL && p->to_one != NULL &&
                    p->reveals != NULL && p->values != NULL && p->sum != NULL;
    for (int step = 0; step < STEPS; step++) {
        p->flags[step] = sh_alloc(n, sizeof **p->flags);
        complete = complete && p->flags[step] != NULL;
    }
    return complete ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for %zu clients", n);
}

static void fini(party *p) {
    for (size_t i = 0; p->clients != NULL && i < p->n; i++) sh_secure_client_destroy(p->clients[i]);
    for (size_t i = 0; p->reveals != NULL && i < p->n; i++) sh_free(p->reveals[i]);
    for (int step = 0; step < STEPS; step++) sh_free(p->flags[step]);
    sh_free(p->ids);
    sh_free(p->clients);
    sh_free(p->signers);
    sh_free(p->signatures);
    sh_free(p->adverts);
    sh_free(p->sealed);
    sh_free(p->to_one);
    sh_free(p->reveals);
    sh_free(p->values);
    sh_free(p->sum);
}

static sh_status begin(party *p) {
    unsigned char seed[SH_SECURE_KEY], signing[64], public_key[SH_SECURE_KEY];
    SH_TRY(take_memory(p));
    draw_steps(p);
    p->terms = (sh_secure_terms){.clients = p->n,
                                 .threshold = 2 * p->n / 3 + 1,  // two thirds, more than half
                                 .count = sh_fed_count(p->s->run),
                                 .signers = (const unsigned char(*)[SH_SECURE_KEY])p->signers};
    put_name(p->terms.job, p, "job", 0);
    for (size_t i = 0; i < p->n; i++) {
        put_name(seed, p, "sign", p->ids[i]);
        // All public keys, before any client starts.
        crypto_sign_seed_keypair(p->signers[i], signing, seed);
    }
    for (size_t i = 0; i < p->n; i++) {
        put_name(seed, p, "sign", p->ids[i]);
        crypto_sign_seed_keypair(public_key, signing, seed);
        put_name(seed, p, "round", p->ids[i]);
        SH_TRY(sh_secure_client_create(&p->terms, i, seed, signing, &p->clients[i]));
        if (p->flags[THERE][i]) SH_TRY(sh_secure_client_advertise(p->clients[i], &p->adverts[i]));
    }
    return SH_OK;
}

/* The client trains, and sends its masked update; the server adds it up. */
static sh_status send_masked(party *p, size_t i) {
    sh_fed_simulation *s = p->s;
    sh_fed_update update;
    SH_TRY(sh_fed_simulate_train(s, &p->task, p->ids[i], s->values, &update));
    SH_TRY(sh_fed_sum_check(update.values, p->terms.count));
    sh_rng rng = sh_rng_stream((uint64_t)s->run->config.seed, SH_RNG_FED_LOCAL, (uint32_t)p->ids[i],
                               // Apart from the draws of local training.
                               p->task.round | (uint64_t)1 << 62);
    sh_fed_quantise(update.values, p->terms.count, s->settings.secure_clip, &rng, p->values);
    for (size_t v = 0; v < p->n; v++) p->to_one[v] = p->sealed[v * p->n + i];
    SH_TRY(sh_secure_client_mask(p->clients[i], p->flags[SHARED], p->to_one, p->values));
    // Modulo 2^32, where masks cancel.
    for (size_t k = 0; k < p->terms.count; k++) p->sum[k] += p->values[k];
    size_t each = sizeof(sh_secure_advert) + 2 * sizeof(sh_secure_sealed) + SH_SECURE_SIGNATURE +
                  sizeof(sh_secret_share);
    s->result.sent_bytes += (int64_t)(p->n * each);
    return SH_OK;
}

/* Shares that this client gives to the server: one of each other client's two secrets. */
static sh_status reveal(party *p, size_t i) {
    p->reveals[i] = sh_alloc(p->n, sizeof **p->reveals);
    if (p->reveals[i] == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for shares");
    return sh_secure_client_unmask(p->clients[i], p->flags[AGREED],
                                   (const unsigned char(*)[SH_SECURE_SIGNATURE])p->signatures,
                                   p->reveals[i]);
}

/* All clients take one step before any takes the next, as the protocol has it. SH_E_PEER: too few
 * stayed for the threshold. */
static sh_status run_steps(party *p) {
    SH_TRY(begin(p));
    for (size_t i = 0; i < p->n; i++)
        if (p->flags[SHARED][i])
            SH_TRY(sh_secure_client_share(p->clients[i], p->flags[THERE], p->adverts,
                                          p->sealed + i * p->n));
    for (size_t i = 0; i < p->n; i++)
        if (p->flags[CAME][i]) SH_TRY(send_masked(p, i));
    for (size_t i = 0; i < p->n; i++)
        if (p->flags[AGREED][i])
            SH_TRY(sh_secure_client_consent(p->clients[i], p->flags[CAME], p->signatures[i]));
    for (size_t i = 0; i < p->n; i++)
        if (p->flags[REVEALED][i]) SH_TRY(reveal(p, i));
    return sh_secure_unmask(&p->terms, p->adverts, p->flags[THERE], p->flags[SHARED],
                            p->flags[CAME], p->reveals, p->sum);
}

/* The server's state machine learns the sum and who came, and nothing else. */
static sh_status give_sum(party *p) {
    bool *came = sh_alloc(p->s->settings.clients, sizeof *came);
    if (came == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a round");
    for (size_t i = 0; i < p->n; i++) came[p->ids[i]] = p->flags[CAME][i];
    sh_fed_server_take_sum(p->s->server, came, (const int32_t *)p->sum,
                           // Back to values: one level of the quantisation.
                           sh_fed_step_of(p->s->settings.secure_clip));
    sh_free(came);
    return SH_OK;
}

/* Who is asked to train. */
static sh_status find_party(party *p) {
    sh_fed_simulation *s = p->s;
    p->ids = sh_alloc(s->settings.clients, sizeof *p->ids);
    if (p->ids == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a round");
    for (size_t c = 0; c < s->settings.clients; c++) sh_fed_server_heard(s->server, s->now_ms, c);
    for (size_t c = 0; c < s->settings.clients; c++) {
        sh_fed_task task;
        SH_TRY(sh_fed_server_ask(s->server, s->now_ms, c, &task));
        if (task.action != SH_FED_TRAIN) continue;
        p->task = task;
        p->ids[p->n++] = c;
    }
    // Two could subtract their own update and learn the other's.
    if (p->n >= 3 && p->n <= SH_SECURE_CLIENTS_MOST) return SH_OK;
    SH_FAIL(SH_E_USAGE, "secure aggregation of %zu clients: 3 to %d take part in a round", p->n,
            SH_SECURE_CLIENTS_MOST);
    return sh_error_hint("set --clients, --fraction and --min-clients so that they do");
}

sh_status sh_fed_simulate_secure(sh_fed_simulation *s) {
    party p = {.s = s};
    s->now_ms++;
    sh_status status = find_party(&p);
    if (status == SH_OK) {
        status = run_steps(&p);
        if (status == SH_OK) status = give_sum(&p);
        if (status == SH_E_PEER) status = SH_OK;  // the deadline begins the round again
    }
    fini(&p);
    SH_TRY(status);
    s->now_ms += s->settings.server.deadline_ms;  // the round closes by its deadline
    return sh_fed_server_tick(s->server, s->now_ms);
}
