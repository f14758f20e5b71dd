/* Regrouping: the team of a run goes on without workers that die, and with those that come back.
 *
 *   generation 0                generation 1                generation 2
 *   ranks 0 1 2 3   -- 1 dies ->  ranks 0 1 2   -- it is   -> ranks 0 1 2 3
 *   workers a b c d             workers a c d     back        workers a c d b
 *
 * A generation is a team with ranks, collectives and mail of its own. A death ends it: every wait
 * in it fails with SH_E_PEER, the living tear down their scheme and meet in the next one. There
 * they agree on what they hold in memory (the mean of their models, or what the servers left in
 * their snapshots), on the position, and begin the scheme anew; nobody goes back to a checkpoint.
 * Another death meanwhile is just the next generation. A worker that comes back joins when the
 * others have met in order, so that nothing is lost then.
 *
 * Data that lies in parts is, while one is missing, that of the others: an epoch is as many steps
 * as before, with fewer samples.
 *
 * Who dies and who comes back is the business of the env (run/team.h): a parent's, or the
 * simulator's. Workers keep their order, so rank 0, who writes the files, changes only when it
 * dies. One that is left alone trains as a run of one worker does. */
#ifndef SH_RUN_REGROUP_H
#define SH_RUN_REGROUP_H

#include "run/run.h"

/* Whether this run can: its env and its scheme do. */
bool sh_regroup_possible(const shoal_run *run);
/* Before the scheme of the first generation begins. */
sh_status sh_regroup_prepare(shoal_run *run);
/* The worker trains: should it die, the others can go on. */
void sh_regroup_ready(shoal_run *run);
/* Somebody waits to join. Any task. */
bool sh_regroup_wished(const shoal_run *run);
/* Where the workers have met: somebody joins now. One worker sees it for itself, several have
 * agreed.
 */
bool sh_regroup_lets_join(const shoal_run *run);
/* A simulated worker that is dead: it must not touch the run's files any more. */
bool sh_regroup_gone(const shoal_run *run);
/* SH_E_PEER once the team has moved on: for workers that seldom wait for others. */
sh_status sh_regroup_check(const shoal_run *run);
/* Collective over the next generation: after SH_E_PEER, when all have met to let somebody join, or
 * as the first thing of a worker that joins. */
sh_status sh_regroup(shoal_run *run);

#endif
