#include "obs/report.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "harness.h"

/* A run's folder of a test, and one file in it. */
static char folder[512];

static void make_folder(void) {
    snprintf(folder, sizeof folder, "%s", sh_test_folder("report"));
    CHECK_OK(sh_make_folders(folder));
}

static void write_file(const char *name, const char *text) {
    char *path = sh_path_join(folder, name);
    CHECK_OK(sh_file_write(path, text, strlen(text)));
    sh_free(path);
}

static char *read_page(const char *path) {
    sh_mapped mapped;
    CHECK_OK(sh_file_map(path, &mapped));
    char *text = sh_format("%.*s", (int)mapped.bytes, (const char *)mapped.data);
    sh_file_unmap(&mapped);
    return text;
}

static json_t *read_run(void) {
    json_t *run = NULL;
    CHECK_OK(sh_report_read(folder, &run));
    return run;
}

static size_t size_of(const json_t *run, const char *list) {
    return json_array_size(json_object_get(run, list));
}

static double number_at(const json_t *run, const char *list, size_t index, const char *name) {
    return json_number_value(
        json_object_get(json_array_get(json_object_get(run, list), index), name));
}

TEST(report, reads_what_a_run_wrote) {
    make_folder();
    write_file("metrics.jsonl",
               "{\"event\":\"step\",\"step\":1,\"train_loss\":2.5,\"train_s\":0.5}\n"
               "{\"event\":\"eval\",\"step\":1,\"test_accuracy\":0.25,\"train_s\":0.5}\n"
               "{\"event\":\"worker\",\"step\":1,\"worker\":0,\"data_s\":0.1}\n"
               "{\"event\":\"staleness\",\"step\":1,\"counts\":[3,1]}\n"
               "{\"event\":\"end\",\"step\":1,\"train_s\":0.5,\"workers\":2}\n");
    write_file("run.yaml", "model: mlp\n");
    write_file("log.txt",
               "2026-11-19T21:49:53.892Z info  links measured\n"
               "2026-11-19T21:49:54.892Z warn  worker 1 is a straggler\n");
    json_t *run = read_run();
    assert_int_equal(size_of(run, "steps"), 1);
    assert_int_equal(size_of(run, "evals"), 1);
    assert_int_equal(size_of(run, "workers"), 1);
    assert_int_equal(size_of(run, "notices"), 1);
    assert_string_equal(json_string_value(json_object_get(run, "state")), "finished");
    assert_string_equal(json_string_value(json_object_get(run, "settings")), "model: mlp\n");
    const json_t *notice = json_array_get(json_object_get(run, "notices"), 0);
    assert_string_equal(json_string_value(json_object_get(notice, "text")),
                        "worker 1 is a straggler");
    assert_int_equal(json_integer_value(json_object_get(json_object_get(run, "end"), "workers")),
                     2);
    json_decref(run);
}

TEST(report, time_goes_on_over_restarts) {
    make_folder();
    write_file("metrics.jsonl",
               "{\"event\":\"step\",\"step\":1,\"train_s\":4}\n"
               "{\"event\":\"step\",\"step\":2,\"train_s\":6}\n"
               "{\"event\":\"step\",\"step\":3,\"train_s\":1}\n"
               "{\"event\":\"step\",\"step\":4,\"train_s\":3}\n");
    json_t *run = read_run();
    const double expected[] = {4, 6, 7, 9};
    for (size_t i = 0; i < 4; i++)
        assert_float_equal(number_at(run, "steps", i, "time_s"), expected[i], 1e-12);
    assert_string_equal(json_string_value(json_object_get(run, "state")), "stopped");
    json_decref(run);
}

