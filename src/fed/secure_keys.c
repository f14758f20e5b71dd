/* Hashes, keys and masks of secure aggregation: BLAKE2b over unambiguous encodings (numbers in 8
 * bytes, texts behind their length), X25519 for pairs, ChaCha20 as the generator of masks. */
#include <sodium.h>
#include <string.h>

#include "fed/secure_internal.h"

static void put(crypto_generichash_state *state, const void *data, size_t bytes) {
    crypto_generichash_update(state, data, bytes);
}

/* Numbers as 8 little-endian bytes on any machine. */
static void put_number(crypto_generichash_state *state, uint64_t number) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; i++) bytes[i] = (unsigned char)(number >> (8 * i));
    put(state, bytes, sizeof bytes);
}

/* The use first, so that no hash for one use is that of another. */
static void begin(crypto_generichash_state *state, const char *use) {
    crypto_generichash_init(state, NULL, 0, SH_SECURE_HASH);
    put_number(state, strlen(use));
    put(state, use, strlen(use));
}

/* Client and server must agree on all of these, or their keys differ and nothing unmasks. */
static void put_terms(crypto_generichash_state *state, const sh_secure_terms *terms) {
    put(state, terms->job, SH_SECURE_HASH);
    put_number(state, terms->clients);
    put_number(state, terms->threshold);
    put_number(state, terms->count);
}

/* Names the round's terms, and who is there with which keys: keys and seals of another round
 * differ. */
void sh_secure_context(const sh_secure_terms *terms, const bool *there,
                       const sh_secure_advert *adverts, unsigned char context_out[SH_SECURE_HASH]) {
    crypto_generichash_state state;
    begin(&state, "context");
    put_terms(&state, terms);
    for (size_t i = 0; i < terms->clients; i++) {
        put_number(&state, there[i]);  // the flag separates an absent client from keys
        if (!there[i]) continue;
        put(&state, adverts[i].seal_key, SH_SECURE_KEY);
        put(&state, adverts[i].mask_key, SH_SECURE_KEY);
    }
    crypto_generichash_final(&state, context_out, SH_SECURE_HASH);
}

/* Both ends compute the same key, as the numbers are in order of low and high. A point of low order
 * would make the secret predictable. */
sh_status sh_secure_pair_key(const unsigned char secret[SH_SECURE_KEY],
                             const unsigned char other[SH_SECURE_KEY], const char *use,
                             const unsigned char context[SH_SECURE_HASH], size_t low, size_t high,
                             unsigned char key_out[SH_SECURE_KEY]) {
    unsigned char common[SH_SECURE_KEY];
    crypto_generichash_state state;
    if (crypto_scalarmult(common, secret, other) != 0)
        return SH_FAIL(SH_E_PEER, "client %zu or %zu has a public key of low order", low, high);
    begin(&state, use);
    put(&state, context, SH_SECURE_HASH);
    put_number(&state, low);
    put_number(&state, high);
    put(&state, common, sizeof common);
    crypto_generichash_final(&state, key_out, SH_SECURE_KEY);
    // X25519 output is no uniform key: only its hash is used.
    sodium_memzero(common, sizeof common);
    return SH_OK;
}

/* The nonce counts pieces, so that a mask of any length needs little memory. Arithmetic is modulo
 * 2^32. */
void sh_secure_add_mask(const unsigned char key[SH_SECURE_KEY], bool subtracts, uint32_t *values,
                        size_t count) {
    enum { PIECE = 1024 };
    uint32_t mask[PIECE];
    unsigned char nonce[crypto_stream_chacha20_NONCEBYTES];
    for (size_t at = 0; at < count; at += PIECE) {
        uint64_t piece = at / PIECE;
        size_t some = count - at < PIECE ? count - at : PIECE;
        // Each piece has its own nonce: no keystream is used twice.
        memcpy(nonce, &piece, sizeof nonce);
        crypto_stream_chacha20((unsigned char *)mask, sizeof mask, nonce, key);
        for (size_t i = 0; i < some; i++)
            // Modulo 2^32, as the sum is.
            values[at + i] = subtracts ? values[at + i] - mask[i] : values[at + i] + mask[i];
    }
    sodium_memzero(mask, sizeof mask);
}

/* What a client signs of its keys: the terms and its number, so that they serve nowhere else. */
void sh_secure_advert_text(const sh_secure_terms *terms, size_t number,
                           const sh_secure_advert *advert, unsigned char hash_out[SH_SECURE_HASH]) {
    crypto_generichash_state state;
    begin(&state, "advert");
    put_terms(&state, terms);
    put_number(&state, number);
    put(&state, advert->seal_key, SH_SECURE_KEY);
    put(&state, advert->mask_key, SH_SECURE_KEY);
    crypto_generichash_final(&state, hash_out, SH_SECURE_HASH);
}

/* What a client signs of the list of who came, for this context alone. */
void sh_secure_list_text(const unsigned char context[SH_SECURE_HASH], const bool *came,
                         size_t clients, unsigned char hash_out[SH_SECURE_HASH]) {
    crypto_generichash_state state;
    begin(&state, "came");
    put(&state, context, SH_SECURE_HASH);
    for (size_t i = 0; i < clients; i++) put_number(&state, came[i]);
    crypto_generichash_final(&state, hash_out, SH_SECURE_HASH);
}

/* Clients whose flag is set. */
size_t sh_secure_count(const bool *flags, size_t clients) {
    size_t count = 0;
    for (size_t i = 0; i < clients; i++) count += flags[i];
    return count;
}
