/* Options as a run file that reads back the same, and as help. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/option_table.h"
#include "base/rng.h"
#include "harness.h"

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
