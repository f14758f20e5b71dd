/* Every loss by its formula, and its gradient through an executor against finite differences. */
#include <stdio.h>

#include "nn/rig.h"

enum { ROWS = 7, WIDTH = 5 };

static sh_loss loss_make(const char *name, double smoothing, double delta) {
    sh_loss loss = {.kind = sh_loss_find(name),
                    .options = {.smoothing = smoothing, .ignore_index = -100, .delta = delta}};
    assert_non_null(loss.kind);
    return loss;
}

static double log_sum_exp(const float *row) {
    double sum = 0;
    for (int j = 0; j < WIDTH; j++) sum += exp((double)row[j]);
    return log(sum);
}

/* The loss of one row. */
typedef double (*row_formula)(const sh_loss *loss, const float *row, int32_t label,
                              const float *values);

static double cross_entropy(const sh_loss *loss, const float *row, int32_t label,
                            const float *values) {
    (void)values;
    double s = loss->options.smoothing, all = log_sum_exp(row), sum = 0;
    for (int j = 0; j < WIDTH; j++)
        sum -= ((j == label ? 1 - s : 0) + s / WIDTH) * ((double)row[j] - all);
    return sum;
}

static double hinge(const sh_loss *loss, const float *row, int32_t label, const float *values) {
    (void)loss, (void)values;
    double sum = 0;
    for (int j = 0; j < WIDTH; j++)
        if (j != label) sum += fmax(0, 1 + (double)row[j] - (double)row[label]);
    return sum;
}

static double mse(const sh_loss *loss, const float *row, int32_t label, const float *values) {
    (void)loss, (void)label;
    double sum = 0;
    for (int j = 0; j < WIDTH; j++) sum += pow((double)row[j] - (double)values[j], 2);
    return sum / WIDTH;
}

static double bce(const sh_loss *loss, const float *row, int32_t label, const float *values) {
    (void)loss, (void)label;
    double sum = 0;
    for (int j = 0; j < WIDTH; j++) {
        double p = 1 / (1 + exp(-(double)row[j])), t = (double)values[j];
        sum -= t * log(p) + (1 - t) * log(1 - p);
    }
    return sum / WIDTH;
}

static double huber(const sh_loss *loss, const float *row, int32_t label, const float *values) {
    (void)label;
    double sum = 0, delta = loss->options.delta;
    for (int j = 0; j < WIDTH; j++) {
        double d = fabs((double)row[j] - (double)values[j]);
        sum += d <= delta ? d * d / 2 : delta * (d - delta / 2);
    }
    return sum / WIDTH;
}

static double nearest(const sh_loss *loss, const float *row, int32_t label, const float *values) {
    (void)loss;
    (void)label;
    (void)values;
    double best = (double)row[0];
    for (int j = 1; j < WIDTH; j++) best = fmax(best, (double)row[j]);
    return -best;
}

typedef struct loss_case {
    const char *name;
    double smoothing, delta;
    row_formula formula;
} loss_case;

static const loss_case cases[] = {
    {"cross-entropy", 0, 1, cross_entropy},
    {"cross-entropy", 0.1, 1, cross_entropy},
    {"mse", 0, 1, mse},
    {"bce", 0, 1, bce},
    {"hinge", 0, 1, hinge},
    {"huber", 0, 1, huber},
    {"huber", 0, 0.3, huber},
    {"nearest", 0, 1, nearest},
};

TEST(losses, have_a_case_for_every_registered_one) {
    for (size_t i = 0; sh_loss_at(i) != NULL; i++) {
        bool found = false;
        for (size_t k = 0; k < SH_COUNT(cases); k++)
            found = found || strcmp(cases[k].name, sh_loss_name_at(i)) == 0;
        if (!found) fail_msg("no case for loss '%s'", sh_loss_name_at(i));
    }
}

typedef struct batch {
    float prediction[ROWS * WIDTH], values[ROWS * WIDTH];
    int32_t labels[ROWS];
} batch;

static batch batch_make(void) {
    batch b;
    sh_test_fill(b.prediction, ROWS * WIDTH, 1);
    sh_test_fill(b.values, ROWS * WIDTH, 2);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        b.prediction[i] *= 3;
        b.values[i] = (b.values[i] + 1) / 2;  // probabilities, for bce
    }
    for (int i = 0; i < ROWS; i++) b.labels[i] = i * 3 % WIDTH;
    return b;
}

static const void *target_of(const sh_loss *loss, const batch *b) {
    return loss->kind->classes ? (const void *)b->labels : (const void *)b->values;
}

