/* Secure aggregation: the sum is right whoever drops out at whatever step, or there is none; and
 * what a server or a client may try is refused. */
#include "harness.h"

#include <sodium.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "fed/secure_internal.h"

enum { MOST = 24, COUNT = 2050 };  // more than one piece of a mask

typedef struct world {
    sh_secure_terms terms;
    unsigned char signers[MOST][SH_SECURE_KEY], signing[MOST][64];
    sh_secure_client *clients[MOST];
    sh_secure_advert adverts[MOST];
    sh_secure_sealed sealed[MOST][MOST];  // [from][to]
    unsigned char signatures[MOST][SH_SECURE_SIGNATURE];
    sh_secure_reveal reveals[MOST][MOST];
    uint32_t inputs[MOST][COUNT], sent[MOST][COUNT];
    bool there[MOST], shared[MOST], came[MOST], agreed[MOST], revealed[MOST];
    uint32_t sum[COUNT], expected[COUNT];
} world;

static world *start(size_t clients, size_t threshold, uint64_t seed) {
    world *w = sh_alloc(1, sizeof *w);
    assert_non_null(w);
    assert_true(sodium_init() >= 0);
    w->terms = (sh_secure_terms){.clients = clients,
                                 .threshold = threshold,
                                 .count = COUNT,
                                 .signers = (const unsigned char(*)[SH_SECURE_KEY])w->signers};
    memcpy(w->terms.job, &seed, sizeof seed);
    for (size_t i = 0; i < clients; i++) {
        unsigned char drawn[SH_SECURE_KEY] = {0};
        uint64_t name[] = {seed, i, 1};
        memcpy(drawn, name, sizeof name);
        crypto_sign_seed_keypair(w->signers[i], w->signing[i], drawn);
    }
    for (size_t i = 0; i < clients; i++) {
        unsigned char drawn[SH_SECURE_KEY] = {0};
        uint64_t name[] = {seed, i, 2};
        memcpy(drawn, name, sizeof name);
        CHECK_OK(sh_secure_client_create(&w->terms, i, drawn, w->signing[i], &w->clients[i]));
        sh_rng rng = sh_rng_stream(seed, SH_RNG_TEST, 20, i);
        for (size_t k = 0; k < COUNT; k++) w->inputs[i][k] = w->sent[i][k] = sh_rng_u32(&rng);
    }
    return w;
}

static void stop(world *w) {
    for (size_t i = 0; i < w->terms.clients; i++) sh_secure_client_destroy(w->clients[i]);
    sh_free(w);
}

/* Of `from`, those who do not drop out. */
static void survive(const bool *from, bool *to, size_t n, double dropout, sh_rng *rng) {
    for (size_t i = 0; i < n; i++) to[i] = from[i] && (double)sh_rng_uniform(rng) >= dropout;
}

static size_t count(const bool *flags, size_t n) {
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += flags[i];
    return sum;
}

static void advertise(world *w) {
    for (size_t i = 0; i < w->terms.clients; i++)
        if (w->there[i]) CHECK_OK(sh_secure_client_advertise(w->clients[i], &w->adverts[i]));
}

static sh_status share_one(world *w, size_t i) {
    return sh_secure_client_share(w->clients[i], w->there, w->adverts, w->sealed[i]);
}

static sh_status mask_one(world *w, size_t i) {
    sh_secure_sealed to_it[MOST];
    for (size_t v = 0; v < w->terms.clients; v++) to_it[v] = w->sealed[v][i];
    return sh_secure_client_mask(w->clients[i], w->shared, to_it, w->sent[i]);
}

static sh_status consent_one(world *w, size_t i) {
    return sh_secure_client_consent(w->clients[i], w->came, w->signatures[i]);
}

static sh_status unmask_one(world *w, size_t i) {
    return sh_secure_client_unmask(w->clients[i], w->agreed,
                                   (const unsigned char(*)[SH_SECURE_SIGNATURE])w->signatures,
                                   w->reveals[i]);
}

static sh_status finish(world *w) {
    sh_secure_reveal *reveals[MOST];
    memset(w->sum, 0, sizeof w->sum);
    memset(w->expected, 0, sizeof w->expected);
    for (size_t i = 0; i < w->terms.clients; i++) {
        reveals[i] = w->revealed[i] ? w->reveals[i] : NULL;
        for (size_t k = 0; k < COUNT && w->came[i]; k++) {
            w->sum[k] += w->sent[i][k];
            w->expected[k] += w->inputs[i][k];
        }
    }
    return sh_secure_unmask(&w->terms, w->adverts, w->there, w->shared, w->came, reveals, w->sum);
}

