/* Batchnorm's running statistics, of which every evaluation and checkpoint has one set: the mean
 * over the workers, each weighted by the samples it has learnt from.
 *
 * Sums over the workers of n_i and n_i s_i give s = sum n_i s_i / sum n_i. They are doubles, in
 * which these products and sums of equal statistics are exact: a mean that is taken once more, or
 * by other workers, changes no bit. */
#ifndef SH_SYNC_STATISTICS_H
#define SH_SYNC_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

/* A block of running statistics. */
typedef struct sh_statistics {
    float *values;  // (count); NULL: timing only
    size_t count;   // 0: the net has none
} sh_statistics;

/* Numbers that are summed; 0: the net has no running statistics. */
static inline size_t sh_statistics_sums(const sh_statistics *statistics) {
    return statistics->count > 0 ? 1 + statistics->count : 0;
}
/* This worker's part of the sums, where it has learnt from so many samples since the last mean. */
void sh_statistics_weigh(const sh_statistics *statistics, int64_t samples, double *sums_out);
/* The statistics become the mean, unless nobody has learnt anything. */
void sh_statistics_take(const sh_statistics *statistics, const double *sums);

#endif
