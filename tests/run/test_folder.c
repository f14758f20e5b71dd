/* A run's folder: which one it takes, what it writes there, and what it goes on from. */
#include <sys/stat.h>
#include <unistd.h>

#include "api/rig.h"
#include "base/file.h"

static char said[1 << 14];

static void hear_line(void *user, shoal_log_level level, const char *text) {
    (void)user, (void)level;
    strncat(said, text, sizeof said - strlen(said) - 2);
    strcat(said, "\n");
}

static const shoal_hooks hooks = {.size = sizeof hooks, .line = hear_line};

/* The folder of the test is the current one, so that default names lead there. */
static void begin(void) {
    said[0] = '\0';
    if (chdir(sh_test_folder("folder")) != 0) fail_msg("no folder");
}

static shoal_status train(shoal_config *config, char **folder_out) {
    said[0] = '\0';
    shoal_status status = shoal_train(config, &hooks, folder_out);
    shoal_config_destroy(config);
    return status;
}

static void expect_folder(shoal_config *config, const char *wanted) {
    char *folder = NULL;
    SUCCEEDS(train(config, &folder));
    assert_string_equal(folder, wanted);
    shoal_free(folder);
}

static bool exists(const char *path) { return access(path, F_OK) == 0; }

static const char *text_of(const char *path) {
    FILE *file = fopen(path, "r");
    if (file == NULL) fail_msg("no %s", path);
    return rig_read(file);
}

/* ---- Which folder ---- */

TEST(folder, a_run_without_a_name_takes_the_next_free_one) {
    begin();
    expect_folder(RIG_CONFIG("steps", "1"), "runs/run");
    expect_folder(RIG_CONFIG("steps", "1"), "runs/run-2");
    expect_folder(RIG_CONFIG("steps", "1", "name", "mine"), "runs/mine");
    expect_folder(RIG_CONFIG("steps", "1"), "runs/run-3");
}

TEST(folder, resume_without_a_folder_takes_the_last_of_that_name) {
    begin();
    expect_folder(RIG_CONFIG("steps", "1"), "runs/run");
    expect_folder(RIG_CONFIG("steps", "2"), "runs/run-2");
    expect_folder(RIG_CONFIG("steps", "4", "resume", "newest"), "runs/run-2");
    rig_has(said, "resumed after step 2");
}

TEST(folder, resume_of_a_folder_goes_on_there) {
    begin();
    expect_folder(RIG_CONFIG("steps", "2", "out", "a"), "a");
    expect_folder(RIG_CONFIG("steps", "3", "resume", "a"), "a");
    assert_true(exists("a/checkpoints/manifest-00000003.json"));
    expect_folder(RIG_CONFIG("steps", "5", "resume", "a", "out", "b"), "b");
    assert_true(exists("b/checkpoints/manifest-00000005.json"));
    assert_false(exists("a/checkpoints/manifest-00000005.json"));
}

TEST(folder, auto_begins_where_there_is_nothing_and_goes_on_where_there_is) {
    begin();
    expect_folder(RIG_CONFIG("steps", "2", "out", "job", "resume", "auto"), "job");
    rig_has(said, "has no checkpoint yet: from the beginning");
    expect_folder(RIG_CONFIG("steps", "4", "out", "job", "resume", "auto"), "job");
    rig_has(said, "resumed after step 2");
    expect_folder(RIG_CONFIG("steps", "4", "out", "job", "resume", "auto"), "job");
    rig_has(said, "nothing to do");
}

TEST(folder, one_with_checkpoints_alone_is_not_taken_either) {
    begin();
    expect_folder(RIG_CONFIG("steps", "2", "out", "a"), "a");
    assert_int_equal(unlink("a/run.yaml"), 0);
    REFUSED(SHOAL_E_USAGE, "'a' already holds checkpoints",
            train(RIG_CONFIG("steps", "2", "out", "a"), NULL));
    assert_true(exists("a/checkpoints/manifest-00000002.json"));
}

