/* Options read from run files and flags. */
#include <math.h>
#include <string.h>

#include "base/option_table.h"
#include "harness.h"

/* A config that is set up and torn down within one statement. */
static sh_status try_text(const char *text) {
    test_config config;
    CHECK_OK(sh_options_init(table, &config));
    sh_status status = apply_text(&config, text, NULL);
    sh_options_fini(table, &config);
    return status;
}

static sh_status apply_flags(test_config *config, int argc, char **argv, int *index, bool *set) {
    while (*index < argc) {
        int before = *index;
        SH_TRY(sh_options_flag(table, argc, argv, index, config, set));
        if (*index == before) break;
    }
    return SH_OK;
}

static sh_status try_flags(int argc, char **argv) {
    test_config config;
    CHECK_OK(sh_options_init(table, &config));
    int index = 0;
    sh_status status = apply_flags(&config, argc, argv, &index, NULL);
    sh_options_fini(table, &config);
    return status;
}

#define ARGUMENTS(...) ((char *[]){__VA_ARGS__, NULL})
#define FLAGS(...)     (int)(sizeof((char *[]){__VA_ARGS__}) / sizeof(char *)), ARGUMENTS(__VA_ARGS__)

TEST(option, starts_from_initial_values) {
    test_config config;
    memset(&config, 0xa5, sizeof config);  // raw memory is allowed
    CHECK_OK(sh_options_init(table, &config));
    assert_int_equal(config.batch, 128);
    assert_true(config.lr == 0.01);
    assert_true(isnan(config.momentum));
    assert_string_equal(config.optimizer, "sgd");
    assert_null(config.train);
    assert_null(config.model);
    assert_false(config.flip);
    assert_true(config.verbose);
    assert_int_equal(config.hidden.count, 2);
    assert_int_equal(config.hidden.items[1], 512);
    sh_options_fini(table, &config);
    assert_null(config.optimizer);
}

TEST(option, applies_nested_and_dotted_keys_and_aliases) {
    test_config config;
    bool set[SH_COUNT(rows)] = {false};
    CHECK_OK(sh_options_init(table, &config));
    CHECK_OK(apply_text(&config,
                        "model: [{dense: 10}]\ndata: {batch: 64k, flip: yes}\noptimizer: adam\n"
                        "mlp: {hidden: [3, 1e2]}\nkeep.part: 1%\n",
                        set));
    assert_int_equal(config.batch, 65536);
    assert_true(config.flip);
    assert_string_equal(config.optimizer, "adam");
    assert_int_equal(config.hidden.items[1], 100);
    assert_true(config.keep == 0.01);
    assert_int_equal(config.model->kind, SH_NODE_LIST);
    assert_true(set[0] && set[2] && set[4]);
    assert_false(set[1] || set[5]);
    CHECK_OK(apply_text(&config, "data: mnist\nmodel: lenet\nmlp:\n", set));
    assert_string_equal(config.train, "mnist");
    assert_string_equal(config.model->text, "lenet");
    assert_int_equal(config.batch, 65536);
    sh_options_fini(table, &config);
}

TEST(option, names_the_place_and_the_nearest_key) {
    CHECK_FAILS(SH_E_USAGE, "run.yaml:2:3: unknown key 'optimizer.lrr'",
                try_text("optimizer:\n  lrr: 1\n"));
    assert_string_equal(sh_error_last()->hint, "did you mean 'optimizer.lr'?");
    CHECK_FAILS(SH_E_USAGE, "unknown key 'lr'", try_text("lr: 0.1\n"));
    assert_string_equal(sh_error_last()->hint, "did you mean 'optimizer.lr'?");
    CHECK_FAILS(SH_E_USAGE, "unknown key 'dta'", try_text("dta: mnist\n"));
    assert_string_equal(sh_error_last()->hint, "did you mean 'data'?");
    CHECK_FAILS(SH_E_USAGE, "unknown key 'zzzzzz'", try_text("zzzzzz: 1\n"));
    assert_string_equal(sh_error_last()->hint, "");
    CHECK_FAILS(SH_E_USAGE, "'keep' must be a map of options", try_text("keep: 3\n"));
    CHECK_FAILS(SH_E_USAGE, "run.yaml:1:1: expected options", try_text("[1, 2]"));
}

