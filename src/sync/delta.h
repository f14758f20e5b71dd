/* Averages of models through a codec, for the local family: what travels is what a worker changed
 * since all models were one, and error feedback returns what the codec leaves out at the next
 * average (Qsparse-local-SGD; Basu, Data, Karakus, Diggavi, NeurIPS 2019).
 *
 *   d_i <- w_i - a + r_i            a: the model of the last average, r_i: what was left out
 *   r_i <- d_i - C(d_i)
 *   w_i <- a + (1/P) sum_j C(d_j)   with equal bits on all workers
 *
 * Codecs that are right on average have no r. */
#ifndef SH_SYNC_DELTA_H
#define SH_SYNC_DELTA_H

#include "sync/sync.h"

typedef struct sh_delta sh_delta;

/* Collective, when all models are one. `residual_sum` is the replica's block for the residual,
 * NULL: it has none. NULL in `*delta_out`: the run has no codec, or one worker. */
sh_status sh_delta_create(sh_replica *replica, float *residual_sum, sh_delta **delta_out);
void sh_delta_destroy(sh_delta *delta, bool failed);
/* Collective: the weights become a + the mean change. Uses the gradient block. */
sh_status sh_delta_average(sh_delta *delta);
/* The models are one: `a` becomes the weights. */
void sh_delta_rebase(sh_delta *delta);
/* Collective, at a meeting: all workers go on with the mean residual, as a resumed run does. */
sh_status sh_delta_settle(sh_delta *delta);

/* The weights become their mean over the workers, through `delta` unless it is NULL. */
sh_status sh_delta_average_model(sh_delta *delta, sh_replica *replica);

/* For kind->check: what cannot take part. */
sh_status sh_delta_check(sh_scheme scheme, const sh_sync_terms *terms);

#endif
