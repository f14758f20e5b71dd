/* First centres. Every draw is a function of (seed, round, global row), so that the same rows are
 * drawn whoever holds them.
 *
 * k-means|| (Bahmani et al., "Scalable k-means++", 2012): in each of some rounds a row becomes a
 * candidate with probability min(1, l d^2 / phi), where d is its distance to the nearest candidate,
 * phi the sum of d^2 over all rows and l the candidates wanted of a round. Candidates count as many
 * rows as are nearest to them; greedy k-means++ draws the centres from them. A round sends phi and
 * the new candidates. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "learn/exact_sum.h"
#include "learn/kmeans.h"

/* Rounds of the random stream. k-means|| has 10000 at most, fewer than DRAW_RECLUSTER, so that
 * no stream serves twice. */
enum { DRAW_FIRST = 0, DRAW_ROUND = 1, DRAW_RECLUSTER = 1 << 15 };

/* Each row's squared distance to the nearest of those chosen so far, and which that is. */
typedef struct seeding {
    const sh_kmeans_options *options;
    const sh_rows *rows;
    sh_learn_team *team;
    double *distance;      // (rows)
    int32_t *nearest;      // (rows), into `chosen`
    sh_neighbour *latest;  // (rows): among the newest alone
    // grows by candidates in the same order on all workers
    float *chosen;  // (count, width)
    size_t count;
    double *draw;  // (rows): this round's, uniform in (0, 1)
} seeding;

static void seeding_fini(seeding *s) {
    sh_free(s->distance);
    sh_free(s->nearest);
    sh_free(s->latest);
    sh_free(s->chosen);
    sh_free(s->draw);
}

/* Distances start at infinity: the first candidate is nearer to every row. */
static sh_status seeding_init(seeding *s) {
    size_t rows = s->rows->count + 1;
    s->distance = sh_alloc(rows, sizeof *s->distance);
    s->nearest = sh_alloc(rows, sizeof *s->nearest);
    s->latest = sh_alloc(rows, sizeof *s->latest);
    s->draw = sh_alloc(rows, sizeof *s->draw);
    if (!s->distance || !s->nearest || !s->latest || !s->draw)
        return SH_FAIL(SH_E_MEMORY, "out of memory for distances of %zu rows", rows);
    for (size_t i = 0; i < rows; i++) s->distance[i] = INFINITY;
    return SH_OK;
}

/* 53 bits for each of this worker's rows. */
static void draw_round(seeding *s, uint32_t round) {
    sh_rng stream = sh_rng_stream(s->options->seed, SH_RNG_LEARN, round, 0);
    for (size_t i = 0; i < s->rows->count; i++) {
        sh_philox_block block = sh_rng_at(&stream, s->rows->first + i);
        uint64_t bits = (uint64_t)block.word[0] << 32 | block.word[1];
        // Never 0, whose logarithm is infinite.
        s->draw[i] = ((double)(bits >> 11) + 0.5) * 0x1p-53;
    }
}

/* All workers get the rows that each of them lists, in the order of their numbers. */
static sh_status choose(seeding *s, const uint32_t *list, size_t count, size_t *added_out) {
    size_t width = s->rows->width, bytes = 0;
    float *own = sh_alloc(count * width + 1, sizeof *own);
    void *all = NULL;
    sh_status status = own != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for centres");
    for (size_t i = 0; status == SH_OK && i < count; i++) {
        const float *x = sh_rows_at(s->rows, list[i], own + i * width);
        if (x != own + i * width) memcpy(own + i * width, x, width * sizeof *x);
    }
    if (status == SH_OK)
        // Collective; in the order of ranks.
        status = sh_learn_collect(s->team, own, count * width * sizeof *own, &all, &bytes);
    sh_free(own);
    SH_TRY(status);
    float *grown = sh_realloc(s->chosen, s->count * width + bytes / sizeof *own + 1, sizeof *grown);
    if (grown == NULL) {
        sh_free(all);
        return SH_FAIL(SH_E_MEMORY, "out of memory for candidates");
    }
    s->chosen = grown;
    memcpy(s->chosen + s->count * width, all, bytes);
    *added_out = bytes / (width * sizeof *own);
    s->count += *added_out;
    sh_free(all);
    return SH_OK;
}

