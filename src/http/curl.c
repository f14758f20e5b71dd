#include "http/curl.h"

#include <curl/curl.h>
#include <pthread.h>

static pthread_once_t started = PTHREAD_ONCE_INIT;
static CURLcode start_code;  // written once, under `started`

/* Global start of libcurl, which is not safe to run in two threads at once. */
static void start(void) { start_code = curl_global_init(CURL_GLOBAL_DEFAULT); }

/* Every user of libcurl calls this first; later calls are free. */
sh_status sh_curl_start(void) {
    pthread_once(&started, start);
    return start_code == CURLE_OK ? SH_OK : SH_FAIL(SH_E_UNSUPPORTED, "libcurl does not start");
}
