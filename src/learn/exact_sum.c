/* Fixed-point sums of doubles in two 64-bit words (exact_sum.h): integer addition is associative,
 * so the result does not depend on threads, workers or the order of rows. */
#include "learn/exact_sum.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

enum { BITS = 40 };  // of the high word below the bound; the low word has as many again

/* A power of two, so that scaling rounds nothing. A bound of 0 means that all terms are 0. */
static double scale_of(double bound) {
    int exponent;
    frexp(bound, &exponent);  // bound < 2^exponent
    return bound > 0 ? ldexp(1.0, BITS - exponent) : 1.0;
}

/* The caller finishes the sum. `bound` must be the same on all workers: the scale follows from
 * it. */
sh_status sh_exact_sum_init(sh_exact_sum *sum, size_t count, double bound) {
    *sum = (sh_exact_sum){.count = count, .bound = bound, .scale = scale_of(bound)};
    // 2 words for each sum, and one that counts refused terms.
    sum->words = sh_alloc(2 * count + 1, sizeof *sum->words);
    return sum->words != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for %zu sums", count);
}

void sh_exact_sum_fini(sh_exact_sum *sum) {
    sh_free(sum->words);
    *sum = (sh_exact_sum){0};
}

/* Reuses the memory for sums under another bound; all terms so far are forgotten. */
void sh_exact_sum_reset(sh_exact_sum *sum, double bound) {
    sum->bound = bound;
    sum->scale = scale_of(bound);
    memset(sum->words, 0, (2 * sum->count + 1) * sizeof *sum->words);
}

/* A term beyond the bound, or NaN, is counted instead of added: all workers then fail together. */
void sh_exact_sum_add_one(sh_exact_sum *sum, size_t index, double term) {
    // Negated, so that NaN, which compares false with everything, is refused too.
    if (!(fabs(term) <= sum->bound)) {
        sum->words[2 * sum->count]++;
        return;
    }
    double scaled = term * sum->scale;
    int64_t high = sh_to_whole(scaled);
    sum->words[index] += high;
    // Low word: what the high word rounds away, in units of 2^-40.
    sum->words[sum->count + index] += sh_to_whole((scaled - (double)high) * 0x1p40);
}

void sh_exact_sum_add(sh_exact_sum *sum, const double *terms) {
    for (size_t i = 0; i < sum->count; i++) sh_exact_sum_add_one(sum, i, terms[i]);
}

/* Threads of one worker sum apart and join; no atomics in the loop over rows. */
void sh_exact_sum_join(sh_exact_sum *sum, const sh_exact_sum *other) {
    for (size_t i = 0; i < 2 * sum->count + 1; i++) sum->words[i] += other->words[i];
}

/* Collective: one sum of integers. All workers see the same count of refused terms, so all
 * succeed or all fail. */
sh_status sh_exact_sum_meet(sh_exact_sum *sum, sh_learn_team *team, double *values_out) {
    SH_TRY(sh_learn_sum(team, sum->words, 2 * sum->count + 1));
    if (sum->words[2 * sum->count] != 0) {
        SH_FAIL(SH_E_NUMERIC, "%ld numbers are not finite, or too large to be summed",
                (long)sum->words[2 * sum->count]);
        return sh_error_hint(
            "look for values in the data that are not finite, or scale it: "
            "--data.normalise auto");
    }
    for (size_t i = 0; i < sum->count; i++) {
        double high = (double)sum->words[i], low = (double)sum->words[sum->count + i];
        values_out[i] = (high + low * 0x1p-40) / sum->scale;  // scale: a power of two
    }
    return SH_OK;
}

/* 50 bits at most, as sh_to_whole takes magnitudes below 2^51; 61 bits for the sum of all terms. */
double sh_whole_scale(double bound, size_t terms) {
    enum { BITS_MOST = 50, SUM_BITS = 61 };
    int exponent, terms_exponent;
    frexp(bound, &exponent);
    frexp((double)terms, &terms_exponent);
    int bits = SUM_BITS - terms_exponent < BITS_MOST ? SUM_BITS - terms_exponent : BITS_MOST;
    return bound > 0 ? ldexp(1.0, bits - exponent) : 1.0;
}
