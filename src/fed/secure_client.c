/* The client of secure aggregation (secure.h). The order of steps is enforced, every list from the
 * server is checked against the one before, and a broken rule ends the client's part: a server that
 * lies about who is there must not get shares that unmask a single client. */
#include <sodium.h>
#include <string.h>

#include "base/memory.h"
#include "fed/secure_internal.h"

typedef enum stage {
    ADVERTISE,
    SHARE,
    MASK,
    CONSENT,
    UNMASK,
    DONE
} stage;  // in this order, each once

typedef struct shares {
    sh_secret_share key, seed;  // of another client's mask key and seed
} shares;

struct sh_secure_client {
    sh_secure_terms terms;
    unsigned char (*signers)[SH_SECURE_KEY];
    size_t number;
    stage stage;  // what comes next
    unsigned char signing[64], seed[SH_SECURE_KEY];
    unsigned char seal_secret[SH_SECURE_KEY], mask_secret[SH_SECURE_KEY], own_seed[SH_SECURE_KEY];
    unsigned char context[SH_SECURE_HASH];
    sh_secure_advert *adverts;    // (clients) of who is there
    bool *there, *shared, *came;  // (clients) steps 0, 1 and 2
    shares *held;                 // (clients) of those in `shared`
};

/* Ends the client's part in the protocol for good. */
static sh_status broken(sh_secure_client *client, const char *what, size_t number) {
    client->stage = DONE;
    return SH_FAIL(SH_E_PEER, "secure aggregation: %s (client %zu)", what, number);
}

/* A repeated step could reveal both kinds of share of one client, so each works once. */
static sh_status enter(sh_secure_client *client, stage wanted) {
    if (client->stage != wanted) return broken(client, "a step out of order", client->number);
    client->stage = wanted + 1;
    return SH_OK;
}

/* Key material of this attempt, all of it from the seed. */
static void derive(const sh_secure_client *client, const char *use, void *out, size_t bytes) {
    static const unsigned char nonce[crypto_stream_chacha20_NONCEBYTES];
    unsigned char key[SH_SECURE_KEY];
    crypto_generichash_state state;
    // Key derivation: BLAKE2b, keyed by the seed.
    crypto_generichash_init(&state, client->seed, sizeof client->seed, sizeof key);
    // With its zero byte: no use is the prefix of another.
    crypto_generichash_update(&state, (const unsigned char *)use, strlen(use) + 1);
    crypto_generichash_update(&state, client->terms.job, SH_SECURE_HASH);
    crypto_generichash_final(&state, key, sizeof key);  // zero nonce: the key serves this use alone
    crypto_stream_chacha20(out, bytes, nonce, key);
    sodium_memzero(key, sizeof key);
}

