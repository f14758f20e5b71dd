/* What the workers of a run did together, for the end of its metrics. */
#ifndef SH_RUN_TOTALS_H
#define SH_RUN_TOTALS_H

#include "run/run.h"

typedef struct sh_totals {
    double sent_bytes, dense_bytes;  // by all workers, and what it would be without a codec
    double updates;         // of the parameters: of the one model, or of all replicas together
    double staleness_mean;  // of those updates; NaN: the scheme has none
    double staleness_most;
} sh_totals;

/* Collective, after the loop: services have ended. Since this process began to train. */
sh_status sh_totals_count(shoal_run *run, sh_totals *totals_out);
/* How stale the gradients were that the first server took, in the log and as a histogram in the
 * metrics. Nothing where no gradient was pushed to one. */
sh_status sh_totals_tell_staleness(const shoal_run *run);

#endif
