/* Between the files of `shoal fed simulate`: simulate.c is the run, simulate_round.c lets clients
 * train and answer, simulate_secure.c does that with
 * secure aggregation, simulate_report.c evaluates and writes what came of a round. */
#ifndef SH_FED_SIMULATE_INTERNAL_H
#define SH_FED_SIMULATE_INTERNAL_H

#include "fed/local.h"
#include "fed/partition.h"
#include "fed/settings.h"

/* A client of fedbuff that trains: its update is there, and arrives later. */
typedef struct sh_fed_flight {
    bool used;
    size_t client;
    int64_t arrives_ms;
    sh_fed_update update;
    float *values;
} sh_fed_flight;

typedef struct sh_fed_simulation {
    shoal_run *run;
    sh_fed_settings settings;
    sh_fed_server *server;
    sh_fed_partition partition;
    int64_t now_ms;  // virtual
    float *values;   // (vectors, count) of the update at hand
    /* Scaffold, per client: its control variates, and how they change when its round closes. NULL
     * until it has been asked. */
    float **controls, **changes;
    sh_fed_flight *flights;  // fedbuff: those who train at the same time
    size_t flight_count;
    shoal_fed_result result;
    bool reached;  // the target
} sh_fed_simulation;

/* Lets one round of questions and answers pass; several are needed where clients drop out. */
sh_status sh_fed_simulate_round(sh_fed_simulation *simulation);
/* The same with secure aggregation. */
sh_status sh_fed_simulate_secure(sh_fed_simulation *simulation);
/* A client trains the server's model; what it would send. */
sh_status sh_fed_simulate_train(sh_fed_simulation *simulation, const sh_fed_task *task,
                                size_t client, float *values_out, sh_fed_update *update_out);
/* fedbuff: lets one update arrive. */
sh_status sh_fed_simulate_arrival(sh_fed_simulation *simulation);

/* sh_fed_commit: evaluates the new model, writes metrics and tells the progress. */
sh_status sh_fed_simulate_report(void *self, const sh_fed_server *server,
                                 const sh_fed_report *report);
/* Every client's own model, measured beside the shared one. */
sh_status sh_fed_simulate_personal(sh_fed_simulation *simulation);
sh_status sh_fed_simulate_end(sh_fed_simulation *simulation);

#endif