/* The threshold is more than half of the clients: two disjoint groups cannot both reach it. */
sh_status sh_secure_client_create(const sh_secure_terms *terms, size_t number,
                                  const unsigned char seed[SH_SECURE_KEY],
                                  const unsigned char signing[64], sh_secure_client **client_out) {
    size_t n = terms->clients;
    if (n > SH_SECURE_CLIENTS_MOST || number >= n || terms->threshold > n ||
        2 * terms->threshold <= n)
        return SH_FAIL(SH_E_PEER, "secure aggregation of %zu clients with the threshold %zu", n,
                       terms->threshold);
    // Safe to call again.
    if (sodium_init() < 0) return SH_FAIL(SH_E_UNSUPPORTED, "libsodium does not start");
    sh_secure_client *client = sh_alloc(1, sizeof *client);
    if (client == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for secure aggregation");
    client->terms = *terms;
    client->number = number;
    client->signers = sh_alloc(n, sizeof *client->signers);
    client->adverts = sh_alloc(n, sizeof *client->adverts);
    // Three lists in one block: there, shared, came.
    client->there = sh_alloc(3 * n, sizeof *client->there);
    client->held = sh_alloc(n, sizeof *client->held);
    if (client->signers == NULL || client->adverts == NULL || client->there == NULL ||
        client->held == NULL) {
        sh_secure_client_destroy(client);
        return SH_FAIL(SH_E_MEMORY, "out of memory for secure aggregation");
    }
    client->shared = client->there + n;
    client->came = client->there + 2 * n;
    memcpy(client->signers, terms->signers, n * sizeof *client->signers);
    // The caller's list may go.
    client->terms.signers = (const unsigned char(*)[SH_SECURE_KEY])client->signers;
    memcpy(client->seed, seed, sizeof client->seed);
    memcpy(client->signing, signing, sizeof client->signing);
    *client_out = client;
    return SH_OK;
}

/* Overwrites shares and keys before the memory is given back. */
void sh_secure_client_destroy(sh_secure_client *client) {
    if (client == NULL) return;
    if (client->held != NULL)
        sodium_memzero(client->held, client->terms.clients * sizeof *client->held);
    sh_free(client->signers);
    sh_free(client->adverts);
    sh_free(client->there);
    sh_free(client->held);
    sodium_memzero(client, sizeof *client);
    sh_free(client);
}

/* The signature binds the keys to the job and the client's number: nobody can replay them
 * elsewhere. */
sh_status sh_secure_client_advertise(sh_secure_client *client, sh_secure_advert *advert_out) {
    unsigned char text[SH_SECURE_HASH];
    SH_TRY(enter(client, ADVERTISE));
    derive(client, "seal", client->seal_secret, SH_SECURE_KEY);
    derive(client, "mask", client->mask_secret, SH_SECURE_KEY);
    derive(client, "seed", client->own_seed, SH_SECURE_KEY);
    crypto_scalarmult_base(advert_out->seal_key, client->seal_secret);
    crypto_scalarmult_base(advert_out->mask_key, client->mask_secret);
    sh_secure_advert_text(&client->terms, client->number, advert_out, text);
    crypto_sign_detached(advert_out->signature, NULL, text, sizeof text, client->signing);
    client->adverts[client->number] = *advert_out;
    return SH_OK;
}

/* Signed by whom they say, of full order, none twice, and the own ones as they were sent. */
static sh_status check_adverts(sh_secure_client *client, const bool *there,
                               const sh_secure_advert *adverts) {
    size_t n = client->terms.clients, own = client->number;
    unsigned char text[SH_SECURE_HASH], common[SH_SECURE_KEY];
    // Other keys under this number would open what is sealed to it.
    if (!there[own] || memcmp(&adverts[own], &client->adverts[own], sizeof *adverts) != 0)
        return broken(client, "the own keys are not in the list", own);
    for (size_t v = 0; v < n; v++) {
        if (!there[v]) continue;
        sh_secure_advert_text(&client->terms, v, &adverts[v], text);
        // Nobody but the key's owner could have signed.
        if (crypto_sign_verify_detached(adverts[v].signature, text, sizeof text,
                                        client->signers[v]) != 0)
            return broken(client, "keys that are not signed", v);
        // A predictable shared secret would open masks.
        if (crypto_scalarmult(common, client->seal_secret, adverts[v].seal_key) != 0 ||
            crypto_scalarmult(common, client->mask_secret, adverts[v].mask_key) != 0)
            return broken(client, "a public key of low order", v);
        for (size_t u = 0; u < v; u++)  // a client that posed as two would get two shares
            if (there[u] && (memcmp(adverts[u].mask_key, adverts[v].mask_key, SH_SECURE_KEY) == 0 ||
                             memcmp(adverts[u].seal_key, adverts[v].seal_key, SH_SECURE_KEY) == 0))
                return broken(client, "a key that another client has, too", v);
    }
    sodium_memzero(common, sizeof common);  // shared secrets are derived again where needed
    return SH_OK;
}

/* The key for what `from` sends to `to`; `other` is the one that is not this client. */
static sh_status seal_key(const sh_secure_client *client, size_t from, size_t to, size_t other,
                          unsigned char key_out[SH_SECURE_KEY]) {
    return sh_secure_pair_key(client->seal_secret, client->adverts[other].seal_key, "sealed",
                              client->context, from, to, key_out);
}

/* A zero nonce is safe, as the key serves one message only. */
static sh_status seal(sh_secure_client *client, size_t to, const shares *both,
                      sh_secure_sealed *sealed_out) {
    static const unsigned char nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES];
    unsigned char key[SH_SECURE_KEY];  // serves this one message
    SH_TRY(seal_key(client, client->number, to, to, key));
    crypto_aead_xchacha20poly1305_ietf_encrypt(sealed_out->bytes, NULL, (const unsigned char *)both,
                                               sizeof *both, client->context, SH_SECURE_HASH, NULL,
                                               nonce, key);
    sodium_memzero(key, sizeof key);
    return SH_OK;
}

