/* Enrolment: pinning the server's authority by the fingerprint of the join line, making a key, and
 * having it signed for the one-time token. Secrets are overwritten before their memory is freed,
 * and files are readable by their owner alone (secret.c). */
#include "fed/enrol.h"

#include <stdio.h>

#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/file.h"
#include "base/memory.h"
#include "fed/secret.h"
#include "http/certificates.h"

enum { ANSWER_MOST = 64 << 10 };                // bounds what a server can make a client allocate
static const int64_t RENEW_S = 10 * 24 * 3600;  // certificates are valid for 30 days

void sh_fed_identity_fini(sh_fed_identity *identity) {
    sh_free(identity->authority);
    sh_free(identity->client);
    *identity = (sh_fed_identity){0};
}

/* Codes from 500 on are the server's trouble (SH_E_IO: try again), others the request's. Shows the
 * first line of the answer at most, as it comes from outside. */
static sh_status refused(const sh_http_answer *answer, const char *what) {
    char shown[200];
    snprintf(shown, sizeof shown, "%.*s", (int)strcspn((const char *)answer->data, "\n"),
             (const char *)answer->data);
    return SH_FAIL(answer->code >= 500 ? SH_E_IO : SH_E_USAGE, "%s: the server answers %d: %s",
                   what, answer->code, shown);
}

/* 200 with a body is the only good answer of the requests here. */
static sh_status expect(const sh_http_answer *answer, const char *what) {
    if (answer->code == 200 && answer->data != NULL) return SH_OK;
    if (answer->data == NULL)
        return SH_FAIL(SH_E_IO, "%s: the server answers %d", what, answer->code);
    return refused(answer, what);
}

/* The fingerprint came by a channel that the user trusts, which makes the certificate trustworthy.
 */
static sh_status check_fingerprint(const char *certificate, const char *ca) {
    char own[SH_FINGERPRINT];
    if (strncmp(ca, "sha256:", 7) != 0 || strlen(ca) != 7 + SH_FINGERPRINT - 1) {
        SH_FAIL(SH_E_USAGE, "'%.80s' is no fingerprint of an authority", ca);
        return sh_error_hint("--ca sha256:HEX, as the join line has it");
    }
    SH_TRY(sh_certificate_fingerprint(certificate, own));
    if (strcasecmp(own, ca + 7) == 0) return SH_OK;  // hex digits in either case
    SH_FAIL(SH_E_PEER, "the server's authority has the fingerprint sha256:%s, not that of --ca",
            own);
    return sh_error_hint("this is another server than the one that invited you: ask who did");
}

/* The one request without verification: what it brings is public, and checked by its hash. */
static sh_status fetch_authority(const char *path, const sh_http_session_options *server,
                                 const char *ca) {
    sh_http_session_options bare = *server;
    sh_http_session *session = NULL;
    sh_http_answer answer = {0};
    // Nothing to verify with yet, and no key to show.
    bare.authority = bare.certificate = bare.key = NULL;
    SH_TRY(sh_http_session_open(&bare, &session));
    sh_status status =
        sh_http_session_ask(session, "GET", "/v1/ca", NULL, 0, 0, ANSWER_MOST, &answer);
    if (status == SH_OK) status = expect(&answer, "the authority's certificate");
    if (status == SH_OK) status = check_fingerprint((const char *)answer.data, ca);
    if (status == SH_OK) status = sh_secret_write(path, (const char *)answer.data);
    sh_http_answer_fini(&answer);
    sh_http_session_close(session);
    return status;
}

/* Pinned at the first time. Later --ca may be left out, and must agree where it is given. */
static sh_status take_authority(const char *path, const sh_http_session_options *server,
                                const char *ca) {
    char *text = NULL;
    if (!sh_file_exists(path)) {
        if (ca == NULL) {
            SH_FAIL(SH_E_USAGE, "the first time, the server's fingerprint is needed");
            return sh_error_hint("--ca sha256:HEX, as the join line has it");
        }
        return fetch_authority(path, server, ca);
    }
    if (ca == NULL) return SH_OK;
    SH_TRY(sh_secret_read(path, &text));  // the pinned certificate, against the --ca of now
    sh_status status = check_fingerprint(text, ca);
    sh_free(text);
    return status;
}

/* Sends a request behind `prefix` and keeps key and certificate together. */
static sh_status get_signed(sh_http_session *session, const char *path, const char *prefix,
                            const char *key, const char *request, const char *file) {
    sh_http_answer answer = {0};
    char *body = sh_format("%s%s", prefix, request), *both = NULL;
    sh_status status = body != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory");
    if (status == SH_OK)
        status =
            sh_http_session_ask(session, "POST", path, body, strlen(body), 0, ANSWER_MOST, &answer);
    if (status == SH_OK) status = expect(&answer, "the request to join");
    if (status == SH_OK) {
        // Key and certificate in one file: never one without the other.
        both = sh_format("%s%s", key, (const char *)answer.data);
        status = both != NULL ? sh_secret_write(file, both) : SH_FAIL(SH_E_MEMORY, "out of memory");
    }
    if (both != NULL) memset(both, 0, strlen(both));  // the key is in it
    sh_free(both);
    sh_free(body);
    sh_http_answer_fini(&answer);
    return status;
}

