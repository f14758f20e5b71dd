/* Rules that a minority of malicious clients cannot steer at will, where a mean can be moved
 * anywhere by one. They need every update of a round by itself, so the server holds them in memory
 * until the round closes: held x count floats. Updates weigh alike, as a client could claim any
 * number of samples. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "fed/rule.h"

/* Updates are finite (sh_fed_sum_check), so that this is a total order. */
static int compare_floats(const void *a, const void *b) {
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Per coordinate the mean of the sorted values [cut, held - cut). O(count held log held). */
static sh_status mean_of_middle(const float *const *updates, size_t held, size_t count, size_t cut,
                                float *out) {
    float *column = sh_alloc(held, sizeof *column);
    if (column == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu updates", held);
    for (size_t i = 0; i < count; i++) {
        for (size_t k = 0; k < held; k++) column[k] = updates[k][i];
        qsort(column, held, sizeof *column, compare_floats);
        double sum = 0;
        for (size_t k = cut; k < held - cut; k++) sum += (double)column[k];
        out[i] = (float)(sum / (double)(held - 2 * cut));
    }
    sh_free(column);
    return SH_OK;
}

/* Cutting (held - 1) / 2 on either side leaves the middle value, or the two of an even number. */
static sh_status combine_median(const sh_fed_rule_options *options, const float *const *updates,
                                size_t held, size_t count, float *out) {
    (void)options;
    return mean_of_middle(updates, held, count, (held - 1) / 2, out);
}

/* Median (Yin et al. 2018): no minority moves a coordinate beyond the honest values. */
const sh_fed_rule sh_fed_rule_median = {
    .name = "median",
    .help = "median of every coordinate (Yin et al. 2018); the server holds a round's updates",
    .lr = 1,
    .equal_weights = true,
    .apply = sh_fed_apply_mean,
    .combine = combine_median,
};

/* Trimmed mean (Yin et al. 2018): tolerates a part `amount` of malicious clients. */
static sh_status combine_trimmed(const sh_fed_rule_options *options, const float *const *updates,
                                 size_t held, size_t count, float *out) {
    size_t cut = (size_t)ceil(options->amount * (double)held);
    if (2 * cut >= held)
        return SH_FAIL(SH_E_SHAPE, "trimmed:%g leaves none of %zu updates", options->amount, held);
    return mean_of_middle(updates, held, count, cut, out);
}

const sh_fed_rule sh_fed_rule_trimmed = {
    .name = "trimmed",
    .help = "mean of every coordinate without the outer parts; the server holds a round's updates",
    .amount = "the part left out on either side",
    .amount_initial = 0.1,
    .amount_most = 0.49,
    .lr = 1,
    .equal_weights = true,
    .apply = sh_fed_apply_mean,
    .combine = combine_trimmed,
};

/* |a - b|^2 in doubles: sums of millions of squares. */
static double distance(const float *a, const float *b, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
    return sum;
}

static int compare_doubles(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sum of the `near` smallest squared distances of update `k` to the others. `row` is scratch
 * (held). */
static double score(const double *distances, size_t held, size_t k, size_t near, double *row) {
    double sum = 0;
    memcpy(row, distances + k * held, held * sizeof *row);
    row[k] = INFINITY;
    qsort(row, held, sizeof *row, compare_doubles);
    for (size_t i = 0; i < near; i++) sum += row[i];
    return sum;
}

/* Krum (Blanchard et al. 2017): the one update whose sum of squared distances to its held - f - 2
 * nearest others is least, for f malicious clients; needs held >= 2 f + 3. O(held^2 count). */
static sh_status combine_krum(const sh_fed_rule_options *options, const float *const *updates,
                              size_t held, size_t count, float *out) {
    size_t bad = (size_t)options->amount;
    if (held < 2 * bad + 3)
        return SH_FAIL(SH_E_SHAPE, "krum:%zu needs %zu updates, and there are %zu", bad,
                       2 * bad + 3, held);
    double *distances = sh_alloc((held + 1) * held, sizeof *distances);
    if (distances == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %zu updates", held);
    for (size_t a = 0; a < held; a++)
        for (size_t b = a + 1; b < held; b++)
            distances[a * held + b] = distances[b * held + a] =
                distance(updates[a], updates[b], count);
    size_t best = 0;
    double least = INFINITY;
    for (size_t k = 0; k < held; k++) {
        double sum = score(distances, held, k, held - bad - 2, distances + held * held);
        if (sum < least) {
            least = sum;
            best = k;
        }
    }
    memcpy(out, updates[best], count * sizeof *out);
    sh_free(distances);
    return SH_OK;
}

/* The model moves by one client's update alone: robust, but noisier than a mean. */
const sh_fed_rule sh_fed_rule_krum = {
    .name = "krum",
    .help = "the update nearest to its neighbours; the server holds a round's updates",
    .amount = "the number of malicious clients",
    .amount_initial = 1,
    .amount_most = 10000,
    .lr = 1,
    .equal_weights = true,
    .apply = sh_fed_apply_mean,
    .combine = combine_krum,
};
