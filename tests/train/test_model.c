/* The model interface: arrays in, arrays out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "shoal/shoal.h"

static shoal_model *make(const char *model, const char *optimizer) {
    static const int64_t sample[] = {2};
    shoal_model_options options = {.model = model,
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

TEST(model, refuses_what_it_cannot_take) {
    shoal_model *model = make("mlp", NULL);
    const int32_t bad_labels[] = {0, 1, 2, 0};
    assert_int_equal(shoal_model_step(model, inputs, bad_labels, 4, NULL), SHOAL_E_USAGE);
    assert_non_null(strstr(shoal_error_text(), "label 2 is 2"));
    assert_int_equal(shoal_model_step(model, inputs, labels, 0, NULL), SHOAL_E_USAGE);
    const float bad_inputs[] = {NAN, 0, 0, 1, 1, 0, 1, 1};
    assert_int_equal(shoal_model_step(model, bad_inputs, labels, 4, NULL), SHOAL_E_NUMERIC);
    shoal_model_destroy(model);
}
