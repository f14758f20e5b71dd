/* Parameter servers with ranks of their own (--server-ranks own): processes, or coroutines of the
 * simulator, that know the options of the run. They have no data and no collectives; what else they
 * need worker 0 tells them by mail when training begins, and when all workers have left they tell
 * it what they counted. One serves one generation of the team (run/regroup.h). */
#ifndef SH_RUN_SERVER_H
#define SH_RUN_SERVER_H

#include "run/run.h"

/* What a host gives a server; borrowed until sh_server_run returns. */
typedef struct sh_server {
    const sh_config *config;
    int index, workers;         // workers: as many as there are now
    sh_transport *mail;         // its endpoint
    bool (*stops)(void *user);  // the user wants the run to end; NULL: nobody can
    bool (*quits)(void *user);  // its generation is over; NULL: then the run ends, too
    void *user;
} sh_server;

/* The whole life of one. */
sh_status sh_server_run(const sh_server *server);

/* Worker 0's side: to all `count` servers what they need, and from all what they counted. */
sh_status sh_servers_set_up(shoal_run *run, sh_mail *mail, int count);
sh_status sh_server_read_counts(sh_mail *mail, sh_service *service);
/* At the end of a job that went well: ends servers that were never set up, as there was nothing
 * to do for them. */
sh_status sh_servers_release(shoal_run *run);

/* How many servers of a run have ranks of their own, behind those of so many workers; 0: none. */
int sh_servers_apart(const sh_config *config, int workers);
/* Their number stays as it is when that of the workers changes. */
void sh_servers_settle(sh_config *config);

#endif
