/* How long a simulated step computes. */
#ifndef SH_SIM_COMPUTE_H
#define SH_SIM_COMPUTE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum sh_sim_law {
    SH_LAW_CONSTANT,
    SH_LAW_EXPONENTIAL,
    SH_LAW_LOGNORMAL,
} sh_sim_law;

/* A rank that takes `factor` times as long from one time to another: a phase, or a straggler. */
typedef struct sh_sim_slow {
    int rank;  // -1: all
    double factor;
    double from_s, until_s;  // 0 and 0: always
} sh_sim_slow;

typedef struct sh_sim_compute {
    sh_sim_law law;
    double mean_s;
    double sigma;             // log-normal: of the logarithm
    const sh_sim_slow *slow;  // borrowed as long as the simulator lives
    int slow_count;
} sh_sim_compute;

/* A draw of (seed, rank, step): the same whenever it is asked for, but for phases, which look at
 * `now_s`. */
double sh_compute_seconds(const sh_sim_compute *compute, uint64_t seed, int rank, int64_t step,
                          double now_s);

#endif
