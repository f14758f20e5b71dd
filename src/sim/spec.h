/* What a simulation is like, as people write it: the flags of `shoal simulate`. */
#ifndef SH_SIM_SPEC_H
#define SH_SIM_SPEC_H

#include "sim/sim.h"

enum { SH_SPEC_MOST = 64 };  // special links, stragglers, cuts, pauses and deaths, of each

/* The texts; NULL: not given. */
typedef struct sh_sim_texts {
    const char *link, *pairs, *racks, *sites, *compute, *straggler, *jitter, *cut, *pause, *die;
} sh_sim_texts;

/* Options that point into it, so it must not move. */
typedef struct sh_sim_spec {
    sh_sim_options options;  // links, compute and faults
    sh_sim_pair pairs[SH_SPEC_MOST];
    sh_sim_slow slow[SH_SPEC_MOST];
    sh_sim_cut cuts[SH_SPEC_MOST];
    sh_sim_stop stops[SH_SPEC_MOST];
    sh_sim_death deaths[SH_SPEC_MOST];
} sh_sim_spec;

/* For so many workers, and servers with the ranks behind them, which can be cut off, pause and die
 * like workers. Faults name the flag. */
sh_status sh_sim_spec_parse(const sh_sim_texts *texts, int ranks, int servers, sh_sim_spec *spec);

#endif
