/* Sums of doubles that have the same bits whoever adds which term, in whatever order: fixed point
 * in two 64-bit integers per sum, whose addition is associative.
 *
 *   term = (high + low 2^-40) / scale,   |high| <= 2^40,  |low| <= 2^39
 *
 * The scale follows from a bound that all workers know before they add, so that no worker has to
 * ask for the greatest term. 80 bits below the bound are kept, and 2^22 terms fit. */
#ifndef SH_LEARN_EXACT_SUM_H
#define SH_LEARN_EXACT_SUM_H

#include <string.h>

#include "learn/team.h"

typedef struct sh_exact_sum {
    size_t count;
    double bound, scale;
    int64_t *words;  // (2 count + 1): high, low, and how many terms were beyond the bound
} sh_exact_sum;

/* Zeros. Terms are at most `bound` in magnitude; 0 where all are 0. */
sh_status sh_exact_sum_init(sh_exact_sum *sum, size_t count, double bound);
void sh_exact_sum_fini(sh_exact_sum *sum);
/* Zeros again, for terms of another bound. */
void sh_exact_sum_reset(sh_exact_sum *sum, double bound);
/* One term for each sum. */
void sh_exact_sum_add(sh_exact_sum *sum, const double *terms);
/* One term for sum `index` alone. */
void sh_exact_sum_add_one(sh_exact_sum *sum, size_t index, double term);
/* What another thread of this worker has summed; of the same bound. */
void sh_exact_sum_join(sh_exact_sum *sum, const sh_exact_sum *other);
/* Collective: the sums over all workers. Fails where a term was not finite or beyond the bound. */
sh_status sh_exact_sum_meet(sh_exact_sum *sum, sh_learn_team *team, double *values_out);

/* Long sums of many short terms, one 64-bit integer each: with this scale `terms` terms of at most
 * `bound` in magnitude, made whole by sh_to_whole, add up below 2^62. */
double sh_whole_scale(double bound, size_t terms);

/* To the nearest integer, for magnitudes below 2^51: x + 1.5 2^52 holds it in its low bits. In
 * vector code where the compiler finds it in a loop. */
static inline int64_t sh_to_whole(double x) {
    const double shift = 0x1.8p52;
    int64_t bits, zero;
    x += shift;
    memcpy(&bits, &x, sizeof bits);
    memcpy(&zero, &shift, sizeof zero);
    return bits - zero;
}

#endif
