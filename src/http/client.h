/* HTTP(S) downloads, by libcurl. The only file that knows libcurl is client.c. */
#ifndef SH_HTTP_CLIENT_H
#define SH_HTTP_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Told about progress now and then; `total` is 0 while unknown. False stops the download, which
 * then fails with SH_E_INTERRUPTED. */
typedef struct sh_http_progress {
    bool (*step)(void *self, const char *what, uint64_t done_bytes, uint64_t total_bytes);
    void *self;
} sh_http_progress;

typedef struct sh_http_options {
    const char *what;         // for progress and messages; NULL: the address
    int64_t connect_ms_most;  // 0: 15 s
    int64_t stall_s_most;     // gives up after this long below 1 kB/s; 0: 30 s
    uint64_t bytes_most;      // refuses larger files; 0: 1 GiB
    const sh_http_progress *progress;
} sh_http_options;

/* Downloads `url` into `path`: http or https, with at most 5 redirects, which lead to http or https
 * only, and from https to https alone. The file appears whole or not at all. Any task. */
sh_status sh_http_get_file(const char *url, const char *path, const sh_http_options *options);

/* Of libcurl, as it is loaded. */
const char *sh_http_version(void);

#endif
