/* The server's end of secure aggregation: from revealed shares it rebuilds the seeds of those who
 * came and the mask keys of those who dropped out, and takes their masks off the sum. It never
 * learns both of one client. */
#include <sodium.h>
#include <string.h>

#include "base/memory.h"
#include "fed/secure_internal.h"

typedef struct unmasking {  // works on a copy of the sum
    const sh_secure_terms *terms;
    const sh_secure_advert *adverts;  // of the round, as all clients saw them
    const bool *shared, *came;
    sh_secure_reveal *const *reveals;
    unsigned char context[SH_SECURE_HASH];
    uint32_t *numbers, *sum;  // scratch (clients): places and shares of one secret
    sh_secret_share *shares;
} unmasking;

/* Client `of`'s seed, or its mask key, from `threshold` of the shares that were revealed. */
static sh_status rebuild(const unmasking *u, size_t of, bool key,
                         unsigned char secret_out[SH_SECRET]) {
    size_t found = 0;
    for (size_t v = 0; v < u->terms->clients && found < u->terms->threshold; v++) {
        const sh_secure_reveal *reveal = u->reveals[v] != NULL ? &u->reveals[v][of] : NULL;
        if (reveal == NULL || !(key ? reveal->has_key : reveal->has_seed)) continue;
        u->numbers[found] = (uint32_t)v + 1;  // x = 0 is the secret itself
        u->shares[found++] = reveal->share;
    }
    if (found < u->terms->threshold)  // too few clients stayed: the round cannot be unmasked
        return SH_FAIL(SH_E_PEER, "%zu shares of client %zu's secret, and %zu are needed", found,
                       of, u->terms->threshold);
    if (sh_shamir_join(u->numbers, u->shares, found, secret_out) == SH_OK) return SH_OK;
    return SH_FAIL(SH_E_PEER, "the shares of client %zu's secret give none", of);
}

/* Who has come left a mask by its seed. */
static sh_status take_seed_off(const unmasking *u, size_t of) {
    unsigned char seed[SH_SECRET];
    SH_TRY(rebuild(u, of, false, seed));
    sh_secure_add_mask(seed, true, u->sum, u->terms->count);  // subtracts what the client added
    sodium_memzero(seed, sizeof seed);
    return SH_OK;
}

/* Who shared and did not come left its pair masks in all who came. Its key must be the one that it
 * advertised, which shows wrong shares. */
static sh_status take_pairs_off(const unmasking *u, size_t of) {
    unsigned char secret[SH_SECRET], public_key[SH_SECURE_KEY], key[SH_SECURE_KEY];
    SH_TRY(rebuild(u, of, true, secret));
    // Wrong shares show before they spoil the sum.
    if (crypto_scalarmult_base(public_key, secret) != 0 ||
        memcmp(public_key, u->adverts[of].mask_key, SH_SECURE_KEY) != 0)
        return SH_FAIL(SH_E_PEER, "the shares of client %zu's key give another one", of);
    for (size_t v = 0; v < u->terms->clients; v++) {
        if (!u->came[v]) continue;
        size_t low = v < of ? v : of, high = v < of ? of : v;
        SH_TRY(
            sh_secure_pair_key(secret, u->adverts[v].mask_key, "mask", u->context, low, high, key));
        sh_secure_add_mask(key, v < of, u->sum, u->terms->count);  // v added it where v < of
    }
    sodium_memzero(secret, sizeof secret);
    sodium_memzero(key, sizeof key);
    return SH_OK;
}

/* O(dropped x clients x count) for pair masks: dropping out is what costs. */
static sh_status take_all_off(const unmasking *u) {
    for (size_t i = 0; i < u->terms->clients; i++) {
        if (u->came[i])
            SH_TRY(take_seed_off(u, i));
        else if (u->shared[i])
            SH_TRY(take_pairs_off(u, i));
    }
    return SH_OK;
}

/* The caller's sum changes only when every mask is off. */
sh_status sh_secure_unmask(const sh_secure_terms *terms, const sh_secure_advert *adverts,
                           const bool *there, const bool *shared, const bool *came,
                           sh_secure_reveal *const *reveals, uint32_t *sum) {
    unmasking u = {.terms = terms,
                   .adverts = adverts,
                   .shared = shared,
                   .came = came,
                   .reveals = reveals,
                   .numbers = sh_alloc(terms->clients, sizeof *u.numbers),
                   .shares = sh_alloc(terms->clients, sizeof *u.shares),
                   .sum = sh_alloc(terms->count, sizeof *u.sum)};
    sh_status status = SH_FAIL(SH_E_MEMORY, "out of memory for secure aggregation");
    if (u.numbers != NULL && u.shares != NULL && u.sum != NULL) {
        memcpy(u.sum, sum, terms->count * sizeof *sum);
        sh_secure_context(terms, there, adverts, u.context);
        status = take_all_off(&u);
    }
    if (status == SH_OK) memcpy(sum, u.sum, terms->count * sizeof *sum);
    sh_free(u.numbers);
    sh_free(u.shares);
    sh_free(u.sum);
    return status;
}
