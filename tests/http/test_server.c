/* The HTTPS server against the session of clients, on loopback: who is let in, what is taken. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "http/server.h"
#include "http/session.h"

enum { BODY_MOST = 1000, FILE_BYTES = 100000 };

typedef struct world {
    sh_credentials authority, server, other;
    sh_http_server *http;
    char base[64], folder[512], ca[600], client[600];
    unsigned char file[FILE_BYTES];
} world;

static size_t body_most(void *self, const char *method, const char *path, const char *client) {
    (void)self;
    (void)client;
    return strcmp(method, "POST") == 0 && strcmp(path, "/body") == 0 ? BODY_MOST : 0;
}

/* Tells who asks; /file is a file; /body tells how long it was. */
static void handle(void *self, const sh_http_request *request, sh_http_reply *reply) {
    world *w = self;
    static _Thread_local char text[64];
    *reply = (sh_http_reply){.code = 200, .data = text};
    if (strcmp(request->path, "/file") == 0) {
        reply->data = w->file;
        reply->bytes = FILE_BYTES;
        reply->ranges = true;
        return;
    }
    snprintf(text, sizeof text, "%s %zu", request->client != NULL ? request->client : "nobody",
             request->body_bytes);
    reply->bytes = strlen(text);
}

static void put_file(const char *path, const char *a, const char *b) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(a, file);
    fputs(b, file);
    assert_int_equal(fclose(file), 0);
}

static void make_client(world *w, const sh_credentials *by, const char *name, int64_t seconds) {
    char *key, *request, *certificate;
    CHECK_OK(sh_certificate_request(&key, &request));
    CHECK_OK(sh_certificate_sign(by, request, name, seconds, &certificate));
    put_file(w->client, key, certificate);
    sh_free(key);
    sh_free(request);
    sh_free(certificate);
}

static world *start(void) {
    static const char *const hosts[] = {"localhost", "127.0.0.1"};
    world *w = sh_alloc(1, sizeof *w);
    snprintf(w->folder, sizeof w->folder, "%s", sh_test_folder("http-server"));
    snprintf(w->ca, sizeof w->ca, "%s/ca.pem", w->folder);
    snprintf(w->client, sizeof w->client, "%s/client.pem", w->folder);
    for (size_t i = 0; i < FILE_BYTES; i++) w->file[i] = (unsigned char)(i * i >> 3);
    CHECK_OK(sh_authority_make(&w->authority));
    CHECK_OK(sh_authority_make(&w->other));
    CHECK_OK(sh_certificate_make_server(&w->authority, hosts, 2, &w->server));
    put_file(w->ca, w->authority.certificate, "");
    sh_http_server_options options = {
        .address = "127.0.0.1",
        .credentials = &w->server,
        .authority = w->authority.certificate,
        .threads = 2,
        .connections_most = 100,
        .idle_s_most = 20,
        .handler = {.body_most = body_most, .handle = handle, .self = w}};
    CHECK_OK(sh_http_server_start(&options, &w->http));
    snprintf(w->base, sizeof w->base, "https://127.0.0.1:%d", sh_http_server_port(w->http));
    return w;
}

static void stop(world *w) {
    sh_http_server_stop(w->http);
    sh_credentials_fini(&w->authority);
    sh_credentials_fini(&w->server);
    sh_credentials_fini(&w->other);
    sh_free(w);
}

static sh_status ask(const world *w, bool with_client, const char *method, const char *path,
                     const char *body, size_t bytes, size_t from, sh_http_answer *answer) {
    sh_http_session_options options = {.base = w->base, .authority = w->ca};
    sh_http_session *session = NULL;
    if (with_client) options.certificate = options.key = w->client;
    CHECK_OK(sh_http_session_open(&options, &session));
    sh_status status =
        sh_http_session_ask(session, method, path, body, bytes, from, 1 << 20, answer);
    sh_http_session_close(session);
    return status;
}

static void expect_who(const world *w, bool with_client, const char *who) {
    sh_http_answer answer = {0};
    CHECK_OK(ask(w, with_client, "GET", "/", NULL, 0, 0, &answer));
    assert_int_equal(answer.code, 200);
    assert_string_equal((const char *)answer.data, who);
    sh_http_answer_fini(&answer);
}

TEST(server, knows_a_client_by_the_certificate_that_its_authority_signed) {
    world *w = start();
    make_client(w, &w->authority, "client-7", 3600);
    expect_who(w, true, "client-7 0");
    expect_who(w, false, "nobody 0");
    stop(w);
}

/* Of another authority, expired, or meant for servers: the peer is nobody. */
TEST(server, knows_nobody_by_any_other_certificate) {
    world *w = start();
    make_client(w, &w->other, "client-7", 3600);
    expect_who(w, true, "nobody 0");
    make_client(w, &w->authority, "client-7", -60);
    expect_who(w, true, "nobody 0");
    put_file(w->client, w->server.key, w->server.certificate);
    expect_who(w, true, "nobody 0");
    stop(w);
}

