/* A crowd: workers of a scheme on a small problem whose answer is known, as threads over shared
 * memory or as coroutines of the simulator. Worker i has the loss |w - c_i|^2 / 2 summed over the
 * parameters, or none, and its own model to begin with. */
#ifndef SH_TESTS_SYNC_CROWD_H
#define SH_TESTS_SYNC_CROWD_H

#include <stdatomic.h>

#include "sim/sim.h"
#include "sync/sync.h"

typedef struct crowd crowd;

struct crowd {
    const char *scheme;
    int workers;
    int64_t steps;              // of each worker, or of all in the mean
    int64_t meet_every;         // steps; 0: at the end only
    size_t count;               // parameters; 0: 5
    double lr;                  // 0: no gradient
    const char *schedule;       // of the rate, over the steps; NULL: constant
    double momentum;            // of the optimizer
    const char *policy;         // sync.momentum; NULL: auto
    const char *graph;          // NULL: auto
    const char *codec;          // NULL: none
    bool no_feedback;           // of the codec
    double mixing;              // gossip through a codec; 0: by the codec
    double switch_at;           // post-local
    bool steps_first;           // no overlap
    bool same;                  // all begin with the model of worker 0
    bool timing;                // no numbers, only sizes
    int64_t stop_at;            // the user wants the run to end once worker 0 is there; 0: never
    const sh_sim_options *sim;  // NULL: threads; its ranks and services are set
    /* After each step (`met` false) and meeting of a worker; NULL: nothing. */
    sh_status (*look)(crowd *c, sh_sync *sync, bool met);
    void *user;
    _Atomic bool wants_stop;
    // Results:
    float *history;  // (steps + 1, workers, count): after each worker's so many steps (lockstep)
    float *end;      // (workers, count)
    int64_t *done;   // (workers): own steps
    int64_t all;     // steps of all workers, as they were told
    double seconds;  // of the simulator
};

/* Runs it. Results are the caller's: crowd_fini. */
sh_status crowd_run(crowd *c);
void crowd_fini(crowd *c);

float crowd_begin(const crowd *c, int worker, size_t index);  // the first model
float crowd_goal(int worker, size_t index);                   // c_i
float crowd_at(const crowd *c, int64_t step, int worker, size_t index);
/* The mean over the workers of the models after so many steps. */
double crowd_mean(const crowd *c, int64_t step, size_t index);
/* The root of the summed squares of the models' distances from their mean. */
double crowd_disagreement(const crowd *c, int64_t step);

/* The next seed to try, from -1 on; prints it. SEED=N in the environment: that one alone; SEEDS=N:
 * so many, instead of `usual`. False: all are done. */
bool crowd_seed(int usual, int *seed_inout);
/* A world for a seed: 2 to 10 workers, any speeds and links. The options point to `*slow_out`. */
sh_sim_options crowd_world(int seed, sh_sim_slow *slow_out, int *workers_out);

#endif
