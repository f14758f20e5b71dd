/* Workers and parameter servers for tests, as threads over shared memory or in the simulator.
 *
 * Gradients are the test's. With `counts` they make the weights count: the block has a stretch of
 * `workers` elements (and `idle` more) on each server, and a step of worker i adds 1 to element i
 * of each, when the scheme applies it at `lr`. So what a worker sees tells which updates it sees.
 */
#ifndef SH_TESTS_SYNC_SERVERS_H
#define SH_TESTS_SYNC_SERVERS_H

#include "sim/simulated.h"
#include "sync/sync.h"

enum { WORKERS_MOST = 8, SERVERS_MOST = 8, MEETINGS_MOST = 4 };

typedef struct ps_world ps_world;
struct ps_world {
    const char *scheme;
    int workers, servers;
    int idle;  // elements of each server that count nothing: they make messages long
    const char *placement, *staleness;  // NULL: range, off
    const char *codec;                  // NULL: none
    float *kept;                        // the residual of worker 0; NULL: there is none
    double compensation;
    int64_t fetch_every, push_every;
    sh_param_list params;
    float *start;  // weights as the run begins
    const char *optim;
    const char *schedule;  // of the rate, up to the last goal; NULL: constant
    double lr, momentum;
    int64_t goals[MEETINGS_MOST];  // steps of all workers up to each meeting; 0: no more
    /* The gradient of a step. Fails where the weights break a promise. */
    sh_status (*gradient)(ps_world *world, int rank, int64_t step, const float *weights,
                          float *gradients);
    bool apart;  // simulated servers have wires of their own, not a worker's
    bool simulated;
    // What came out:
    float *met[MEETINGS_MOST][WORKERS_MOST];  // weights at each meeting
    int64_t steps[WORKERS_MOST];
    int64_t broken_off[WORKERS_MOST];  // of these
    sh_service services[SERVERS_MOST];
    sh_optim optims[WORKERS_MOST];  // of the workers
    int64_t done;
};

/* Runs all meetings. `sim` NULL: threads. */
sh_status play_world(ps_world *world, const sh_sim_options *sim);
/* One worker or server of a world: for run_ranks; the argument is the world. */
sh_status play_endpoint(sh_transport *mail, void *argument);
void end_world(ps_world *world);
sh_optim_options world_optim(const ps_world *world);
/* Steps of all workers up to the last meeting. */
int64_t world_goal(const ps_world *world);
sh_schedule world_schedule(const ps_world *world);
/* The rate of the step that the gradient belongs to that is the index-th of all. */
double world_rate(const ps_world *world, int64_t index);
/* Gradients of an update of softsync. */
int world_group(const ps_world *world);
/* The weights at the last meeting. */
const float *world_last(const ps_world *world);

/* One parameter per stretch of counters, and gradients that count. */
void make_counters(ps_world *world);
/* Two layers with weights and biases. */
void make_layers(ps_world *world);
/* The counter of worker `rank` on a server. */
static inline size_t counter_at(const ps_world *world, int server, int rank) {
    return (size_t)(server * (world->workers + world->idle) + rank);
}

/* ---- Many worlds ---- */

typedef void (*world_check)(const ps_world *world);

/* All workers leave each meeting with the same weights. */
void world_check_meetings(const ps_world *world);
/* Counters in simulated worlds of many sizes, speeds and delays. `like` gives scheme and options;
 * `prepare` the rate at which the weights count; NULL: as it is. */
void world_over_seeds(const ps_world *like, void (*prepare)(ps_world *), world_check check);
/* Counters of real threads; sizes are usual ones unless `like` gives them. */
void world_with_threads(const ps_world *like, world_check check);

/* ---- Gradients that depend on the weights ---- */

/* A valley of its own for every worker and element: its gradient at a weight. */
float world_slope(int rank, size_t index, float weight);
/* Fits world->gradient. */
sh_status world_valley(ps_world *world, int rank, int64_t step, const float *weights,
                       float *gradients);
/* Weights and optimizer at the first meeting are those of one worker with the mean gradient. */
void world_check_serial(const ps_world *world, sh_optim *optim);

#endif