TEST(report, long_runs_are_thinned_evenly_and_keep_their_newest_line) {
    make_folder();
    enum { LINES = 9001 };
    char *path = sh_path_join(folder, "metrics.jsonl");
    sh_writer writer;
    CHECK_OK(sh_writer_open(&writer, path));
    for (int i = 0; i < LINES; i++)
        fprintf(writer.file, "{\"event\":\"step\",\"step\":%d,\"train_s\":%d}\n", i, i);
    CHECK_OK(sh_writer_commit(&writer));
    sh_free(path);
    json_t *run = read_run();
    size_t count = size_of(run, "steps");
    int64_t every = json_integer_value(json_object_get(run, "every"));
    assert_in_range(count, 1000, 2001);
    assert_true(every > 1);
    for (size_t i = 0; i + 1 < count; i++)
        assert_int_equal((int64_t)number_at(run, "steps", i, "step"), (int64_t)i * every);
    assert_int_equal((int64_t)number_at(run, "steps", count - 1, "step"), LINES - 1);
    json_decref(run);
}

/* Steps of one forward pass each, 10 us apart; an evaluation after step 6. */
static void write_trace(int steps, const char *end) {
    char *path = sh_path_join(folder, "trace.json");
    sh_writer writer;
    CHECK_OK(sh_writer_open(&writer, path));
    fputs("[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":0,\"args\":{\"name\":\"rank 0\"}}",
          writer.file);
    for (int i = 0; i < steps; i++)
        fprintf(writer.file,
                ",\n{\"name\":\"fc\",\"cat\":\"%s\",\"ph\":\"X\",\"ts\":%d,\"dur\":5,\"pid\":0,"
                "\"tid\":1,\"args\":{\"step\":%d}}",
                i == 6 ? "eval" : "forward", 10 * i, i);
    fputs(end, writer.file);
    CHECK_OK(sh_writer_commit(&writer));
    sh_free(path);
}

TEST(report, shows_steps_without_an_evaluation_between) {
    make_folder();
    write_file("metrics.jsonl", "{\"event\":\"step\",\"step\":1,\"train_s\":4}\n");
    write_trace(12, "\n]\n");
    json_t *run = read_run();
    const json_t *timeline = json_object_get(run, "timeline");
    assert_int_equal(json_integer_value(json_object_get(timeline, "first")), 7);
    assert_int_equal(json_integer_value(json_object_get(timeline, "last")), 9);
    assert_int_equal(json_array_size(json_object_get(timeline, "events")), 1 + 3);
    json_decref(run);
}

TEST(report, a_killed_runs_trace_is_shown_as_far_as_it_goes) {
    make_folder();
    write_file("metrics.jsonl", "{\"event\":\"step\",\"step\":1,\"train_s\":4}\n");
    write_trace(3, ",\n{\"name\":\"fc\",\"cat\":\"forw");
    json_t *run = read_run();
    assert_int_equal(json_array_size(json_object_get(json_object_get(run, "timeline"), "events")),
                     1 + 2);  // from the middle on
    json_decref(run);
}

TEST(report, a_folder_that_is_no_run_is_refused) {
    make_folder();
    json_t *run = NULL;
    CHECK_FAILS(SH_E_USAGE, "no run's folder", sh_report_read(folder, &run));
    write_file("metrics.jsonl", "nonsense\n");
    CHECK_FAILS(SH_E_FORMAT, "metrics.jsonl:1", sh_report_read(folder, &run));
}

static size_t count_of(const char *text, const char *part) {
    size_t count = 0;
    for (const char *at = strstr(text, part); at != NULL; at = strstr(at + 1, part)) count++;
    return count;
}

TEST(report, no_text_of_a_run_ends_the_pages_data) {
    make_folder();
    write_file("metrics.jsonl", "{\"event\":\"step\",\"step\":1,\"train_s\":4}\n");
    write_file("run.yaml", "name: </script><script>alert(1)</script><!--\n");
    json_t *runs = json_array();
    json_array_append_new(runs, read_run());
    char *path = sh_path_join(folder, "report.html");
    CHECK_OK(sh_report_write(runs, path));
    char *page = read_page(path);
    assert_int_equal(count_of(page, "alert(1)"), 1);
    assert_null(strstr(page, "<script>alert"));
    assert_int_equal(count_of(page, "\\u003c/script>\\u003cscript>alert(1)"), 1);
    // Its own scripts: data, charts, page.
    assert_int_equal(count_of(page, "</script>"), 3);
    assert_null(strstr(page, "src=\"http"));
    sh_free(page);
    sh_free(path);
    json_decref(runs);
}
