/* Between the files of a run's scheme: scheme.c has the run's calls, scheme_replica.c the replica
 * that the scheme works on, scheme_services.c the services that sit on this worker. */
#ifndef SH_RUN_SCHEME_INTERNAL_H
#define SH_RUN_SCHEME_INTERNAL_H

#include <sched.h>
#include <stdatomic.h>

#include "base/task.h"
#include "run/scheme.h"

/* A service that this worker counts for. `task` NULL: it runs in a process of its own, or has
 * ended. */
typedef struct service_task {
    sh_service service;
    sh_task *task;
    const cpu_set_t *cores;  // that it may use; NULL: as it is
    bool real;               // not simulated: a thread of its own
} service_task;

/* A run's scheme in one generation of the team, from sh_scheme_open to sh_scheme_end. It belongs to
 * the worker's main task; services read what their sh_service points to, and `quits`. */
struct sh_scheme_run {
    sh_sync sync;
    sh_codec codec;
    sh_replica replica;
    service_task *services;
    int service_count;
    float *exported;  // the gradients, where services read them themselves; NULL: elsewhere
    int64_t to;       // the step of the next meeting
    double stop;      // a lockstep scheme's agreement under way: wishes to stop, of all workers
    sh_call control;  // that sums it
    bool asks;        // it is under way
    bool created;
    int64_t whole;                  // samples of all workers in the batch that was taken last
    atomic_bool quits;              // the services are not needed any more
    int64_t samples;                // that this worker has learnt from since the last meeting,
    int64_t samples_met, here_met;  // and those of all as they were counted there
    int64_t step_met;
    double *sums;  // room for sh_states_sums, at least for the samples
};

/* scheme_replica.c */
void scheme_fill_replica(shoal_run *run);
/* Steps and samples of all workers, as far as this one knows: until they meet, a step counts as a
 * whole batch. */
void scheme_move_on(shoal_run *run);
bool scheme_user_stops(const shoal_run *run);
/* The workers are to meet at once: the user wants to stop, or somebody waits to join. `self`: the
 * run. */
bool scheme_stops(void *self);

/* scheme_services.c */
sh_service scheme_service_of(shoal_run *run, int index, int count);
sh_status scheme_start_services(shoal_run *run);
/* At the end of a run that went well: what servers with ranks of their own have counted. */
sh_status scheme_hear_services(shoal_run *run);
sh_status scheme_wait_for_services(struct sh_scheme_run *scheme);

#endif
