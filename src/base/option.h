/* Option tables: one row per option gives the run-file key, the flag, the help, the validation and
 * the documentation. Run files, layers, models, optimizers and commands all use the same tables.
 *
 *   {.key = "optimizer.lr", .type = SH_OPTION_REAL, .at = offsetof(sh_config, lr),
 *    .initial = "0.01", .least = 0, .most = 1e6, .help = "learning rate"}
 *
 * is `optimizer: {lr: 0.1}` in a run file and `--lr 0.1` on the command line. */
#ifndef SH_BASE_OPTION_H
#define SH_BASE_OPTION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/node.h"
#include "base/status.h"

typedef enum sh_option_type {
    SH_OPTION_INT,     // int64_t; accepts 1e6 and 64k, 64KiB, 64M, 1G, 1T (1024)
    SH_OPTION_REAL,    // double; accepts 1%; never NaN but as the initial "nan", which means unset
    SH_OPTION_BOOL,    // bool; a flag without value means true, --no-FLAG false
    SH_OPTION_STRING,  // char *, NULL when unset and without initial value
    SH_OPTION_INTS,    // sh_ints
    SH_OPTION_NODE,    // sh_node *, any value, kept as a tree
} sh_option_type;

typedef struct sh_ints {
    int64_t *items;
    size_t count;
} sh_ints;

typedef struct sh_option {
    const char *key;    // dotted path in the run file
    const char *flag;   // without dashes; NULL: the last part of the key
    const char *alias;  // a second key and flag for the same thing: `data: mnist` is data.train
    char letter;        // short flag, 0: none
    sh_option_type type;
    size_t at;                             // offset in the target struct
    const char *initial;                   // default as text; NULL: zero, empty
    double least, most;                    // numbers: inclusive range, checked unless both are 0
    const char *(*choices)(size_t index);  // strings: valid values, NULL ends; NULL: any
    const char *group;                     // heading in the help
    const char *value;                     // name of the value in the help, e.g. "N", "DIR"
    const char *help;                      // one line
} sh_option;

typedef struct sh_option_table {
    const sh_option *rows;
    size_t count;
} sh_option_table;

/* Rows on one line: struct and field of the target, key, initial value (text, or NULL), the range
 * of numbers, help, and whatever else the option has by name:
 *
 *   SH_INT_ROW(conv_options, groups, "groups", "1", 1, 64, "groups of channels", .value = "N") */
#define SH_ROW_(type_, struct_, field_, key_, initial_, ...)                              \
    {                                                                                     \
        .type = type_, .at = offsetof(struct_, field_), .key = key_, .initial = initial_, \
        .help = __VA_ARGS__                                                               \
    }
#define SH_NUMBER_ROW_(type_, struct_, field_, key_, initial_, least_, most_, ...)        \
    {                                                                                     \
        .type = type_, .at = offsetof(struct_, field_), .key = key_, .initial = initial_, \
        .least = least_, .most = most_, .help = __VA_ARGS__                               \
    }
#define SH_INT_ROW(...)  SH_NUMBER_ROW_(SH_OPTION_INT, __VA_ARGS__)
#define SH_REAL_ROW(...) SH_NUMBER_ROW_(SH_OPTION_REAL, __VA_ARGS__)
#define SH_INTS_ROW(...) SH_NUMBER_ROW_(SH_OPTION_INTS, __VA_ARGS__)
#define SH_BOOL_ROW(...) SH_ROW_(SH_OPTION_BOOL, __VA_ARGS__)
#define SH_TEXT_ROW(...) SH_ROW_(SH_OPTION_STRING, __VA_ARGS__)
#define SH_NODE_ROW(struct_, field_, key_, ...) \
    SH_ROW_(SH_OPTION_NODE, struct_, field_, key_, NULL, __VA_ARGS__)

/* Options that a single row of a registry has (a scheme's, a codec's, an optimizer's): numbers and
 * switches in a struct of its own. The structs of all rows lie one behind the other, in the order
 * of the registry, in the block that the settings of its kind hold. */
typedef struct sh_own_options {
    sh_option_table table;  // keys with the group's prefix: "sync.outer_lr"
    size_t bytes;           // of the struct
} sh_own_options;

enum { SH_OWN_BYTES = 512 };
typedef struct sh_own_block {
    _Alignas(16) unsigned char bytes[SH_OWN_BYTES];
} sh_own_block;

/* The options of the registry's row `index`; NULL: past the end. */
typedef const sh_own_options *sh_own_at(size_t index);
/* Where the struct of row `index` begins in the block. */
size_t sh_own_offset(sh_own_at *at, size_t index);

/* Sets every field to its initial value. */
sh_status sh_options_init(sh_option_table table, void *target);
void sh_options_fini(sh_option_table table, void *target);
/* Every field of `from` into `to`, which may be raw memory, with texts, lists and trees of its own.
 * On failure `to` owns nothing. */
sh_status sh_options_copy(sh_option_table table, const void *from, void *to);

/* Applies a map. A null value unsets a STRING, INTS or NODE, and a REAL whose initial value is
 * "nan". An unknown key fails with its place and the nearest known one; a bad value with
 * its place, what was found and what is valid. Marks what was set in `set` (one per row) unless
 * NULL. */
sh_status sh_options_apply(sh_option_table table, const sh_node *map, void *target, bool *set);

/* Applies `argv[*index_inout]` if it is a flag (`--key value`, `--key=value`, `-n 4`, `-n4`), and
 * moves the index past it. An operand, `-` or `--` leaves the index where it is; after `--` the
 * caller takes the rest as operands. A flag is the last part of the key, the row's own name for it,
 * the alias or the full key, with - or _ alike. Unknown flags name their nearest neighbour.
 * SH_E_USAGE on any fault of the user. */
sh_status sh_options_flag(sh_option_table table, int argc, char **argv, int *index_inout,
                          void *target, bool *set);

/* Whether an argument is a flag of this table: for commands that have several tables. */
bool sh_options_knows(sh_option_table table, const char *argument);
/* The row's flag without dashes. */
const char *sh_option_flag(const sh_option *row);

/* Sets one option by key from text, as a flag would. */
sh_status sh_options_set(sh_option_table table, const char *key, const char *text, void *target);
/* Sets one option back to its initial value. */
sh_status sh_options_unset(sh_option_table table, const char *key, void *target);

/* Whether a number, word or switch has its initial value. */
bool sh_option_is_initial(const sh_option *row, const void *target);

/* The whole target as a run file that reads back to the same values; a REAL that is NaN (unset) is
 * left out. sh_free it; NULL: out of memory. */
char *sh_options_print(sh_option_table table, const void *target);
/* Help text by groups; `markdown` gives a table for the docs. */
void sh_options_help(sh_option_table table, FILE *file, bool markdown);

/* The nearest of the names by edit distance, NULL if none is near. */
const char *sh_nearest(const char *word, const char *(*name)(const void *names, size_t index),
                       const void *names);

#endif
