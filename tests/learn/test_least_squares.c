#include "learn/least_squares.h"

#include <math.h>

#include "learn/rig.h"

typedef struct trial {
    rig_data data;
    sh_ls_options options;
    bool sparse;
    sh_ls_result result;  // of rank 0
} trial;

static sh_status fit(sh_learn_team *team, void *argument) {
    trial *t = argument;
    sh_rows rows = rig_rows(&t->data, team, t->sparse);
    sh_ls_result result = {0};
    sh_status status = sh_least_squares(&t->options, &rows, team, &result);
    if (team->rank == 0 && status == SH_OK) {
        sh_ls_result_fini(&t->result);
        t->result = result;
    } else {
        sh_ls_result_fini(&result);
    }
    sh_rows_fini(&rows);
    return status;
}

static void trial_fini(trial *t) {
    sh_ls_result_fini(&t->result);
    rig_data_fini(&t->data);
}

/* y = x.w + 3 + noise, w_j = j - 2. */
static rig_data line(size_t rows, size_t width, double noise) {
    rig_data data = rig_mixture(rows, width, 3, 2, 5);
    sh_rng draws = sh_rng_stream(9, SH_RNG_TEST, 3, 0);
    data.classes = 0;
    for (size_t i = 0; i < rows; i++) {
        data.target[i] = 3 + noise * (double)sh_rng_normal(&draws);
        for (size_t j = 0; j < width; j++)
            data.target[i] += (double)data.x[i * width + j] * ((double)j - 2);
    }
    return data;
}

/* How far the gradient of the objective is from zero where it has one, and from the l1 penalty
 * elsewhere; plain doubles, row by row. */
static double slope_left(const trial *t, double *size_out) {
    const rig_data *d = &t->data;
    double worst = 0;
    *size_out = 0;
    for (size_t j = 0; j <= d->width; j++) {
        double slope = 0, size = 0, w = t->result.w[j];
        for (size_t i = 0; i < d->rows; i++) {
            double off = t->result.w[d->width] - d->target[i];
            double s = d->weight != NULL ? d->weight[i] : 1;
            for (size_t k = 0; k < d->width; k++)
                off += t->result.w[k] * (double)d->x[i * d->width + k];
            double x = j < d->width ? (double)d->x[i * d->width + j] : 1;
            slope += s * off * x;
            size += s * fabs(d->target[i] * x);
        }
        if (j == d->width && !t->options.intercept) continue;
        if (j < d->width) {
            slope += t->options.l2 * w;
            double l1 = t->options.l1;
            slope = w > 0 ? slope + l1 : w < 0 ? slope - l1 : fmax(fabs(slope) - l1, 0);
        }
        worst = fmax(worst, fabs(slope));
        *size_out = fmax(*size_out, size);
    }
    return worst;
}

static void expect_optimal(trial *t, double tolerance) {
    double size, left = slope_left(t, &size);
    if (!(left <= tolerance * size)) fail_msg("the slope is %g of %g", left, size);
}

static const int counts[] = {1, 2, 3, 5};

static void expect_same_bits(trial *t) {
    size_t bytes = (t->data.width + 1) * sizeof(double);
    double *first = sh_alloc(bytes, 1);
    for (size_t i = 0; i < SH_COUNT(counts); i++) {
        CHECK_OK(rig_run(counts[i], 1 + (int)(i % 2), fit, t));
        if (i == 0) memcpy(first, t->result.w, bytes);
        assert_memory_equal(first, t->result.w, bytes);
    }
    sh_free(first);
}

TEST(least_squares, finds_the_minimum_whatever_is_asked_for) {
    const sh_ls_options asked[] = {
        {.intercept = true},
        {.intercept = false},
        {.intercept = true, .l2 = 50},
        {.intercept = true, .solver = SH_LS_TSQR},
        {.intercept = true, .solver = SH_LS_TSQR, .l2 = 7},
        {.intercept = true, .l1 = 300},
        {.intercept = false, .l1 = 100, .l2 = 20},
    };
    for (size_t i = 0; i < SH_COUNT(asked); i++) {
        trial t = {.data = line(1500, 7, 0.5), .options = asked[i]};
        for (int sparse = 0; sparse < 2; sparse++) {
            t.sparse = sparse;
            CHECK_OK(rig_run(1 + (int)(i % 3), 1, fit, &t));
            expect_optimal(&t, 1e-7);
        }
        trial_fini(&t);
    }
}

TEST(least_squares, has_the_same_bits_at_any_worker_count) {
    trial t = {.data = line(2100, 11, 0.3), .options = {.intercept = true}};
    expect_same_bits(&t);
    t.options.solver = SH_LS_TSQR;
    expect_same_bits(&t);
    t.options = (sh_ls_options){.intercept = true, .l1 = 5};
    expect_same_bits(&t);
    trial_fini(&t);
}

TEST(least_squares, counts_a_row_by_its_weight) {
    trial t = {.data = line(900, 4, 0.5), .options = {.intercept = true}};
    t.data.weight = sh_alloc(900, sizeof(double));
    for (size_t i = 0; i < 900; i++) t.data.weight[i] = (double)(i % 4);
    CHECK_OK(rig_run(2, 1, fit, &t));
    expect_optimal(&t, 1e-9);
    trial_fini(&t);
}

/* The second column is the first one and a millionth of another: the condition is 1e6 and more, so
 * that the Gram matrix alone would lose all digits; the target is exact. */