TEST(losses, sum_their_formula_over_rows) {
    batch b = batch_make();
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        sh_loss loss = loss_make(cases[i].name, cases[i].smoothing, cases[i].delta);
        double want = 0;
        for (int r = 0; r < ROWS; r++)
            want += cases[i].formula(&loss, b.prediction + r * WIDTH, b.labels[r],
                                     b.values + r * WIDTH);
        sh_loss_result found =
            loss.kind->evaluate(&loss, b.prediction, target_of(&loss, &b), ROWS, WIDTH, 1.0, NULL);
        if (fabs(found.sum - want) > 1e-5 * fabs(want))
            fail_msg("%s: %.9g, not %.9g", cases[i].name, found.sum, want);
        assert_int_equal(found.counted, ROWS);
    }
}

/* The slope of every single prediction, by the formula in double. */
TEST(losses, give_the_gradient_of_their_formula_times_a_scale) {
    batch b = batch_make();
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        sh_loss loss = loss_make(cases[i].name, cases[i].smoothing, cases[i].delta);
        float gradient[ROWS * WIDTH], want[ROWS * WIDTH];
        loss.kind->evaluate(&loss, b.prediction, target_of(&loss, &b), ROWS, WIDTH, 2.5, gradient);
        for (int k = 0; k < ROWS * WIDTH; k++) {
            int row = k / WIDTH;
            float kept = b.prediction[k];
            double side[2], at[2];
            for (int s = 0; s < 2; s++) {
                b.prediction[k] = kept + (s ? 1e-3f : -1e-3f);
                at[s] = (double)b.prediction[k];
                side[s] = cases[i].formula(&loss, b.prediction + row * WIDTH, b.labels[row],
                                           b.values + row * WIDTH);
            }
            b.prediction[k] = kept;
            want[k] = (float)(2.5 * (side[1] - side[0]) / (at[1] - at[0]));
        }
        CHECK_CLOSE(gradient, want, ROWS * WIDTH, 1e-4);
        // In place of the prediction: the same bits.
        float over[ROWS * WIDTH];
        memcpy(over, b.prediction, sizeof over);
        loss.kind->evaluate(&loss, over, target_of(&loss, &b), ROWS, WIDTH, 2.5, over);
        assert_memory_equal(over, gradient, sizeof over);
    }
}

/* Through an executor: the mean loss of a net, moved along its own gradient. */
static void check_through_plan(const loss_case *c) {
    sh_loss loss = loss_make(c->name, c->smoothing, c->delta);
    sh_net *net = rig_net("[{dense: 9}, tanh, {dense: 5}]", RIG_VECTOR(6));
    rig r =
        rig_make_with(net, &(sh_executor_options){.batch = ROWS, .training = true, .loss = &loss});
    batch b = batch_make();
    const void *target = target_of(&loss, &b);
    rig_poison(r.memory.base, r.executor->memory_bytes);
    rig_poison(r.blocks.gradients, net->params.total * sizeof(float));
    CHECK_OK(sh_executor_forward(r.executor, &r.step, r.x));
    sh_executor_loss(r.executor, target, 1.0 / ROWS);
    CHECK_OK(sh_executor_backward(r.executor, NULL, NULL));
    size_t total = net->params.total;
    float *gradient = rig_copy(r.blocks.gradients, total),
          *kept = rig_copy(r.blocks.weights, total);
    double norm = rig_norm(gradient, total), side[2];
    assert_true(norm > 1e-2);
    for (int s = 0; s < 2; s++) {
        double h = (s ? 1 : -1) * 2e-3 / norm;
        for (size_t i = 0; i < total; i++) r.blocks.weights[i] = kept[i] + (float)h * gradient[i];
        CHECK_OK(sh_executor_forward(r.executor, &r.step, r.x));
        side[s] = sh_executor_loss(r.executor, target, 1.0).sum / ROWS;
    }
    double slope = (side[1] - side[0]) / 4e-3;
    if (fabs(slope - norm) > 3e-3 * norm) fail_msg("%s: %.6g, not %.6g", c->name, slope, norm);
    sh_free(gradient), sh_free(kept);
    rig_free(&r);
}

TEST(losses, reach_every_parameter_through_a_plan) {
    for (size_t i = 0; i < SH_COUNT(cases); i++) check_through_plan(&cases[i]);
}

TEST(losses, count_neither_ignored_rows_nor_their_gradient) {
    batch b = batch_make();
    const char *const names[] = {"cross-entropy", "hinge"};
    for (int i = 0; i < 2; i++) {
        sh_loss loss = loss_make(names[i], 0, 1);
        loss.options.ignore_index = 2;
        float gradient[ROWS * WIDTH];
        double want = 0;
        int counted = 0;
        for (int r = 0; r < ROWS; r++) {
            if (b.labels[r] == 2) continue;
            counted++;
            want += (i == 0 ? cross_entropy : hinge)(&loss, b.prediction + r * WIDTH, b.labels[r],
                                                     NULL);
        }
        sh_loss_result found =
            loss.kind->evaluate(&loss, b.prediction, b.labels, ROWS, WIDTH, 1.0, gradient);
        assert_true(counted < ROWS);
        assert_int_equal(found.counted, counted);
        assert_true(fabs(found.sum - want) < 1e-4);
        for (int r = 0; r < ROWS; r++)
            assert_int_equal(b.labels[r] == 2, rig_norm(gradient + r * WIDTH, WIDTH) == 0);
    }
}

