/* The model interface: arrays in, arrays out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "shoal/shoal.h"

static shoal_model *make(const char *model, const char *optimizer) {
    static const int64_t sample[] = {2};
    shoal_model_options options = {.size = sizeof options,
                                   .model = model,
                                   .sample = sample,
                                   .sample_rank = 1,
                                   .outputs = 2,
                                   .optimizer = optimizer,
                                   .seed = 3,
                                   .threads = 1};
    shoal_model *made = NULL;
    if (shoal_model_create(&options, &made) != SHOAL_OK) fail_msg("%s", shoal_error_text());
    return made;
}

static const float inputs[] = {0, 0, 0, 1, 1, 0, 1, 1};
static const int32_t labels[] = {0, 1, 1, 0};

TEST(model, learns_exclusive_or) {
    shoal_model *model =
        make("{name: mlp, hidden: [16], activation: tanh}", "{name: adam, lr: 0.05}");
    assert_int_equal(shoal_model_param_count(model), 2 * 16 + 16 + 16 * 2 + 2);
    double loss = 1;
    for (int i = 0; i < 300; i++)
        assert_int_equal(shoal_model_step(model, inputs, labels, 4, &loss), SHOAL_OK);
    assert_true(loss < 0.05);
    float output[8];
    assert_int_equal(shoal_model_predict(model, inputs, 4, output), SHOAL_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(output[2 * i + 1] > output[2 * i], labels[i]);
    shoal_model_destroy(model);
}

TEST(model, evaluates_without_learning) {
    shoal_model *model = make("{name: mlp, hidden: [16]}", "{name: adam, lr: 0.05}");
    shoal_result before = {.size = sizeof before}, again = before, after = before;
    assert_int_equal(shoal_model_evaluate(model, inputs, labels, 4, &before), SHOAL_OK);
    assert_int_equal(shoal_model_evaluate(model, inputs, labels, 4, &again), SHOAL_OK);
    assert_memory_equal(&before, &again, sizeof before);
    assert_int_equal(before.samples, 4);
    double loss = 0;
    assert_int_equal(shoal_model_step(model, inputs, labels, 4, &loss), SHOAL_OK);
    assert_true(fabs(loss - before.loss) < 1e-6);  // a step tells the loss before it
    for (int i = 0; i < 300; i++)
        assert_int_equal(shoal_model_step(model, inputs, labels, 4, NULL), SHOAL_OK);
    assert_int_equal(shoal_model_evaluate(model, inputs, labels, 4, &after), SHOAL_OK);
    assert_true(after.accuracy == 1 && after.loss < before.loss);
    shoal_model_destroy(model);
}

TEST(model, names_the_layer_whose_numbers_failed) {
    shoal_model *model = make("{name: mlp, hidden: [4]}", NULL);
    const float bad[] = {0, 0, NAN, 1, 1, 0, 1, 1};
    assert_int_equal(shoal_model_step(model, bad, labels, 4, NULL), SHOAL_E_NUMERIC);
    assert_non_null(strstr(shoal_error_text(), "first in layer 'fc1'"));
    shoal_model_destroy(model);
}

TEST(model, saves_and_loads_to_the_same_outputs) {
    char path[4200];
    snprintf(path, sizeof path, "%s/model.safetensors", sh_test_folder("model-save"));
    shoal_model *a = make("{name: mlp, hidden: [5]}", NULL);
    shoal_model *b = make("{name: mlp, hidden: [5]}", NULL);
    for (int i = 0; i < 10; i++)
        assert_int_equal(shoal_model_step(a, inputs, labels, 4, NULL), SHOAL_OK);
    float from_a[8], from_b[8];
    assert_int_equal(shoal_model_predict(a, inputs, 4, from_a), SHOAL_OK);
    assert_int_equal(shoal_model_predict(b, inputs, 4, from_b), SHOAL_OK);
    assert_memory_not_equal(from_a, from_b, sizeof from_a);
    assert_int_equal(shoal_model_save(a, path), SHOAL_OK);
    assert_int_equal(shoal_model_load(b, path), SHOAL_OK);
    assert_int_equal(shoal_model_predict(b, inputs, 4, from_b), SHOAL_OK);
    assert_memory_equal(from_a, from_b, sizeof from_a);

    shoal_model *other = make("{name: mlp, hidden: [6]}", NULL);
    assert_int_equal(shoal_model_load(other, path), SHOAL_E_SHAPE);
    shoal_model_destroy(a);
    shoal_model_destroy(b);
    shoal_model_destroy(other);
}

/* A sample with the label to ignore leaves no trace: neither in the mean nor in the gradient. */
TEST(model, learns_from_the_labels_that_count) {
    shoal_model *all = make("{name: mlp, hidden: [5]}", NULL);
    shoal_model *some = make("{name: mlp, hidden: [5]}", NULL);
    const int32_t with_ignored[] = {0, 1, 1, -100};
    for (int i = 0; i < 10; i++) {
        double loss_all, loss_some;
        assert_int_equal(shoal_model_step(all, inputs, with_ignored, 4, &loss_all), SHOAL_OK);
        assert_int_equal(shoal_model_step(some, inputs, labels, 3, &loss_some), SHOAL_OK);
        assert_true(fabs(loss_all - loss_some) < 1e-6);
    }
    float from_all[8], from_some[8];
    assert_int_equal(shoal_model_predict(all, inputs, 4, from_all), SHOAL_OK);
    assert_int_equal(shoal_model_predict(some, inputs, 4, from_some), SHOAL_OK);
    for (int i = 0; i < 8; i++) assert_true(fabsf(from_all[i] - from_some[i]) < 1e-5f);
    shoal_model_destroy(all);
    shoal_model_destroy(some);
}

TEST(model, refuses_what_it_cannot_take) {
    shoal_model *model = make("mlp", NULL);
    const int32_t bad_labels[] = {0, 1, 2, 0};
    assert_int_equal(shoal_model_step(model, inputs, bad_labels, 4, NULL), SHOAL_E_USAGE);
    assert_non_null(strstr(shoal_error_text(), "label 2 is 2"));
    const int32_t none_counts[] = {-100, -100, -100, -100};
    assert_int_equal(shoal_model_step(model, inputs, none_counts, 4, NULL), SHOAL_E_USAGE);
    assert_non_null(strstr(shoal_error_text(), "every label of the batch is -100"));
    assert_int_equal(shoal_model_step(model, inputs, labels, 0, NULL), SHOAL_E_USAGE);
    const float bad_inputs[] = {NAN, 0, 0, 1, 1, 0, 1, 1};
    assert_int_equal(shoal_model_step(model, bad_inputs, labels, 4, NULL), SHOAL_E_NUMERIC);
    shoal_model_destroy(model);
}
