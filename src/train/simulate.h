/* Simulated runs: the workers of a run as coroutines of this process (sim/sim.h). Their code is
 * that of real workers; a seat tells them the clock, the data they share and how time passes. */
#ifndef SH_TRAIN_SIMULATE_H
#define SH_TRAIN_SIMULATE_H

#include "sim/spec.h"
#include "train/run.h"

/* What all workers of a simulation share. */
typedef struct sh_simulation {
    sh_config config;  // a copy, without measured kernels: they could differ the next time
    const shoal_hooks *hooks;
    sh_sim_spec spec;
    sh_sim *sim;
    sh_data data;
    sh_scheme scheme;
    bool timing_only;
    char *folder;    // of the run; NULL: none was opened
    int64_t steps;   // that were done
    double seconds;  // from the first step to the end of the last
    // Timing only:
    sh_net *net;
    sh_optim optim;  // its slots are not used
    sh_schedule schedule;
    int64_t steps_per_epoch;
} sh_simulation;

/* A worker of it. */
typedef struct sh_simulated_worker {
    sh_simulation *simulation;
    int rank;
    sh_engine *engine;
    int64_t drawn;  // the step whose time is in `step_ns`, from 1; 0: none
    int64_t step_ns;
} sh_simulated_worker;

/* Of this worker's transport and clock. */
sh_seat sh_simulated_seat(sh_simulated_worker *worker);
/* The whole of a worker where only time passes (simulate_timing.c). */
sh_status sh_simulate_timing(sh_simulated_worker *worker);
/* What these workers share: the net's parameters, the number of steps. */
sh_status sh_simulate_timing_open(sh_simulation *simulation);
void sh_simulate_timing_close(sh_simulation *simulation);

#endif
