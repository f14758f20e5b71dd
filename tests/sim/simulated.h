/* Ranks as coroutines of the simulator, for tests: as comm/ranks.h does it with threads. */
#ifndef SH_TESTS_SIM_SIMULATED_H
#define SH_TESTS_SIM_SIMULATED_H

#include "comm/engines.h"
#include "comm/ranks.h"
#include "sim/sim.h"

/* Links for tests: 1 Gbit/s and 50 us. */
sh_sim_links simulated_links(void);

/* Runs `body` as every rank. `options` says all but the ranks and may be NULL. */
sh_status run_simulated(int ranks, const sh_sim_options *options, sh_rank_body body,
                        void *argument);
sh_status run_simulated_engines(int ranks, const sh_sim_options *options,
                                const sh_engine_options *engine_options, sh_engine_body body,
                                void *argument);

/* The virtual seconds that the last run took, and what it counted. */
double simulated_seconds(void);
sh_sim_counts simulated_counts(void);
/* The simulator of the run under way. */
sh_sim *simulated(void);

#endif
