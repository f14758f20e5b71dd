/* Dropout: which elements are dropped. Each step, layer and sample has a mask of its own.
 */
#include "nn/rig.h"

enum { SAMPLES = 4, WIDTH = 1024 };

static const float p = 0.5f;
static const char *const one = "[{dropout: 0.5}]";

/* Dropout of the inputs, none of which is zero. */
static rig make(const char *text, int64_t samples) {
    rig r = rig_make(text, RIG_VECTOR(WIDTH), samples);
    float *x = r.x;
    for (size_t i = 0; i < r.executor->input->count; i++) x[i] = 1.0f;
    return r;
}

/* Outputs of one step, zero where the element was dropped; the caller frees them. */
static float *outputs_of(rig *r) {
    CHECK_OK(sh_executor_forward(r->executor, &r->step, r->x));
    return rig_copy(r->executor->output->data, r->executor->output->count);
}

static double dropped_part(const float *y, size_t count) {
    size_t dropped = 0;
    for (size_t i = 0; i < count; i++) dropped += y[i] == 0;
    return (double)dropped / (double)count;
}

/* Independent masks agree by chance alone: where both keep an element or both drop it. */
static void expect_independent(const float *a, const float *b, size_t count) {
    size_t agree = 0;
    for (size_t i = 0; i < count; i++) agree += (a[i] == 0) == (b[i] == 0);
    double by_chance = (double)(p * p + (1 - p) * (1 - p)), part = (double)agree / (double)count;
    if (fabs(part - by_chance) > 0.06) fail_msg("masks agree in %g of the elements", part);
}

TEST(dropout, zeroes_its_part_and_scales_the_rest) {
    rig r = make(one, SAMPLES);
    float *y = outputs_of(&r);
    assert_true(fabs(dropped_part(y, SAMPLES * WIDTH) - (double)p) < 0.03);
    for (size_t i = 0; i < SAMPLES * WIDTH; i++) assert_true(y[i] == 0 || y[i] == 1 / (1 - p));
    sh_free(y);
    rig_free(&r);
}

TEST(dropout, drops_other_elements_in_every_step) {
    rig r = make(one, SAMPLES);
    r.step.step = 0;
    float *before = outputs_of(&r);
    for (r.step.step = 1; r.step.step < 4; r.step.step++) {
        float *y = outputs_of(&r);
        expect_independent(before, y, SAMPLES * WIDTH);
        sh_free(before);
        before = y;
    }
    sh_free(before);
    rig_free(&r);
}

TEST(dropout, drops_other_elements_in_every_layer) {
    rig r = make(
        "[{dropout: 0.5, name: a}, {dropout: 0.5, name: b, from: input}, "
        "{concat: , from: [a, b]}]",
        SAMPLES);
    float *y = outputs_of(&r);  // (SAMPLES, 2 WIDTH)
    for (size_t i = 0; i < SAMPLES; i++)
        expect_independent(y + 2 * i * WIDTH, y + (2 * i + 1) * WIDTH, WIDTH);
    sh_free(y);
    rig_free(&r);
}

TEST(dropout, drops_other_elements_of_every_sample) {
    rig r = make(one, SAMPLES);
    float *y = outputs_of(&r);
    for (size_t i = 1; i < SAMPLES; i++)
        expect_independent(y + (i - 1) * WIDTH, y + i * WIDTH, WIDTH);
    sh_free(y);
    rig_free(&r);
}

/* Workers split a batch by position, so a sample keeps its mask however many there are. */
TEST(dropout, drops_the_same_of_a_sample_in_whatever_part_of_the_batch_it_comes) {
    rig whole = make(one, SAMPLES), part = make(one, 1);
    float *all = outputs_of(&whole);
    for (size_t i = 0; i < SAMPLES; i++) {
        part.step.position = whole.step.position + i;
        float *y = outputs_of(&part);
        assert_memory_equal(y, all + i * WIDTH, WIDTH * sizeof *y);
        sh_free(y);
    }
    sh_free(all);
    rig_free(&whole);
    rig_free(&part);
}

/* Backward draws the mask again: the gradient passes where the value did, scaled alike. */
TEST(dropout, passes_the_gradient_where_the_value_passed) {
    rig r = make("[{dense: 1024, name: a}, {dropout: 0.5}]", 1);
    rig_step(&r);
    float *y = outputs_of(&r);
    const sh_param *bias = sh_param_list_find(&r.net->params, "a.bias");
    const float *gradient = r.blocks.gradients + bias->offset;  // of one sample: as it comes back
    for (size_t i = 0; i < WIDTH; i++)
        assert_true(gradient[i] == (y[i] == 0 ? 0 : r.y[i] / (1 - p)));
    sh_free(y);
    rig_free(&r);
}

TEST(dropout, keeps_everything_in_inference) {
    rig r = make(one, SAMPLES);
    r.step.training = false;
    float *y = outputs_of(&r);
    for (size_t i = 0; i < SAMPLES * WIDTH; i++) assert_true(y[i] == 1);
    sh_free(y);
    rig_free(&r);
}
