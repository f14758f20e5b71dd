/* The options of a run through the public interface: files, settings and flags, and what is printed
 * of them. */
#include "base/file.h"
#include "rig.h"

static char *folder_file(const char *name, const char *text) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", sh_test_folder("config"), name);
    CHECK_OK(sh_file_write(path, text, strlen(text)));
    return path;
}

static void expect_line(const shoal_config *config, const char *line) {
    char *text = shoal_config_print(config);
    assert_non_null(text);
    rig_has(text, line);
    shoal_free(text);
}

TEST(config, later_settings_win_over_earlier_ones) {
    shoal_config *config = RIG_CONFIG("epochs", "3");
    SUCCEEDS(shoal_config_read(
        config, folder_file("run.yaml", "epochs: 5\noptimizer: {name: adam, lr: 0.5}\n")));
    expect_line(config, "epochs: 5\n");
    SUCCEEDS(shoal_config_set(config, "epochs", "7"));
    expect_line(config, "epochs: 7\n");
    expect_line(config, "name: adam\n");
    expect_line(config, "lr: 0.5\n");
    shoal_config_destroy(config);
}

TEST(config, null_sets_back_to_the_default) {
    shoal_config *config = RIG_CONFIG("epochs", "9");
    SUCCEEDS(shoal_config_set(config, "epochs", NULL));
    expect_line(config, "epochs: 1\n");
    shoal_config_destroy(config);
}

TEST(config, what_is_printed_gives_the_same_config) {
    shoal_config *config =
        RIG_CONFIG("optimizer", "momentum", "optimizer.lr", "0.1", "sync", "ssp:3", "workers", "4",
                   "clip.norm", "1.5", "model", "[flatten, {dense: {units: 10, name: \"a: b\"}}]");
    char *text = shoal_config_print(config);
    shoal_config *again = NULL;
    SUCCEEDS(shoal_config_create(&again));
    SUCCEEDS(shoal_config_read(again, folder_file("printed.yaml", text)));
    expect_line(again, text);
    shoal_free(text);
    shoal_config_destroy(again);
    shoal_config_destroy(config);
}

TEST(config, a_flag_is_taken_and_a_word_is_left) {
    shoal_config *config = RIG_CONFIG("epochs", "1");
    char *words[] = {"run.yaml", "--epochs", "4", "-n", "2", "--no-overlap", "more"};
    const int ends[] = {0, 3, 3, 5, 5, 6, 6};  // where the index stands after each word
    for (int i = 0; i < (int)SH_COUNT(words); i++) {
        int at = i;
        bool value = i == 2 || i == 4;
        if (value) continue;
        SUCCEEDS(shoal_config_flag(config, (int)SH_COUNT(words), words, &at));
        if (words[i][0] == '-' && at != ends[i]) fail_msg("'%s' moves to %d", words[i], at);
        if (words[i][0] != '-') assert_int_equal(at, i);
    }
    expect_line(config, "epochs: 4\n");
    expect_line(config, "workers: 2\n");
    shoal_config_destroy(config);
}

TEST(config, flags_are_refused_with_the_nearest_name) {
    shoal_config *config = RIG_CONFIG("epochs", "1");
    char *unknown[] = {"--epoch", "4"}, *alone[] = {"--lr"}, *bad[] = {"--epochs", "many"};
    int at = 0;
    shoal_status status = shoal_config_flag(config, 2, unknown, &at);
    if (status == SHOAL_OK)
        assert_int_equal(at, 0);  // left for the caller, whose flag it may be
    else
        rig_hint("--epochs");
    REFUSED(SHOAL_E_USAGE, "needs a value", shoal_config_flag(config, 1, alone, &at));
    REFUSED(SHOAL_E_USAGE, "--epochs", shoal_config_flag(config, 2, bad, &at));
    at = 2;
    REFUSED(SHOAL_E_USAGE, "there is no argument 2 of 2", shoal_config_flag(config, 2, bad, &at));
    at = -1;
    REFUSED(SHOAL_E_USAGE, "there is no argument -1", shoal_config_flag(config, 2, bad, &at));
    shoal_config_destroy(config);
}

TEST(config, faults_of_a_file_have_their_place_and_change_nothing_before_it) {
    shoal_config *config = RIG_CONFIG("epochs", "2");
    REFUSED(SHOAL_E_USAGE, "bad.yaml:2:",
            shoal_config_read(config, folder_file("bad.yaml", "seed: 4\nepochs: lots\n")));
    REFUSED(SHOAL_E_USAGE, "unknown key 'epoch'",
            shoal_config_read(config, folder_file("near.yaml", "epoch: 4\n")));
    rig_hint("did you mean 'epochs'?");
    REFUSED(SHOAL_E_IO, "none.yaml", shoal_config_read(config, "none.yaml"));
    expect_line(config, "epochs: 2\n");
    shoal_config_destroy(config);
}

TEST(config, values_out_of_range_are_refused_with_the_range) {
    shoal_config *config = RIG_CONFIG("epochs", "2");
    static const char *const bad[][2] = {
        {"data.batch", "0"},     {"workers", "0"},          {"optimizer.lr", "-1"},
        {"target", "1.5"},       {"data.hold_out", "0.95"}, {"optimizer.name", "adamm"},
        {"loss.smoothing", "1"}, {"threads", "-2"},         {"optimizer.lr", "nan"},
    };
    for (size_t i = 0; i < SH_COUNT(bad); i++)
        if (shoal_config_set(config, bad[i][0], bad[i][1]) != SHOAL_E_USAGE)
            fail_msg("%s: %s is taken", bad[i][0], bad[i][1]);
    REFUSED(SHOAL_E_USAGE, "no.such.key", shoal_config_set(config, "no.such.key", "1"));
    shoal_config_destroy(config);
}

TEST(config, help_names_every_option_as_text_and_as_a_table) {
    FILE *paper = rig_paper();
    SUCCEEDS(shoal_config_help(false, RIG_SINK(paper)));
    char *text = strdup(rig_read(paper));
    paper = rig_paper();
    SUCCEEDS(shoal_config_help(true, RIG_SINK(paper)));
    const char *table = rig_read(paper);
    static const char *const keys[] = {"epochs",        "optimizer.lr", "data.batch", "sync.name",
                                       "compress.name", "seed",         "exact",      "out"};
    for (size_t i = 0; i < SH_COUNT(keys); i++) rig_has(table, keys[i]);
    rig_has(text, "--epochs");
    rig_has(text, "--lr");
    assert_true(rig_count(table, "\n| ") > 80);
    free(text);
}
