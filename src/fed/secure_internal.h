/* Between the files of secure aggregation: secure_keys.c derives keys and masks, secure_client.c is
 * the client, secure_server.c takes the masks off. */
#ifndef SH_FED_SECURE_INTERNAL_H
#define SH_FED_SECURE_INTERNAL_H

#include "fed/secure.h"

/* Everything that a step is bound to: the terms and the public keys of all who are there. */
void sh_secure_context(const sh_secure_terms *terms, const bool *there,
                       const sh_secure_advert *adverts, unsigned char context_out[SH_SECURE_HASH]);
/* A key for `use` between two clients, from their common X25519 secret. SH_E_PEER: a public key of
 * low order. */
sh_status sh_secure_pair_key(const unsigned char secret[SH_SECURE_KEY],
                             const unsigned char other[SH_SECURE_KEY], const char *use,
                             const unsigned char context[SH_SECURE_HASH], size_t low, size_t high,
                             unsigned char key_out[SH_SECURE_KEY]);
/* values += or -= the stream of a key. */
void sh_secure_add_mask(const unsigned char key[SH_SECURE_KEY], bool subtracts, uint32_t *values,
                        size_t count);
/* What a client signs in step 0, and in step 3. */
void sh_secure_advert_text(const sh_secure_terms *terms, size_t number,
                           const sh_secure_advert *advert, unsigned char hash_out[SH_SECURE_HASH]);
void sh_secure_list_text(const unsigned char context[SH_SECURE_HASH], const bool *came,
                         size_t clients, unsigned char hash_out[SH_SECURE_HASH]);
size_t sh_secure_count(const bool *flags, size_t clients);

#endif
