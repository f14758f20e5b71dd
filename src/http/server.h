/* An HTTPS server, by libmicrohttpd with GnuTLS. It speaks TLS only, asks every client for a
 * certificate, and tells the handler who a client is: the common name of a certificate that the
 * given authority has signed, that is in its time and made for clients.
 *
 * The handler runs in a thread of the server's pool, one request at a time for each thread; it sees
 * a request when its body is complete, and says beforehand how large the body may be. */
#ifndef SH_HTTP_SERVER_H
#define SH_HTTP_SERVER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "http/certificates.h"

/* A complete request; everything is borrowed for the call of `handle`. */
typedef struct sh_http_request {
    const char *method, *path;
    const char *client;  // the name in its certificate; NULL: it has none that is valid
    const void *body;
    size_t body_bytes;
} sh_http_request;

/* What is answered. `data` is copied unless `release` is set, which is then called with `owner`
 * when it has been sent. */
typedef struct sh_http_reply {
    int code;
    const char *type;  // NULL: application/octet-stream
    const void *data;
    size_t bytes;
    bool ranges;  // parts of it may be asked for
    int retry_s;  // Retry-After; 0: none
    void (*release)(void *owner);
    void *owner;
} sh_http_reply;

/* What the server asks its owner. Called by several threads at once. */
typedef struct sh_http_handler {
    /* Bytes that the body of such a request may have; 0: it may have none. */
    size_t (*body_most)(void *self, const char *method, const char *path, const char *client);
    void (*handle)(void *self, const sh_http_request *request, sh_http_reply *reply);
    void *self;
} sh_http_handler;

typedef struct sh_http_server_options {
    const char *address;                // to listen on, "0.0.0.0" or "::"; NULL: every IPv4 address
    uint16_t port;                      // 0: any
    const sh_credentials *credentials;  // the server's; its certificate is followed by the
    const char *authority;              // authority's, which also signs those of clients (PEM)
    unsigned threads, connections_most;
    unsigned idle_s_most;  // a connection on which nothing comes is closed
    sh_http_handler handler;
} sh_http_server_options;

typedef struct sh_http_server sh_http_server;

/* Listens until stopped. SH_E_IO if the port is taken. */
sh_status sh_http_server_start(const sh_http_server_options *options, sh_http_server **server_out);
/* Waits until requests under way are answered. */
void sh_http_server_stop(sh_http_server *server);
/* The port in use, also where options.port was 0. */
uint16_t sh_http_server_port(const sh_http_server *server);

#endif
