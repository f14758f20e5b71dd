/* One optimizer step: the gradient of a batch, however it is cut, clipped and weighed. */
#include "run/run.h"

#include <math.h>
#include <stdlib.h>

#include "api/rig.h"

typedef struct step {
    float *weights, *gradients;
    size_t count;
    double loss;
} step;

static void step_fini(step *s) {
    free(s->weights);
    free(s->gradients);
}

/* The weights before and after `steps` steps of plain SGD at rate 0.5, by key, value, ..., NULL. */
static step take(const char *steps, const char *const *more) {
    shoal_config *config = RIG_CONFIG("optimizer.lr", "0.5", "data.batch", "60", "steps", steps,
                                      "overwrite", "true", "out", sh_test_folder("step"), "model",
                                      "[flatten, {dense: 12}, tanh, {dense: 10}]");
    for (; more != NULL && *more != NULL; more += 2)
        SUCCEEDS(shoal_config_set(config, more[0], more[1]));
    shoal_run *run = NULL;
    SUCCEEDS(shoal_run_open(config, NULL, &run));
    size_t count = run->model.net->params.total;
    step taken = {.weights = malloc(count * sizeof(float)),
                  .gradients = malloc(count * sizeof(float)),
                  .count = count};
    memcpy(taken.gradients, run->model.blocks.weights, count * sizeof(float));
    SUCCEEDS(shoal_run_train(run));
    memcpy(taken.weights, run->model.blocks.weights, count * sizeof(float));
    // By how much it moved, of which the rate is half.
    for (size_t i = 0; i < count; i++)
        taken.gradients[i] = (taken.gradients[i] - taken.weights[i]) / 0.5f;
    shoal_run_close(run);
    shoal_config_destroy(config);
    return taken;
}
#define TAKE(...) take("1", (const char *const[]){__VA_ARGS__, NULL})

static double norm_of(const step *s) {
    double squares = 0;
    for (size_t i = 0; i < s->count; i++)
        squares += (double)s->gradients[i] * (double)s->gradients[i];
    return sqrt(squares);
}

static double largest_of(const step *s) {
    double most = 0;
    for (size_t i = 0; i < s->count; i++) most = fmax(most, fabs((double)s->gradients[i]));
    return most;
}

static void expect_close(const step *a, const step *b, double tolerance) {
    CHECK_CLOSE(a->weights, b->weights, a->count, tolerance);
}

TEST(step, a_batch_cut_into_parts_has_the_gradient_of_the_whole) {
    step whole = take("1", NULL), parts = TAKE("accumulate", "7");
    assert_true(norm_of(&whole) > 0.01);
    expect_close(&whole, &parts, 1e-6);
    step_fini(&whole);
    step_fini(&parts);
}

TEST(step, labels_that_do_not_count_weigh_nothing) {
    step parts = TAKE("accumulate", "7", "loss.ignore", "3"), whole = TAKE("loss.ignore", "3");
    expect_close(&whole, &parts, 1e-6);
    step counted = take("1", NULL);
    assert_memory_not_equal(counted.weights, whole.weights, whole.count * sizeof(float));
    step_fini(&whole);
    step_fini(&parts);
    step_fini(&counted);
}

TEST(step, the_norm_is_clipped_to_its_limit_and_keeps_its_direction) {
    step free_ = take("1", NULL);
    double norm = norm_of(&free_);
    char most[32];
    snprintf(most, sizeof most, "%.9g", norm / 4);
    step clipped = TAKE("clip.norm", most);
    assert_true(fabs(norm_of(&clipped) - norm / 4) < 1e-3 * norm);
    for (size_t i = 0; i < clipped.count; i++)
        if (fabs(clipped.gradients[i] - free_.gradients[i] / 4) > 1e-4f) fail_msg("element %zu", i);
    snprintf(most, sizeof most, "%.9g", norm * 1.01);
    step whole = TAKE("clip.norm", most);
    assert_memory_equal(whole.weights, free_.weights, whole.count * sizeof(float));
    step_fini(&free_);
    step_fini(&clipped);
    step_fini(&whole);
}

