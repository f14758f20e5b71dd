/* After the first steps a run allocates nothing and its memory stays flat. */
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "harness.h"
#include "shoal/shoal.h"

#ifdef __SANITIZE_THREAD__
#define THREADS "1"  // the OpenMP runtime is not instrumented
#else
#define THREADS "2"
#endif

typedef struct record {
    uint64_t calls_early, calls_late;
    long pages_early, pages_late;
} record;

static long resident_pages(void) {
    long total = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%ld %ld", &total, &resident), 2);
    fclose(file);
    return resident;
}

static void note(void *user, const shoal_progress *progress) {
    record *seen = user;
    if (progress->step == 10) {
        seen->calls_early = sh_alloc_calls();
        seen->pages_early = resident_pages();
    } else if (progress->step == 1010) {
        seen->calls_late = sh_alloc_calls();
        seen->pages_late = resident_pages();
    }
}

static void train(const char *model, const char *name, record *seen) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", sh_test_folder(name));
    const char *settings[][2] = {
        {"model", model},        {"data", "digits"},
        {"data.batch", "8"},     {"steps", "1011"},
        {"optimizer", "adamw"},  {"eval.every", "100000"},
        {"log_every", "100000"}, {"checkpoint.every", "100000"},
        {"out", folder},         {"threads", THREADS},
        {"kernels", "default"},  {"data.drop_last", "true"},
    };
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    for (size_t i = 0; i < SH_COUNT(settings); i++) {
        shoal_status set = shoal_config_set(config, settings[i][0], settings[i][1]);
        if (set != SHOAL_OK) fail_msg("%s: %s", settings[i][0], shoal_error_text());
    }
    shoal_hooks hooks = {.size = sizeof hooks, .user = seen, .progress = note};
    shoal_run *run = NULL;
    if (shoal_run_open(config, &hooks, &run) != SHOAL_OK) fail_msg("%s", shoal_error_text());
    if (shoal_run_train(run) != SHOAL_OK) fail_msg("%s", shoal_error_text());
    shoal_run_close(run);
    shoal_config_destroy(config);
}

static void check_steady(const char *model, const char *name) {
    record seen = {0};
    train(model, name, &seen);
    assert_true(seen.calls_early > 0);
    assert_int_equal(seen.calls_late, seen.calls_early);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // these keep freed memory
    // Metrics at the ends of epochs pass through the C library: half a MiB is its slack.
    assert_true(seen.pages_late - seen.pages_early < 128);
#endif
}

TEST(steady, an_mlp_allocates_nothing_in_a_thousand_steps) { check_steady("mlp", "steady-mlp"); }

TEST(steady, a_convolutional_net_with_every_kind_of_branch_allocates_nothing) {
    check_steady(
        "[{conv: 8, padding: 1}, batchnorm, relu, {conv: 8, padding: 1, name: c}, "
        "{droppath: 0.3, name: d}, {name: j, add: , from: [d, relu1]}, relu, maxpool, "
        "flatten, {dropout: 0.2}, dense]",
        "steady-conv");
}
