#include "http/server.h"

#include <arpa/inet.h>
#include <errno.h>
#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <microhttpd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

struct sh_http_server {
    struct MHD_Daemon *daemon;
    sh_http_handler handler;
    char *chain, *key, *authority;  // PEM; the daemon borrows them until it stops
    uint16_t port;                  // the real one, also where any was asked for
};

/* A request while its body arrives. `most` bounds the body; `client` is valid where `known`. */
typedef struct exchange {
    unsigned char *body;
    size_t bytes, capacity, most;
    bool refused;
    char client[SH_SUBJECT];
    bool known;
} exchange;

/* Common name of the peer's certificate, if that is signed by the authority, in its time and made
 * for clients. A client without one is no error here: the handler decides what it may do. */
static bool know_client(struct MHD_Connection *connection, char name_out[SH_SUBJECT]) {
    const union MHD_ConnectionInfo *info =
        MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    if (info == NULL || info->tls_session == NULL) return false;
    gnutls_session_t session = info->tls_session;
    // The purpose keeps a server's certificate from being used as a client's.
    gnutls_typed_vdata_st purpose = {.type = GNUTLS_DT_KEY_PURPOSE_OID,
                                     .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT};
    unsigned faults = 1, count = 0;
    const gnutls_datum_t *chain = gnutls_certificate_get_peers(session, &count);
    if (chain == NULL || count == 0) return false;
    if (gnutls_certificate_verify_peers(session, &purpose, 1, &faults) < 0 || faults != 0)
        return false;
    gnutls_x509_crt_t certificate;
    if (gnutls_x509_crt_init(&certificate) < 0) return false;
    size_t bytes = SH_SUBJECT;
    bool known = gnutls_x509_crt_import(certificate, &chain[0], GNUTLS_X509_FMT_DER) >= 0 &&
                 gnutls_x509_crt_get_dn_by_oid(certificate, GNUTLS_OID_X520_COMMON_NAME, 0, 0,
                                               name_out, &bytes) >= 0;
    gnutls_x509_crt_deinit(certificate);
    return known;
}

/* Queues a short text as the answer. */
static enum MHD_Result answer(struct MHD_Connection *connection, int code, const char *text) {
    struct MHD_Response *response = MHD_create_response_from_buffer(
        strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY);
    if (response == NULL) return MHD_NO;
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)code, response);
    MHD_destroy_response(response);
    return result;
}

/* Parses "bytes=N-" or "bytes=N-M". Other forms are ignored, as the standard allows; the whole is
 * then sent. */
static bool read_range(struct MHD_Connection *connection, size_t bytes, size_t *first_out,
                       size_t *end_out) {
    const char *text = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Range");
    unsigned long long first, last;
    char more;
    if (text == NULL || strncmp(text, "bytes=", 6) != 0) return false;
    // "%c" catches anything behind the range.
    int found = sscanf(text + 6, "%llu-%llu%c", &first, &last, &more);
    if (found == 1) {
        last = bytes - 1;
        if (strchr(text, '-') == NULL || strchr(text, '-')[1] != '\0') return false;
    }
    if (found < 1 || found > 2 || first >= bytes || last < first) return false;
    *first_out = (size_t)first;
    *end_out = last >= bytes ? bytes : (size_t)last + 1;
    return true;
}

/* no-store: an answer holds for one client at one time, so no cache may keep it. */
static void add_headers(struct MHD_Response *response, const sh_http_reply *reply) {
    char text[32];
    MHD_add_response_header(response, "Content-Type",
                            reply->type != NULL ? reply->type : "application/octet-stream");
    MHD_add_response_header(response, "Cache-Control", "no-store");
    if (reply->ranges) MHD_add_response_header(response, "Accept-Ranges", "bytes");
    if (reply->retry_s > 0) {
        snprintf(text, sizeof text, "%d", reply->retry_s);
        MHD_add_response_header(response, "Retry-After", text);
    }
}

/* libmicrohttpd's callback after the answer was sent. */
static void release(void *reply_copy) {
    sh_http_reply *reply = reply_copy;
    reply->release(reply->owner);
    sh_free(reply);
}

/* Body [first, end) of a reply: copied, or borrowed until `release`, so that a model is not copied
 * for each client. */
