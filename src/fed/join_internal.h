/* Between the files of `shoal join`: join.c is the client's loop, join_exchange.c its requests. */
#ifndef SH_FED_JOIN_INTERNAL_H
#define SH_FED_JOIN_INTERNAL_H

#include "fed/client.h"
#include "fed/enrol.h"
#include "fed/personal.h"
#include "shoal/tools.h"

typedef struct sh_fed_joining {
    const shoal_hooks *hooks;
    sh_log log;
    sh_http_session *session;
    sh_fed_identity identity;
    const char *folder;
    shoal_run *run;
    const sh_dataset *train, *held_out;  // held_out NULL: there is none
    size_t params, count, vectors;
    sh_fed_client client;
    sh_http_answer model;  // downloaded so far, and of which model
    unsigned char model_hash[SH_FED_HASH];
    float *received;     // (vectors, count), aligned
    float *update;       // (vectors, count)
    sh_fed_update made;  // the held update
    float *control;      // (params) scaffold: the client's own; NULL: not needed
    shoal_fed_joined result;
    int refused;                    // updates in a row
    int64_t patience_ms, heard_ms;  // how long to wait for a server, and when it was there last
    uint32_t drawn;                 // keys the order of this client's samples
} sh_fed_joining;

/* Each is one step of the client's state machine. SH_E_IO: the network, or a server that is not
 * there at the moment; tried again. SH_E_USAGE: the server does not want this client. */
sh_status sh_fed_join_ask(sh_fed_joining *joining, sh_fed_task *task_out);
sh_status sh_fed_join_fetch(sh_fed_joining *joining);
sh_status sh_fed_join_send(sh_fed_joining *joining, sh_fed_receipt *receipt_out);
/* A text that the server has for its clients; sh_free it. */
sh_status sh_fed_join_text(sh_fed_joining *joining, const char *path, char **text_out);

#endif
