#include "http/certificates.h"

#include <gnutls/crypto.h>
#include <arpa/inet.h>
#include <gnutls/x509.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"

/* Lifetimes begin an hour earlier, since the clocks of two machines differ. */
static const int64_t YEAR_S = 365LL * 24 * 3600, EARLIER_S = 3600;  // for clocks that differ

/* Reports what could not be done, with GnuTLS's reason. */
static sh_status fail(const char *what, int code) {
    return SH_FAIL(SH_E_IO, "cannot %s: %s", what, gnutls_strerror(code));
}

/* Runs a GnuTLS function, which returns a negative code on failure, and leaves by `out` if it
 * fails. */
#define TLS_TRY_OUT(what, expression)     \
    do {                                  \
        int code_ = (expression);         \
        if (code_ < 0) {                  \
            status = fail((what), code_); \
            goto out;                     \
        }                                 \
    } while (0)

/* Overwrites the private key before it is freed. */
void sh_credentials_fini(sh_credentials *credentials) {
    if (credentials->key != NULL) memset(credentials->key, 0, strlen(credentials->key));
    sh_free(credentials->key);
    sh_free(credentials->certificate);
    *credentials = (sh_credentials){0};
}

/* Text as GnuTLS takes it; borrowed. */
static gnutls_datum_t datum(const char *text) {
    return (gnutls_datum_t){.data = (unsigned char *)(uintptr_t)text,
                            .size = (unsigned)strlen(text)};
}

/* Moves a text of GnuTLS into memory of ours; GnuTLS's copy is overwritten, as it may be a key. */
static sh_status keep_text(gnutls_datum_t *from, char **text_out) {
    char *text = sh_alloc(from->size + 1, 1);
    if (text != NULL) memcpy(text, from->data, from->size);
    gnutls_memset(from->data, 0, from->size);
    gnutls_free(from->data);
    if (text == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a certificate");
    *text_out = text;
    return SH_OK;
}

/* A new ECDSA key on P-256, which every TLS library knows. */
static sh_status make_key(gnutls_x509_privkey_t *key_out) {
    gnutls_x509_privkey_t key = NULL;
    // GnuTLS takes a curve in place of a size.
    unsigned bits = GNUTLS_CURVE_TO_BITS(GNUTLS_ECC_CURVE_SECP256R1);
    int code = gnutls_x509_privkey_init(&key);
    if (code >= 0) code = gnutls_x509_privkey_generate(key, GNUTLS_PK_ECDSA, bits, 0);
    if (code < 0) {
        if (key != NULL) gnutls_x509_privkey_deinit(key);
        return fail("make a key", code);
    }
    *key_out = key;
    return SH_OK;
}

/* A private key as PEM, not encrypted: whoever stores it has to protect it. */
static sh_status print_key(gnutls_x509_privkey_t key, char **pem_out) {
    gnutls_datum_t out;
    int code =
        gnutls_x509_privkey_export2_pkcs8(key, GNUTLS_X509_FMT_PEM, NULL, GNUTLS_PKCS_PLAIN, &out);
    return code < 0 ? fail("print a key", code) : keep_text(&out, pem_out);
}

/* A certificate as PEM. */
static sh_status print_certificate(gnutls_x509_crt_t certificate, char **pem_out) {
    gnutls_datum_t out;
    int code = gnutls_x509_crt_export2(certificate, GNUTLS_X509_FMT_PEM, &out);
    return code < 0 ? fail("print a certificate", code) : keep_text(&out, pem_out);
}

/* A key from PEM. `*key_out` may be set on failure too; the caller frees it. */
static sh_status read_key(const char *pem, gnutls_x509_privkey_t *key_out) {
    gnutls_datum_t in = datum(pem);
    int code = gnutls_x509_privkey_init(key_out);
    if (code >= 0) code = gnutls_x509_privkey_import(*key_out, &in, GNUTLS_X509_FMT_PEM);
    return code < 0 ? fail("read a key", code) : SH_OK;
}

/* A certificate from PEM. `*certificate_out` may be set on failure too. */
static sh_status read_certificate(const char *pem, gnutls_x509_crt_t *certificate_out) {
    gnutls_datum_t in = datum(pem);
    int code = gnutls_x509_crt_init(certificate_out);
    if (code >= 0) code = gnutls_x509_crt_import(*certificate_out, &in, GNUTLS_X509_FMT_PEM);
    return code < 0 ? fail("read a certificate", code) : SH_OK;
}

/* Sets version, random serial number, name and lifetime of a new certificate. 128 random bits need
 * no list of numbers in use. */
static int describe(gnutls_x509_crt_t certificate, const char *name, int64_t seconds) {
    unsigned char serial[16];
    time_t now = time(NULL);  // certificates need the time of day
    int code = gnutls_rnd(GNUTLS_RND_NONCE, serial, sizeof serial);
    // DER integers are signed: the top bit would make it negative.
    serial[0] = (unsigned char)((serial[0] & 0x7f) | 1);  // positive, and never zero
    if (code >= 0) code = gnutls_x509_crt_set_version(certificate, 3);
    if (code >= 0) code = gnutls_x509_crt_set_serial(certificate, serial, sizeof serial);
    if (code >= 0)
        code = gnutls_x509_crt_set_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, name,
                                             (unsigned)strlen(name));
    if (code >= 0) code = gnutls_x509_crt_set_activation_time(certificate, now - EARLIER_S);
    if (code >= 0) code = gnutls_x509_crt_set_expiration_time(certificate, now + seconds);
    return code;
}