TEST(option, says_what_a_value_must_be) {
    CHECK_FAILS(SH_E_USAGE,
                "run.yaml:2:3: 'data.batch' must be a whole number from 1 to 1048576, found 'abc'",
                try_text("data:\n  batch: abc\n"));
    CHECK_FAILS(SH_E_USAGE, "found '0'", try_text("data: {batch: 0}"));
    CHECK_FAILS(SH_E_USAGE, "found a list", try_text("data: {batch: [1]}"));
    CHECK_FAILS(SH_E_USAGE, "found nothing", try_text("data: {batch: }"));
    CHECK_FAILS(SH_E_USAGE, "'data.flip' must be true or false, found '2'",
                try_text("data: {flip: 2}"));
    CHECK_FAILS(SH_E_USAGE, "must be one of sgd, momentum, adam, adamw, found 'adan'",
                try_text("optimizer: adan"));
    assert_string_equal(sh_error_last()->hint, "did you mean 'adam'?");
    CHECK_FAILS(SH_E_USAGE, "'optimizer.lr' must be a number from 0 to 1000000, found '-1'",
                try_text("optimizer: {lr: -1}"));
    CHECK_FAILS(SH_E_USAGE, "'memory_limit' must be a whole number, at least 0",
                try_text("memory_limit: -1"));
    CHECK_FAILS(SH_E_USAGE, "'note' must be a text, found a map", try_text("note: {a: b}"));
    CHECK_FAILS(SH_E_USAGE, "list of whole numbers, found a map",
                try_text("mlp: {hidden: {a: 1}}"));
    CHECK_FAILS(SH_E_USAGE, "run.yaml:1:19: 'mlp.hidden' must be",
                try_text("mlp: {hidden: [1, x]}"));
    CHECK_FAILS(SH_E_USAGE, "'optimizer.lr' is already set in line 1",
                try_text("optimizer: {lr: 1}\noptimizer.lr: 2\n"));
}

TEST(option, cuts_a_long_value_between_characters) {
    char text[512] = "data: {batch: a", expected[512] = "found 'a";
    for (int i = 0; i < 100; i++) strcat(text, "\u00e9");
    strcat(text, "}");
    for (int i = 0; i < 45; i++) strcat(expected, "\u00e9");
    strcat(expected, "...'");
    CHECK_FAILS(SH_E_USAGE, expected, try_text(text));
}

TEST(option, shows_no_control_characters) {
    CHECK_FAILS(SH_E_USAGE, "found '\\x1b[31mred'", try_text("data: {batch: \"\\e[31mred\"}"));
    CHECK_FAILS(SH_E_USAGE, "unknown key '\\x07x'", try_text("\"\\ax\": 1"));
}

static void check_int(const char *text, bool valid, int64_t value) {
    test_config config;
    CHECK_OK(sh_options_init(table, &config));
    sh_status status = sh_options_set(table, "workers", text, &config);
    if ((status == SH_OK) != valid) fail_msg("'%s' was %s", text, valid ? "refused" : "taken");
    if (valid) assert_int_equal(config.workers, value);
    sh_options_fini(table, &config);
}

TEST(option, reads_whole_numbers_exactly_or_not_at_all) {
    check_int("128", true, 128);
    check_int("-7", true, -7);
    check_int("+7", true, 7);
    check_int("1e6", true, 1000000);
    check_int("64k", true, 65536);
    check_int("64KiB", true, 65536);
    check_int("64KB", false, 0);
    check_int("64iB", false, 0);
    check_int("2M", true, 2 << 20);
    check_int("1G", true, 1 << 30);
    check_int("0.5k", true, 512);
    check_int("9007199254740993", true, 9007199254740993);  // a double would lose the last bit
    check_int("9223372036854775807", true, INT64_MAX);
    check_int("-9223372036854775808", true, INT64_MIN);
    const char *const bad[] = {"",     "9223372036854775808",
                               "1e19", "8388608T",
                               "1.5",  "12abc",
                               "0x10", " 1",
                               "1 ",   "1kk",
                               "k",    "1e",
                               "--1",  "nan",
                               "inf",  "1e400",
                               "1e-3", "1,2"};
    for (size_t i = 0; i < SH_COUNT(bad); i++) check_int(bad[i], false, 0);
}

static void check_real(const char *text, bool valid, double value) {
    test_config config;
    CHECK_OK(sh_options_init(table, &config));
    sh_status status = sh_options_set(table, "keep.part", text, &config);
    if ((status == SH_OK) != valid) fail_msg("'%s' was %s", text, valid ? "refused" : "taken");
    if (valid) assert_true(config.keep == value);
    sh_options_fini(table, &config);
}

TEST(option, reads_finite_numbers_and_percents) {
    check_real("0.1", true, 0.1);
    check_real("1e-3", true, 1e-3);
    check_real("-.5", true, -0.5);
    check_real("1%", true, 0.01);
    check_real("2.", true, 2);
    const char *const bad[] = {"", "nan", "inf", "-inf", "1e999", "0x1p3", "1%%", "1x", " 1", "."};
    for (size_t i = 0; i < SH_COUNT(bad); i++) check_real(bad[i], false, 0);
}