TEST(server, of_another_authority_is_refused_by_the_client) {
    world *w = start();
    sh_http_answer answer = {0};
    put_file(w->ca, w->other.certificate, "");
    CHECK_FAILS(SH_E_IO, "cannot reach", ask(w, false, "GET", "/", NULL, 0, 0, &answer));
    assert_int_equal(answer.code, 0);
    sh_http_answer_fini(&answer);
    stop(w);
}

TEST(server, under_another_name_is_refused_by_the_client) {
    world *w = start();
    sh_http_answer answer = {0};
    snprintf(w->base, sizeof w->base, "https://127.0.0.2:%d", sh_http_server_port(w->http));
    CHECK_FAILS(SH_E_IO, "cannot reach", ask(w, false, "GET", "/", NULL, 0, 0, &answer));
    sh_http_answer_fini(&answer);
    stop(w);
}

TEST(server, refuses_bodies_that_are_larger_than_the_path_allows) {
    world *w = start();
    char *body = sh_alloc(1 << 20, 1);
    sh_http_answer answer = {0};
    CHECK_OK(ask(w, false, "POST", "/body", body, BODY_MOST, 0, &answer));
    assert_string_equal((const char *)answer.data, "nobody 1000");
    static const size_t too_large[] = {BODY_MOST + 1, 1 << 20};
    for (int i = 0; i < 2; i++) {
        sh_status status = ask(w, false, "POST", "/body", body, too_large[i], 0, &answer);
        assert_true(status == SH_E_IO || answer.code == 413);  // or the connection was closed
    }
    sh_status status = ask(w, false, "POST", "/", body, 1, 0, &answer);
    assert_true(status == SH_E_IO || answer.code == 413);
    expect_who(w, false, "nobody 0");  // and goes on
    sh_http_answer_fini(&answer);
    sh_free(body);
    stop(w);
}

TEST(server, refuses_heads_that_are_too_large) {
    world *w = start();
    char *path = sh_alloc(100001, 1);
    sh_http_answer answer = {0};
    memset(path, 'a', 100000);
    path[0] = '/';
    sh_status status = ask(w, false, "GET", path, NULL, 0, 0, &answer);
    assert_true(status == SH_E_IO || answer.code == 414 || answer.code == 431);
    expect_who(w, false, "nobody 0");
    sh_http_answer_fini(&answer);
    sh_free(path);
    stop(w);
}

TEST(server, gives_the_rest_of_a_file_from_any_byte) {
    world *w = start();
    sh_http_answer answer = {0};
    static const size_t froms[] = {0, 1, 4096, FILE_BYTES - 1};
    for (size_t i = 0; i < SH_COUNT(froms); i++) {
        CHECK_OK(ask(w, false, "GET", "/file", NULL, 0, froms[i], &answer));
        assert_int_equal(answer.code, froms[i] > 0 ? 206 : 200);
        assert_int_equal(answer.bytes, FILE_BYTES - froms[i]);
        assert_memory_equal(answer.data, w->file + froms[i], answer.bytes);
    }
    sh_http_answer_fini(&answer);
    stop(w);
}

TEST(session, takes_no_more_than_it_wants_and_speaks_https_alone) {
    world *w = start();
    sh_http_answer answer = {0};
    sh_http_session_options options = {.base = w->base, .authority = w->ca};
    sh_http_session *session = NULL;
    CHECK_OK(sh_http_session_open(&options, &session));
    CHECK_FAILS(SH_E_FORMAT, "more than 50 bytes",
                sh_http_session_ask(session, "GET", "/file", NULL, 0, 0, 50, &answer));
    sh_http_session_close(session);
    options.base = "http://127.0.0.1:80";
    CHECK_FAILS(SH_E_USAGE, "no address", sh_http_session_open(&options, &session));
    sh_http_answer_fini(&answer);
    stop(w);
}

TEST(certificate, of_a_request_that_did_not_sign_itself_is_refused) {
    world *w = start();
    char *key, *request, *signed_text;
    CHECK_OK(sh_certificate_request(&key, &request));
    char *body = strchr(request, '\n') + 1;
    body[70] = body[70] == 'A' ? 'B' : 'A';
    CHECK_FAILS(SH_E_FORMAT, "no certificate request",
                sh_certificate_sign(&w->authority, request, "client-1", 60, &signed_text));
    CHECK_FAILS(SH_E_FORMAT, "no certificate request",
                sh_certificate_sign(&w->authority, "nonsense", "client-1", 60, &signed_text));
    sh_free(key);
    sh_free(request);
    stop(w);
}