/* Self-signed; may sign certificates but no further authorities (path length 0). */
sh_status sh_authority_make(sh_credentials *authority_out) {
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t certificate = NULL;
    sh_credentials made = {0};
    sh_status status = make_key(&key);
    if (status != SH_OK) goto out;
    TLS_TRY_OUT("make a certificate", gnutls_x509_crt_init(&certificate));
    TLS_TRY_OUT("make a certificate", describe(certificate, "Shoal federation", 10 * YEAR_S));
    TLS_TRY_OUT("make a certificate", gnutls_x509_crt_set_key(certificate, key));
    TLS_TRY_OUT("make a certificate", gnutls_x509_crt_set_basic_constraints(certificate, 1, 0));
    TLS_TRY_OUT(
        "make a certificate",
        gnutls_x509_crt_set_key_usage(certificate, GNUTLS_KEY_KEY_CERT_SIGN | GNUTLS_KEY_CRL_SIGN));
    TLS_TRY_OUT("sign a certificate",
                gnutls_x509_crt_sign2(certificate, certificate, key, GNUTLS_DIG_SHA256, 0));
    SH_TRY_OUT(print_key(key, &made.key));
    SH_TRY_OUT(print_certificate(certificate, &made.certificate));
    *authority_out = made;
    made = (sh_credentials){0};
out:
    sh_credentials_fini(&made);
    if (certificate != NULL) gnutls_x509_crt_deinit(certificate);
    if (key != NULL) gnutls_x509_privkey_deinit(key);
    return status;
}

/* Signs a described certificate with the authority's key, for one purpose only: a client's
 * certificate cannot be used to pose as a server. */
static sh_status sign(const sh_credentials *authority, gnutls_x509_crt_t certificate,
                      const char *purpose) {
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t issuer = NULL;
    sh_status status = read_key(authority->key, &key);
    if (status != SH_OK) goto out;
    SH_TRY_OUT(read_certificate(authority->certificate, &issuer));
    TLS_TRY_OUT("make a certificate", gnutls_x509_crt_set_key_purpose_oid(certificate, purpose, 0));
    TLS_TRY_OUT("make a certificate",
                gnutls_x509_crt_set_key_usage(certificate, GNUTLS_KEY_DIGITAL_SIGNATURE));
    TLS_TRY_OUT("make a certificate", gnutls_x509_crt_set_basic_constraints(certificate, 0, -1));
    TLS_TRY_OUT("sign a certificate",
                gnutls_x509_crt_sign2(certificate, issuer, key, GNUTLS_DIG_SHA256, 0));
out:
    if (issuer != NULL) gnutls_x509_crt_deinit(issuer);
    if (key != NULL) gnutls_x509_privkey_deinit(key);
    return status;
}

/* Adds a name of the server. A numeric address is another kind of name than a host, and clients
 * compare by kind. */
static int add_host(gnutls_x509_crt_t certificate, const char *host) {
    unsigned char address[16];
    unsigned bytes = 0;
    struct in6_addr *six = (struct in6_addr *)(void *)address;
    if (inet_pton(AF_INET, host, address) == 1) bytes = 4;
    if (bytes == 0 && inet_pton(AF_INET6, host, six) == 1) bytes = 16;
    if (bytes > 0)
        return gnutls_x509_crt_set_subject_alt_name(certificate, GNUTLS_SAN_IPADDRESS, address,
                                                    bytes, GNUTLS_FSAN_APPEND);
    return gnutls_x509_crt_set_subject_alt_name(certificate, GNUTLS_SAN_DNSNAME, host,
                                                (unsigned)strlen(host), GNUTLS_FSAN_APPEND);
}

