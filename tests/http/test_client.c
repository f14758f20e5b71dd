/* The client against a server of canned answers on a local port. */
#include "http/client.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/file.h"
#include "harness.h"

typedef struct server {
    int socket, port, answers;
    const char *answer;
    pthread_t thread;
} server;

/* Gives the same answer `answers` times, each on a connection of its own. */
static void *serve(void *pointer) {
    server *s = pointer;
    for (int i = 0; i < s->answers; i++) {
        int peer = accept(s->socket, NULL, NULL);
        if (peer < 0) break;
        char request[4096];
        if (read(peer, request, sizeof request) > 0) {
            size_t length = strlen(s->answer);
            ssize_t written = send(peer, s->answer, length, MSG_NOSIGNAL);
            (void)written;  // the client may have left
        }
        close(peer);
    }
    return NULL;
}

static void server_open(server *s, const char *answer, int answers) {
    setenv("no_proxy", "*", 1);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t length = sizeof address;
    *s = (server){.socket = socket(AF_INET, SOCK_STREAM, 0), .answers = answers, .answer = answer};
    assert_int_equal(bind(s->socket, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(s->socket, 8), 0);
    assert_int_equal(getsockname(s->socket, (struct sockaddr *)&address, &length), 0);
    s->port = ntohs(address.sin_port);
    assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

static void server_close(server *s) {
    shutdown(s->socket, SHUT_RDWR);
    pthread_join(s->thread, NULL);
    close(s->socket);
}

static char folder[4096];

static sh_status get(const char *answer, int answers, const sh_http_options *options) {
    server s;
    char url[64], path[8192];
    snprintf(folder, sizeof folder, "%s", sh_test_folder("http"));
    server_open(&s, answer, answers);
    snprintf(url, sizeof url, "http://127.0.0.1:%d/file", s.port);
    snprintf(path, sizeof path, "%s/file", folder);
    sh_status status = sh_http_get_file(url, path, options);
    server_close(&s);
    return status;
}

/* No file, whole or in parts, is left behind. */
static void check_empty(void) { assert_int_equal(rmdir(folder), 0); }

TEST(http, writes_what_the_server_sends) {
    CHECK_OK(get("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshoal", 1, NULL));
    char path[8192];
    snprintf(path, sizeof path, "%s/file", folder);
    sh_mapped map;
    CHECK_OK(sh_file_map(path, &map));
    assert_int_equal(map.bytes, 5);
    assert_memory_equal(map.data, "shoal", 5);
    sh_file_unmap(&map);
}

TEST(http, fails_on_an_error_page_and_keeps_nothing) {
    CHECK_FAILS(SH_E_IO, "404",
                get("HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nnone", 1, NULL));
    check_empty();
}

TEST(http, fails_on_a_cut_answer_and_keeps_nothing) {
    CHECK_FAILS(SH_E_IO, "cannot fetch",
                get("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nshort", 1, NULL));
    check_empty();
}

TEST(http, refuses_files_above_the_limit) {
    CHECK_FAILS(SH_E_FORMAT, "larger than 4 bytes",
                get("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshoal", 1,
                    &(sh_http_options){.bytes_most = 4}));
    check_empty();
}

TEST(http, follows_no_redirect_to_local_files) {
    CHECK_FAILS(SH_E_IO, "cannot fetch",
                get("HTTP/1.1 302 Found\r\nLocation: file:///etc/hostname\r\n"
                    "Content-Length: 0\r\nConnection: close\r\n\r\n",
                    1, NULL));
    check_empty();
}

static const char *redirects_to;  // the protocols that libcurl was last told to follow

/* Stands before libcurl's own, which it calls: a channel that cannot be read needs a certificate
 * that libcurl trusts, so that the test looks at what is asked of it. */
#undef curl_easy_setopt
CURLcode curl_easy_setopt(CURL *curl, CURLoption option, ...) {
    static CURLcode (*next)(CURL * curl, CURLoption option, ...);
    if (next == NULL) *(void **)&next = dlsym(RTLD_NEXT, "curl_easy_setopt");
    va_list arguments;
    va_start(arguments, option);
    void *value = va_arg(arguments, void *);  // numbers come the same way
    va_end(arguments);
    if (option == CURLOPT_REDIR_PROTOCOLS_STR) redirects_to = value;
    return next(curl, option, value);
}

static void check_redirects(const char *scheme, const char *wanted) {
    char url[64], path[8192];
    server s;
    snprintf(path, sizeof path, "%s/file", sh_test_folder("http"));
    server_open(&s, "", 0);
    server_close(&s);  // nobody listens there now
    snprintf(url, sizeof url, "%s://127.0.0.1:%d/file", scheme, s.port);
    redirects_to = NULL;
    CHECK_FAILS(SH_E_IO, "cannot fetch", sh_http_get_file(url, path, NULL));
    assert_string_equal(redirects_to, wanted);
}

TEST(http, follows_no_redirect_from_https_to_http) {
    check_redirects("http", "http,https");
    check_redirects("https", "https");
    check_redirects("HTTPS", "https");
}

TEST(http, gives_up_on_endless_redirects) {
    CHECK_FAILS(SH_E_IO, "cannot fetch",
                get("HTTP/1.1 302 Found\r\nLocation: /again\r\n"
                    "Content-Length: 0\r\nConnection: close\r\n\r\n",
                    6, NULL));
    check_empty();
}

TEST(http, refuses_other_protocols) {
    char path[8192];
    snprintf(folder, sizeof folder, "%s", sh_test_folder("http"));
    snprintf(path, sizeof path, "%s/file", folder);
    CHECK_FAILS(SH_E_IO, "cannot fetch", sh_http_get_file("file:///etc/hostname", path, NULL));
    check_empty();
}

static bool refuse(void *self, const char *what, uint64_t done, uint64_t total) {
    (void)done, (void)total;
    assert_string_equal(what, "some data");
    ++*(int *)self;
    return false;
}

TEST(http, stops_when_progress_says_so) {
    int calls = 0;
    sh_http_progress progress = {refuse, &calls};
    CHECK_FAILS(SH_E_INTERRUPTED, "was stopped",
                get("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nshoal", 1,
                    &(sh_http_options){.what = "some data", .progress = &progress}));
    assert_int_equal(calls, 1);
    check_empty();
}
