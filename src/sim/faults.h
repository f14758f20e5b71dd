/* What goes wrong in a simulated run, all of it from one seed. */
#ifndef SH_SIM_FAULTS_H
#define SH_SIM_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

/* Messages that leave between two times are lost. A sender of a long one waits for ever. */
typedef struct sh_sim_cut {
    int a, b;  // both ways; b -1: all of a's links
    double from_s, until_s;
} sh_sim_cut;

/* A rank stands still for a while: its tasks do not run, what is sent to it waits. */
typedef struct sh_sim_stop {
    int rank;
    double at_s, for_s;
} sh_sim_stop;

/* A rank dies: its calls fail, so that its tasks end; its peers are told, as by a parent. After
 * `back_s` another takes its place (sh_sim_options.returns); 0: nobody does. */
typedef struct sh_sim_death {
    int rank;
    double at_s, back_s;
} sh_sim_death;

/* Arrays are borrowed as long as the simulator lives. */
typedef struct sh_sim_faults {
    double delay_s;  // every message takes longer by an exponential time of this mean
    double hold;     // this share of messages is held back, so that other tags overtake them,
    double hold_s;   // by up to so long
    const sh_sim_cut *cuts;
    int cut_count;
    const sh_sim_stop *stops;
    int stop_count;
    const sh_sim_death *deaths;
    int death_count;
} sh_sim_faults;

/* Messages may overtake each other on the way. */
bool sh_faults_reorder(const sh_sim_faults *faults);
/* How much longer message `number` of the run takes. */
double sh_faults_delay_s(const sh_sim_faults *faults, uint64_t seed, uint64_t number);
bool sh_faults_lose(const sh_sim_faults *faults, int from, int to, double now_s);
/* When a rank that would go on at `at_s` does go on. */
double sh_faults_resume_s(const sh_sim_faults *faults, int rank, double at_s);
/* When a rank that computes from one time to another has done so, with the stops in between. */
double sh_faults_computed_s(const sh_sim_faults *faults, int rank, double from_s, double until_s);

#endif