static struct MHD_Response *respond(const sh_http_reply *reply, size_t first, size_t end) {
    void *data = (char *)(uintptr_t)reply->data + first;
    // Without `release` the data may be gone when the answer is sent.
    if (reply->release == NULL)
        return MHD_create_response_from_buffer(end - first, data, MHD_RESPMEM_MUST_COPY);
    sh_http_reply *copy = sh_alloc(1, sizeof *copy);
    if (copy == NULL) return NULL;
    *copy = *reply;
    struct MHD_Response *response =
        MHD_create_response_from_buffer_with_free_callback_cls(end - first, data, release, copy);
    if (response == NULL) sh_free(copy);
    return response;
}

/* Sends the reply, or a part of it where a range is asked for. The reply's data is released in any
 * case. */
static enum MHD_Result send_reply(struct MHD_Connection *connection, const sh_http_reply *reply) {
    size_t first = 0, end = reply->bytes;
    int code = reply->code;
    bool part = reply->ranges && read_range(connection, reply->bytes, &first, &end);
    struct MHD_Response *response = respond(reply, first, end);
    if (response == NULL) {
        if (reply->release != NULL) reply->release(reply->owner);
        return MHD_NO;
    }
    add_headers(response, reply);
    if (part) {
        char text[80];
        snprintf(text, sizeof text, "bytes %zu-%zu/%zu", first, end - 1, reply->bytes);
        MHD_add_response_header(response, "Content-Range", text);
        code = MHD_HTTP_PARTIAL_CONTENT;
    }
    enum MHD_Result result = MHD_queue_response(connection, (unsigned)code, response);
    MHD_destroy_response(response);
    return result;
}

/* Length that the head announces; 0 without one. Only for an early refusal: take_body counts what
 * really comes. */
static unsigned long long announced_bytes(struct MHD_Connection *connection) {
    const char *text = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "Content-Length");
    return text != NULL ? strtoull(text, NULL, 10) : 0;
}

/* Called when the head is complete: finds out who asks, and refuses a body that is announced too
 * large before it is sent. */
static enum MHD_Result begin(sh_http_server *server, struct MHD_Connection *connection,
                             const char *path, const char *method, void **state) {
    exchange *e = sh_alloc(1, sizeof *e);
    if (e == NULL) return MHD_NO;
    // libmicrohttpd keeps it for the request; on_completed frees it.
    *state = e;
    e->known = know_client(connection, e->client);
    e->most =
        server->handler.body_most(server->handler.self, method, path, e->known ? e->client : NULL);
    // Refused here, the body is not even received.
    if (announced_bytes(connection) <= e->most) return MHD_YES;
    e->refused = true;
    return answer(connection, MHD_HTTP_CONTENT_TOO_LARGE, "the body is too large\n");
}

/* Takes a piece of the body; a body that grows beyond `most` closes the connection. */
static enum MHD_Result take_body(exchange *e, const char *data, size_t *bytes) {
    void *body = e->body;
    if (e->refused || *bytes > e->most - e->bytes) return MHD_NO;  // closes the connection
    if (sh_grow(&body, &e->capacity, e->bytes + *bytes, 1) != SH_OK) return MHD_NO;
    e->body = body;
    memcpy(e->body + e->bytes, data, *bytes);
    e->bytes += *bytes;
    // Tells libmicrohttpd that all of the piece was taken.
    *bytes = 0;
    return MHD_YES;
}

/* libmicrohttpd calls this for the head (no state yet), for each piece of the body, and at the end
 * with no bytes. */
static enum MHD_Result on_access(void *self, struct MHD_Connection *connection, const char *path,
                                 const char *method, __attribute__((unused)) const char *version,
                                 const char *data, size_t *bytes, void **state) {
    sh_http_server *server = self;
    if (*state == NULL) return begin(server, connection, path, method, state);
    // Set by `begin`.
    exchange *e = *state;
    if (*bytes > 0) return take_body(e, data, bytes);
    // The answer is queued already.
    if (e->refused) return MHD_YES;
    sh_http_request request = {.method = method,
                               .path = path,
                               .client = e->known ? e->client : NULL,
                               .body = e->body,
                               .body_bytes = e->bytes};
    sh_http_reply reply = {.code = MHD_HTTP_NOT_FOUND};
    server->handler.handle(server->handler.self, &request, &reply);
    return send_reply(connection, &reply);
}

/* Frees the request's state, however the request ended. */
static void on_completed(__attribute__((unused)) void *self,
                         __attribute__((unused)) struct MHD_Connection *connection, void **state,
                         __attribute__((unused)) enum MHD_RequestTerminationCode code) {
    exchange *e = *state;
    if (e == NULL) return;
    sh_free(e->body);
    sh_free(e);
    *state = NULL;
}

