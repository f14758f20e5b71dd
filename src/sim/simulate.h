/* Simulated runs: the workers of a run as coroutines of this process (sim/sim.h). Their code is
 * that of real workers; a env tells them the clock, the data they share and how time passes. */
#ifndef SH_SIM_SIMULATE_H
#define SH_SIM_SIMULATE_H

#include "sim/spec.h"
#include "run/run.h"

/* What all workers of a simulation share. */
typedef struct sh_simulation {
    sh_config config;  // a copy, without measured kernels: they could differ the next time
    const shoal_hooks *hooks;
    sh_sim_spec spec;
    sh_sim *sim;
    sh_data data;
    sh_scheme scheme;
    bool timing_only;
    struct sh_simulated_teams *teams;  // simulate_team.c; NULL: a death ends the run
    bool done;                         // the last step was
    char *folder;                      // of the run; NULL: none was opened
    int64_t steps;                     // that were done
    double seconds;                    // from the first step to the end of the last
    // Timing only:
    sh_net *net;
    sh_optim optim;  // its slots are not used
    sh_schedule schedule;
    sh_codec codec;  // its sizes
    int64_t steps_per_epoch;
} sh_simulation;

/* A worker of it, or a server with wires of its own. */
typedef struct sh_simulated_worker {
    sh_simulation *simulation;
    int slot;  // its place, whatever its rank in a team
    int rank;  // -1: none yet
    int home;  // the endpoint of its tasks
    sh_engine *engine;
    int team;            // the newest that it has been in, or seen
    sh_engine *before;   // of the team before, until it has joined
    bool trains, holds;  // in this team, and in any
    int64_t drawn;       // the step whose time is in `step_ns`, from 1; 0: none
    int64_t step_ns;
} sh_simulated_worker;

/* Opens the worker's engine in its team; NULL in worker->engine: it is alone. */
sh_status sh_simulated_enter(sh_simulated_worker *worker, int team, int ranks);
/* Destroys the worker's engines, if it has any. */
void sh_simulated_leave(sh_simulated_worker *worker);
/* A worker, or a server behind them, begins its life on its home. */
sh_status sh_simulated_start(sh_simulated_worker *worker);

/* Teams of simulated workers, as some die and come back: what a parent does for processes. */
sh_status sh_simulated_teams_open(sh_simulation *simulation);
/* A server of a team has ended so. */
sh_status sh_simulated_served(const sh_simulated_worker *server, sh_status status);
void sh_simulated_teams_close(sh_simulation *simulation);
extern const sh_regroup_ops sh_simulated_regroup;

/* Of this worker's transport and clock. */
sh_worker_env sh_simulated_env(sh_simulated_worker *worker);
/* The whole of a worker where only time passes (simulate_timing.c). */
sh_status sh_simulate_timing(sh_simulated_worker *worker);
/* What these workers share: the net's parameters, the number of steps. */
sh_status sh_simulate_timing_open(sh_simulation *simulation);
void sh_simulate_timing_close(sh_simulation *simulation);

#endif
