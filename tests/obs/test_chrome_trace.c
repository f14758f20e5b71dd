#include "obs/chrome_trace.h"

#include <string.h>

#include <jansson.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/task.h"
#include "harness.h"

static int64_t now_ns;
static int64_t read_now(void *self) { return *(int64_t *)self; }
static const sh_clock test_clock = {read_now, &now_ns};

static char *test_path(void) { return sh_path_join(sh_test_folder("trace"), "trace.json"); }

/* Reads the file as a viewer does: a missing bracket is added. */
static json_t *load(const char *path, bool finished) {
    sh_mapped mapped;
    CHECK_OK(sh_file_map(path, &mapped));
    char *text =
        sh_format("%.*s%s", (int)mapped.bytes, (const char *)mapped.data, finished ? "" : "]");
    sh_file_unmap(&mapped);
    json_error_t error;
    json_t *events = json_loads(text, 0, &error);
    if (events == NULL) fail_msg("line %d: %s\n%s", error.line, error.text, text);
    sh_free(text);
    return events;
}

static const json_t *find_event(const json_t *events, const char *name) {
    size_t index;
    json_t *event;
    json_array_foreach(events, index,
                       event) if (strcmp(json_string_value(json_object_get(event, "name")), name) ==
                                  0) return event;
    return NULL;
}

TEST(chrome_trace, writes_complete_events_in_microseconds) {
    char *path = test_path();
    sh_chrome_trace *file = NULL;
    now_ns = 1000000;
    CHECK_OK(sh_chrome_trace_open(path, 3, &test_clock, &file));
    sh_trace trace = sh_chrome_trace_sink(file);
    now_ns = 2500000;
    int64_t start_ns = sh_trace_begin(&trace);
    now_ns = 2600500;
    sh_trace_end(&trace, "forward", "fc \"1\"", 42, start_ns);
    CHECK_OK(sh_chrome_trace_close(file));
    json_t *events = load(path, true);
    assert_int_equal(json_array_size(events), 3);
    const json_t *event = find_event(events, "fc \"1\"");
    assert_non_null(event);
    assert_string_equal(json_string_value(json_object_get(event, "cat")), "forward");
    assert_string_equal(json_string_value(json_object_get(event, "ph")), "X");
    assert_true(json_number_value(json_object_get(event, "ts")) == 1500);
    assert_true(json_number_value(json_object_get(event, "dur")) == 100.5);
    assert_int_equal(json_integer_value(json_object_get(event, "pid")), 3);
    assert_int_equal(json_integer_value(json_object_get(json_object_get(event, "args"), "step")),
                     42);
    json_decref(events);
    sh_free(path);
}

TEST(chrome_trace, is_valid_up_to_the_bracket_at_any_time) {
    char *path = test_path();
    sh_chrome_trace *file = NULL;
    CHECK_OK(sh_chrome_trace_open(path, 0, &test_clock, &file));
    json_decref(load(path, false));
    sh_trace trace = sh_chrome_trace_sink(file);
    size_t most = 0;
    for (int i = 0; i < 2000; i++) {  // some buffers full
        sh_trace_end(&trace, "optim", "step", i, now_ns);
        if (i % 100 != 0) continue;
        json_t *events = load(path, false);
        most = json_array_size(events);
        json_decref(events);
    }
    assert_true(most > 1000);
    now_ns += 2000000000;  // what is older than a second is written even if the buffer has room
    sh_trace_end(&trace, "eval", "late", 1, now_ns);
    json_t *events = load(path, false);
    assert_int_equal(json_array_size(events), 2003);
    assert_non_null(find_event(events, "late"));
    json_decref(events);
    CHECK_OK(sh_chrome_trace_close(file));
    json_decref(load(path, true));
    sh_free(path);
}

TEST(chrome_trace, survives_names_that_are_long_or_not_text) {
    char *path = test_path(), name[2000];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    sh_chrome_trace *file = NULL;
    CHECK_OK(sh_chrome_trace_open(path, 0, &test_clock, &file));
    sh_trace trace = sh_chrome_trace_sink(file);
    sh_trace_end(&trace, "data", name, 1, now_ns);
    sh_trace_end(&trace, "\xff", "ok", 1, now_ns);
    CHECK_OK(sh_chrome_trace_close(file));
    json_t *events = load(path, true);
    assert_non_null(find_event(events, "?"));
    assert_non_null(find_event(events, "ok"));
    json_decref(events);
    sh_free(path);
}

static sh_status emit_many(void *trace) {
    for (int i = 0; i < 500; i++) sh_trace_end(trace, "data", "load", i, now_ns);
    return SH_OK;
}

TEST(chrome_trace, gives_each_task_a_named_row) {
    char *path = test_path();
    sh_chrome_trace *file = NULL;
    CHECK_OK(sh_chrome_trace_open(path, 0, &test_clock, &file));
    sh_trace trace = sh_chrome_trace_sink(file);
    sh_task *task = NULL;
    CHECK_OK(sh_task_spawn("loader", emit_many, &trace, &task));
    emit_many(&trace);
    CHECK_OK(sh_task_wait(task));
    CHECK_OK(sh_chrome_trace_close(file));
    json_t *events = load(path, true);
    assert_int_equal(json_array_size(events), 1 + 2 + 1000);
    char *text = json_dumps(events, JSON_COMPACT);
    assert_non_null(strstr(text, "{\"name\":\"loader\"}"));
    free(text);
    json_decref(events);
    sh_free(path);
}

TEST(chrome_trace, reports_faults) {
    sh_chrome_trace *file = NULL;
    CHECK_FAILS(SH_E_IO, "no/such/folder",
                sh_chrome_trace_open("no/such/folder", 0, &test_clock, &file));
    CHECK_OK(sh_chrome_trace_close(NULL));
    char *path = sh_path_join(sh_test_folder("chrome_trace"), "trace.json");
    sh_test_limit_files(4);
    CHECK_OK(sh_chrome_trace_open(path, 0, &test_clock, &file));
    sh_status status = sh_chrome_trace_close(file);
    sh_test_limit_files(SIZE_MAX);
    CHECK_FAILS(SH_E_IO, "File too large", status);
    sh_free(path);
}
