/* A run's side of its scheme (sync/sync.h), where that is not bulk-synchronous: the replica that
 * the scheme works on, its mail, and the tasks of the services that sit on this worker. */
#ifndef SH_RUN_SCHEME_H
#define SH_RUN_SCHEME_H

#include "run/run.h"

/* Refuses a scheme that does not go with the other settings of a run. */
sh_status sh_scheme_check_run(const shoal_run *run);
/* Refuses an optimizer that cannot leave its momentum to a codec which wants it. */
sh_status sh_scheme_check_momentum(const shoal_run *run);
/* Sets options that mean nothing to the scheme back: where one set of options serves several. */
sh_status sh_scheme_forget_others(sh_config *config);
/* The position follows from the step, which all workers have agreed on. */
void sh_run_move_to(shoal_run *run, int64_t step);

/* Collective, when all ranks have the same parameters: makes the scheme and starts its services.
 * Does nothing for a run whose steps are bulk-synchronous. */
sh_status sh_scheme_begin(shoal_run *run);
/* Its workers are not in lockstep. */
bool sh_scheme_is_free(const shoal_run *run);
/* The workers meet again when step `to` is done. */
void sh_scheme_aim(shoal_run *run, int64_t to);
/* One step of this worker; the run's step and samples move to what is known of all workers. True in
 * `*meets_out`: the workers meet now. */
sh_status sh_scheme_step(shoal_run *run, sh_loss_result *result_out, bool *meets_out);
/* Lets mail travel while the gradient is computed; fits sh_on_grad_ready. */
void sh_scheme_poll(void *self, size_t param);
/* The gradient may become unwanted while a real worker computes it; then asks whether it has: fits
 * sh_step_context.stops. */
bool sh_scheme_may_break_off(const shoal_run *run);
bool sh_scheme_unwanted(void *self);
/* Exact runs: sh_replica.combine. */
sh_status sh_scheme_combine(shoal_run *run, sh_reduce_op op, int64_t *values, size_t count,
                            bool *over_out);
/* Collective: all replicas get the common model, and the run's position is that of all workers.
 * `*used_inout`: the part that they have learnt from of the samples dealt out since they last met;
 * stays as it is where none were. */
sh_status sh_scheme_meet(shoal_run *run, double *used_inout);
/* At the end of a run that went well: waits for the services. */
sh_status sh_scheme_finish(shoal_run *run);

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