/* The hosts are all names that clients may use; a client refuses a server under any other. */
sh_status sh_certificate_make_server(const sh_credentials *authority, const char *const *hosts,
                                     size_t count, sh_credentials *server_out) {
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crt_t certificate = NULL;
    sh_credentials made = {0};
    sh_status status = make_key(&key);
    if (status != SH_OK) goto out;
    TLS_TRY_OUT("make a certificate", gnutls_x509_crt_init(&certificate));
    TLS_TRY_OUT("make a certificate", describe(certificate, "Shoal server", YEAR_S));
    TLS_TRY_OUT("make a certificate", gnutls_x509_crt_set_key(certificate, key));
    for (size_t i = 0; i < count; i++)
        TLS_TRY_OUT("name a host in a certificate", add_host(certificate, hosts[i]));
    SH_TRY_OUT(sign(authority, certificate, GNUTLS_KP_TLS_WWW_SERVER));
    SH_TRY_OUT(print_key(key, &made.key));
    SH_TRY_OUT(print_certificate(certificate, &made.certificate));
    *server_out = made;
    made = (sh_credentials){0};
out:
    sh_credentials_fini(&made);
    if (certificate != NULL) gnutls_x509_crt_deinit(certificate);
    if (key != NULL) gnutls_x509_privkey_deinit(key);
    return status;
}

/* The private key stays with the client; only the request leaves it. */
sh_status sh_certificate_request(char **key_out, char **request_out) {
    gnutls_x509_privkey_t key = NULL;
    gnutls_x509_crq_t request = NULL;
    gnutls_datum_t printed;
    char *key_pem = NULL;
    sh_status status = make_key(&key);
    if (status != SH_OK) goto out;
    TLS_TRY_OUT("make a request", gnutls_x509_crq_init(&request));
    TLS_TRY_OUT("make a request", gnutls_x509_crq_set_version(request, 1));
    TLS_TRY_OUT("make a request", gnutls_x509_crq_set_key(request, key));
    TLS_TRY_OUT("sign a request", gnutls_x509_crq_sign2(request, key, GNUTLS_DIG_SHA256, 0));
    SH_TRY_OUT(print_key(key, &key_pem));
    TLS_TRY_OUT("print a request", gnutls_x509_crq_export2(request, GNUTLS_X509_FMT_PEM, &printed));
    SH_TRY_OUT(keep_text(&printed, request_out));
    *key_out = key_pem;
    key_pem = NULL;
out:
    sh_free(key_pem);
    if (request != NULL) gnutls_x509_crq_deinit(request);
    if (key != NULL) gnutls_x509_privkey_deinit(key);
    return status;
}

/* Takes only the public key from the request. Its signature proves that the client has the private
 * key; the name is the server's choice. */
sh_status sh_certificate_sign(const sh_credentials *authority, const char *pem, const char *name,
                              int64_t seconds, char **certificate_out) {
    gnutls_x509_crq_t request = NULL;
    gnutls_x509_crt_t certificate = NULL;
    gnutls_datum_t in = datum(pem);
    unsigned bits = 0;
    sh_status status = SH_OK;
    TLS_TRY_OUT("read a certificate request", gnutls_x509_crq_init(&request));
    // All three checks fail alike: the text comes from outside and deserves no details.
    if (gnutls_x509_crq_import(request, &in, GNUTLS_X509_FMT_PEM) < 0 ||
        gnutls_x509_crq_verify(request, 0) < 0 ||
        gnutls_x509_crq_get_pk_algorithm(request, &bits) != GNUTLS_PK_ECDSA) {
        status = SH_FAIL(SH_E_FORMAT,
                         "this is no certificate request with an ECDSA key that "
                         "signed it");
        goto out;
    }
    TLS_TRY_OUT("make a certificate", gnutls_x509_crt_init(&certificate));
    TLS_TRY_OUT("make a certificate", gnutls_x509_crt_set_crq(certificate, request));
    TLS_TRY_OUT("make a certificate", describe(certificate, name, seconds));
    SH_TRY_OUT(sign(authority, certificate, GNUTLS_KP_TLS_WWW_CLIENT));
    SH_TRY_OUT(print_certificate(certificate, certificate_out));
out:
    if (certificate != NULL) gnutls_x509_crt_deinit(certificate);
    if (request != NULL) gnutls_x509_crq_deinit(request);
    return status;
}

/* SHA-256 over the DER form, which does not depend on how the PEM text is laid out. */
sh_status sh_certificate_fingerprint(const char *pem, char hex_out[SH_FINGERPRINT]) {
    gnutls_x509_crt_t certificate = NULL;
    unsigned char digest[32];
    size_t bytes = sizeof digest;
    SH_TRY(read_certificate(pem, &certificate));
    int code = gnutls_x509_crt_get_fingerprint(certificate, GNUTLS_DIG_SHA256, digest, &bytes);
    gnutls_x509_crt_deinit(certificate);
    if (code < 0) return fail("read a certificate", code);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(hex_out + 2 * i, 3, "%02x", digest[i]);
    return SH_OK;
}

sh_status sh_certificate_expiry(const char *pem, int64_t *unix_s_out) {
    gnutls_x509_crt_t certificate = NULL;
    SH_TRY(read_certificate(pem, &certificate));
    *unix_s_out = (int64_t)gnutls_x509_crt_get_expiration_time(certificate);
    gnutls_x509_crt_deinit(certificate);
    return SH_OK;
}