TEST(least_squares, takes_tsqr_where_the_condition_asks_for_it) {
    trial t = {.data = line(1200, 3, 0), .options = {.intercept = true}};
    for (size_t i = 0; i < t.data.rows; i++) {
        float *x = t.data.x + i * 3;
        x[1] = x[0] + 1e-6F * x[2];
        t.data.target[i] = 2 * (double)x[0] - 5 * (double)x[1] + (double)x[2] + 1;
    }
    const double wanted[] = {2, -5, 1, 1};
    CHECK_OK(rig_run(2, 1, fit, &t));
    assert_true(t.result.by_tsqr);
    assert_true(t.result.condition > 1e6);
    double off = 0, gram_off = 0;
    for (size_t j = 0; j < 4; j++) off = fmax(off, fabs(t.result.w[j] - wanted[j]));
    t.options.solver = SH_LS_GRAM;
    CHECK_OK(rig_run(2, 1, fit, &t));
    for (size_t j = 0; j < 4; j++) gram_off = fmax(gram_off, fabs(t.result.w[j] - wanted[j]));
    assert_true(off < 1e-6);
    assert_true(gram_off > 10 * off);
    trial_fini(&t);
}

TEST(least_squares, leaves_out_columns_that_others_make_up) {
    trial t = {.data = line(700, 5, 0.4), .options = {.intercept = true}};
    for (size_t i = 0; i < t.data.rows; i++) {
        t.data.x[i * 5 + 2] = 4;                                      // constant, as the intercept
        t.data.x[i * 5 + 4] = 2 * t.data.x[i * 5] - t.data.x[i * 5];  // equal to the first
    }
    for (size_t workers = 1; workers < 4; workers++) {
        CHECK_OK(rig_run((int)workers, 1, fit, &t));
        assert_int_equal(t.result.dropped, 2);
        expect_optimal(&t, 1e-9);
    }
    trial_fini(&t);
}

/* Columns of ones and of 0 ... n-1, whose errors have closed forms. */
TEST(least_squares, tells_standard_errors_and_r2) {
    enum { ROWS = 400 };
    trial t = {.data = rig_data_of(ROWS, 1), .options = {.intercept = true}};
    double mean = (ROWS - 1) / 2.0, spread = 0, residual = 0, total = 0, target_mean = 0;
    for (size_t i = 0; i < ROWS; i++) {
        t.data.x[i] = (float)i;
        t.data.target[i] = 2 * (double)i + 1 + (i % 2 ? 1 : -1);
        spread += ((double)i - mean) * ((double)i - mean);
        target_mean += t.data.target[i] / ROWS;
    }
    CHECK_OK(rig_run(2, 1, fit, &t));
    for (size_t i = 0; i < ROWS; i++) {
        double off = t.result.w[0] * (double)i + t.result.w[1] - t.data.target[i];
        residual += off * off;
        total += (t.data.target[i] - target_mean) * (t.data.target[i] - target_mean);
    }
    double variance = residual / (ROWS - 2);
    assert_true(fabs(t.result.deviation[0] / sqrt(variance / spread) - 1) < 1e-9);
    double of_intercept = sqrt(variance * (1.0 / ROWS + mean * mean / spread));
    assert_true(fabs(t.result.deviation[1] / of_intercept - 1) < 1e-9);
    assert_true(fabs(t.result.r2 - (1 - residual / total)) < 1e-12);
    assert_true(fabs(t.result.residual / residual - 1) < 1e-9);
    trial_fini(&t);
}

/* Columns a trillion times apart, and a target of millions. */
TEST(least_squares, does_not_care_about_units) {
    trial t = {.data = line(800, 3, 0), .options = {.intercept = true}};
    for (size_t i = 0; i < t.data.rows; i++) {
        t.data.x[i * 3] *= 1e6F;
        t.data.x[i * 3 + 2] *= 1e-6F;
        t.data.target[i] =
            1e6 * (4 + 2e-6 * (double)t.data.x[i * 3] + 3e6 * (double)t.data.x[i * 3 + 2]);
    }
    CHECK_OK(rig_run(3, 1, fit, &t));
    assert_true(fabs(t.result.w[0] / 2 - 1) < 1e-8);
    assert_true(fabs(t.result.w[2] / 3e12 - 1) < 1e-8);
    assert_true(fabs(t.result.w[3] / 4e6 - 1) < 1e-8);
    trial_fini(&t);
}

TEST(least_squares, answers_with_fewer_rows_than_columns) {
    trial t = {.data = line(5, 9, 0), .options = {.intercept = true}};
    CHECK_OK(rig_run(3, 1, fit, &t));
    assert_true(t.result.residual < 1e-9);
    assert_true(t.result.dropped >= 4);
    t.options.l2 = 1;
    CHECK_OK(rig_run(1, 1, fit, &t));
    assert_int_equal(t.result.dropped, 0);
    expect_optimal(&t, 1e-9);
    trial_fini(&t);
}

TEST(least_squares, refuses_targets_that_are_not_finite) {
    trial t = {.data = line(300, 2, 0), .options = {.intercept = true}};
    t.data.target[290] = NAN;
    for (int workers = 1; workers < 3; workers++)
        CHECK_FAILS(SH_E_NUMERIC, "target is not finite", rig_run(workers, 1, fit, &t));
    trial_fini(&t);
}
