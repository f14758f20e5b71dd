#include "rig.h"

#include <math.h>

/* A matrix of rank r as a sum of outer products. */
static float *low_rank(size_t rows, size_t columns, size_t rank, uint64_t seed) {
    float *m = calloc(rows * columns, sizeof *m);
    float *a = filled(rank * rows, seed, 1), *b = filled(rank * columns, seed + 1, 1);
    for (size_t j = 0; j < rank; j++)
        for (size_t i = 0; i < rows * columns; i++)
            m[i] += a[j * rows + i / columns] * b[j * columns + i % columns];
    free(a), free(b);
    return m;
}

static sh_codec codec_of_rank(size_t rank) {
    sh_codec codec = codec_of("powersgd");
    codec.options.amount = (double)rank;
    return codec;
}

static void reconstructs(void) {
    const size_t shapes[][2] = {{40, 50}, {7, 300}, {300, 9}, {65, 515}};
    for (size_t rank = 1; rank <= 6; rank++)
        for (size_t s = 0; s < SH_COUNT(shapes); s++) {
            size_t rows = shapes[s][0], columns = shapes[s][1], n = rows * columns;
            sh_codec codec = codec_of_rank(rank);
            rig r;
            rig_init(&r, &codec, rows, columns, 0);
            float *x = low_rank(rows, columns, rank, s), *want = copied(x, n);
            round_trip(&r, 1, &x, 1, 0);
            CHECK_CLOSE(x, want, n, 2e-5);
            rig_fini(&r);
            free(x), free(want);
        }
}

TEST(powersgd, reconstructs_a_matrix_of_its_rank) { each_setting(reconstructs); }

TEST(powersgd, reconstructs_the_sum_over_ranks) {
    enum { RANKS = 3 };
    size_t rows = 30, columns = 45, n = rows * columns;
    sh_codec codec = codec_of_rank(3);
    rig rigs[RANKS];
    float *x[RANKS], *want = calloc(n, sizeof *want);
    for (int k = 0; k < RANKS; k++) {
        rig_init(&rigs[k], &codec, rows, columns, k);
        x[k] = low_rank(rows, columns, 1, 10 * (uint64_t)k);
        for (size_t i = 0; i < n; i++) want[i] += x[k][i];
    }
    round_trip(rigs, RANKS, x, 1, 0);
    for (int k = 0; k < RANKS; k++) {
        CHECK_CLOSE(x[k], want, n, 1e-5);
        rig_fini(&rigs[k]);
        free(x[k]);
    }
    free(want);
}

static double distance(const float *a, const float *b, size_t n) {
    double sum = 0;
    for (size_t i = 0; i < n; i++) sum += pow((double)a[i] - (double)b[i], 2);
    return sqrt(sum);
}

/* Without feedback, the same matrix again and again is power iteration: errors fall to that of the
 * best approximation, here the noise below two strong directions. */
TEST(powersgd, warm_start_approaches_the_best_approximation) {
    size_t rows = 60, columns = 80, n = rows * columns;
    sh_codec codec = codec_of_rank(2);
    codec.options.error_feedback = false;
    rig r;
    rig_init(&r, &codec, rows, columns, 0);
    float *m = low_rank(rows, columns, 2, 3), *noise = filled(n, 8, 0.2f);
    for (size_t i = 0; i < n; i++) m[i] += noise[i];
    double first = 0, last = 0;
    for (int step = 0; step < 10; step++) {
        float *x = copied(m, n);
        round_trip(&r, 1, &x, 1, step);
        last = distance(x, m, n);
        if (step == 0) first = last;
        free(x);
    }
    float zero[1] = {0};
    double bound = 0;
    for (size_t i = 0; i < n; i++) bound += pow(distance(noise + i, zero, 1), 2);
    assert_true(last < first);
    assert_true(last <= sqrt(bound));  // the best one is at least as good as the noiseless matrix
    rig_fini(&r);
    free(m), free(noise);
}

TEST(powersgd, recovers_from_a_step_without_gradient) {
    size_t rows = 20, columns = 30, n = rows * columns;
    sh_codec codec = codec_of_rank(2);
    rig r;
    rig_init(&r, &codec, rows, columns, 0);
    float *x = low_rank(rows, columns, 1, 3), *want = copied(x, n);
    memset(x, 0, n * sizeof *x);
    round_trip(&r, 1, &x, 1, 0);
    for (size_t i = 0; i < n; i++) assert_true(x[i] == 0);
    memcpy(x, want, n * sizeof *x);
    round_trip(&r, 1, &x, 1, 1);
    CHECK_CLOSE(x, want, n, 1e-5);
    rig_fini(&r);
    free(x), free(want);
}

/* Rank 3 asked for, rank 1 there: the other vectors depend on the first and must not add noise. */
TEST(powersgd, needs_no_full_rank) {
    size_t rows = 64, columns = 200, n = rows * columns;
    sh_codec codec = codec_of_rank(3);
    rig r;
    rig_init(&r, &codec, rows, columns, 0);
    for (int step = 0; step < 5; step++) {
        float *x = low_rank(rows, columns, 1, 3), *want = copied(x, n);
        round_trip(&r, 1, &x, 1, step);
        CHECK_CLOSE(x, want, n, 1e-5);
        free(x), free(want);
    }
    rig_fini(&r);
}

TEST(powersgd, what_is_not_a_number_stays_visible_and_passes) {
    size_t rows = 20, columns = 30, n = rows * columns;
    sh_codec codec = codec_of_rank(2);
    codec.options.error_feedback = false;
    rig r;
    rig_init(&r, &codec, rows, columns, 0);
    float *x = low_rank(rows, columns, 1, 3), *want = copied(x, n);
    x[7] = NAN;
    round_trip(&r, 1, &x, 1, 0);
    assert_true(isnan(x[7]));
    memcpy(x, want, n * sizeof *x);
    round_trip(&r, 1, &x, 1, 1);
    CHECK_CLOSE(x, want, n, 1e-5);
    rig_fini(&r);
    free(x), free(want);
}