/* Drops libmicrohttpd's messages: they tell of faults of single connections, which are the peers'
 * own and could flood a log. */
static void be_silent(__attribute__((unused)) void *self,
                      __attribute__((unused)) const char *format,
                      __attribute__((unused)) va_list arguments) {}

/* Parses the address to listen on; the sockaddr it points to is the caller's. */
static sh_status read_address(const sh_http_server_options *options, struct sockaddr_in *four,
                              struct sockaddr_in6 *six, const struct sockaddr **address_out) {
    const char *text = options->address != NULL ? options->address : "0.0.0.0";
    *four = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(options->port)};
    *six = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons(options->port)};
    if (inet_pton(AF_INET, text, &four->sin_addr) == 1) {
        *address_out = (const struct sockaddr *)four;
        return SH_OK;
    }
    if (inet_pton(AF_INET6, text, &six->sin6_addr) == 1) {
        *address_out = (const struct sockaddr *)six;
        return SH_OK;
    }
    SH_FAIL(SH_E_USAGE, "'%s' is not an address to listen on", text);
    return sh_error_hint("for example --listen :8443 or --listen 127.0.0.1:8443");
}

/* Starts the daemon: TLS 1.2 or 1.3 only, a thread pool, bounds on connections, idle time and
 * memory per connection, so that clients cannot exhaust the server. */
static sh_status start(sh_http_server *server, const sh_http_server_options *options) {
    struct sockaddr_in four;
    struct sockaddr_in6 six;
    const struct sockaddr *address = NULL;
    SH_TRY(read_address(options, &four, &six, &address));
    // epoll with a pool of threads: idle clients cost no thread.
    unsigned flags = MHD_USE_TLS | MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_ERROR_LOG;
    if (address->sa_family == AF_INET6) flags |= MHD_USE_IPv6;
    server->daemon = MHD_start_daemon(
        flags, options->port, NULL, NULL, on_access, server, MHD_OPTION_EXTERNAL_LOGGER, be_silent,
        NULL, MHD_OPTION_SOCK_ADDR, address, MHD_OPTION_NOTIFY_COMPLETED, on_completed, NULL,
        MHD_OPTION_HTTPS_MEM_KEY, server->key, MHD_OPTION_HTTPS_MEM_CERT, server->chain,
        MHD_OPTION_HTTPS_MEM_TRUST, server->authority, MHD_OPTION_HTTPS_PRIORITIES,
        "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2", MHD_OPTION_CONNECTION_LIMIT,
        options->connections_most, MHD_OPTION_CONNECTION_TIMEOUT, options->idle_s_most,
        MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)(32 << 10), MHD_OPTION_THREAD_POOL_SIZE,
        options->threads, MHD_OPTION_END);
    if (server->daemon == NULL) {
        SH_FAIL(SH_E_IO, "cannot listen on port %d: %s", options->port, strerror(errno));
        return sh_error_hint("is another server there? --listen :PORT takes another one");
    }
    const union MHD_DaemonInfo *info =
        MHD_get_daemon_info(server->daemon, MHD_DAEMON_INFO_BIND_PORT);
    // Port 0 asks for any: the daemon knows which it got.
    server->port = info != NULL ? info->port : options->port;
    return SH_OK;
}

/* The chain sent to clients is the server's certificate followed by the authority's. */
sh_status sh_http_server_start(const sh_http_server_options *options, sh_http_server **server_out) {
    sh_http_server *server = sh_alloc(1, sizeof *server);
    if (server == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a server");
    server->handler = options->handler;
    server->key = sh_strdup(options->credentials->key);
    // The authority's certificate follows the server's, so that clients see the whole chain.
    server->chain = sh_format("%s%s", options->credentials->certificate, options->authority);
    server->authority = sh_strdup(options->authority);
    sh_status status = SH_OK;
    if (server->key == NULL || server->chain == NULL || server->authority == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for a server");
    if (status == SH_OK) status = start(server, options);
    if (status != SH_OK)
        sh_http_server_stop(server);
    else
        *server_out = server;
    return status;
}

/* The daemon stops first, as it borrows the texts. */
void sh_http_server_stop(sh_http_server *server) {
    if (server == NULL) return;
    if (server->daemon != NULL) MHD_stop_daemon(server->daemon);
    // The private key should not stay in freed memory.
    if (server->key != NULL) memset(server->key, 0, strlen(server->key));
    sh_free(server->key);
    sh_free(server->chain);
    sh_free(server->authority);
    sh_free(server);
}

uint16_t sh_http_server_port(const sh_http_server *server) { return server->port; }
