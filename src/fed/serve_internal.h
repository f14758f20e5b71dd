/* Between the files of `shoal fed serve`: serve.c is the process, serve_requests.c answers HTTPS
 * requests, serve_report.c evaluates closed rounds and writes metrics. */
#ifndef SH_FED_SERVE_INTERNAL_H
#define SH_FED_SERVE_INTERNAL_H

#include <pthread.h>

#include "fed/local.h"
#include "fed/settings.h"
#include "fed/store.h"
#include "fed/upload.h"
#include "http/server.h"

/* A model that is handed out: its bytes stay until the last download of it has ended. */
typedef struct sh_fed_handout {
    char hash[2 * SH_FED_HASH + 1];  // hex
    size_t bytes;
    int holders;  // guarded by the lock of `owner`
    struct sh_fed_serving *owner;
    float *values;
} sh_fed_handout;

enum { SH_FED_REPORTS = 64 };

typedef struct sh_fed_serving {
    shoal_run *run;  // main task only
    sh_fed_settings settings;
    const shoal_fed_serve_options *options;
    size_t params, count;
    sh_http_server *http;
    sh_credentials authority;
    char *shared_text, *facts;  // what clients get before they train
    pthread_mutex_t lock;       // guards everything below
    sh_fed_server *server;
    sh_fed_store *store;
    sh_fed_uploads uploads;
    sh_fed_handout *handout;                // the newest model
    float *values;                          // of the update at hand
    sh_fed_report reports[SH_FED_REPORTS];  // of rounds that closed and are not told yet
    size_t report_count;
    sh_error failed;  // the state machine or its store: the server ends
    int64_t received_bytes;
    int64_t looked_ms;  // for revoked clients
} sh_fed_serving;

/* Real time for rounds, and the time of day. */
int64_t sh_fed_now_ms(void);
int64_t sh_fed_unix_s(void);

/* sh_http_handler */
size_t sh_fed_body_most(void *self, const char *method, const char *path, const char *client);
void sh_fed_handle(void *self, const sh_http_request *request, sh_http_reply *reply);

/* The newest model becomes what is handed out. Under the lock. */
sh_status sh_fed_hand_out(sh_fed_serving *serving);
void sh_fed_release_handout(void *self);

/* Tells of the rounds that closed since: evaluation, metrics, progress. Main task. */
sh_status sh_fed_serve_report(sh_fed_serving *serving);

#endif
