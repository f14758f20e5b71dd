/* k-means: k centres such that the sum of squared distances of all rows to their nearest centre
 * (the inertia) is small, by Lloyd's iteration. Centres have the same bits at any number of workers
 * and threads: rows are told apart exactly (nearest.h), what is summed are integers, and draws are
 * functions of (seed, round, global row).
 *
 * An iteration sends one sum of k (width + 1) numbers, and another where a cluster lost all its
 * rows. */
#ifndef SH_LEARN_KMEANS_H
#define SH_LEARN_KMEANS_H

#include "learn/nearest.h"

typedef enum sh_kmeans_seeds {
    SH_SEEDS_PARALLEL,  // k-means|| (Bahmani et al., 2012)
    SH_SEEDS_PLUSPLUS,  // k-means++ (Arthur and Vassilvitskii, 2007)
    SH_SEEDS_RANDOM,    // k different rows
    SH_SEEDS_GIVEN,
} sh_kmeans_seeds;

typedef struct sh_kmeans_options {
    int64_t k;
    sh_kmeans_seeds seeds;
    const float *given;  // (k, width), borrowed
    double oversample;   // k-means||: candidates of a round, as a multiple of k; 0: 2
    int64_t rounds;      // k-means||; 0: 5
    int64_t batch;       // mini-batch: rows of a step; 0: all rows, Lloyd's
    bool plain;          // no bounds: every row is compared with every centre
    uint64_t seed;
} sh_kmeans_options;

typedef struct sh_kmeans_step {
    double inertia;    // before the centres moved; mini-batch: of the batch, scaled to all rows
    int64_t changed;   // rows that changed their cluster
    double shift;      // the sum of the centres' squared moves
    int64_t compared;  // rows that were compared with all centres
    int64_t refilled;  // clusters that had lost all their rows and took the farthest
} sh_kmeans_step;

typedef struct sh_kmeans sh_kmeans;

/* Takes the mean off the rows, in place, where they are dense, and draws the first centres.
 * Collective. `rows` and `team` are borrowed until it is destroyed. Fails where the rows hold fewer
 * than k different ones. */
sh_status sh_kmeans_create(const sh_kmeans_options *options, sh_rows *rows, sh_learn_team *team,
                           sh_kmeans **kmeans_out);
void sh_kmeans_destroy(sh_kmeans *kmeans);
/* One iteration. Collective. */
sh_status sh_kmeans_iterate(sh_kmeans *kmeans, sh_kmeans_step *step_out);
/* The centres where the data lies, (k, width), and the rows that each has met in mini-batches, (k).
 */
const float *sh_kmeans_centres(const sh_kmeans *kmeans);
const float *sh_kmeans_rows_met(const sh_kmeans *kmeans);
/* Goes on from these, after so many iterations. */
void sh_kmeans_restore(sh_kmeans *kmeans, const float *centres, const float *rows_met,
                       int64_t iteration);
/* The cluster of each of this worker's rows in the last iteration, (rows). */
const int32_t *sh_kmeans_clusters(const sh_kmeans *kmeans);

/* First centres of rows that are centred already, (k, width); collective. */
sh_status sh_kmeans_seed(const sh_kmeans_options *options, const sh_rows *rows, sh_learn_team *team,
                         float *centres_out);

/* The sum of squared distances of rows to their nearest of `centres`; collective. */
sh_status sh_kmeans_inertia(const sh_rows *rows, const float *centres, size_t k,
                            sh_learn_team *team, double *inertia_out);

#endif