/* Distances to the last `added` candidates, where they are nearer than those before. */
static sh_status measure(seeding *s, size_t added) {
    sh_centres newest;
    size_t width = s->rows->width;
    if (added == 0) return SH_OK;
    SH_TRY(sh_centres_init(&newest, added, width));
    sh_centres_set(&newest, s->chosen + (s->count - added) * width);
    sh_status status = sh_nearest_all(s->rows, &newest, s->team->threads, s->latest);
    for (size_t i = 0; status == SH_OK && i < s->rows->count; i++) {
        // Of equal distances the older candidate stays.
        if (s->latest[i].distance >= s->distance[i]) continue;
        s->distance[i] = s->latest[i].distance;
        s->nearest[i] = s->latest[i].index + (int32_t)(s->count - added);
    }
    sh_centres_fini(&newest);
    return status;
}

/* phi, the sum of squared distances to the nearest candidate, over all workers. */
static sh_status sum_distances(seeding *s, double *phi_out) {
    double bound = 0;
    for (size_t i = 0; i < s->rows->count; i++)
        if (s->distance[i] > bound) bound = s->distance[i];
    SH_TRY(sh_learn_max(s->team, &bound, 1));
    sh_exact_sum sum;
    SH_TRY(sh_exact_sum_init(&sum, 1, bound));
    for (size_t i = 0; i < s->rows->count; i++) sh_exact_sum_add_one(&sum, 0, s->distance[i]);
    sh_status status = sh_exact_sum_meet(&sum, s->team, phi_out);
    sh_exact_sum_fini(&sum);
    return status;
}

/* The worker that has the row lists it, all others list nothing. */
static sh_status choose_row(seeding *s, size_t row, size_t *added_out) {
    uint32_t own = (uint32_t)(row - s->rows->first);
    // True on exactly one worker.
    bool mine = row >= s->rows->first && row - s->rows->first < s->rows->count;
    return choose(s, &own, mine ? 1 : 0, added_out);
}

/* Uniform over all rows; the same draw on every worker. */
static sh_status choose_first(seeding *s) {
    sh_rng draws = sh_rng_stream(s->options->seed, SH_RNG_LEARN, DRAW_FIRST, 1);
    size_t added;
    SH_TRY(choose_row(s, (size_t)sh_rng_below(&draws, s->rows->total), &added));
    return measure(s, added);
}

static sh_status too_few(const seeding *s, size_t distinct) {
    SH_FAIL(SH_E_USAGE, "%ld clusters, but the data holds only %zu different rows",
            (long)s->options->k, distinct);
    return sh_error_hint("take k %zu or less", distinct);
}

/* ---- k-means++ among weighted points, by every worker for itself ---- */

/* The next point by chance, in proportion to weight x distance. */
static size_t draw_point(sh_rng *draws, const double *weight, const double *distance,
                         size_t count) {
    double all = 0, sum = 0;
    // `distance` is squared already.
    for (size_t i = 0; i < count; i++) all += weight[i] * distance[i];
    uint64_t bits = sh_rng_u64(draws);
    double at = ((double)(bits >> 11) + 0.5) * 0x1p-53 * all;
    size_t last = count;
    for (size_t i = 0; i < count; i++) {
        double part = weight[i] * distance[i];
        if (part <= 0) continue;  // a point on a centre is never drawn
        last = i;
        sum += part;
        if (sum >= at) break;
    }
    return last;  // count: all lie on centres
}

