/* Batchnorm's running statistics, of which every evaluation and checkpoint has one set: the mean
 * over the workers, each weighted by the samples it has learnt from.
 *
 * Sums over the workers of n_i and n_i s_i give s = sum n_i s_i / sum n_i. They are doubles, in
 * which these products and sums of equal statistics are exact: a mean that is taken once more, or
 * by other workers, changes no bit. */
#ifndef SH_RUN_STATES_H
#define SH_RUN_STATES_H

#include "run/run.h"

/* Numbers that are summed; 0: the net has no running statistics. */
static inline size_t sh_states_sums(const sh_net *net) {
    return net->states.total > 0 ? 1 + net->states.total : 0;
}
/* This worker's part of the sums, where it has learnt from so many samples since the last mean. */
void sh_states_weigh(const shoal_run *run, int64_t samples, double *sums_out);
/* The statistics become the mean, unless nobody has learnt anything. */
void sh_states_take(shoal_run *run, const double *sums);

#endif