TEST(folder, a_file_of_the_users_that_a_checkpoint_would_replace_is_kept) {
    begin();
    CHECK_OK(sh_make_folders("a/checkpoints"));
    CHECK_OK(sh_file_write("a/checkpoints/model-00000002.safetensors", "mine", 4));
    REFUSED(SHOAL_E_USAGE, "this run would write over it",
            train(RIG_CONFIG("steps", "2", "out", "a"), NULL));
    assert_string_equal(text_of("a/checkpoints/model-00000002.safetensors"), "mine");
}

TEST(folder, a_link_in_place_of_checkpoints_is_refused) {
    begin();
    CHECK_OK(sh_make_folders("a"));
    CHECK_OK(sh_make_folders("elsewhere"));
    assert_int_equal(symlink("../elsewhere", "a/checkpoints"), 0);
    REFUSED(SHOAL_E_IO, "'a/checkpoints' is a link",
            train(RIG_CONFIG("steps", "2", "out", "a"), NULL));
}

/* ---- What it writes ---- */

TEST(folder, the_run_file_says_what_was_left_to_defaults_and_not_how_it_was_started) {
    begin();
    expect_folder(RIG_CONFIG("steps", "2", "optimizer", "adam", "out", "a", "overwrite", "true"),
                  "a");
    const char *text = text_of("a/run.yaml");
    rig_has(text, "name: adam\n");
    rig_has(text, "lr: 0.001\n");
    rig_has(text, "name: cross-entropy\n");
    rig_has(text, "threads: 1\n");
    assert_null(strstr(text, "overwrite: true"));
    expect_folder(RIG_CONFIG("steps", "3", "optimizer", "adam", "resume", "a"), "a");
    assert_null(strstr(text_of("a/run.yaml"), "resume"));
}

TEST(folder, overwriting_removes_every_checkpoint_of_the_run_before) {
    begin();
    expect_folder(RIG_CONFIG("steps", "9", "checkpoint.every", "3", "out", "a"), "a");
    expect_folder(RIG_CONFIG("steps", "2", "out", "a", "overwrite", "true"), "a");
    for (int step = 3; step <= 9; step += 3) {
        char path[80];
        snprintf(path, sizeof path, "a/checkpoints/manifest-%08d.json", step);
        assert_false(exists(path));
    }
    assert_int_equal(rig_count(text_of("a/metrics.jsonl"), "\"event\":\"end\""), 1);
}

TEST(folder, metrics_of_steps_that_are_done_again_are_cut) {
    begin();
    expect_folder(RIG_CONFIG("steps", "8", "checkpoint.every", "4", "checkpoint.keep", "5",
                             "log_every", "1", "out", "a"),
                  "a");
    expect_folder(RIG_CONFIG("steps", "8", "resume", "a/checkpoints/manifest-00000004.json", "out",
                             "a", "log_every", "1", "checkpoint.every", "4"),
                  "a");
    const char *text = text_of("a/metrics.jsonl");
    for (int step = 1; step <= 8; step++) {
        char line[64];
        snprintf(line, sizeof line, "\"event\":\"step\",\"step\":%d,", step);
        if (rig_count(text, line) != 1)
            fail_msg("step %d is told %zu times", step, rig_count(text, line));
    }
}

TEST(folder, one_that_is_renamed_under_the_run_is_made_anew) {
    begin();
    shoal_config *config = RIG_CONFIG("steps", "4", "out", "a");
    shoal_run *run = NULL;
    SUCCEEDS(shoal_run_open(config, &hooks, &run));
    SUCCEEDS(shoal_run_train(run));
    shoal_run_close(run);
    shoal_config_destroy(config);
    // What is there is only read again once the run goes on.
    assert_int_equal(rename("a", "b"), 0);
    REFUSED(SHOAL_E_IO, "a", train(RIG_CONFIG("steps", "6", "resume", "a"), NULL));
    expect_folder(RIG_CONFIG("steps", "6", "resume", "b"), "b");
}

