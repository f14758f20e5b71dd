/* Secure aggregation (Bonawitz et al. 2017): the server learns the sum of the clients' vectors
 * modulo 2^32 and nothing else, whoever drops out, as long as `threshold` clients stay. Pure state
 * machines: messages in, messages out; all randomness follows from a seed that the caller draws.
 *
 *   0 advertise    client: two X25519 keys, signed           server: the list of all
 *   1 share        shares of mask key and seed, encrypted    server: each client's shares
 *   2 mask         x + PRG(seed) +- PRG(pair keys)           server: the sum; who has come
 *   3 consent      signature over who has come               server: all signatures
 *   4 unmask       of who has come the seed's share,         server: takes the masks off
 *                  of who dropped out the mask key's
 *
 * A client gives of each other client one kind of share and never both, once. Everything is bound
 * to a context: job, round, attempt, model, size, threshold and all public keys. */
#ifndef SH_FED_SECURE_H
#define SH_FED_SECURE_H

#include <stdbool.h>

#include "fed/shamir.h"

enum {
    SH_SECURE_CLIENTS_MOST = 1024,
    SH_SECURE_HASH = 32,
    SH_SECURE_KEY = 32,
    SH_SECURE_SIGNATURE = 64,
    SH_SECURE_SEALED = 2 * SH_LIMBS * 4 + 16,  // two shares and an authentication tag
};

/* What all agree on before they begin. */
typedef struct sh_secure_terms {
    unsigned char job[SH_SECURE_HASH];  // run, round, attempt and model, hashed by the caller
    size_t clients;                     // numbered from 0
    size_t threshold;                   // at least half of them and one
    size_t count;                       // elements of a vector
    const unsigned char (*signers)[SH_SECURE_KEY];  // (clients) Ed25519 keys that are known
} sh_secure_terms;

typedef struct sh_secure_advert {
    unsigned char seal_key[SH_SECURE_KEY], mask_key[SH_SECURE_KEY];  // X25519, public
    unsigned char signature[SH_SECURE_SIGNATURE];
} sh_secure_advert;

/* From one client to another, through the server. */
typedef struct sh_secure_sealed {
    unsigned char bytes[SH_SECURE_SEALED];
} sh_secure_sealed;

typedef struct sh_secure_reveal {
    bool has_seed, has_key;  // one of them, or none
    sh_secret_share share;
} sh_secure_reveal;

typedef struct sh_secure_client sh_secure_client;

/* `seed` is random and used for this attempt only; `signing` is the Ed25519 secret key (64 bytes)
 * of terms->signers[number]. Keeps nothing of its arguments. */
sh_status sh_secure_client_create(const sh_secure_terms *terms, size_t number,
                                  const unsigned char seed[SH_SECURE_KEY],
                                  const unsigned char signing[64], sh_secure_client **client_out);
void sh_secure_client_destroy(sh_secure_client *client);

/* Each step works once, in this order. SH_E_PEER: the server or a client broke the protocol; the
 * client then takes part no more. `there` and `came` have a flag for each client. */
sh_status sh_secure_client_advertise(sh_secure_client *client, sh_secure_advert *advert_out);
sh_status sh_secure_client_share(sh_secure_client *client, const bool *there,
                                 const sh_secure_advert *adverts, sh_secure_sealed *sealed_out);
/* `there`: who has shared. `sealed[v]` is what client v sent here. `values` becomes what is sent.
 */
sh_status sh_secure_client_mask(sh_secure_client *client, const bool *there,
                                const sh_secure_sealed *sealed, uint32_t *values);
sh_status sh_secure_client_consent(sh_secure_client *client, const bool *came,
                                   unsigned char signature_out[SH_SECURE_SIGNATURE]);
/* `agreed`: whose signatures over the same list are there. */
sh_status sh_secure_client_unmask(sh_secure_client *client, const bool *agreed,
                                  const unsigned char (*signatures)[SH_SECURE_SIGNATURE],
                                  sh_secure_reveal *reveals_out);

/* The server's end: `sum` is the sum of what the clients in `came` sent, of those in `shared`.
 * reveals[u] is NULL for clients that dropped out in the last step. SH_E_PEER: too few are left, or
 * shares that give no key; `sum` is then unchanged. */
sh_status sh_secure_unmask(const sh_secure_terms *terms, const sh_secure_advert *adverts,
                           const bool *there, const bool *shared, const bool *came,
                           sh_secure_reveal *const *reveals, uint32_t *sum);

#endif
