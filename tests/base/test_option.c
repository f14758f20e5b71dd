#include "base/option.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"
#include "harness.h"

typedef struct test_config {
    int64_t batch, workers, memory;
    double lr, momentum, keep;
    bool flip, verbose;
    char *train, *optimizer, *out, *note;
    sh_ints hidden;
    sh_node *model;
} test_config;

static const char *optimizer_names(size_t index) {
    static const char *const names[] = {"sgd", "momentum", "adam", "adamw"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

#define AT(field) .at = offsetof(test_config, field)
static const sh_option rows[] = {
    {.key = "model", .type = SH_OPTION_NODE, AT(model), .group = "Model", .help = "the network"},
    {.key = "data.train",
     .alias = "data",
     .type = SH_OPTION_STRING,
     AT(train),
     .group = "Data",
     .help = "training data"},
    {.key = "data.batch",
     .type = SH_OPTION_INT,
     AT(batch),
     .initial = "128",
     .least = 1,
     .most = 1048576,
     .group = "Data",
     .help = "samples per step"},
    {.key = "data.flip", .type = SH_OPTION_BOOL, AT(flip), .group = "Data", .help = "mirror"},
    {.key = "optimizer.name",
     .flag = "optimizer-name",
     .alias = "optimizer",
     .type = SH_OPTION_STRING,
     AT(optimizer),
     .initial = "sgd",
     .choices = optimizer_names,
     .group = "Optimizer",
     .help = "update rule"},
    {.key = "optimizer.lr",
     .type = SH_OPTION_REAL,
     AT(lr),
     .initial = "0.01",
     .least = 0,
     .most = 1e6,
     .group = "Optimizer",
     .help = "learning rate"},
    {.key = "optimizer.momentum",
     .type = SH_OPTION_REAL,
     AT(momentum),
     .initial = "nan",
     .least = 0,
     .most = 1,
     .group = "Optimizer",
     .help = "of the velocity"},
    {.key = "workers",
     .letter = 'n',
     .type = SH_OPTION_INT,
     AT(workers),
     .initial = "1",
     .help = "processes"},
    {.key = "memory_limit",
     .type = SH_OPTION_INT,
     AT(memory),
     .initial = "0",
     .least = 0,
     .most = INFINITY,
     .help = "bytes"},
    {.key = "keep.part",
     .type = SH_OPTION_REAL,
     AT(keep),
     .help = "any number, explained in so many words that they do not fit beside the flag, so that "
             "the rest goes on below; the last word is: aligned"},
    {.key = "verbose",
     .letter = 'v',
     .type = SH_OPTION_BOOL,
     AT(verbose),
     .initial = "true",
     .help = "say more"},
    {.key = "out", .type = SH_OPTION_STRING, AT(out), .initial = "runs", .help = "folder"},
    {.key = "note", .type = SH_OPTION_STRING, AT(note), .help = "free text"},
    {.key = "mlp.hidden",
     .type = SH_OPTION_INTS,
     AT(hidden),
     .initial = "512,512",
     .least = 1,
     .most = 65536,
     .help = "widths"},
};
static const sh_option_table table = {rows, SH_COUNT(rows)};

static sh_status apply_text(test_config *config, const char *text, bool *set) {
    sh_node *node = NULL;
    SH_TRY(sh_node_parse("run.yaml", text, strlen(text), &node));
    sh_status status = sh_options_apply(table, node, config, set);
    sh_node_destroy(node);
    return status;
}

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

static char *random_text(sh_rng *rng) {
    static const char *const parts[] = {":", " ", "#", "- ", "'",    "\"",   "{",      "null",
                                        "a", "9", "~", "\n", "\t",   "é",    "\\",     "%",
                                        "@", "*", "&", "!",  "true", "\x01", "\u2028", "[,]"};
    char text[128] = "";
    uint64_t count = sh_rng_below(rng, 8);
    for (uint64_t i = 0; i < count; i++) strcat(text, parts[sh_rng_below(rng, SH_COUNT(parts))]);
    return sh_strdup(text);
}

static double random_real(sh_rng *rng) {
    union {
        uint64_t bits;
        double value;
    } any = {.bits = sh_rng_u64(rng)};
    return isfinite(any.value) ? any.value : 0.5;
}

static void fill_randomly(test_config *config, sh_rng *rng) {
    config->batch = 1 + (int64_t)sh_rng_below(rng, 1048576);
    config->workers = (int64_t)sh_rng_u64(rng);
    config->lr = sh_rng_uniform(rng);
    config->momentum = sh_rng_below(rng, 2) ? NAN : sh_rng_uniform(rng);
    config->keep = random_real(rng);
    config->flip = sh_rng_below(rng, 2);
    config->verbose = sh_rng_below(rng, 2);
    config->train = sh_rng_below(rng, 4) ? random_text(rng) : NULL;
    config->note = random_text(rng);
    sh_free(config->out);
    config->out = sh_rng_below(rng, 4) ? random_text(rng) : NULL;
    config->hidden.count = sh_rng_below(rng, 3);
    for (size_t i = 0; i < config->hidden.count; i++)
        config->hidden.items[i] = 1 + (int64_t)sh_rng_below(rng, 65536);
}

static void assert_same_text(const char *a, const char *b) {
    assert_true((a == NULL) == (b == NULL));
    if (a != NULL) assert_string_equal(a, b);
}

static void assert_same_config(const test_config *a, const test_config *b) {
    assert_int_equal(a->batch, b->batch);
    assert_int_equal(a->workers, b->workers);
    assert_true(a->lr == b->lr && a->keep == b->keep);
    assert_true(a->momentum == b->momentum || (isnan(a->momentum) && isnan(b->momentum)));
    assert_true(a->flip == b->flip && a->verbose == b->verbose);
    assert_same_text(a->train, b->train);
    assert_same_text(a->note, b->note);
    assert_same_text(a->out, b->out);
    assert_int_equal(a->hidden.count, b->hidden.count);
    assert_memory_equal(a->hidden.items, b->hidden.items, a->hidden.count * sizeof(int64_t));
}

TEST(option, prints_a_run_file_that_reads_back_the_same) {
    sh_rng rng = sh_rng_stream(7, SH_RNG_TEST, 0, 0);
    for (int i = 0; i < 1000; i++) {
        test_config first, second;
        CHECK_OK(sh_options_init(table, &first));
        CHECK_OK(sh_options_init(table, &second));
        fill_randomly(&first, &rng);
        CHECK_OK(sh_options_set(table, "model", "[{dense: 10, name: 'a: b'}, relu]", &first));
        char *text = sh_options_print(table, &first);
        assert_non_null(text);
        CHECK_OK(apply_text(&second, text, NULL));
        assert_same_config(&first, &second);
        char *again = sh_options_print(table, &second);
        assert_string_equal(text, again);
        sh_free(text);
        sh_free(again);
        sh_options_fini(table, &first);
        sh_options_fini(table, &second);
    }
}

TEST(option, prints_groups_nested_and_leaves_unset_out) {
    test_config config;
    CHECK_OK(sh_options_init(table, &config));
    char *text = sh_options_print(table, &config);
    assert_non_null(strstr(text, "optimizer:\n  name: sgd\n  lr: 0.01\n"));
    assert_non_null(strstr(text, "hidden: [512, 512]\n"));
    assert_null(strstr(text, "momentum"));
    assert_null(strstr(text, "train"));
    sh_free(text);
    sh_options_fini(table, &config);
}

/* Not inlined: the compiler cannot know that the stream forgets `text` when it is closed. */
__attribute__((noinline)) static char *help_text(bool markdown) {
    char *text = NULL;
    size_t bytes = 0;
    FILE *file = open_memstream(&text, &bytes);
    sh_options_help(table, file, markdown);
    fclose(file);
    return text;
}

TEST(option, helps_by_groups_within_100_columns) {
    char *text = help_text(false);
    assert_non_null(strstr(text, "Optimizer:\n"));
    assert_non_null(strstr(text, "-n, --workers N"));
    assert_non_null(strstr(text, "--memory-limit N"));
    assert_non_null(strstr(text, "-v, --[no-]verbose  "));
    assert_non_null(strstr(text, "learning rate (default 0.01)"));
    assert_non_null(strstr(text, "      --optimizer NAME  "));  // the short name is shown
    assert_non_null(strstr(text, "update rule: sgd, momentum, adam, adamw (default sgd)"));
    const char *wrapped = strstr(text, "aligned"), *begin = wrapped;
    while (begin[-1] != '\n') begin--;
    size_t column = (size_t)(strstr(text, "learning rate") - strstr(text, "      --lr"));
    assert_int_equal(strspn(begin, " "), column);
    for (char *line = text; *line != '\0'; line += strcspn(line, "\n") + 1)
        assert_true(strcspn(line, "\n") <= 100);
    free(text);
    text = help_text(true);
    assert_non_null(strstr(text, "| key | flag | default | meaning |\n"));
    assert_non_null(strstr(text, "| `optimizer.lr` | `--lr X` | `0.01` | learning rate |\n"));
    assert_non_null(strstr(text, "| `data.train`, `data` | `--data TEXT` |  | training data |\n"));
    free(text);
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
