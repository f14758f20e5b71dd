/* Values of an update as integers for a sum modulo 2^32: cut to [-clip, clip] and rounded at random
 * to one of the two nearest multiples of a step, so that the mean over all draws is the value.
 *
 *   20 bits a value, 4,096 clients: sums stay within 32 bits */
#ifndef SH_FED_QUANTISE_H
#define SH_FED_QUANTISE_H

#include "base/rng.h"

enum { SH_FED_LEVELS = (1 << 19) - 1 };  // steps from 0 to the clip

static inline double sh_fed_step_of(double clip) { return clip / SH_FED_LEVELS; }
/* Draws from `rng`. */
void sh_fed_quantise(const float *values, size_t count, double clip, sh_rng *rng, uint32_t *out);

#endif
