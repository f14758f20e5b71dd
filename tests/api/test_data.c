/* Data sets described and checked through the public interface. */
#include "rig.h"

#include <jansson.h>

#include "base/file.h"
#include "base/memory.h"

static const char *put(const char *name, const char *text) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", sh_test_folder("api-data"), name);
    CHECK_OK(sh_file_write(path, text, strlen(text)));
    return path;
}

static const char *describe(shoal_config *config, const char *path, bool json) {
    FILE *paper = rig_paper();
    SUCCEEDS(shoal_data_info(config, path, NULL, json, RIG_SINK(paper)));
    shoal_config_destroy(config);
    return rig_read(paper);
}

TEST(data, text_tells_every_part_of_a_named_set) {
    const char *text = describe(RIG_CONFIG("epochs", "1"), "digits", false);
    rig_has(text, "part:      train\nformat:    built in\nsamples:   1500\n");
    rig_has(text, "part:      test\nformat:    built in\nsamples:   297\n");
    rig_has(text, "sample:    1x8x8 floats\nrange:     0 to 16\n");
    rig_has(text, "classes:   10\n");
    assert_int_equal(rig_count(text, "per class:"), 2);
}

TEST(data, json_is_one_object_a_part_and_sums_up) {
    char *text = strdup(describe(RIG_CONFIG("epochs", "1"), "digits", true));
    static const int counts[] = {1500, 297};
    char *line = strtok(text, "\n");
    for (int i = 0; i < 2; i++, line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        assert_non_null(object);
        assert_int_equal(json_integer_value(json_object_get(object, "samples")), counts[i]);
        const json_t *classes = json_object_get(object, "per_class");
        int64_t sum = 0;
        assert_int_equal(json_array_size(classes), 10);
        for (size_t k = 0; k < 10; k++) sum += json_integer_value(json_array_get(classes, k));
        assert_int_equal(sum, counts[i]);
        assert_int_equal(json_integer_value(json_object_get(object, "ignored")), 0);
        json_decref(object);
    }
    assert_null(line);
    free(text);
}

TEST(data, whole_numbers_are_classes_or_values_as_the_config_says) {
    const char *rows = "a,b,y\n1,-2,0\n3,4,1\n5,6.5,1\n0,0,2\n";
    const char *text = describe(RIG_CONFIG("epochs", "1"), put("rows.csv", rows), false);
    rig_has(text, "part:      all\nformat:    csv\nsamples:   4\nsample:    2 floats\n");
    rig_has(text, "range:     -2 to 6.5\n");
    rig_has(text, "target:    classes\nclasses:   3\n");
    rig_has(text, "per class: 1 2 1\n");
    text = describe(RIG_CONFIG("data.targets", "values"), put("rows.csv", rows), false);
    rig_has(text, "target:    values\nvalues:    1\n           0 to 2\n");
    assert_null(strstr(text, "per class"));
}

TEST(data, labels_that_do_not_count_are_counted_apart) {
    const char *rows = "a,y\n1,0\n2,-100\n3,1\n4,-100\n5,1\n";
    const char *text = describe(RIG_CONFIG("epochs", "1"), put("ignored.csv", rows), false);
    rig_has(text, "ignored:   2 samples\n");
    rig_has(text, "per class: 1 2\n");
    text =
        describe(RIG_CONFIG("loss.ignore", "1"), put("ignored.csv", "a,y\n1,0\n2,1\n3,2\n"), true);
    rig_has(text, "\"ignored\":1");
    rig_has(text, "\"per_class\":[1,0,1]");
}

TEST(data, zeros_between_sparse_values_belong_to_the_range) {
    const char *text =
        describe(RIG_CONFIG("epochs", "1"), put("rows.libsvm", "+1 1:2 3:5\n-1 2:3\n"), false);
    rig_has(text, "sample:    3 floats\nrange:     0 to 5\n");
    text = describe(RIG_CONFIG("epochs", "1"), put("full.libsvm", "1 1:2 2:5\n0 1:3 2:9\n"), false);
    rig_has(text, "range:     2 to 9\n");  // there is none where every value is stored
}

TEST(data, text_has_an_alphabet_and_no_range) {
    char plays[4000];
    for (size_t i = 0; i < sizeof plays; i++) plays[i] = "to be or not "[i % 13];
    plays[sizeof plays - 1] = '\0';
    const char *text = describe(RIG_CONFIG("data.context", "16"), put("plays.txt", plays), false);
    rig_has(text, "sample:    16 tokens\n");
    rig_has(text, "target:    tokens\n");
    assert_null(strstr(text, "range"));
}

/* ---- Checks ---- */

TEST(data, a_check_reads_every_sample_and_says_so) {
    shoal_config *config = RIG_CONFIG("epochs", "1");
    FILE *paper = rig_paper();
    SUCCEEDS(shoal_data_check(config, "digits", NULL, RIG_SINK(paper)));
    assert_string_equal(rig_read(paper),
                        "digits (train): 1500 samples, no fault found\n"
                        "digits (test): 297 samples, no fault found\n");
    shoal_config_destroy(config);
}

TEST(data, faults_are_told_with_their_place_and_nothing_is_printed) {
    static const struct {
        const char *name, *text, *fault;
        shoal_status code;
    } files[] = {
        {"ragged.csv", "1,2,0\n3,4\n", "line 2", SHOAL_E_FORMAT},
        {"word.csv", "1,2,0\n3,x,1\n", "line 2, column 2", SHOAL_E_FORMAT},
        {"nan.csv", "1,2,0\n3,nan,1\n", "not a finite", SHOAL_E_NUMERIC},
        {"empty.csv", "", "is empty", SHOAL_E_FORMAT},
        {"word.libsvm", "1 x:1\n", "line 1", SHOAL_E_FORMAT},
        {"cut.npy", "\x93NUMPY", "cut.npy", SHOAL_E_FORMAT},
    };
    for (size_t i = 0; i < SH_COUNT(files); i++) {
        shoal_config *config = RIG_CONFIG("epochs", "1");
        FILE *paper = rig_paper();
        REFUSED(files[i].code, files[i].fault,
                shoal_data_check(config, put(files[i].name, files[i].text), NULL, RIG_SINK(paper)));
        assert_string_equal(rig_read(paper), "");
        shoal_config_destroy(config);
    }
}

TEST(data, names_that_are_misspelt_get_the_nearest) {
    shoal_config *config = RIG_CONFIG("epochs", "1");
    FILE *paper = rig_paper();
    REFUSED(SHOAL_E_IO, "cannot open 'digist'",
            shoal_data_check(config, "digist", NULL, RIG_SINK(paper)));
    rig_hint("digits");
    REFUSED(SHOAL_E_USAGE, "no column 'kinds'", ({
                SUCCEEDS(shoal_config_set(config, "data.label_column", "kinds"));
                shoal_data_check(config, put("k.csv", "a,kind\n1,0\n2,1\n"), NULL, RIG_SINK(paper));
            }));
    rig_hint("kind");
    fclose(paper);
    shoal_config_destroy(config);
}

TEST(data, fetching_needs_a_folder_and_a_name) {
    REFUSED(SHOAL_E_USAGE, "no folder to keep data in", shoal_data_get("mnist", NULL));
    const shoal_hooks hooks = {.size = sizeof hooks, .data_folder = "/nonexistent"};
    if (shoal_data_get("nosuchset", &hooks) == SHOAL_OK) fail_msg("an unknown set is fetched");
    rig_has(shoal_error_text(), "nosuchset");
    SUCCEEDS(shoal_data_get("digits", &hooks));  // built in: there is nothing to fetch
}
