#include "http/session.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "http/curl.h"

/* A connection that is kept between requests; libcurl reopens it when needed. */
struct sh_http_session {
    CURL *curl;
    sh_http_session_options options;  // texts of its own
    char *base, *authority, *certificate, *key;
    char reason[CURL_ERROR_SIZE];
};

/* One request under way, as libcurl's callbacks see it. */
typedef struct taking {
    sh_http_session *session;
    sh_http_answer *answer;
    size_t most;
    bool too_large, stopped;
} taking;

/* Appends a piece of the answer and keeps a zero behind it; more than `most` bytes end the
 * transfer. */
static size_t on_data(char *data, size_t size, size_t count, void *self) {
    taking *t = self;
    size_t bytes = size * count;
    void *memory = t->answer->data;
    if (bytes > t->most - t->answer->bytes) {
        t->too_large = true;
        return CURL_WRITEFUNC_ERROR;
    }
    if (sh_grow(&memory, &t->answer->capacity, t->answer->bytes + bytes + 1, 1) != SH_OK)
        return CURL_WRITEFUNC_ERROR;
    t->answer->data = memory;
    memcpy(t->answer->data + t->answer->bytes, data, bytes);
    t->answer->bytes += bytes;
    t->answer->data[t->answer->bytes] = '\0';
    return bytes;
}

/* Asks the owner whether to stop. libcurl calls it also while nothing arrives. */
static int on_progress(void *self, __attribute__((unused)) curl_off_t total,
                       __attribute__((unused)) curl_off_t done,
                       __attribute__((unused)) curl_off_t up_total,
                       __attribute__((unused)) curl_off_t up_done) {
    taking *t = self;
    const sh_http_session_options *o = &t->session->options;
    t->stopped = o->stop != NULL && o->stop(o->stop_self);
    return t->stopped;
}

/* Only https: the client's certificate and updates must not travel in the open. */
static sh_status check_base(const char *base) {
    if (strncasecmp(base, "https://", 8) == 0 && strlen(base) < 400) return SH_OK;
    SH_FAIL(SH_E_USAGE, "'%.60s' is no address of a federated server", base);
    return sh_error_hint("it looks like https://host:8443");
}

/* Copies an optional text; failures are collected, so that the caller checks once. */
static char *copy_of(const char *text, bool *failed) {
    char *copy = text != NULL ? sh_strdup(text) : NULL;
    *failed = *failed || (text != NULL && copy == NULL);
    return copy;
}

/* Does not connect: the first request does, and the connection is kept for the next ones. */
sh_status sh_http_session_open(const sh_http_session_options *options,
                               sh_http_session **session_out) {
    bool failed = false;
    SH_TRY(check_base(options->base));
    SH_TRY(sh_curl_start());
    sh_http_session *session = sh_alloc(1, sizeof *session);
    if (session == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a connection");
    session->options = *options;
    session->base = copy_of(options->base, &failed);
    session->authority = copy_of(options->authority, &failed);
    session->certificate = copy_of(options->certificate, &failed);
    session->key = copy_of(options->key, &failed);
    session->curl = curl_easy_init();
    if (failed || session->curl == NULL) {
        sh_http_session_close(session);
        return SH_FAIL(SH_E_MEMORY, "out of memory for a connection");
    }
    // Paths begin with a slash, so the base must not end with one.
    size_t length = strlen(session->base);
    if (session->base[length - 1] == '/') session->base[length - 1] = '\0';
    *session_out = session;
    return SH_OK;
}

/* Closes the session and its connection. NULL is welcome. */
void sh_http_session_close(sh_http_session *session) {
    if (session == NULL) return;
    if (session->curl != NULL) curl_easy_cleanup(session->curl);
    sh_free(session->base);
    sh_free(session->authority);
    sh_free(session->certificate);
    sh_free(session->key);
    sh_free(session);
}

/* Sets all options of a request. The server is verified against the given authority alone, not
 * against the system's; without an authority not at all (see session.h). */
static void configure(sh_http_session *session, taking *t) {
    CURL *curl = session->curl;
    curl_easy_reset(curl);  // connections stay
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "https");
    curl_easy_setopt(curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYPEER, session->authority != NULL ? 1L : 0L);
    curl_easy_setopt(curl, CURLOPT_SSL_VERIFYHOST, session->authority != NULL ? 2L : 0L);
    if (session->authority != NULL) curl_easy_setopt(curl, CURLOPT_CAINFO, session->authority);
    // Without this libcurl would also accept the system's authorities.
    if (session->authority != NULL) curl_easy_setopt(curl, CURLOPT_CAPATH, NULL);
    if (session->certificate != NULL) {
        curl_easy_setopt(curl, CURLOPT_SSLCERT, session->certificate);
        curl_easy_setopt(curl, CURLOPT_SSLKEY, session->key);
    }
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, 15000L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 64L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, 60L);
    curl_easy_setopt(curl, CURLOPT_TCP_KEEPALIVE, 1L);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "shoal/" SHOAL_VERSION);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, session->reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
}

/* Status of a finished request, with the likely next step. */
static sh_status judge(const sh_http_session *session, const taking *t, CURLcode code,
                       const char *url) {
    if (t->stopped) return SH_FAIL(SH_E_INTERRUPTED, "stopped while talking to '%s'", url);
    if (t->too_large)
        return SH_FAIL(SH_E_FORMAT, "'%s' answers with more than %zu bytes", url, t->most);
    if (code == CURLE_OK) return SH_OK;
    const char *reason = session->reason[0] != '\0' ? session->reason : curl_easy_strerror(code);
    SH_FAIL(SH_E_IO, "cannot reach '%s': %s", url, reason);
    if (code == CURLE_PEER_FAILED_VERIFICATION)
        return sh_error_hint(
            "this is not the server of the join line, or its name is not in its "
            "certificate (shoal fed serve --host NAME)");
    return sh_error_hint("is the server running, and the address right?");
}

/* An empty "Expect" header keeps libcurl from waiting for a "100 Continue" before each upload. */
sh_status sh_http_session_ask(sh_http_session *session, const char *method, const char *path,
                              const void *body, size_t body_bytes, size_t from, size_t most,
                              sh_http_answer *answer) {
    CURL *curl = session->curl;
    char range[32];
    taking t = {.session = session, .answer = answer, .most = most};
    char *url = sh_format("%s%s", session->base, path);
    if (url == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an address");
    // The memory of the last answer is reused.
    answer->bytes = 0;
    answer->code = 0;
    session->reason[0] = '\0';
    configure(session, &t);
    curl_easy_setopt(curl, CURLOPT_URL, url);
    if (body != NULL) {
        curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)body_bytes);
        curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body);
    }
    // A body alone would make every request a POST.
    curl_easy_setopt(curl, CURLOPT_CUSTOMREQUEST, method);
    if (from > 0) {
        snprintf(range, sizeof range, "%zu-", from);
        curl_easy_setopt(curl, CURLOPT_RANGE, range);
    }
    struct curl_slist *headers = curl_slist_append(NULL, "Expect:");
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    CURLcode code = curl_easy_perform(curl);
    long status_code = 0;
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status_code);
    answer->code = (int)status_code;
    sh_status status = judge(session, &t, code, url);
    curl_slist_free_all(headers);
    sh_free(url);
    return status;
}

/* Frees the data; the answer may be used again. */
void sh_http_answer_fini(sh_http_answer *answer) {
    sh_free(answer->data);
    *answer = (sh_http_answer){0};
}
