#include "learn/newton.h"

#include <math.h>

#include "learn/rig.h"

typedef struct trial {
    rig_data data;
    sh_newton_options options;
    bool sparse;
    int resume_after;  // iterations; 0: never
    double *w;         // of rank 0
    double objective;
    int iterations;
} trial;

static sh_status fit(sh_learn_team *team, void *argument) {
    trial *t = argument;
    sh_rows rows = rig_rows(&t->data, team, t->sparse);
    sh_newton *newton = NULL;
    sh_newton_step step = {0};
    sh_status status = sh_newton_create(&t->options, &rows, team, &newton);
    size_t count = t->options.outputs * (t->data.width + 1);
    int done = 0;
    while (status == SH_OK && done < 200 && !sh_newton_is_done(newton, 1e-9)) {
        status = sh_newton_iterate(newton, &step);
        if (++done != t->resume_after || status != SH_OK) continue;
        double *w = sh_alloc(count, sizeof *w), radius = sh_newton_radius(newton);
        memcpy(w, sh_newton_weights(newton), count * sizeof *w);
        sh_newton_destroy(newton);
        newton = NULL;
        status = sh_newton_create(&t->options, &rows, team, &newton);
        if (status == SH_OK) status = sh_newton_restore(newton, w, radius);
        sh_free(w);
    }
    if (team->rank == 0 && status == SH_OK) {
        sh_free(t->w);
        t->w = sh_alloc(count, sizeof *t->w);
        memcpy(t->w, sh_newton_weights(newton), count * sizeof *t->w);
        t->objective = step.objective;
        t->iterations = done;
    }
    sh_newton_destroy(newton);
    sh_rows_fini(&rows);
    return status;
}

static void trial_fini(trial *t) {
    sh_free(t->w);
    rig_data_fini(&t->data);
}

/* The objective in plain doubles, written out anew. */
static double objective(const trial *t, const double *w) {
    const rig_data *d = &t->data;
    size_t outputs = t->options.outputs, stride = d->width + 1;
    double sum = 0, z[8];
    for (size_t i = 0; i < d->rows; i++) {
        double all = 0, loss;
        for (size_t k = 0; k < outputs; k++) {
            z[k] = t->options.intercept ? w[k * stride + d->width] : 0;
            for (size_t j = 0; j < d->width; j++)
                z[k] += w[k * stride + j] * (double)d->x[i * d->width + j];
            all += exp(z[k]);
        }
        double y = (int64_t)d->target[i] == t->options.positive ? 1 : -1;
        if (t->options.loss == SH_GLM_MULTINOMIAL)
            loss = log(all) - z[(size_t)d->target[i]];
        else if (t->options.loss == SH_GLM_LOGISTIC)
            loss = log(1 + exp(-y * z[0]));
        else if (t->options.loss == SH_GLM_SQUARED_HINGE)
            loss = y * z[0] < 1 ? (1 - y * z[0]) * (1 - y * z[0]) : 0;
        else
            loss = (z[0] - d->target[i]) * (z[0] - d->target[i]) / 2;
        sum += t->options.c * loss * (d->weight != NULL ? d->weight[i] : 1);
    }
    for (size_t k = 0; k < outputs; k++)
        for (size_t j = 0; j < d->width; j++)
            sum += t->options.l2 / 2 * w[k * stride + j] * w[k * stride + j];
    return sum;
}

/* Convex: where no coordinate goes down either way, it is the minimum. */
static void expect_optimal(trial *t) {
    size_t count = t->options.outputs * (t->data.width + 1);
    double here = objective(t, t->w);
    assert_true(fabs(here - t->objective) < 1e-9 * here);
    for (size_t i = 0; i < count; i++) {
        double w = t->w[i], slope;
        t->w[i] = w + 1e-4;
        double above = objective(t, t->w);
        t->w[i] = w - 1e-4;
        double below = objective(t, t->w);
        t->w[i] = w;
        slope = (above - below) / 2e-4;
        if (fabs(slope) > 1e-5 * here) fail_msg("weight %zu: slope %g of %g", i, slope, here);
    }
}

static sh_newton_options asked(int loss) {
    return (sh_newton_options){.loss = (sh_glm_loss)loss,
                               .c = 0.7,
                               .l2 = 1,
                               .intercept = loss != SH_GLM_LOGISTIC,
                               .outputs = loss == SH_GLM_MULTINOMIAL ? 3 : 1,
                               .positive = 1};
}

TEST(newton, finds_the_minimum_of_every_loss) {
    for (int loss = SH_GLM_SQUARE; loss <= SH_GLM_MULTINOMIAL; loss++)
        for (int sparse = 0; sparse < 2; sparse++) {
            trial t = {
                .data = rig_mixture(700, 6, 3, 1, 4), .options = asked(loss), .sparse = sparse};
            CHECK_OK(rig_run(1 + loss % 3, 1, fit, &t));
            expect_optimal(&t);
            trial_fini(&t);
        }
}

TEST(newton, has_the_same_bits_at_any_worker_count_and_after_resuming) {
    static const int counts[] = {1, 2, 3, 5};
    for (int loss = SH_GLM_SQUARE; loss <= SH_GLM_MULTINOMIAL; loss++) {
        trial t = {.data = rig_mixture(1500, 9, 3, 1, 6), .options = asked(loss)};
        size_t bytes = t.options.outputs * 10 * sizeof(double);
        double *first = sh_alloc(bytes, 1);
        for (size_t i = 0; i < SH_COUNT(counts); i++) {
            t.resume_after = i == 3 ? 2 : 0;
            CHECK_OK(rig_run(counts[i], 1 + (int)(i % 2), fit, &t));
            if (i == 0) memcpy(first, t.w, bytes);
            assert_memory_equal(first, t.w, bytes);
        }
        sh_free(first);
        trial_fini(&t);
    }
}

TEST(newton, counts_a_row_by_its_weight) {
    trial t = {.data = rig_mixture(500, 4, 2, 1, 7), .options = asked(SH_GLM_LOGISTIC)};
    t.data.weight = sh_alloc(500, sizeof(double));
    for (size_t i = 0; i < 500; i++) t.data.weight[i] = (double)(i % 3);
    CHECK_OK(rig_run(2, 1, fit, &t));
    expect_optimal(&t);
    trial_fini(&t);
}

/* Every row is of one class: the minimum of the hinge is the intercept alone. */
TEST(newton, has_an_answer_where_there_is_one_class) {
    trial t = {.data = rig_mixture(400, 3, 1, 1, 7), .options = asked(SH_GLM_SQUARED_HINGE)};
    for (size_t i = 0; i < 400; i++) t.data.target[i] = 1;
    CHECK_OK(rig_run(2, 1, fit, &t));
    assert_true(t.objective < 1e-6);
    trial_fini(&t);
}
