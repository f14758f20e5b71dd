/* Balance: workers of unequal speed take unequal parts of every batch, so that they finish
 * together. The loss stays the mean over the samples of the batch, whoever computes them. */
#ifndef SH_SYNC_BALANCE_H
#define SH_SYNC_BALANCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Cuts `batch` samples in proportion to `speed` (samples per second): worker r takes cuts_out[r] to
 * cuts_out[r + 1], at least one sample each (batch >= ranks). The slowest finishing time is the
 * least that whole samples allow to within one sample. */
void sh_balance_cut(const double *speed, int ranks, uint32_t batch, uint32_t *cuts_out);

/* How long the slowest worker takes with these cuts. */
double sh_balance_time(const double *speed, int ranks, const uint32_t *cuts);

#endif