/* A whole round; false: fewer than the threshold stayed in some step, and nothing is learnt. */
static bool run(world *w, double dropout, sh_rng *rng) {
    size_t n = w->terms.clients, t = w->terms.threshold;
    bool all[MOST];
    memset(all, 1, sizeof all);
    survive(all, w->there, n, dropout, rng);
    advertise(w);
    survive(w->there, w->shared, n, dropout, rng);
    for (size_t i = 0; i < n; i++)
        if (w->shared[i] && share_one(w, i) != SH_OK) return false;
    survive(w->shared, w->came, n, dropout, rng);
    for (size_t i = 0; i < n; i++)
        if (w->came[i] && mask_one(w, i) != SH_OK) return false;
    survive(w->came, w->agreed, n, dropout, rng);
    for (size_t i = 0; i < n; i++)
        if (w->agreed[i] && consent_one(w, i) != SH_OK) return false;
    survive(w->agreed, w->revealed, n, dropout, rng);
    for (size_t i = 0; i < n; i++)
        if (w->revealed[i] && unmask_one(w, i) != SH_OK) return false;
    return count(w->revealed, n) >= t && finish(w) == SH_OK;
}

TEST(secure, sums_are_exact_whoever_drops_out_at_any_step_or_there_are_none) {
    const char *text = getenv("SEED");
    uint64_t first = text != NULL ? strtoull(text, NULL, 10) : 1;
    int whole = 0, broken = 0;
    for (uint64_t seed = first; seed < first + 300; seed++) {
        size_t clients = 3 + (size_t)(seed % 10);
        world *w = start(clients, clients / 2 + 1, seed);
        sh_rng rng = sh_rng_stream(seed, SH_RNG_TEST, 21, 0);
        bool done = run(w, (double)(seed % 5) * 0.05, &rng);
        if (done && memcmp(w->sum, w->expected, sizeof w->sum) != 0)
            fail_msg("seed %llu: a wrong sum", (unsigned long long)seed);
        if (!done && seed % 5 == 0) fail_msg("seed %llu: no sum", (unsigned long long)seed);
        whole += done;
        broken += !done;
        stop(w);
    }
    assert_true(whole > 150 && broken > 10);
}

/* What the server gets of a client is as good as random: it is not the input, and another seed
 * gives another one for the same input. */
static world *at_step(int step, size_t clients, size_t threshold) {
    world *w = start(clients, threshold, 5);
    size_t n = clients;
    memset(w->there, 1, n);
    advertise(w);
    memset(w->shared, 1, n);
    for (size_t i = 0; i < n && step > 1; i++) CHECK_OK(share_one(w, i));
    memset(w->came, 1, n);
    for (size_t i = 0; i < n && step > 2; i++) CHECK_OK(mask_one(w, i));
    for (size_t i = 0; i < n && step > 3; i++) CHECK_OK(consent_one(w, i));
    memset(w->agreed, 1, n);
    return w;
}

TEST(secure, vectors_that_are_sent_look_random) {
    world *w = at_step(3, 4, 3);
    int bits = 0, same = 0;
    for (size_t k = 0; k < COUNT; k++) {
        uint32_t differs = w->sent[0][k] ^ w->inputs[0][k];
        bits += __builtin_popcount(differs);
        same += differs == 0;
    }
    assert_int_equal(same, 0);
    assert_true(bits > COUNT * 16 - 1000 && bits < COUNT * 16 + 1000);
    stop(w);
}

TEST(secure, keys_that_are_not_signed_doubled_or_of_low_order_are_refused) {
    world *w = at_step(1, 4, 3);
    w->adverts[2].mask_key[5] ^= 1;
    CHECK_FAILS(SH_E_PEER, "keys that are not signed (client 2)", share_one(w, 0));
    stop(w);
    w = at_step(1, 4, 3);
    w->adverts[2] = w->adverts[3];
    CHECK_FAILS(SH_E_PEER, "not signed", share_one(w, 0));
    stop(w);
    static const unsigned char zero[SH_SECURE_KEY];  // of low order: every common secret is 0
    for (int which = 0; which < 2; which++) {
        w = at_step(1, 4, 3);
        unsigned char text[SH_SECURE_HASH];
        sh_secure_advert *bad = &w->adverts[2];
        memcpy(which == 0 ? bad->seal_key : bad->mask_key, zero, sizeof zero);
        sh_secure_advert_text(&w->terms, 2, bad, text);
        crypto_sign_detached(bad->signature, NULL, text, sizeof text, w->signing[2]);
        CHECK_FAILS(SH_E_PEER, "low order (client 2)", share_one(w, 0));
        stop(w);
    }
    w = at_step(1, 4, 3);
    w->adverts[0].seal_key[0] ^= 1;  // the server changes the own keys
    CHECK_FAILS(SH_E_PEER, "own keys", share_one(w, 0));
    CHECK_FAILS(SH_E_PEER, "out of order", share_one(w, 0));  // and it is over
    stop(w);
}

