#include "http/client.h"

#include <curl/curl.h>
#include <string.h>
#include <strings.h>

#include "base/file.h"
#include "http/curl.h"

static const uint64_t BYTES_MOST = (uint64_t)1 << 30;  // default limit of a download: 1 GiB
/* A download under way, as libcurl's callbacks see it. */
typedef struct transfer {
    sh_writer writer;
    const sh_http_options *options;
    const char *what;
    uint64_t received, most;
    sh_status failed;  // SH_OK, or why a callback stopped the transfer
} transfer;

/* Takes a piece of the body; any return but `bytes` ends the transfer. The limit counts received
 * bytes, as an announced length may be false. */
static size_t on_data(char *data, size_t size, size_t count, void *self) {
    transfer *t = self;
    size_t bytes = size * count;
    // Written so that the sum cannot overflow.
    if (bytes > t->most - t->received) {
        t->failed = SH_FAIL(SH_E_FORMAT, "%s is larger than %llu bytes", t->what,
                            (unsigned long long)t->most);
        return CURL_WRITEFUNC_ERROR;
    }
    t->failed = sh_writer_write(&t->writer, data, bytes);
    if (t->failed != SH_OK) return CURL_WRITEFUNC_ERROR;
    t->received += bytes;
    return bytes;
}

/* Reports progress; not 0 ends the transfer. */
static int on_progress(void *self, curl_off_t total, curl_off_t done,
                       __attribute__((unused)) curl_off_t up_total,
                       __attribute__((unused)) curl_off_t up_done) {
    transfer *t = self;
    const sh_http_progress *progress = t->options->progress;
    if (progress == NULL || progress->step == NULL) return 0;
    if (progress->step(progress->self, t->what, (uint64_t)done, (uint64_t)total)) return 0;
    t->failed = SH_FAIL(SH_E_INTERRUPTED, "the download of %s was stopped", t->what);
    return 1;
}

/* Protocols that a redirect may lead to. From https only https: what came over a protected channel
 * must not go on over an open one. */
static const char *redirects_of(const char *url) {
    return strncasecmp(url, "https:", 6) == 0 ? "https" : "http,https";
}

/* Sets all options. Without CURLOPT_NOSIGNAL libcurl would use signals for timeouts, which the
 * embedding program owns. */
static void configure(CURL *curl, const char *url, transfer *t, char *reason) {
    const sh_http_options *o = t->options;
    long connect = o->connect_ms_most > 0 ? (long)o->connect_ms_most : 15000;
    long stall = o->stall_s_most > 0 ? (long)o->stall_s_most : 30;
    curl_easy_setopt(curl, CURLOPT_URL, url);
    curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl, CURLOPT_REDIR_PROTOCOLS_STR, redirects_of(url));
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 1L);
    curl_easy_setopt(curl, CURLOPT_MAXREDIRS, 5L);  // no endless circle
    // An error page must not be taken for the file.
    curl_easy_setopt(curl, CURLOPT_FAILONERROR, 1L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT_MS, connect);
    // Below 1 kB/s for `stall` seconds counts as stalled and ends the download.
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1024L);
    curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, stall);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "shoal/" SHOAL_VERSION);
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, on_data);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, t);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, on_progress);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, t);
}

/* Status of a finished transfer. A reason of our own, set by a callback, explains more than
 * libcurl's code. */
static sh_status judge(const transfer *t, CURLcode code, const char *url, const char *reason) {
    if (t->failed != SH_OK) return t->failed;
    if (code == CURLE_OK) return SH_OK;
    SH_FAIL(SH_E_IO, "cannot fetch '%s': %s", url,
            reason[0] != '\0' ? reason : curl_easy_strerror(code));
    return sh_error_hint("check the network and any proxy settings");
}

/* Writes to a temporary file and renames it at the end: the file appears whole or not at all. */
sh_status sh_http_get_file(const char *url, const char *path, const sh_http_options *options) {
    static const sh_http_options none = {0};
    char reason[CURL_ERROR_SIZE] = "";
    SH_TRY(sh_curl_start());
    CURL *curl = curl_easy_init();
    if (curl == NULL) return SH_FAIL(SH_E_UNSUPPORTED, "libcurl does not start");
    transfer t = {.options = options != NULL ? options : &none};
    t.what = t.options->what != NULL ? t.options->what : url;
    t.most = t.options->bytes_most > 0 ? t.options->bytes_most : BYTES_MOST;
    // Opened before the request: a folder that cannot be written to is told at once.
    sh_status status = sh_writer_open(&t.writer, path);
    if (status == SH_OK) {
        configure(curl, url, &t, reason);
        status = judge(&t, curl_easy_perform(curl), url, reason);
        if (status == SH_OK)
            status = sh_writer_commit(&t.writer);
        else
            sh_writer_abandon(&t.writer);
    }
    curl_easy_cleanup(curl);
    return status;
}

const char *sh_http_version(void) { return curl_version_info(CURLVERSION_NOW)->version; }
