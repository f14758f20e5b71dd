#include <math.h>

#include "learn/kmeans.h"
#include "learn/rig.h"

typedef struct trial {
    rig_data data;
    sh_kmeans_options options;
    int iterations;  // at most; it ends when no centre moves
    bool sparse;
    // Results, of rank 0:
    float *centres;
    double inertia[200];
    int64_t compared[200], refilled;
    int done;
    double final;
} trial;

static sh_status cluster(sh_learn_team *team, void *argument) {
    trial *t = argument;
    sh_rows rows = rig_rows(&t->data, team, t->sparse);
    sh_kmeans *kmeans = NULL;
    sh_status status = sh_kmeans_create(&t->options, &rows, team, &kmeans);
    bool leads = team->rank == 0;
    for (int i = 0; status == SH_OK && i < t->iterations; i++) {
        sh_kmeans_step step;
        status = sh_kmeans_iterate(kmeans, &step);
        if (leads && status == SH_OK) {
            t->inertia[i] = step.inertia;
            t->compared[i] = step.compared;
            t->refilled += step.refilled;
            t->done = i + 1;
        }
        if (step.shift == 0) break;
    }
    double final = 0;
    size_t floats = (size_t)t->options.k * t->data.width;
    sh_rows again = rig_rows(&t->data, team, t->sparse);
    if (status == SH_OK)
        status = sh_kmeans_inertia(&again, sh_kmeans_centres(kmeans), (size_t)t->options.k, team,
                                   &final);
    if (leads && status == SH_OK) {
        sh_free(t->centres);
        t->centres = sh_alloc(floats, sizeof *t->centres);
        memcpy(t->centres, sh_kmeans_centres(kmeans), floats * sizeof *t->centres);
        t->final = final;
    }
    sh_rows_fini(&again);
    sh_kmeans_destroy(kmeans);
    sh_rows_fini(&rows);
    return status;
}

/* Plain Lloyd in doubles from the given centres: the oracle. */
static double oracle(const rig_data *d, size_t k, const float *given, int iterations) {
    double *c = sh_alloc(k * d->width, sizeof *c), *sum = sh_alloc(k * d->width, sizeof *sum);
    double *rows = sh_alloc(k, sizeof *rows), inertia = 0;
    for (size_t i = 0; i < k * d->width; i++) c[i] = (double)given[i];
    for (int turn = 0; turn < iterations; turn++) {
        inertia = 0;
        memset(sum, 0, k * d->width * sizeof *sum);
        memset(rows, 0, k * sizeof *rows);
        for (size_t i = 0; i < d->rows; i++) {
            double least = INFINITY;
            size_t at = 0;
            for (size_t j = 0; j < k; j++) {
                double distance = 0;
                for (size_t f = 0; f < d->width; f++) {
                    double gap = (double)d->x[i * d->width + f] - c[j * d->width + f];
                    distance += gap * gap;
                }
                if (distance < least) least = distance, at = j;
            }
            inertia += least;
            rows[at]++;
            for (size_t f = 0; f < d->width; f++)
                sum[at * d->width + f] += (double)d->x[i * d->width + f];
        }
        for (size_t j = 0; j < k; j++)
            for (size_t f = 0; f < d->width && rows[j] > 0; f++)
                c[j * d->width + f] = sum[j * d->width + f] / rows[j];
    }
    sh_free(c);
    sh_free(sum);
    sh_free(rows);
    return inertia;
}

static void expect_same_bits(trial *t, const int *workers, size_t count) {
    float *first = NULL;
    double final = 0;
    size_t bytes = (size_t)t->options.k * t->data.width * sizeof *first;
    for (size_t i = 0; i < count; i++) {
        CHECK_OK(rig_run(workers[i], 1 + (int)(i % 2), cluster, t));
        if (first == NULL) {
            first = sh_alloc(bytes, 1);
            memcpy(first, t->centres, bytes);
            final = t->final;
        }
        assert_memory_equal(first, t->centres, bytes);
        assert_true(final == t->final);
    }
    sh_free(first);
}