TEST(option, takes_flags_in_every_form) {
    test_config config;
    CHECK_OK(sh_options_init(table, &config));
    bool set[SH_COUNT(rows)] = {false};
    int index = 0;
    char **argv =
        ARGUMENTS("--batch", "32", "--lr=0.5", "-n4", "--flip", "--no-verbose", "--hidden", "7,8,9",
                  "--model", "{mlp: [1]}", "--optimizer", "adamw", "--memory-limit", "1G",
                  "--data.train", "mnist", "--keep.part", "-2", "operand", "--unknown");
    CHECK_OK(apply_flags(&config, 20, argv, &index, set));
    assert_int_equal(index, 18);
    assert_int_equal(config.batch, 32);
    assert_true(config.lr == 0.5);
    assert_int_equal(config.workers, 4);
    assert_true(config.flip);
    assert_false(config.verbose);
    assert_int_equal(config.hidden.count, 3);
    assert_int_equal(config.hidden.items[2], 9);
    assert_int_equal(config.model->kind, SH_NODE_MAP);
    assert_string_equal(config.optimizer, "adamw");
    assert_int_equal(config.memory, 1 << 30);
    assert_string_equal(config.train, "mnist");
    assert_true(config.keep == -2);
    assert_true(set[2]);
    assert_false(set[11]);
    index = 0;
    argv = ARGUMENTS("--flip", "off", "--verbose", "yes", "--no-flip", "on");
    CHECK_OK(apply_flags(&config, 6, argv, &index, set));
    assert_int_equal(index, 5);  // what is negated takes no word
    assert_false(config.flip);
    assert_true(config.verbose);
    index = 0;
    CHECK_OK(apply_flags(&config, 3, ARGUMENTS("-n", "2", "--"), &index, set));
    assert_int_equal(index, 2);  // `--` stays for the caller
    assert_int_equal(config.workers, 2);
    sh_options_fini(table, &config);
}

TEST(option, names_the_nearest_flag) {
    CHECK_FAILS(SH_E_USAGE, "unknown flag '--bacth'", try_flags(FLAGS("--bacth=3")));
    assert_string_equal(sh_error_last()->hint, "did you mean '--batch'?");
    CHECK_FAILS(SH_E_USAGE, "unknown flag '--mom'", try_flags(FLAGS("--mom", "3")));
    assert_string_equal(sh_error_last()->hint, "did you mean '--momentum'?");
    CHECK_FAILS(SH_E_USAGE, "unknown flag '-z'", try_flags(FLAGS("-z9")));
    CHECK_FAILS(SH_E_USAGE, "unknown flag '--no-batch'", try_flags(FLAGS("--no-batch")));
    assert_true(sh_options_knows(table, "--batch=3"));
    assert_true(sh_options_knows(table, "-n"));
    assert_false(sh_options_knows(table, "batch"));
    assert_false(sh_options_knows(table, "--"));
}

TEST(option, refuses_flags_without_or_with_bad_values) {
    CHECK_FAILS(SH_E_USAGE, "flag '--lr' needs a value", try_flags(FLAGS("--lr")));
    CHECK_FAILS(SH_E_USAGE, "flag '--lr' needs a value", try_flags(FLAGS("--lr", "--flip")));
    CHECK_FAILS(SH_E_USAGE, "'--lr' must be a number from 0 to 1000000, found 'fast'",
                try_flags(FLAGS("--lr", "fast")));
    CHECK_FAILS(SH_E_USAGE, "flag '--no-flip' takes no value", try_flags(FLAGS("--no-flip=true")));
    CHECK_FAILS(SH_E_USAGE, "'--flip' must be true or false", try_flags(FLAGS("--flip=perhaps")));
    CHECK_FAILS(SH_E_USAGE, "--model:", try_flags(FLAGS("--model", "[1, 2")));
    CHECK_FAILS(SH_E_USAGE, "text in UTF-8", try_flags(FLAGS("--note", "\xff")));
    CHECK_FAILS(SH_E_USAGE, "'--hidden' must be a whole number from 1 to 65536, found ''",
                try_flags(FLAGS("--hidden", "1,,2")));
}

TEST(options, unset_goes_back_to_the_initial_value) {
    test_config config;
    CHECK_OK(sh_options_init(table, &config));
    double lr = config.lr;
    CHECK_OK(sh_options_set(table, "note", "a word", &config));
    CHECK_OK(sh_options_set(table, "optimizer.lr", "7", &config));
    CHECK_OK(sh_options_set(table, "out", "elsewhere", &config));
    CHECK_OK(sh_options_unset(table, "optimizer.lr", &config));
    CHECK_OK(sh_options_unset(table, "out", &config));
    CHECK_OK(sh_options_unset(table, "note", &config));
    assert_true(config.lr == lr);
    assert_string_equal(config.out, "runs");
    assert_null(config.note);
    assert_int_equal(sh_options_unset(table, "optimizer.rl", &config), SH_E_USAGE);
    sh_options_fini(table, &config);
}

TEST(options, know_whether_they_have_their_initial_value) {
    test_config config;
    CHECK_OK(sh_options_init(table, &config));
    for (size_t i = 0; i < table.count; i++) {
        const sh_option *row = &table.rows[i];
        if (row->type == SH_OPTION_INTS || row->type == SH_OPTION_NODE) continue;
        assert_true(sh_option_is_initial(row, &config));
        const char *other = "7";
        if (row->type == SH_OPTION_BOOL) other = row->initial != NULL ? "false" : "true";
        if (row->choices != NULL || sh_options_set(table, row->key, other, &config) != SH_OK)
            continue;
        assert_false(sh_option_is_initial(row, &config));
        CHECK_OK(sh_options_unset(table, row->key, &config));
        assert_true(sh_option_is_initial(row, &config));
    }
    sh_options_fini(table, &config);
}