TEST(secure, fewer_than_the_threshold_learn_nothing) {
    world *w = at_step(1, 5, 4);
    w->there[3] = w->there[4] = false;
    CHECK_FAILS(SH_E_PEER, "too few", share_one(w, 0));
    stop(w);
    w = at_step(2, 5, 4);
    w->shared[3] = w->shared[4] = false;
    CHECK_FAILS(SH_E_PEER, "who has shared", mask_one(w, 0));
    stop(w);
    w = at_step(3, 5, 4);
    w->came[3] = w->came[4] = false;
    CHECK_FAILS(SH_E_PEER, "who has come", consent_one(w, 0));
    stop(w);
    w = at_step(4, 5, 4);
    w->agreed[3] = w->agreed[4] = false;
    CHECK_FAILS(SH_E_PEER, "too few have agreed", unmask_one(w, 0));
    stop(w);
    w = at_step(4, 5, 4);
    for (size_t i = 0; i < 3; i++) CHECK_OK(unmask_one(w, i));
    w->revealed[0] = w->revealed[1] = w->revealed[2] = true;
    uint32_t before[COUNT];
    CHECK_FAILS(SH_E_PEER, "3 shares", finish(w));
    memset(before, 0, sizeof before);
    for (size_t i = 0; i < 5; i++)
        for (size_t k = 0; k < COUNT; k++) before[k] += w->sent[i][k];
    assert_memory_equal(w->sum, before, sizeof before);
    stop(w);
}

TEST(secure, sealed_shares_that_are_swapped_or_changed_are_refused) {
    world *w = at_step(2, 4, 3);
    w->sealed[1][0].bytes[7] ^= 1;
    CHECK_FAILS(SH_E_PEER, "changed or are another's (client 1)", mask_one(w, 0));
    stop(w);
    w = at_step(2, 4, 3);
    w->sealed[1][0] = w->sealed[2][0];
    CHECK_FAILS(SH_E_PEER, "another's (client 1)", mask_one(w, 0));
    stop(w);
}

/* A server that tells some clients that one has come, and others that it dropped out, would get
 * both kinds of shares. */
TEST(secure, two_lists_of_who_has_come_are_noticed_before_anything_is_revealed) {
    world *w = at_step(3, 5, 3);
    for (size_t i = 0; i < 5; i++) {
        w->came[4] = i < 2;
        if (i < 4) CHECK_OK(consent_one(w, i));
    }
    w->agreed[4] = false;
    for (size_t i = 0; i < 4; i++) CHECK_FAILS(SH_E_PEER, "different lists", unmask_one(w, i));
    stop(w);
}

TEST(secure, a_client_reveals_one_kind_of_share_once) {
    world *w = at_step(3, 5, 3);
    w->came[4] = false;
    for (size_t i = 0; i < 4; i++) CHECK_OK(consent_one(w, i));
    w->agreed[4] = false;
    CHECK_OK(unmask_one(w, 0));
    for (size_t v = 0; v < 5; v++) {
        assert_true(w->reveals[0][v].has_seed == (v < 4));
        assert_true(w->reveals[0][v].has_key == (v == 4));
    }
    CHECK_FAILS(SH_E_PEER, "out of order", unmask_one(w, 0));
    stop(w);
}

TEST(secure, an_altered_share_of_a_key_is_noticed) {
    world *w = at_step(3, 5, 3);
    w->came[4] = false;
    for (size_t i = 0; i < 4; i++) CHECK_OK(consent_one(w, i));
    w->agreed[4] = false;
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(unmask_one(w, i));
        w->revealed[i] = true;
    }
    CHECK_OK(finish(w));
    assert_memory_equal(w->sum, w->expected, sizeof w->sum);
    w->reveals[1][4].share.limb[8] ^= 1;
    CHECK_FAILS(SH_E_PEER, "client 4", finish(w));
    stop(w);
}

/* Another model, round or size is another context: nothing of one attempt serves in another. */
TEST(secure, adverts_of_another_job_are_refused) {
    world *w = at_step(1, 4, 3), *other = start(4, 3, 6);
    sh_secure_advert advert;
    memcpy(other->signing[1], w->signing[1], 64);
    CHECK_OK(sh_secure_client_advertise(other->clients[1], &advert));
    w->adverts[1] = advert;
    CHECK_FAILS(SH_E_PEER, "not signed (client 1)", share_one(w, 0));
    stop(w);
    stop(other);
}

TEST(secure, thresholds_below_half_are_refused_by_the_client) {
    world *w = start(4, 3, 1);
    sh_secure_client *client = NULL;
    w->terms.threshold = 2;
    CHECK_FAILS(SH_E_PEER, "threshold 2",
                sh_secure_client_create(&w->terms, 0, w->signers[0], w->signing[0], &client));
    stop(w);
}
