#include "obs/metrics.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "harness.h"

static char *test_path(void) { return sh_path_join(sh_test_folder("metrics"), "metrics.jsonl"); }

static void assert_holds(const char *path, const char *text) {
    sh_mapped mapped;
    CHECK_OK(sh_file_map(path, &mapped));
    char *found =
        sh_format("%.*s", (int)mapped.bytes, mapped.data ? (const char *)mapped.data : "");
    sh_file_unmap(&mapped);
    assert_string_equal(found, text);
    sh_free(found);
}

static void write_step(sh_metrics *metrics, int64_t step) {
    sh_metric fields[] = {{"step", SH_METRIC_INT, .i = step}};
    CHECK_OK(sh_metrics_write(metrics, "step", fields, SH_COUNT(fields)));
}

TEST(metrics, writes_one_object_a_line_at_once) {
    char *path = test_path();
    sh_metrics *metrics = NULL;
    CHECK_OK(sh_metrics_open(path, SH_METRICS_FRESH, &metrics));
    sh_metric fields[] = {
        {"step", SH_METRIC_INT, .i = INT64_MAX},
        {"train_loss", SH_METRIC_REAL, .r = 0.1},
        {"test_loss", SH_METRIC_REAL, .r = NAN},
        {"norm", SH_METRIC_REAL, .r = INFINITY},
        {"note", SH_METRIC_TEXT, .s = "a \"b\"\n\xc3\xa9"},
        {"none", SH_METRIC_TEXT, .s = NULL},
        {"bad", SH_METRIC_TEXT, .s = "\xff"},
        {"done", SH_METRIC_BOOL, .b = true},
    };
    CHECK_OK(sh_metrics_write(metrics, "step", fields, SH_COUNT(fields)));
    // Read before close: a line is on disk as soon as it is written.
    assert_holds(path,
                 "{\"event\":\"step\",\"step\":9223372036854775807,\"train_loss\":0.1,"
                 "\"test_loss\":null,\"norm\":null,\"note\":\"a \\\"b\\\"\\n\xc3\xa9\","
                 "\"none\":null,\"bad\":\"\\\\xff\",\"done\":true}\n");
    sh_metrics_close(metrics);
    sh_free(path);
}

TEST(metrics, a_line_longer_than_the_buffer_is_whole) {
    char *path = test_path(), text[10000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    sh_metrics *metrics = NULL;
    CHECK_OK(sh_metrics_open(path, SH_METRICS_FRESH, &metrics));
    sh_metric fields[] = {{"text", SH_METRIC_TEXT, .s = text}};
    CHECK_OK(sh_metrics_write(metrics, "e", fields, 1));
    sh_metrics_close(metrics);
    char *expected = sh_format("{\"event\":\"e\",\"text\":\"%s\"}\n", text);
    assert_holds(path, expected);
    sh_free(expected);
    sh_free(path);
}

TEST(metrics, resume_cuts_off_what_lies_beyond_the_step) {
    char *path = test_path();
    sh_metrics *metrics = NULL;
    CHECK_OK(sh_metrics_open(path, 7, &metrics));  // nothing there yet is fine
    CHECK_OK(sh_metrics_write(metrics, "start", NULL, 0));
    for (int64_t step = 1; step <= 4; step++) write_step(metrics, step);
    sh_metrics_close(metrics);
    CHECK_OK(sh_metrics_open(path, 2, &metrics));
    write_step(metrics, 3);
    sh_metrics_close(metrics);
    assert_holds(path,
                 "{\"event\":\"start\"}\n{\"event\":\"step\",\"step\":1}\n"
                 "{\"event\":\"step\",\"step\":2}\n{\"event\":\"step\",\"step\":3}\n");
    CHECK_OK(sh_metrics_open(path, SH_METRICS_FRESH, &metrics));
    sh_metrics_close(metrics);
    assert_holds(path, "");
    sh_free(path);
}

TEST(metrics, resume_drops_a_line_that_was_cut) {
    char *path = test_path();
    const char *text = "{\"event\":\"step\",\"step\":1}\n{\"event\":\"st";
    CHECK_OK(sh_file_write(path, text, strlen(text)));
    sh_metrics *metrics = NULL;
    CHECK_OK(sh_metrics_open(path, 5, &metrics));
    sh_metrics_close(metrics);
    assert_holds(path, "{\"event\":\"step\",\"step\":1}\n");
    sh_free(path);
}

TEST(metrics, refuses_to_resume_a_strange_file_and_leaves_it) {
    char *path = test_path();
    const char *text = "{\"step\":1}\nnot json\n{\"step\":9}\n";
    CHECK_OK(sh_file_write(path, text, strlen(text)));
    sh_metrics *metrics = NULL;
    CHECK_FAILS(SH_E_FORMAT, "metrics.jsonl:2: not a JSON object",
                sh_metrics_open(path, 5, &metrics));
    assert_null(metrics);
    assert_holds(path, text);
    CHECK_OK(sh_file_write(path, "[1]\n", 4));
    CHECK_FAILS(SH_E_FORMAT, "metrics.jsonl:1", sh_metrics_open(path, 5, &metrics));
    sh_free(path);
}

TEST(metrics, reports_faults_in_opening_and_writing) {
    sh_metrics *metrics = NULL;
    CHECK_FAILS(SH_E_IO, "'no/such/folder'",
                sh_metrics_open("no/such/folder", SH_METRICS_FRESH, &metrics));
    char *path = sh_path_join(sh_test_folder("metrics"), "metrics.jsonl");
    CHECK_OK(sh_metrics_open(path, SH_METRICS_FRESH, &metrics));
    sh_test_limit_files(4);
    sh_status status = sh_metrics_write(metrics, "x", NULL, 0);
    sh_test_limit_files(SIZE_MAX);
    CHECK_FAILS(SH_E_IO, "metrics.jsonl", status);
    sh_metrics_close(metrics);
    sh_free(path);
}
