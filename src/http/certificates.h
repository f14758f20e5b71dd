/* Keys and certificates of a federated server and its clients, by GnuTLS: an authority that the
 * server makes for itself, the server's own certificate, and those of clients, whose keys never
 * leave them. ECDSA on P-256; everything is PEM text, which the caller frees with sh_free.
 *
 * GnuTLS is included in src/http/ only. */
#ifndef SH_HTTP_CERTIFICATES_H
#define SH_HTTP_CERTIFICATES_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum { SH_FINGERPRINT = 65, SH_SUBJECT = 64 };  // characters, with the final zero

typedef struct sh_credentials {
    char *key, *certificate;  // PEM
} sh_credentials;

/* Frees both texts; the key is overwritten first. */
void sh_credentials_fini(sh_credentials *credentials);

/* A new authority, for ten years. */
sh_status sh_authority_make(sh_credentials *authority_out);
/* A server's certificate for these host names and addresses, for a year. */
sh_status sh_certificate_make_server(const sh_credentials *authority, const char *const *hosts,
                                     size_t count, sh_credentials *server_out);
/* A client's new key, and the request to sign it. */
sh_status sh_certificate_request(char **key_out, char **request_out);
/* Signs a request, whose own signature must be right, for a client of this name. What else the
 * request asks for is ignored. */
sh_status sh_certificate_sign(const sh_credentials *authority, const char *pem, const char *name,
                              int64_t seconds, char **certificate_out);

/* SHA-256 of a certificate's DER form, in hex. */
sh_status sh_certificate_fingerprint(const char *pem, char hex_out[SH_FINGERPRINT]);
/* End of a certificate's lifetime in seconds since 1970. */
sh_status sh_certificate_expiry(const char *pem, int64_t *unix_s_out);

#endif