/* Key and request are written before they are sent: when the answer is lost, the same request may
 * come again with the same token. `text` is changed: key and request follow one another in it. */
static sh_status pending_request(const char *path, char **text_out) {
    char *key = NULL, *request = NULL;
    if (sh_file_exists(path)) return sh_secret_read(path, text_out);
    SH_TRY(sh_certificate_request(&key, &request));
    *text_out = sh_format("%s%s", key, request);
    memset(key, 0, strlen(key));
    sh_free(key);
    sh_free(request);
    if (*text_out == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory");
    return sh_secret_write(path, *text_out);
}

/* request.pem is removed only after client.pem is on disk, so that a crash in between can repeat
 * the request. */
static sh_status join(const char *folder, const sh_fed_identity *identity,
                      const sh_http_session_options *server, const char *token) {
    char *path = sh_path_join(folder, "request.pem"), *text = NULL;
    char *prefix = sh_format("%s\n", token), *key = NULL;
    sh_http_session_options verified = *server;
    sh_http_session *session = NULL;
    sh_status status = path != NULL && prefix != NULL ? pending_request(path, &text)
                                                      : SH_FAIL(SH_E_MEMORY, "out of memory");
    // From here on the pinned authority must have signed the server.
    verified.authority = identity->authority;
    verified.certificate = verified.key = NULL;
    if (status == SH_OK) status = sh_http_session_open(&verified, &session);
    // GnuTLS writes this header.
    char *request = text != NULL ? strstr(text, "-----BEGIN NEW CERTIFICATE") : NULL;
    if (status == SH_OK && request == NULL)
        status = SH_FAIL(SH_E_FORMAT, "'%s' holds no certificate request", path);
    if (status == SH_OK) {
        // The private part of the file; it is not sent.
        key = sh_alloc((size_t)(request - text) + 1, 1);
        if (key != NULL) memcpy(key, text, (size_t)(request - text));
        status = key != NULL
                     ? get_signed(session, "/v1/join", prefix, key, request, identity->client)
                     : SH_FAIL(SH_E_MEMORY, "out of memory");
    }
    if (status == SH_OK) remove(path);
    sh_http_session_close(session);
    if (text != NULL) memset(text, 0, strlen(text));  // sh_secret_read made a copy of the key
    sh_free(text);
    sh_free(key);
    sh_free(prefix);
    sh_free(path);
    return status;
}

/* Paths in `identity_out` are the caller's to finish. Needs the network only where something is
 * missing. */
sh_status sh_fed_enrol(const char *folder, const sh_http_session_options *server, const char *token,
                       const char *ca, sh_fed_identity *identity_out) {
    sh_fed_identity identity = {.authority = sh_path_join(folder, "authority.pem"),
                                .client = sh_path_join(folder, "client.pem")};
    sh_status status = SH_OK;
    if (identity.authority == NULL || identity.client == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for paths");
    if (status == SH_OK) status = sh_make_folders(folder);
    if (status == SH_OK) status = take_authority(identity.authority, server, ca);
    if (status == SH_OK && !sh_file_exists(identity.client)) {
        if (token == NULL) {
            SH_FAIL(SH_E_USAGE, "'%s' holds no certificate of a client", folder);
            status = sh_error_hint("the first time, give the token of the join line");
        } else {
            status = join(folder, &identity, server, token);
        }
    }
    if (status != SH_OK)
        sh_fed_identity_fini(&identity);
    else
        *identity_out = identity;
    return status;
}

/* Under the old certificate, with a new key. Does nothing while more than RENEW_S are left. */
sh_status sh_fed_renew(const sh_fed_identity *identity, sh_http_session *session) {
    char *text = NULL, *key = NULL, *request = NULL;
    int64_t expires = 0;
    SH_TRY(sh_secret_read(identity->client, &text));
    sh_status status = sh_certificate_expiry(text, &expires);
    memset(text, 0, strlen(text));  // key and certificate: overwritten at once
    sh_free(text);
    if (status != SH_OK || expires - (int64_t)time(NULL) > RENEW_S) return status;
    status = sh_certificate_request(&key, &request);
    if (status == SH_OK)
        // No token: the old certificate names the client.
        status = get_signed(session, "/v1/renew", "", key, request, identity->client);
    if (key != NULL) memset(key, 0, strlen(key));
    sh_free(key);
    sh_free(request);
    return status;
}