TEST(step, elements_are_clipped_one_by_one) {
    step free_ = take("1", NULL);
    double most = largest_of(&free_);
    char limit[32];
    snprintf(limit, sizeof limit, "%.9g", most / 2);
    step clipped = TAKE("clip.value", limit);
    assert_true(fabs(largest_of(&clipped) - most / 2) < 1e-3 * most);
    size_t alike = 0;
    for (size_t i = 0; i < clipped.count; i++)
        alike += fabs(clipped.gradients[i] - free_.gradients[i]) < 1e-6f;
    assert_true(alike > clipped.count / 2 && alike < clipped.count);
    step_fini(&free_);
    step_fini(&clipped);
}

/* Clipping is of the gradient of the whole batch, not of its parts. */
TEST(step, parts_are_clipped_together) {
    step whole = TAKE("clip.norm", "0.05"), parts = TAKE("clip.norm", "0.05", "accumulate", "5");
    expect_close(&whole, &parts, 1e-6);
    step_fini(&whole);
    step_fini(&parts);
}

TEST(step, decay_pulls_weights_and_leaves_biases) {
    step plain = take("1", NULL), decayed = TAKE("optimizer.weight_decay", "0.1"),
         all = TAKE("optimizer.weight_decay", "0.1", "optimizer.decay_all", "true");
    size_t weights = 0, others = 0;
    for (size_t i = 0; i < plain.count; i++) {
        weights += plain.weights[i] != decayed.weights[i];
        others += plain.weights[i] != all.weights[i];
    }
    assert_true(weights >= 64 * 12 + 12 * 10 - 8 && weights <= 64 * 12 + 12 * 10);
    assert_true(others >= weights);  // biases begin at 0, where there is nothing to pull
    step_fini(&plain);
    step_fini(&decayed);
    step_fini(&all);
}

/* By central differences of the loss that evaluation tells. */
TEST(step, moves_along_the_gradient_of_the_loss) {
    shoal_config *config =
        RIG_CONFIG("model", "[flatten, {dense: 10}]", "data.batch", "1500", "optimizer.lr", "1",
                   "steps", "1", "overwrite", "true", "out", sh_test_folder("step"));
    shoal_run *run = NULL;
    SUCCEEDS(shoal_run_open(config, NULL, &run));
    float *weights = run->model.blocks.weights;
    size_t count = run->model.net->params.total;
    float *before = malloc(count * sizeof *before), wanted[5];
    memcpy(before, weights, count * sizeof *before);
    for (size_t k = 0; k < SH_COUNT(wanted); k++) {
        size_t at = k * 131 % count;
        double loss[2];
        for (int side = 0; side < 2; side++) {
            shoal_result result = {.size = sizeof result};
            weights[at] = before[at] + (side == 0 ? -0.02f : 0.02f);
            SUCCEEDS(shoal_run_evaluate(run, "train", &result));
            loss[side] = result.loss;
        }
        weights[at] = before[at];
        wanted[k] = (float)((loss[1] - loss[0]) / 0.04);
    }
    SUCCEEDS(shoal_run_train(run));
    for (size_t k = 0; k < SH_COUNT(wanted); k++) {
        size_t at = k * 131 % count;
        float moved = before[at] - weights[at];
        if (fabsf(moved - wanted[k]) > 2e-3f + 0.02f * fabsf(wanted[k]))
            fail_msg("weight %zu moved by %g, the slope is %g", at, (double)moved,
                     (double)wanted[k]);
    }
    free(before);
    shoal_run_close(run);
    shoal_config_destroy(config);
}

TEST(step, a_loss_that_is_not_finite_names_the_step_and_the_layer) {
    shoal_config *config =
        RIG_CONFIG("optimizer.lr", "1e6", "optimizer.weight_decay", "10", "steps", "30",
                   "overwrite", "true", "out", sh_test_folder("step"));
    shoal_run *run = NULL;
    SUCCEEDS(shoal_run_open(config, NULL, &run));
    REFUSED(SHOAL_E_NUMERIC, "first in layer 'fc", shoal_run_train(run));
    rig_has(shoal_error_text(), "step ");
    rig_hint("--lr");
    shoal_run_close(run);
    shoal_config_destroy(config);
}
