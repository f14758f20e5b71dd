/* Weighted sums of updates, as integers: every value is rounded once to a multiple of 2^-40,
 * multiplied by an integer weight and added in 128 bits. Integer addition is associative, so the
 * bits of the sum do not depend on the order in which updates arrive.
 *
 *   |value| < 2^20, weight < 2^48, up to 2^18 updates: 60 + 48 + 18 bits, no overflow */
#ifndef SH_FED_EXACT_SUM_H
#define SH_FED_EXACT_SUM_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

#define SH_FED_VALUE_MOST 0x1p20f
enum { SH_FED_UPDATES_MOST = 1 << 18 };
static const uint64_t SH_FED_WEIGHT_MOST = (uint64_t)1 << 48;

typedef struct sh_fed_sum {
    __int128 *total;
    size_t count;
} sh_fed_sum;

sh_status sh_fed_sum_init(sh_fed_sum *sum, size_t count);
void sh_fed_sum_fini(sh_fed_sum *sum);
void sh_fed_sum_clear(sh_fed_sum *sum);
/* Fails with SH_E_NUMERIC, naming the first value that is not finite or too large. */
sh_status sh_fed_sum_check(const float *values, size_t count);
/* Adds elements [first, first + count), all checked, times `weight`. */
void sh_fed_sum_add(sh_fed_sum *sum, size_t first, const float *values, size_t count, double scale,
                    uint64_t weight);
/* Sum divided by the sum of the weights. */
void sh_fed_sum_mean(const sh_fed_sum *sum, double weights, float *mean_out);

#endif
