/* The first half of the input is a run file, the lines of the rest are flags. What is taken must
 * print to a run file that gives the same print again. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

typedef struct fuzz_config {
    int64_t batch;
    double lr, momentum;
    bool flip;
    char *train, *name;
    sh_ints hidden;
    sh_node *model;
} fuzz_config;

static const char *name_at(size_t index) {
    static const char *const names[] = {"sgd", "adam"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

#define ROW(option_key, option_type, field) \
    .key = option_key, .type = option_type, .at = offsetof(fuzz_config, field)
static const sh_option rows[] = {
    {ROW("model", SH_OPTION_NODE, model)},
    {ROW("d.train", SH_OPTION_STRING, train), .alias = "d", .initial = "x"},
    {ROW("d.batch", SH_OPTION_INT, batch), .letter = 'n', .least = -5, .most = 1e18},
    {ROW("d.flip", SH_OPTION_BOOL, flip)},
    {ROW("o.name", SH_OPTION_STRING, name), .alias = "o", .choices = name_at, .initial = "sgd"},
    {ROW("o.lr", SH_OPTION_REAL, lr)},
    {ROW("o.m", SH_OPTION_REAL, momentum), .initial = "nan"},
    {ROW("h.i.d", SH_OPTION_INTS, hidden), .initial = "1,2"},
};
static const sh_option_table table = {rows, SH_COUNT(rows)};

static sh_status apply_text(const char *text, size_t bytes, fuzz_config *config) {
    sh_node *node = NULL;
    SH_TRY(sh_node_parse("fuzz", text, bytes, &node));
    sh_status status = sh_options_apply(table, node, config, NULL);
    sh_node_destroy(node);
    return status;
}

static void apply_flags(char *text, fuzz_config *config) {
    enum { ARGUMENTS_MAX = 32 };
    char *argv[ARGUMENTS_MAX + 1] = {NULL};
    int argc = 0;
    for (char *line = strtok(text, "\n"); line != NULL && argc < ARGUMENTS_MAX;
         line = strtok(NULL, "\n"))
        argv[argc++] = line;
    for (int index = 0; index < argc;) {
        int before = index;
        if (sh_options_flag(table, argc, argv, &index, config, NULL) != SH_OK || index == before)
            index = before + 1;
    }
}

static void check_print(const fuzz_config *config) {
    fuzz_config second;
    SH_ASSERT(sh_options_init(table, &second) == SH_OK);
    char *text = sh_options_print(table, config);
    SH_ASSERT(text != NULL);
    SH_ASSERT(apply_text(text, strlen(text), &second) == SH_OK);
    char *again = sh_options_print(table, &second);
    SH_ASSERT(again != NULL);
    SH_ASSERT(strcmp(text, again) == 0);
    sh_free(again);
    sh_free(text);
    sh_options_fini(table, &second);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    fuzz_config config;
    SH_ASSERT(sh_options_init(table, &config) == SH_OK);
    size_t half = bytes / 2;
    (void)!apply_text((const char *)data, half, &config);
    char *flags = sh_alloc(bytes - half + 1, 1);
    SH_ASSERT(flags != NULL);
    memcpy(flags, data + half, bytes - half);
    apply_flags(flags, &config);
    sh_free(flags);
    check_print(&config);
    sh_options_fini(table, &config);
    return 0;
}
