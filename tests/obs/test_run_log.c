#include "obs/run_log.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "harness.h"

static int64_t now_ns;
static int64_t read_now(void *self) { return *(int64_t *)self; }
static const sh_clock test_clock = {read_now, &now_ns};

static char passed_on[256];
static void keep_line(void *self, sh_log_level level, const char *text) {
    assert_ptr_equal(self, passed_on);
    snprintf(passed_on, sizeof passed_on, "%d %s", (int)level, text);
}

static void assert_holds(const char *path, const char *text) {
    sh_mapped mapped;
    CHECK_OK(sh_file_map(path, &mapped));
    assert_int_equal(mapped.bytes, strlen(text));
    assert_memory_equal(mapped.data, text, mapped.bytes);
    sh_file_unmap(&mapped);
}

TEST(run_log, stamps_lines_and_hands_them_on) {
    char *path = sh_path_join(sh_test_folder("run_log"), "log.txt");
    now_ns = 77;
    sh_run_log_options options = {.path = path,
                                  .clock = &test_clock,
                                  .unix_ns = 1000000000000000000,  // 2001-09-09T01:46:40Z
                                  .next = {keep_line, passed_on}};
    sh_run_log *file = NULL;
    CHECK_OK(sh_run_log_open(&options, &file));
    sh_log log = sh_run_log_sink(file);
    SH_INFO(&log, "epoch %d", 1);
    assert_string_equal(passed_on, "1 epoch 1");
    const char *first = "2001-09-09T01:46:40.000Z info  epoch 1\n";
    assert_holds(path, first);  // before close: a killed run keeps its log
    now_ns += 61250000000;
    SH_WARN(&log, "two\nlines");
    assert_string_equal(passed_on, "2 two\nlines");
    CHECK_OK(sh_run_log_close(file));

    options.next = (sh_log){0};  // a resumed run appends
    CHECK_OK(sh_run_log_open(&options, &file));
    log = sh_run_log_sink(file);
    sh_log_write(&log, SH_LOG_ERROR, "again");
    CHECK_OK(sh_run_log_close(file));
    assert_holds(path,
                 "2001-09-09T01:46:40.000Z info  epoch 1\n"
                 "2001-09-09T01:47:41.250Z warn  two\n    lines\n"
                 "2001-09-09T01:46:40.000Z error again\n");
    sh_free(path);
}

TEST(run_log, keeps_notes_to_itself) {
    char *path = sh_path_join(sh_test_folder("run_log"), "notes.txt");
    sh_run_log_options options = {.path = path,
                                  .clock = &test_clock,
                                  .unix_ns = 1000000000000000000,
                                  .next = {keep_line, passed_on}};
    sh_run_log *file = NULL;
    CHECK_OK(sh_run_log_open(&options, &file));
    passed_on[0] = '\0';
    sh_run_log_note(file, SH_LOG_ERROR, "the loss is nan");
    assert_string_equal(passed_on, "");
    sh_run_log_note(NULL, SH_LOG_ERROR, "nowhere to write");
    CHECK_OK(sh_run_log_close(file));
    assert_holds(path, "2001-09-09T01:46:40.000Z error the loss is nan\n");
    sh_free(path);
}

TEST(run_log, reports_faults) {
    sh_run_log_options options = {.path = "no/such/folder", .clock = &test_clock};
    sh_run_log *file = NULL;
    CHECK_FAILS(SH_E_IO, "'no/such/folder'", sh_run_log_open(&options, &file));
    CHECK_OK(sh_run_log_close(NULL));
    char *path = sh_path_join(sh_test_folder("run_log"), "log.txt");
    options.path = path;
    CHECK_OK(sh_run_log_open(&options, &file));
    sh_log log = sh_run_log_sink(file);
    sh_test_limit_files(4);
    SH_INFO(&log, "lost");
    sh_status status = sh_run_log_close(file);
    sh_test_limit_files(SIZE_MAX);
    CHECK_FAILS(SH_E_IO, "File too large", status);
    sh_free(path);
}
