/* How a client becomes known to a server, and stays so: the authority's certificate is fetched once
 * and must have the fingerprint of the join line; the key is made here and never leaves; the server
 * signs it for the one-time token. A certificate that soon expires is renewed.
 *
 * In the client's folder: authority.pem, and client.pem with key and certificate. */
#ifndef SH_FED_ENROL_H
#define SH_FED_ENROL_H

#include "http/session.h"

typedef struct sh_fed_identity {
    char *authority, *client;  // paths
} sh_fed_identity;

/* `token` may be NULL where the folder holds a certificate already, `ca` ("sha256:HEX") where it
 * holds the authority's. SH_E_USAGE: the server refuses; SH_E_PEER: the fingerprint is another. */
sh_status sh_fed_enrol(const char *folder, const sh_http_session_options *server, const char *token,
                       const char *ca, sh_fed_identity *identity_out);
/* Renews a certificate of which less than ten days are left. */
sh_status sh_fed_renew(const sh_fed_identity *identity, sh_http_session *session);
void sh_fed_identity_fini(sh_fed_identity *identity);

#endif