_Static_assert(sizeof(shares) + crypto_aead_xchacha20poly1305_ietf_ABYTES == SH_SECURE_SEALED,
               "a sealed message holds two shares");

/* Shares of the mask key and the seed, for everyone who is there, this client included. */
static sh_status split_secrets(sh_secure_client *client, sh_secret_share *key_shares,
                               sh_secret_share *seed_shares) {
    // Threshold - 1 coefficients for each limb.
    size_t n = client->terms.clients, words = (client->terms.threshold - 1) * SH_LIMBS;
    uint64_t *random = sh_alloc(words + 1, sizeof *random);
    if (random == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for shares");
    derive(client, "key coefficients", random, words * sizeof *random);
    sh_shamir_split(client->mask_secret, client->terms.threshold, n, random, key_shares);
    derive(client, "seed coefficients", random, words * sizeof *random);
    sh_shamir_split(client->own_seed, client->terms.threshold, n, random, seed_shares);
    sodium_memzero(random, words * sizeof *random);
    sh_free(random);
    return SH_OK;
}

/* The own shares are kept in the clear: they never leave. */
static sh_status seal_all(sh_secure_client *client, const sh_secret_share *key_shares,
                          const sh_secret_share *seed_shares, sh_secure_sealed *sealed_out) {
    for (size_t v = 0; v < client->terms.clients; v++) {
        shares both = {.key = key_shares[v], .seed = seed_shares[v]};
        if (v == client->number)
            client->held[v] = both;
        else if (client->there[v] && seal(client, v, &both, &sealed_out[v]) != SH_OK)
            return broken(client, "a public key of low order", v);
    }
    return SH_OK;
}

/* Step 1. Any `threshold` shares restore a secret, fewer tell nothing. */
sh_status sh_secure_client_share(sh_secure_client *client, const bool *there,
                                 const sh_secure_advert *adverts, sh_secure_sealed *sealed_out) {
    size_t n = client->terms.clients;
    SH_TRY(enter(client, SHARE));
    // A small group would unmask its members.
    if (sh_secure_count(there, n) < client->terms.threshold)
        return broken(client, "too few clients are there", client->number);
    SH_TRY(check_adverts(client, there, adverts));
    memcpy(client->there, there, n * sizeof *there);
    memcpy(client->adverts, adverts, n * sizeof *adverts);
    // Binds all later keys to this list of clients.
    sh_secure_context(&client->terms, there, adverts, client->context);
    sh_secret_share *all = sh_alloc(2 * n, sizeof *all);
    if (all == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for shares");
    sh_status status = split_secrets(client, all, all + n);
    if (status == SH_OK) status = seal_all(client, all, all + n, sealed_out);
    sodium_memzero(all, 2 * n * sizeof *all);  // overwritten, as they open this client's secrets
    sh_free(all);
    return status;
}

/* Authenticated with the context, so that shares of another round do not open. */
static sh_status open_sealed(sh_secure_client *client, size_t from,
                             const sh_secure_sealed *sealed) {
    static const unsigned char nonce[crypto_aead_xchacha20poly1305_ietf_NPUBBYTES];
    unsigned char key[SH_SECURE_KEY];
    shares both;
    SH_TRY(seal_key(client, from, client->number, from, key));
    int code = crypto_aead_xchacha20poly1305_ietf_decrypt(  // authenticates: a changed byte fails
        (unsigned char *)&both, NULL, NULL, sealed->bytes, SH_SECURE_SEALED, client->context,
        SH_SECURE_HASH, nonce, key);
    sodium_memzero(key, sizeof key);
    if (code != 0) return broken(client, "sealed shares that were changed or are another's", from);
    client->held[from] = both;
    return SH_OK;
}

/* Lists may only shrink from step to step. */
static bool is_part(const bool *part, const bool *whole, size_t clients) {
    for (size_t i = 0; i < clients; i++)
        if (part[i] && !whole[i]) return false;
    return true;
}

/* Step 2. The lower-numbered of a pair adds the pair's mask, the other subtracts it, and the sum of
 * both is without; the own seed's mask hides the update if pair keys are revealed. */
sh_status sh_secure_client_mask(sh_secure_client *client, const bool *there,
                                const sh_secure_sealed *sealed, uint32_t *values) {
    size_t n = client->terms.clients, own = client->number;
    unsigned char key[SH_SECURE_KEY];
    SH_TRY(enter(client, MASK));
    // Lists only shrink: no client appears later.
    if (!there[own] || !is_part(there, client->there, n) ||
        sh_secure_count(there, n) < client->terms.threshold)
        return broken(client, "a wrong list of who has shared", own);
    memcpy(client->shared, there, n * sizeof *there);
    for (size_t v = 0; v < n; v++)
        // Opened before masking, so that bad shares show early.
        if (there[v] && v != own) SH_TRY(open_sealed(client, v, &sealed[v]));
    for (size_t v = 0; v < n; v++) {
        if (!there[v] || v == own) continue;
        // Both ends derive the key under (low, high).
        size_t low = v < own ? v : own, high = v < own ? own : v;
        if (sh_secure_pair_key(client->mask_secret, client->adverts[v].mask_key, "mask",
                               client->context, low, high, key) != SH_OK)
            return broken(client, "a public key of low order", v);
        // Higher number subtracts: pairs cancel in the sum.
        sh_secure_add_mask(key, own > v, values, client->terms.count);
    }
    sh_secure_add_mask(client->own_seed, false, values, client->terms.count);
    sodium_memzero(key, sizeof key);
    return SH_OK;
}

/* Step 3. Signing the list is what stops a server from showing different lists to different
 * clients. */
sh_status sh_secure_client_consent(sh_secure_client *client, const bool *came,
                                   unsigned char signature_out[SH_SECURE_SIGNATURE]) {
    size_t n = client->terms.clients;
    unsigned char text[SH_SECURE_HASH];
    SH_TRY(enter(client, CONSENT));
    // Below the threshold the sum would tell too much.
    if (!came[client->number] || !is_part(came, client->shared, n) ||
        sh_secure_count(came, n) < client->terms.threshold)
        return broken(client, "a wrong list of who has come", client->number);
    memcpy(client->came, came, n * sizeof *came);
    sh_secure_list_text(client->context, came, n, text);
    crypto_sign_detached(signature_out, NULL, text, sizeof text, client->signing);
    return SH_OK;
}

/* Step 4. Of a client that came the seed's share, of one that dropped out the key's; both together
 * would unmask its update. */
sh_status sh_secure_client_unmask(sh_secure_client *client, const bool *agreed,
                                  const unsigned char (*signatures)[SH_SECURE_SIGNATURE],
                                  sh_secure_reveal *reveals_out) {
    size_t n = client->terms.clients;
    unsigned char text[SH_SECURE_HASH];
    SH_TRY(enter(client, UNMASK));
    // Consents of a majority: no two lists can both have one.
    if (!is_part(agreed, client->came, n) || sh_secure_count(agreed, n) < client->terms.threshold)
        return broken(client, "too few have agreed on who has come", client->number);
    sh_secure_list_text(client->context, client->came, n, text);
    for (size_t v = 0; v < n; v++)
        if (agreed[v] &&
            // Over the list that this client was shown.
            crypto_sign_verify_detached(signatures[v], text, sizeof text, client->signers[v]) != 0)
            return broken(client, "clients were told different lists of who has come", v);
    for (size_t v = 0; v < n; v++) {
        bool here = client->shared[v], came = client->came[v];
        // One kind of share for each client, never both.
        reveals_out[v] = (sh_secure_reveal){.has_seed = here && came, .has_key = here && !came};
        if (here) reveals_out[v].share = came ? client->held[v].seed : client->held[v].key;
    }
    sodium_memzero(client->held, n * sizeof *client->held);  // and never the other kind
    return SH_OK;
}
