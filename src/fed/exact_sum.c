/* Sums of updates in 128-bit fixed point (units of 2^-40): any order of arrival gives the same
 * bits. */
#include "fed/exact_sum.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

/* 16 bytes per value, four times the update itself. */
sh_status sh_fed_sum_init(sh_fed_sum *sum, size_t count) {
    sum->total = sh_alloc(count, sizeof *sum->total);
    sum->count = count;
    return sum->total != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for a sum of updates");
}

void sh_fed_sum_fini(sh_fed_sum *sum) {
    sh_free(sum->total);
    *sum = (sh_fed_sum){0};
}

/* Reuses the memory for the next round. */
void sh_fed_sum_clear(sh_fed_sum *sum) { memset(sum->total, 0, sum->count * sizeof *sum->total); }

/* Before anything is added: a NaN or an overflow, once rounded to an integer, would spoil the sum
 * for good. */
sh_status sh_fed_sum_check(const float *values, size_t count) {
    for (size_t i = 0; i < count; i++) {
        if (fabsf(values[i]) < SH_FED_VALUE_MOST) continue;  // false for NaN
        return SH_FAIL(SH_E_NUMERIC, "value %zu of the update is %g; the largest is 2^20", i,
                       isnan(values[i]) ? (double)NAN : (double)values[i]);
    }
    return SH_OK;
}

/* `scale` divides by steps or clips to a norm; it is applied before the one rounding of each value.
 */
void sh_fed_sum_add(sh_fed_sum *sum, size_t first, const float *values, size_t count, double scale,
                    uint64_t weight) {
    SH_ASSERT(first + count <= sum->count && weight <= SH_FED_WEIGHT_MOST);
    __int128 *total = sum->total + first;
    const double unit = scale * 0x1p40;
    const int64_t times = (int64_t)weight;
    for (size_t i = 0; i < count; i++)
        // Rounded once: 2^-40 units, then integers alone.
        total[i] += (__int128)llrint((double)values[i] * unit) * times;
}

/* The exact sum divided by `weights`, the sum of the integer weights; rounding begins here. */
void sh_fed_sum_mean(const sh_fed_sum *sum, double weights, float *mean_out) {
    for (size_t i = 0; i < sum->count; i++)
        mean_out[i] = (float)((double)sum->total[i] * 0x1p-40 / weights);
}
