/* A table of options of every type, for the tests of reading and of printing. */
#ifndef SH_TESTS_BASE_OPTION_TABLE_H
#define SH_TESTS_BASE_OPTION_TABLE_H

#include <math.h>
#include <string.h>

#include "base/option.h"
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

static inline sh_status apply_text(test_config *config, const char *text, bool *set) {
    sh_node *node = NULL;
    SH_TRY(sh_node_parse("run.yaml", text, strlen(text), &node));
    sh_status status = sh_options_apply(table, node, config, set);
    sh_node_destroy(node);
    return status;
}

#endif