static const int counts[] = {1, 2, 3, 5};

TEST(kmeans, has_the_same_bits_at_any_worker_count) {
    for (int seeds = SH_SEEDS_PARALLEL; seeds <= SH_SEEDS_RANDOM; seeds++) {
        trial t = {.data = rig_mixture(2500, 19, 12, 2, 7),
                   .options = {.k = 12, .seeds = (sh_kmeans_seeds)seeds, .seed = 3},
                   .iterations = 60};
        expect_same_bits(&t, counts, SH_COUNT(counts));
        sh_free(t.centres);
        rig_data_fini(&t.data);
    }
}

TEST(kmeans, has_the_same_bits_with_bounds_as_without) {
    trial t = {.data = rig_mixture(3000, 9, 20, 1.5F, 8),
               .options = {.k = 25, .seed = 4},
               .iterations = 100};
    CHECK_OK(rig_run(2, 1, cluster, &t));
    size_t bytes = (size_t)t.options.k * t.data.width * sizeof(float);
    float *bounded = sh_alloc(bytes, 1);
    memcpy(bounded, t.centres, bytes);
    int done = t.done;
    int64_t looked_at = t.compared[done - 1];
    t.options.plain = true;
    CHECK_OK(rig_run(3, 2, cluster, &t));
    assert_memory_equal(bounded, t.centres, bytes);
    assert_int_equal(done, t.done);
    assert_int_equal(t.compared[done - 1], (int)t.data.rows);
    assert_true(looked_at < (int64_t)t.data.rows / 2);
    sh_free(bounded);
    sh_free(t.centres);
    rig_data_fini(&t.data);
}

TEST(kmeans, descends_as_plain_lloyd_in_doubles) {
    trial t = {.data = rig_mixture(2000, 7, 6, 3, 9), .options = {.k = 6}, .iterations = 15};
    float given[6 * 7];
    memcpy(given, t.data.x, sizeof given);
    t.options.seeds = SH_SEEDS_GIVEN;
    t.options.given = given;
    CHECK_OK(rig_run(2, 1, cluster, &t));
    for (int i = 0; i < t.done; i++) {
        double wanted = oracle(&t.data, 6, given, i + 1);
        assert_true(fabs(t.inertia[i] - wanted) < 1e-5 * wanted);
        assert_true(i == 0 || t.inertia[i] <= t.inertia[i - 1] * (1 + 1e-9));
    }
    sh_free(t.centres);
    rig_data_fini(&t.data);
}

/* Bahmani et al. (2012), table 1: separated mixtures end near (n - k) d. */
TEST(kmeans, finds_the_centres_of_a_separated_mixture) {
    trial t = {.data = rig_mixture(10000, 15, 50, 100, 1), .options = {.k = 50}, .iterations = 100};
    double optimum = (double)((10000 - 50) * 15);
    CHECK_OK(rig_run(2, 1, cluster, &t));
    assert_true(t.final < 1.05 * optimum);
    assert_true(t.final > 0.9 * optimum);
    t.options.seeds = SH_SEEDS_RANDOM;
    CHECK_OK(rig_run(2, 1, cluster, &t));
    assert_true(t.final > 1.3 * optimum);  // what the better seeds are for
    sh_free(t.centres);
    rig_data_fini(&t.data);
}

TEST(kmeans, gives_sparse_rows_the_clusters_of_dense_ones) {
    trial t = {.data = rig_mixture(1500, 30, 5, 4, 5), .options = {.k = 5}, .iterations = 30};
    for (size_t i = 0; i < t.data.rows * t.data.width; i++)
        if (fabsf(t.data.x[i]) < 2) t.data.x[i] = 0;
    CHECK_OK(rig_run(1, 1, cluster, &t));
    double dense = t.final;
    t.sparse = true;
    CHECK_OK(rig_run(2, 1, cluster, &t));
    assert_true(fabs(t.final - dense) < 1e-4 * dense);
    expect_same_bits(&t, counts, SH_COUNT(counts));
    sh_free(t.centres);
    rig_data_fini(&t.data);
}