/* ---- What it goes on from ---- */

TEST(folder, another_seed_batch_or_data_is_another_run) {
    begin();
    expect_folder(RIG_CONFIG("steps", "2", "out", "a"), "a");
    REFUSED(SHOAL_E_USAGE, "was trained with seed 1, this run has 2",
            train(RIG_CONFIG("steps", "4", "resume", "a", "seed", "2"), NULL));
    rig_hint("--seed 1");
    REFUSED(SHOAL_E_USAGE, "was trained with batch 50, this run has 25",
            train(RIG_CONFIG("steps", "4", "resume", "a", "data.batch", "25"), NULL));
    rig_hint("--load a");
    REFUSED(SHOAL_E_USAGE, "was trained on other data",
            train(RIG_CONFIG("steps", "4", "resume", "a", "data.hold_out", "0.1"), NULL));
    assert_false(exists("a/checkpoints/manifest-00000004.json"));
    // Its parameters alone may begin any run.
    expect_folder(RIG_CONFIG("steps", "4", "load", "a", "data.batch", "25", "out", "b"), "b");
}

TEST(folder, another_model_cannot_go_on_and_leaves_no_folder) {
    begin();
    expect_folder(RIG_CONFIG("steps", "2", "out", "a"), "a");
    shoal_status status = train(
        RIG_CONFIG("steps", "4", "resume", "a", "out", "b", "model", "{name: mlp, hidden: [9]}"),
        NULL);
    if (status == SHOAL_OK) fail_msg("another model goes on");
    rig_has(shoal_error_text(), "fc1");
    assert_false(exists("b"));
}

TEST(folder, the_optimizer_goes_on_where_it_was) {
    begin();
    expect_folder(RIG_CONFIG("steps", "6", "optimizer", "adam", "out", "whole"), "whole");
    expect_folder(RIG_CONFIG("steps", "3", "optimizer", "adam", "out", "half"), "half");
    expect_folder(RIG_CONFIG("steps", "6", "optimizer", "adam", "resume", "half"), "half");
    struct stat a, b;
    assert_int_equal(stat("whole/checkpoints/optimizer-00000006.safetensors", &a), 0);
    assert_int_equal(stat("half/checkpoints/optimizer-00000006.safetensors", &b), 0);
    assert_int_equal(a.st_size, b.st_size);
    assert_int_equal(system("cmp whole/checkpoints/optimizer-00000006.safetensors "
                            "half/checkpoints/optimizer-00000006.safetensors"),
                     0);
    if (train(RIG_CONFIG("steps", "9", "optimizer", "momentum", "resume", "half"), NULL) ==
        SHOAL_OK)
        fail_msg("another optimizer goes on from Adam's state");
}

TEST(folder, a_damaged_checkpoint_is_passed_over_with_a_warning) {
    begin();
    expect_folder(RIG_CONFIG("steps", "4", "checkpoint.every", "2", "out", "a"), "a");
    CHECK_OK(sh_file_write("a/checkpoints/model-00000004.safetensors", "cut", 3));
    expect_folder(RIG_CONFIG("steps", "6", "checkpoint.every", "2", "resume", "a"), "a");
    rig_has(said, "is skipped");
    rig_has(said, "resumed after step 2");
}

TEST(folder, kernel_choices_of_a_run_are_those_of_its_checkpoint) {
    begin();
    shoal_hooks with = {.size = sizeof with, .line = hear_line, .cache_folder = "cache"};
    shoal_config *config = RIG_CONFIG("steps", "2", "kernels", "measure", "out", "a");
    SUCCEEDS(shoal_train(config, &with, NULL));
    shoal_config_destroy(config);
    assert_int_equal(system("ls cache/kernels-*.json >/dev/null"), 0);
    rig_has(text_of("a/checkpoints/manifest-00000002.json"), "kernels");
}