TEST(losses, count_correct_rows_of_classes_only) {
    float scores[2 * WIDTH] = {0, 5, 1, 0, 0, 3, 0, 0, 0, 1};
    int32_t labels[2] = {1, 4};
    sh_loss loss = loss_make("cross-entropy", 0, 1), values = loss_make("mse", 0, 1);
    assert_int_equal(loss.kind->evaluate(&loss, scores, labels, 2, WIDTH, 1, NULL).correct, 1);
    assert_int_equal(values.kind->evaluate(&values, scores, scores, 2, WIDTH, 1, NULL).correct, -1);
}

static sh_status init(const char *name, sh_target target, int64_t size, sh_shape output,
                      sh_loss *loss) {
    char text[32];
    snprintf(text, sizeof text, "%s", name);
    sh_loss_options options = {.name = text, .ignore_index = -100, .delta = 1};
    sh_data_info data = {.sample = SH_SHAPE(8), .target = target, .classes = size, .values = size};
    return sh_loss_init(loss, &options, &data, &output);
}

TEST(losses, follow_the_targets_and_refuse_what_does_not_fit) {
    sh_loss loss;
    CHECK_OK(init("auto", SH_TARGET_CLASS, 4, SH_SHAPE(4), &loss));
    assert_string_equal(loss.kind->name, "cross-entropy");
    CHECK_OK(init("auto", SH_TARGET_VALUES, 4, SH_SHAPE(4), &loss));
    assert_string_equal(loss.kind->name, "mse");
    CHECK_OK(init("auto", SH_TARGET_TOKENS, 4, SH_SHAPE(8, 6), &loss));
    CHECK_FAILS(SH_E_USAGE, "no loss 'nll'", init("nll", SH_TARGET_CLASS, 4, SH_SHAPE(4), &loss));
    CHECK_FAILS(SH_E_USAGE, "class labels", init("hinge", SH_TARGET_VALUES, 4, SH_SHAPE(4), &loss));
    CHECK_FAILS(SH_E_USAGE, "float targets", init("mse", SH_TARGET_CLASS, 4, SH_SHAPE(4), &loss));
    CHECK_FAILS(SH_E_SHAPE, "3 outputs, but the data has 4 classes",
                init("auto", SH_TARGET_CLASS, 4, SH_SHAPE(3), &loss));
    CHECK_FAILS(SH_E_SHAPE, "target values", init("auto", SH_TARGET_VALUES, 4, SH_SHAPE(5), &loss));
    CHECK_FAILS(SH_E_SHAPE, "ends in 2x3x4",
                init("auto", SH_TARGET_CLASS, 4, SH_SHAPE(2, 3, 4), &loss));
    CHECK_FAILS(SH_E_SHAPE, "ends in 7x6",
                init("auto", SH_TARGET_TOKENS, 4, SH_SHAPE(7, 6), &loss));
}

TEST(losses, refuse_options_that_they_do_not_have) {
    char hinge_name[] = "hinge", huber_name[] = "huber";
    sh_loss loss;
    sh_loss_options options = {.name = hinge_name, .ignore_index = 3, .delta = 1};
    sh_data_info classes = {.sample = SH_SHAPE(8), .target = SH_TARGET_CLASS, .classes = 4};
    sh_data_info values = {.sample = SH_SHAPE(8), .target = SH_TARGET_VALUES, .values = 4};
    CHECK_OK(sh_loss_init(&loss, &options, &classes, &SH_SHAPE(4)));
    options.smoothing = 0.1;
    CHECK_FAILS(SH_E_USAGE, "loss 'hinge' has no option 'smoothing'",
                sh_loss_init(&loss, &options, &classes, &SH_SHAPE(4)));
    options = (sh_loss_options){.name = hinge_name, .ignore_index = -100, .delta = 2};
    CHECK_FAILS(SH_E_USAGE, "loss 'hinge' has no option 'delta'",
                sh_loss_init(&loss, &options, &classes, &SH_SHAPE(4)));
    options.name = huber_name;
    CHECK_OK(sh_loss_init(&loss, &options, &values, &SH_SHAPE(4)));
    options.ignore_index = 0;
    CHECK_FAILS(SH_E_USAGE, "loss 'huber' has no option 'ignore'",
                sh_loss_init(&loss, &options, &values, &SH_SHAPE(4)));
}
