/* A program around the library may have set a locale whose decimal point is a comma: nothing that
 * is read or written may depend on it, and it has to stay as it is. */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "harness.h"
#include "shoal/shoal.h"

#define CHECK(call)                                                            \
    do {                                                                       \
        if ((call) != SHOAL_OK) fail_msg("%s: %s", #call, shoal_error_text()); \
    } while (0)

static bool has_comma(void) {
    char text[16];
    snprintf(text, sizeof text, "%g", 1.5);
    return strcmp(text, "1,5") == 0;
}

/* Few systems have such a locale installed, but all can make one. */
static void enter_comma(void) {
    static const char source[] =
        "comment_char %\nescape_char /\nLC_NUMERIC\ndecimal_point \",\"\nthousands_sep \".\"\n"
        "grouping 3;3\nEND LC_NUMERIC\n";
    const char *folder = sh_test_folder("locales");
    char *path = sh_path_join(folder, "comma.source");
    char *command = sh_format("localedef --no-archive -c -i '%s' '%s/comma' >'%s/said' 2>&1", path,
                              folder, folder);
    CHECK_OK(sh_file_write(path, source, strlen(source)));
    int made = system(command);  // it complains about what is not defined; what counts is below
    (void)made;
    setenv("LOCPATH", folder, 1);
    bool entered = setlocale(LC_ALL, "comma") != NULL && has_comma();
    sh_free(command);
    sh_free(path);
    if (entered) return;
    setlocale(LC_ALL, "C");
    print_message("localedef made no locale with a decimal comma here\n");
    skip();
}

static void leave_comma(void) {
    assert_true(has_comma());  // it is the program's, and still there
    assert_string_equal(setlocale(LC_ALL, NULL), "comma");
    assert_true(uselocale((locale_t)0) == LC_GLOBAL_LOCALE);
    setlocale(LC_ALL, "C");
}

TEST(locale, numbers_have_a_point) {
    enter_comma();
    char text[64], *end = NULL;
    assert_int_equal(sh_snprintf(text, sizeof text, "%.2f", 1.25), 4);
    assert_string_equal(text, "1.25");
    assert_true(sh_strtod("2.5,7", &end) == 2.5);
    assert_string_equal(end, ",7");
    double a = 0, b = 0;
    assert_int_equal(sh_sscanf("0.5 1e-3", "%lf %lf", &a, &b), 2);
    assert_true(a == 0.5 && b == 1e-3);
    char *made = sh_format("%g", 0.125);
    assert_string_equal(made, "0.125");
    sh_free(made);
    leave_comma();
}

static void keep_row(void *user, int64_t index, const float *output, int64_t width) {
    memcpy((float *)user + index * width, output, (size_t)width * sizeof *output);
}

/* Trains in a folder below `root`, and predicts with what was saved there, from its run file. */
static void train(const char *root, const char *name, float outputs[297 * 10]) {
    char *folder = sh_path_join(root, name), *file = sh_path_join(folder, "run.yaml");
    const char *const settings[][2] = {
        {"model", "{name: mlp, hidden: [8], dropout: 0.125}"},
        {"data", "digits"},
        {"data.hold_out", "0.05"},
        {"optimizer.name", "adam"},
        {"optimizer.lr", "0.0125"},
        {"schedule.name", "cosine"},
        {"schedule.warmup", "0.25"},
        {"compress", "topk:1.5%"},
        {"eval.every", "0.5"},
        {"steps", "10"},
        {"threads", "1"},
        {"kernels", "default"},
        {"trace", "true"},
        {"out", folder},
    };
    shoal_config *config = NULL;
    shoal_run *run = NULL;
    CHECK(shoal_config_create(&config));
    for (size_t i = 0; i < SH_COUNT(settings); i++)
        CHECK(shoal_config_set(config, settings[i][0], settings[i][1]));
    CHECK(shoal_run_open(config, NULL, &run));
    CHECK(shoal_run_train(run));
    shoal_run_close(run);
    shoal_config_destroy(config);

    CHECK(shoal_config_create(&config));
    CHECK(shoal_config_read(config, file));
    CHECK(shoal_run_open_saved(config, folder, NULL, &run));
    CHECK(shoal_run_predict(run, "test", keep_row, outputs));
    shoal_run_close(run);
    shoal_config_destroy(config);
    sh_free(file);
    sh_free(folder);
}

static void check_same(const char *root, const char *name) {
    char *a = sh_format("%s/point/%s", root, name), *b = sh_format("%s/comma/%s", root, name);
    sh_mapped x, y;
    CHECK_OK(sh_file_map(a, &x));
    CHECK_OK(sh_file_map(b, &y));
    assert_int_equal(x.bytes, y.bytes);
    assert_memory_equal(x.data, y.data, x.bytes);
    sh_file_unmap(&x);
    sh_file_unmap(&y);
    sh_free(a);
    sh_free(b);
}

static void check_no_comma_number(const char *root, const char *name) {
    char *path = sh_format("%s/comma/%s", root, name);
    sh_mapped file;
    CHECK_OK(sh_file_map(path, &file));
    const char *text = (const char *)file.data;
    for (size_t i = 1; i + 1 < file.bytes; i++) {
        bool before = text[i - 1] >= '0' && text[i - 1] <= '9';
        bool behind = text[i + 1] >= '0' && text[i + 1] <= '9';
        if (text[i] == ',' && before && behind) fail_msg("'%s': a comma at byte %zu", path, i);
    }
    sh_file_unmap(&file);
    sh_free(path);
}

TEST(locale, a_run_is_the_same_bit_for_bit) {
    static float point[297 * 10], comma[297 * 10];
    char *root = sh_strdup(sh_test_folder("locale_run"));
    train(root, "point", point);
    enter_comma();
    train(root, "comma", comma);
    leave_comma();
    assert_memory_equal(point, comma, sizeof point);
    check_same(root, "checkpoints/model-00000010.safetensors");
    check_same(root, "checkpoints/optimizer-00000010.safetensors");
    check_same(root, "checkpoints/manifest-00000010.json");
    check_no_comma_number(root, "run.yaml");
    check_no_comma_number(root, "metrics.jsonl");
    check_no_comma_number(root, "log.txt");
    check_no_comma_number(root, "trace.json");
    sh_free(root);
}

TEST(locale, messages_have_points_too) {
    enter_comma();
    shoal_config *config = NULL;
    CHECK(shoal_config_create(&config));
    assert_int_equal(shoal_config_set(config, "optimizer.momentum", "1.5"), SHOAL_E_USAGE);
    assert_int_equal(shoal_config_set(config, "loss.smoothing", "1"), SHOAL_E_USAGE);
    assert_non_null(strstr(shoal_error_text(), "0.999"));
    assert_int_equal(shoal_config_set(config, "optimizer.lr", "0,5"), SHOAL_E_USAGE);
    shoal_config_destroy(config);
    leave_comma();
}
