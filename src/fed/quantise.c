/* Stochastic rounding of updates to integers for secure aggregation: E[level] = value / step, so
 * that the error of a mean over n clients falls as 1 / sqrt(n). */
#include "fed/quantise.h"

#include <math.h>

/* Negative levels wrap modulo 2^32, as masks do; the sum is read back as signed. */
void sh_fed_quantise(const float *values, size_t count, double clip, sh_rng *rng, uint32_t *out) {
    const double steps = SH_FED_LEVELS / clip;
    for (size_t i = 0; i < count; i++) {
        double value = (double)values[i];
        if (!(value < clip)) value = clip;  // NaN, too: its update was refused before
        if (value < -clip) value = -clip;
        double scaled = value * steps, below = floor(scaled);
        int32_t level = (int32_t)below + ((double)sh_rng_uniform(rng) < scaled - below);
        out[i] = (uint32_t)level;
    }
}
