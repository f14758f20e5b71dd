/* Requests to one HTTPS server that is known by its authority, by libcurl: one connection that is
 * kept, verification of the server always, a certificate of the client's own, no redirects, bounds
 * on time and on what is taken in. Proxies are those of the environment, as libcurl reads it. */
#ifndef SH_HTTP_SESSION_H
#define SH_HTTP_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* Settings of a session; all texts are copied. */
typedef struct sh_http_session_options {
    const char *base;       // "https://host:8443"
    const char *authority;  // file with the certificates that sign the server's. NULL: the session
                            // is for public data alone that the caller checks by its hash
    const char *certificate, *key;  // files of the client; NULL: it has none
    bool (*stop)(void *self);       // asked now and then: true ends the request; NULL: never
    void *stop_self;
} sh_http_session_options;

/* An answer; its memory is kept from request to request. */
typedef struct sh_http_answer {
    int code;
    unsigned char *data;  // with a zero behind it, which does not count
    size_t bytes, capacity;
} sh_http_answer;

typedef struct sh_http_session sh_http_session;

/* One task at a time may use a session. */
sh_status sh_http_session_open(const sh_http_session_options *options,
                               sh_http_session **session_out);
void sh_http_session_close(sh_http_session *session);

/* One request, with `body` unless NULL. Takes at most `most` bytes in; `from` above 0 asks for the
 * rest of a file. An answer of any code is SH_OK. SH_E_IO: there was none. SH_E_INTERRUPTED: it was
 * stopped. `answer` may be used again, then ended. */
sh_status sh_http_session_ask(sh_http_session *session, const char *method, const char *path,
                              const void *body, size_t body_bytes, size_t from, size_t most,
                              sh_http_answer *answer);
void sh_http_answer_fini(sh_http_answer *answer);

#endif
