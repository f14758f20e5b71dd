/* A run's side of its scheme (sync/sync.h): the replica that the scheme works on, its mail, and the
 * tasks of the services that sit on this worker. Every run that trains has one. */
#ifndef SH_RUN_SCHEME_H
#define SH_RUN_SCHEME_H

#include "run/run.h"

/* Refuses a scheme that does not go with the other settings of a run. */
sh_status sh_scheme_check_run(const shoal_run *run);
/* Refuses an optimizer that cannot leave its momentum to a codec which wants it. */
sh_status sh_scheme_check_momentum(const shoal_run *run);
/* Sets options that mean nothing to the scheme back: where one set of options serves several. */
sh_status sh_scheme_forget_others(sh_config *config);
/* Collective, before a checkpoint is read: finds the row, and makes what of it is in checkpoints.
 */
sh_status sh_scheme_open(shoal_run *run);
/* Collective, when all ranks have the same parameters: makes the rest, and starts its services. */
sh_status sh_scheme_begin(shoal_run *run);
/* Its workers are not in lockstep. */
bool sh_scheme_is_free(const shoal_run *run);
/* Each step is one of all workers, as the one worker of a run alone takes it. */
bool sh_scheme_is_together(const shoal_run *run);
/* Services have been started for it on this worker. */
bool sh_scheme_serves(const shoal_run *run);
/* The workers meet again when step `to` is done. */
void sh_scheme_aim(shoal_run *run, int64_t to);
/* One step of this worker; the run's step and samples move to what is known of all workers. True in
 * `*meets_out`: the workers meet now. */
sh_status sh_scheme_step(shoal_run *run, sh_loss_result *result_out, bool *meets_out);
/* Collective: all replicas get the common model, and the run's position is that of all workers.
 * `*used_inout`: the part that they have learnt from of the samples dealt out since they last met;
 * stays as it is where none were. */
sh_status sh_scheme_meet(shoal_run *run, double *used_inout);
/* At the end of a run that went well: waits for the services. */
sh_status sh_scheme_finish(shoal_run *run);

/* What the scheme keeps in checkpoints beside run->scheme_state; returns how many. */
size_t sh_scheme_blocks(const shoal_run *run, sh_exchange_state blocks_out[SH_EXCHANGE_STATES]);
/* They were read from a checkpoint of so many workers. */
void sh_scheme_adopt(shoal_run *run, int64_t workers);
/* Collective, before a checkpoint, and after it: sh_sync_family. */
sh_status sh_scheme_save(shoal_run *run);
void sh_scheme_saved(shoal_run *run);

/* What this worker and the services on it counted, in all generations. */
sh_scheme_counts sh_scheme_count(const shoal_run *run);
/* One of `services` counted this. */
void sh_scheme_add_service(sh_scheme_counts *counts, int index, int services,
                           const sh_service_counts *more);
/* After a failure, with which the team regroups, or after finish: ends what is left of the scheme,
 * and the team's collectives. The run keeps the worker's model and its counts. */
void sh_scheme_leave(shoal_run *run);
void sh_scheme_end(shoal_run *run);

#endif
