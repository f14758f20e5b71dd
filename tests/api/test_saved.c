/* A model used through the C interface where its training data is not. */
#include <stdio.h>
#include <string.h>

#include "data/files.h"
#include "shoal/shoal.h"

enum { SAMPLES = 60, NEW = 12, CLASSES = 3 };

#define CHECK(call)                                                            \
    do {                                                                       \
        if ((call) != SHOAL_OK) fail_msg("%s: %s", #call, shoal_error_text()); \
    } while (0)

/* Features far from 0 and 1, so that it shows whether they are scaled as in training. */
static float feature(int sample, int which) {
    return which == 0 ? 1000.0f + (float)(sample * 37 % 101) : (float)(sample * 53 % 97) / 1024;
}

static void put_csv(const char *name, int first, int count, bool labels) {
    static char text[1 << 14];
    size_t used = 0;
    for (int i = first; i < first + count; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%.9g,%.9g",
                                 (double)feature(i, 0), (double)feature(i, 1));
        if (labels) used += (size_t)snprintf(text + used, sizeof text - used, ",%d", i % CLASSES);
        text[used++] = '\n';
    }
    CHECK_OK(sh_file_write(test_path(name), text, used));
}

static shoal_config *make_config(void) {
    shoal_config *config = NULL;
    CHECK(shoal_config_create(&config));
    const char *const settings[][2] = {{"model", "{name: mlp, hidden: [8]}"},
                                       {"data.batch", "10"},
                                       {"threads", "1"},
                                       {"kernels", "default"},
                                       {"optimizer.name", "adam"}};
    for (size_t i = 0; i < SH_COUNT(settings); i++)
        CHECK(shoal_config_set(config, settings[i][0], settings[i][1]));
    return config;
}

static void keep_row(void *user, int64_t index, const float *output, int64_t width) {
    assert_int_equal(width, CLASSES);
    memcpy((float *)user + index * width, output, (size_t)width * sizeof *output);
}

/* Trains, predicts with the data at hand, and takes the training data away. */
static void train(float outputs[NEW * CLASSES]) {
    put_csv("train.csv", 0, SAMPLES, true);
    put_csv("new.csv", SAMPLES, NEW, false);
    shoal_config *config = make_config();
    CHECK(shoal_config_set(config, "data.train", test_path("train.csv")));
    CHECK(shoal_config_set(config, "out", test_path("run")));
    CHECK(shoal_config_set(config, "epochs", "3"));
    shoal_run *run = NULL;
    CHECK(shoal_run_open(config, NULL, &run));
    CHECK(shoal_run_train(run));
    CHECK(shoal_run_save(run, test_path("model.safetensors")));
    shoal_run_close(run);
    CHECK(shoal_config_set(config, "data.test", test_path("new.csv")));
    CHECK(shoal_run_open(config, NULL, &run));
    CHECK(shoal_run_load(run, test_path("model.safetensors")));
    CHECK(shoal_run_predict(run, "test", keep_row, outputs));
    shoal_run_close(run);
    shoal_config_destroy(config);
    assert_int_equal(remove(test_path("train.csv")), 0);
}

TEST(saved, a_run_predicts_without_its_training_data) {
    use_folder("saved_run");
    float wanted[NEW * CLASSES], outputs[NEW * CLASSES];
    train(wanted);
    const char *const places[] = {"run", "model.safetensors"};
    for (size_t i = 0; i < SH_COUNT(places); i++) {
        shoal_config *config = make_config();
        if (i == 1) CHECK(shoal_config_set(config, "model", NULL));  // the file tells it
        CHECK(shoal_config_set(config, "data.test", test_path("new.csv")));
        shoal_run *run = NULL;
        CHECK(shoal_run_open_saved(config, test_path(places[i]), NULL, &run));
        assert_int_equal(shoal_run_train(run), SHOAL_E_USAGE);
        CHECK(shoal_run_predict(run, "test", keep_row, outputs));
        assert_memory_equal(outputs, wanted, sizeof wanted);
        assert_int_equal(shoal_run_classes(run), CLASSES);
        shoal_result result = {.size = sizeof result};
        assert_int_equal(shoal_run_evaluate(run, "test", &result), SHOAL_E_SHAPE);  // no labels
        // Saved again it knows as much.
        CHECK(shoal_run_save(run, test_path("again.safetensors")));
        shoal_run_close(run);
        shoal_config_destroy(config);
    }
    shoal_model *model = NULL;
    CHECK(shoal_model_open(test_path("again.safetensors"), NULL, &model));
    shoal_model_destroy(model);
}

TEST(saved, a_model_takes_samples_as_they_lie_in_the_data) {
    use_folder("saved_model");
    float wanted[NEW * CLASSES], outputs[NEW * CLASSES], x[NEW * 2];
    train(wanted);
    for (int i = 0; i < NEW; i++)
        for (int k = 0; k < 2; k++) x[2 * i + k] = feature(SAMPLES + i, k);
    const char *const places[] = {"run", "model.safetensors"};
    for (size_t i = 0; i < SH_COUNT(places); i++) {
        shoal_model *model = NULL;
        CHECK(shoal_model_open(
            test_path(places[i]),
            &(shoal_model_options){.size = sizeof(shoal_model_options), .threads = 1}, &model));
        int64_t sample[3];
        assert_int_equal(shoal_model_sample(model, sample), 1);
        assert_int_equal(sample[0], 2);
        assert_int_equal(shoal_model_outputs(model), CLASSES);
        assert_null(shoal_model_vocabulary(model));
        CHECK(shoal_model_predict(model, x, NEW, outputs));
        CHECK_CLOSE(outputs, wanted, NEW * CLASSES, 1e-5);
        shoal_model_destroy(model);
    }
}

TEST(saved, a_model_of_ones_own_opens_again) {
    use_folder("saved_own");
    static const int64_t sample[] = {2};
    shoal_model_options options = {.size = sizeof options,
                                   .model = "[{dense: 1}]",
                                   .sample = sample,
                                   .sample_rank = 1,
                                   .outputs = 1,
                                   .loss = "mse",
                                   .threads = 1};
    shoal_model *model = NULL, *again = NULL;
    CHECK(shoal_model_create(&options, &model));
    CHECK(shoal_model_save(model, test_path("own.safetensors")));
    CHECK(shoal_model_open(test_path("own.safetensors"), NULL, &again));
    const float x[] = {0.5f, -3, 2, 7}, y[] = {1, 2};
    float a[2], b[2];
    CHECK(shoal_model_predict(model, x, 2, a));
    CHECK(shoal_model_predict(again, x, 2, b));
    assert_memory_equal(a, b, sizeof a);
    double loss;
    CHECK(shoal_model_step(again, x, y, 2, &loss));  // mse, as the targets are values
    shoal_model_destroy(model);
    shoal_model_destroy(again);
}

TEST(saved, a_model_needs_a_file_that_tells_its_data) {
    use_folder("saved_bare");
    shoal_model *model = NULL;
    assert_int_equal(shoal_model_open(test_path("none.safetensors"), NULL, &model), SHOAL_E_IO);
    const char bare[] = "\x08\0\0\0\0\0\0\0{}      ";
    CHECK_OK(sh_file_write(test_path("bare.safetensors"), bare, sizeof bare - 1));
    assert_int_equal(shoal_model_open(test_path("bare.safetensors"), NULL, &model), SHOAL_E_FORMAT);
    assert_non_null(strstr(shoal_error_text(), "does not tell which data"));
    assert_null(model);
}