/* What is left of the weighted distances once point `at` is a centre; `*next` gets them. */
static double potential(const seeding *s, const double *weight, const double *distance, size_t at,
                        bool first, double *next) {
    size_t width = s->rows->width;
    double sum = 0;
    for (size_t i = 0; i < s->count; i++) {
        double d = sh_distance(s->chosen + i * width, s->chosen + at * width, width);
        // The first centre: distances were all 1.
        next[i] = first || d < distance[i] ? d : distance[i];
        sum += weight[i] * next[i];
    }
    return sum;
}

/* Of several points drawn, the one that leaves least becomes the next centre. */
static sh_status recluster(seeding *s, const double *weight, float *centres_out) {
    size_t width = s->rows->width, k = (size_t)s->options->k;
    int trials = 2 + (int)log((double)k);  // greedy k-means++: 2 + ln k draws for each centre
    double *distance = sh_alloc(3 * s->count, sizeof *distance);
    if (distance == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for candidates");
    double *tried = distance + s->count, *best = tried + s->count;
    sh_rng draws = sh_rng_stream(s->options->seed, SH_RNG_LEARN, DRAW_RECLUSTER, 0);
    for (size_t i = 0; i < s->count; i++) distance[i] = 1;  // the first is drawn by weight alone
    sh_status status = SH_OK;
    for (size_t j = 0; status == SH_OK && j < k; j++) {
        double least = INFINITY;
        size_t chosen = s->count;
        for (int trial = 0; trial < trials; trial++) {
            size_t at = draw_point(&draws, weight, distance, s->count);
            if (at == s->count) break;  // all points lie on centres
            double left = potential(s, weight, distance, at, j == 0, tried);
            if (left >= least) continue;
            least = left;
            chosen = at;
            memcpy(best, tried, s->count * sizeof *best);
        }
        if (chosen == s->count) {  // fewer different candidates than centres
            status = too_few(s, j);
            break;
        }
        memcpy(centres_out + j * width, s->chosen + chosen * width, width * sizeof *centres_out);
        memcpy(distance, best, s->count * sizeof *best);
    }
    sh_free(distance);
    return status;
}

/* A candidate weighs as many rows as are nearest to it, over all workers. */
static sh_status count_nearest(seeding *s, double *weight_out) {
    int64_t *counts = sh_alloc(s->count, sizeof *counts);
    if (counts == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for candidates");
    for (size_t i = 0; i < s->rows->count; i++) counts[s->nearest[i]]++;
    sh_status status = sh_learn_sum(s->team, counts, s->count);
    for (size_t i = 0; i < s->count; i++) weight_out[i] = (double)counts[i];
    sh_free(counts);
    return status;
}

/* Equal candidates count once: rows are nearest to the first of them, the others weigh nothing. */
static size_t weighted(const double *weight, size_t count) {
    size_t found = 0;
    for (size_t i = 0; i < count; i++) found += weight[i] > 0;
    return found;
}

/* A row is taken with probability min(1, l d^2 / phi), written without a division. */
static sh_status parallel_round(seeding *s, uint32_t round, double phi, size_t *added_out) {
    // l: candidates wanted of a round.
    double wanted = s->options->oversample > 0 ? s->options->oversample : 2;
    wanted *= (double)s->options->k;
    uint32_t *list = sh_alloc(s->rows->count + 1, sizeof *list);
    if (list == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for candidates");
    size_t count = 0;
    draw_round(s, round);
    for (size_t i = 0; i < s->rows->count; i++)
        if (s->draw[i] * phi < wanted * s->distance[i]) list[count++] = (uint32_t)i;
    sh_status status = choose(s, list, count, added_out);
    sh_free(list);
    SH_TRY(status);
    return measure(s, *added_out);
}

/* More rounds than asked for, should they have brought fewer candidates than centres. */
static sh_status seed_parallel(seeding *s, float *centres_out) {
    enum { ROUNDS_MOST = 10000 };
    int64_t rounds = s->options->rounds > 0 ? s->options->rounds : 5;
    SH_TRY(choose_first(s));
    for (int64_t round = 0; round < rounds || s->count < (size_t)s->options->k; round++) {
        double phi;
        SH_TRY(sum_distances(s, &phi));
        if (phi <= 0 || round == ROUNDS_MOST) break;  // phi 0: every row is a candidate
        size_t added;
        SH_TRY(parallel_round(s, DRAW_ROUND + (uint32_t)round, phi, &added));
    }
    double *weight = sh_alloc(s->count, sizeof *weight);
    if (weight == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for candidates");
    sh_status status = count_nearest(s, weight);
    size_t distinct = weighted(weight, s->count);
    if (status == SH_OK && distinct < (size_t)s->options->k) status = too_few(s, distinct);
    if (status == SH_OK) status = recluster(s, weight, centres_out);
    sh_free(weight);
    return status;
}

/* A row is drawn in proportion to d^2 as the one with the least -log(u) / d^2: the minimum of
 * exponential variables of these rates. */
static sh_status seed_plusplus(seeding *s, float *centres_out) {
    SH_TRY(choose_first(s));
    while (s->count < (size_t)s->options->k) {
        sh_learn_best best = {.row = -1};
        draw_round(s, (uint32_t)(DRAW_ROUND + s->count));
        for (size_t i = 0; i < s->rows->count; i++) {
            if (s->distance[i] <= 0) continue;  // a copy of a centre is not drawn
            // greatest log(u) / d^2 = least -log(u) / d^2
            sh_learn_best it = {log(s->draw[i]) / s->distance[i], (int64_t)(s->rows->first + i)};
            if (sh_learn_beats(it, best)) best = it;
        }
        SH_TRY(sh_learn_best_of(s->team, &best));
        if (best.row < 0) return too_few(s, s->count);  // all rows lie on centres
        size_t added;
        SH_TRY(choose_row(s, (size_t)best.row, &added));
        SH_TRY(measure(s, added));
    }
    memcpy(centres_out, s->chosen, s->count * s->rows->width * sizeof *centres_out);
    return SH_OK;
}

/* The k rows with the least draws. */
static sh_status seed_random(seeding *s, float *centres_out) {
    draw_round(s, DRAW_ROUND);
    while (s->count < (size_t)s->options->k) {
        sh_learn_best best = {.row = -1};
        for (size_t i = 0; i < s->rows->count; i++) {
            sh_learn_best it = {-s->draw[i], (int64_t)(s->rows->first + i)};
            if (s->draw[i] < 1 && sh_learn_beats(it, best)) best = it;  // 1: taken already
        }
        SH_TRY(sh_learn_best_of(s->team, &best));
        size_t added, row = (size_t)best.row - s->rows->first;
        if ((size_t)best.row >= s->rows->first && row < s->rows->count) s->draw[row] = 1;
        SH_TRY(choose_row(s, (size_t)best.row, &added));
    }
    memcpy(centres_out, s->chosen, s->count * s->rows->width * sizeof *centres_out);
    return SH_OK;
}

/* Each way gives k centres, or fails on all workers. */
sh_status sh_kmeans_seed(const sh_kmeans_options *options, const sh_rows *rows, sh_learn_team *team,
                         float *centres_out) {
    SH_ASSERT(options->k > 0);
    seeding s = {.options = options, .rows = rows, .team = team};
    sh_status status = sh_learn_agree(team, seeding_init(&s));
    if (status == SH_OK && options->seeds == SH_SEEDS_RANDOM)
        status = seed_random(&s, centres_out);
    else if (status == SH_OK && options->seeds == SH_SEEDS_PLUSPLUS)
        status = seed_plusplus(&s, centres_out);
    else if (status == SH_OK)
        status = seed_parallel(&s, centres_out);
    seeding_fini(&s);
    return status;
}