/* Three of four given centres lie where no row is nearest. */
TEST(kmeans, gives_an_empty_cluster_the_farthest_row) {
    trial t = {.data = rig_mixture(900, 3, 4, 20, 6),
               .options = {.k = 4, .seeds = SH_SEEDS_GIVEN},
               .iterations = 100};
    float given[12] = {0, 0, 0, 900, 900, 900, 901, 900, 900, 902, 900, 900};
    t.options.given = given;
    CHECK_OK(rig_run(1, 1, cluster, &t));
    assert_true(t.refilled >= 3);
    assert_true(t.final < t.inertia[0] / 2);
    expect_same_bits(&t, counts, SH_COUNT(counts));
    sh_free(t.centres);
    rig_data_fini(&t.data);
}

/* All rows are nearest to the first centre, and whoever leaves it has equals. */
TEST(kmeans, refills_clusters_until_no_row_is_far_from_its_centre) {
    trial t = {.data = rig_data_of(900, 1),
               .options = {.k = 3, .seeds = SH_SEEDS_GIVEN},
               .iterations = 100};
    for (size_t i = 0; i < 900; i++) t.data.x[i] = i % 9 < 5 ? 0 : i % 9 < 8 ? 10 : 30;
    t.options.given = (const float[]){0, 999, 1000};
    expect_same_bits(&t, counts, SH_COUNT(counts));
    assert_true(t.final == 0);
    sh_free(t.centres);
    rig_data_fini(&t.data);
}

TEST(kmeans, refuses_more_clusters_than_different_rows) {
    trial t = {.data = rig_data_of(600, 4), .iterations = 10};
    for (size_t i = 0; i < 600; i++)
        for (size_t j = 0; j < 4; j++) t.data.x[i * 4 + j] = (float)(i % 3) + 0.1F * (float)j;
    float given[16] = {0};
    t.options.given = given;
    for (int seeds = SH_SEEDS_PARALLEL; seeds <= SH_SEEDS_GIVEN; seeds++)
        for (int workers = 1; workers <= 3; workers++) {
            t.options.k = 4;
            t.options.seeds = (sh_kmeans_seeds)seeds;
            CHECK_FAILS(SH_E_USAGE, "only 3 different rows", rig_run(workers, 1, cluster, &t));
        }
    t.options.seeds = SH_SEEDS_PARALLEL;
    t.options.k = 3;
    CHECK_OK(rig_run(2, 1, cluster, &t));
    assert_true(t.final < 1e-9);
    t.options.k = 601;
    CHECK_FAILS(SH_E_USAGE, "only 600 rows", rig_run(1, 1, cluster, &t));
    t.options.k = 0;
    CHECK_FAILS(SH_E_USAGE, "at least one", rig_run(1, 1, cluster, &t));
    sh_free(t.centres);
    rig_data_fini(&t.data);
}

/* 100,000 away from the origin, float products |x|^2 - 2 x.c + |c|^2 have no digits left. */
TEST(kmeans, works_far_from_the_origin) {
    trial t = {.data = rig_mixture(1000, 4, 3, 30, 2), .options = {.k = 3}, .iterations = 50};
    for (size_t i = 0; i < t.data.rows * t.data.width; i++) t.data.x[i] += 100000;
    CHECK_OK(rig_run(2, 1, cluster, &t));
    assert_true(t.final < 1.1 * 1000 * 4);
    sh_free(t.centres);
    rig_data_fini(&t.data);
}

TEST(kmeans, learns_from_mini_batches) {
    trial t = {.data = rig_mixture(4000, 6, 8, 8, 11),
               .options = {.k = 8, .batch = 256, .seed = 2},
               .iterations = 120};
    expect_same_bits(&t, counts, SH_COUNT(counts));
    assert_true(t.final < 1.1 * 4000 * 6);
    sh_free(t.centres);
    rig_data_fini(&t.data);
}
