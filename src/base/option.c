/* Options from tables. A row says key, flag, type, bounds, default and help; from it follow the
 * run-file key, the command-line flag, `--help`, the Markdown reference and the printed run file.
 * So an option is one row and nothing else.
 *
 * This file finds rows (by key, flag, letter or alias, with a suggestion where none fits), walks
 * maps and arguments, and owns initial values; option_value.c reads and checks single values. */
#include "base/option.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "base/option_value.h"

enum { PATH_MAX_BYTES = 256 };  // no table has a key of this length, so a cut path matches none

/* Adds the suggestion to an error, if there is one. */
static sh_status hint_nearest(sh_status status, const char *dashes, const char *near) {
    return near != NULL ? sh_error_hint("did you mean '%s%s'?", dashes, near) : status;
}

/* Sets a row's default, which is text in the table and read like a user's: a wrong default fails a
 * test. */
static sh_status set_initial(const sh_option *row, void *target) {
    if (row->initial == NULL) return SH_OK;
    if (row->type == SH_OPTION_REAL && strcmp(row->initial, "nan") == 0) return SH_OK;
    return sh_option_set_text(row, row->key, row->initial, target);
}

/* All or nothing: on failure everything is cleared again. */
sh_status sh_options_init(sh_option_table table, void *target) {
    for (size_t i = 0; i < table.count; i++) {
        const sh_option *row = &table.rows[i];
        char *field = (char *)target + row->at;
        // The target may be raw memory: what a field owns must be NULL before it is cleared.
        if (row->type == SH_OPTION_STRING) *(char **)field = NULL;
        if (row->type == SH_OPTION_INTS) *(sh_ints *)field = (sh_ints){0};
        if (row->type == SH_OPTION_NODE) *(sh_node **)field = NULL;
        sh_option_clear(row, target);
    }
    for (size_t i = 0; i < table.count; i++) {
        sh_status status = set_initial(&table.rows[i], target);
        if (status == SH_OK) continue;
        sh_options_fini(table, target);
        return status;
    }
    return SH_OK;
}

/* Frees what strings, lists and trees own. */
void sh_options_fini(sh_option_table table, void *target) {
    for (size_t i = 0; i < table.count; i++) sh_option_clear(&table.rows[i], target);
}

/* Copies one field; what it holds by pointer gets a copy of its own. */
static bool copy_field(const sh_option *row, const char *from, char *to) {
    switch (row->type) {
        case SH_OPTION_INT:
            *(int64_t *)to = *(const int64_t *)from;
            return true;
        case SH_OPTION_REAL:
            *(double *)to = *(const double *)from;
            return true;
        case SH_OPTION_BOOL:
            *(bool *)to = *(const bool *)from;
            return true;
        case SH_OPTION_STRING: {
            const char *text = *(char *const *)from;
            *(char **)to = text != NULL ? sh_strdup(text) : NULL;
            return text == NULL || *(char **)to != NULL;
        }
        case SH_OPTION_INTS: {
            const sh_ints *ints = (const sh_ints *)from;
            sh_ints *copy = (sh_ints *)to;
            *copy = (sh_ints){0};
            if (ints->count == 0) return true;
            copy->items = sh_alloc(ints->count, sizeof *copy->items);
            if (copy->items == NULL) return false;
            copy->count = ints->count;
            memcpy(copy->items, ints->items, ints->count * sizeof *copy->items);
            return true;
        }
        case SH_OPTION_NODE: {
            const sh_node *node = *(sh_node *const *)from;
            *(sh_node **)to = node != NULL ? sh_node_copy(node) : NULL;
            return node == NULL || *(sh_node **)to != NULL;
        }
    }
    return true;
}

/* `to` is raw memory; on failure what was copied so far is freed. */
sh_status sh_options_copy(sh_option_table table, const void *from, void *to) {
    for (size_t i = 0; i < table.count; i++) {
        const sh_option *row = &table.rows[i];
        if (copy_field(row, (const char *)from + row->at, (char *)to + row->at)) continue;
        sh_options_fini((sh_option_table){table.rows, i}, to);
        return SH_FAIL(SH_E_MEMORY, "out of memory for options");
    }
    return SH_OK;
}

/* Structs lie one behind the other at multiples of 16 bytes. */
size_t sh_own_offset(sh_own_at *at, size_t index) {
    size_t offset = 0;
    for (size_t i = 0; i <= index; i++) {
        size_t bytes = (at(i)->bytes + 15) / 16 * 16;
        SH_ASSERT(offset + bytes <= SH_OWN_BYTES);
        if (i < index) offset += bytes;
    }
    return offset;
}

/* "lr" of "optimizer.lr". */
static const char *last_part(const char *key) {
    const char *dot = strrchr(key, '.');
    return dot != NULL ? dot + 1 : key;
}

/* Tables have tens of rows: a walk is enough. */
static const sh_option *find_key(sh_option_table table, const char *key) {
    for (size_t i = 0; i < table.count; i++)
        if (strcmp(table.rows[i].key, key) == 0) return &table.rows[i];
    return NULL;
}

/* An alias is an older or shorter name of the key. */
static const sh_option *find_alias(sh_option_table table, const char *key) {
    for (size_t i = 0; i < table.count; i++)
        if (table.rows[i].alias != NULL && strcmp(table.rows[i].alias, key) == 0)
            return &table.rows[i];
    return NULL;
}

/* Whether some key starts with `path` and a dot. */
static bool is_group(sh_option_table table, const char *path) {
    size_t length = strlen(path);
    for (size_t i = 0; i < table.count; i++)
        if (strncmp(table.rows[i].key, path, length) == 0 && table.rows[i].key[length] == '.')
            return true;
    return false;
}

/* Names for sh_nearest: the keys, then the aliases. */
static const char *key_at(const void *table_pointer, size_t index) {
    const sh_option_table *table = table_pointer;
    if (index < table->count) return table->rows[index].key;
    index -= table->count;
    if (index >= table->count) return NULL;
    const sh_option *row = &table->rows[index];
    return row->alias != NULL ? row->alias : row->key;
}

/* For sh_nearest: the last parts of all keys. */
static const char *last_part_at(const void *table_pointer, size_t index) {
    const sh_option_table *table = table_pointer;
    return index < table->count ? last_part(table->rows[index].key) : NULL;
}

/* Nearest key for a hint. A right last part in the wrong group beats spelling: `lr` at the top
 * means `optimizer.lr`. */
static const char *nearest_key(sh_option_table table, const char *path) {
    for (size_t i = 0; i < table.count; i++)
        if (strcmp(last_part(table.rows[i].key), last_part(path)) == 0) return table.rows[i].key;
    const char *near = sh_nearest(path, key_at, &table);
    if (near != NULL) return near;
    near = sh_nearest(last_part(path), last_part_at, &table);
    for (size_t i = 0; near != NULL && i < table.count; i++)
        if (last_part(table.rows[i].key) == near) return table.rows[i].key;
    return NULL;
}

/* One application of a map to a target. */
typedef struct application {
    sh_option_table table;
    void *target;
    bool *set;             // NULL: nobody asks
    const sh_node **from;  // per row: what set it in this application
} application;

/* A key may be set once per file, also under its alias; the message names the earlier line. */
static sh_status apply_row(application *apply, const sh_option *row, const sh_node *entry) {
    size_t index = (size_t)(row - apply->table.rows);
    if (apply->from[index] != NULL)
        return SH_FAIL_AT(entry, SH_E_USAGE, "'%s' is already set in line %d", row->key,
                          apply->from[index]->line);
    SH_TRY(sh_option_set(row, row->key, entry, apply->target));
    apply->from[index] = entry;
    if (apply->set != NULL) apply->set[index] = true;
    return SH_OK;
}

/* A group without a map is a different mistake from an unknown key. */
static sh_status refuse_key(const application *apply, const char *path, const sh_node *entry) {
    char clipped[SH_OPTION_CLIP];
    sh_option_clip(path, clipped);
    if (is_group(apply->table, path))
        return SH_FAIL_AT(entry, SH_E_USAGE, "'%s' must be a map of options", clipped);
    sh_status status = SH_FAIL_AT(entry, SH_E_USAGE, "unknown key '%s'", clipped);
    return hint_nearest(status, "", nearest_key(apply->table, path));
}

/* Walks nested maps; the path so far stands in `path`. Depth is bounded by the node parser. */
static sh_status apply_map(application *apply, const sh_node *map, char path[PATH_MAX_BYTES]) {
    size_t length = strlen(path);
    for (const sh_node *entry = map->child; entry != NULL; entry = entry->next) {
        snprintf(path + length, PATH_MAX_BYTES - length, "%s%s", length > 0 ? "." : "", entry->key);
        const sh_option *row = find_key(apply->table, path);
        bool may_hold_options = entry->kind == SH_NODE_MAP || entry->kind == SH_NODE_NULL;
        if (row == NULL && may_hold_options && is_group(apply->table, path)) {
            SH_TRY(apply_map(apply, entry, path));
        } else {
            if (row == NULL) row = find_alias(apply->table, path);
            if (row == NULL) return refuse_key(apply, path, entry);
            SH_TRY(apply_row(apply, row, entry));
        }
        path[length] = '\0';
    }
    return SH_OK;
}

/* Applies a run file, or a part of one, to a struct of options. */
sh_status sh_options_apply(sh_option_table table, const sh_node *map, void *target, bool *set) {
    if (map->kind != SH_NODE_MAP && map->kind != SH_NODE_NULL)
        return SH_FAIL_AT(map, SH_E_USAGE, "expected options as 'key: value'");
    application apply = {table, target, set, sh_alloc(table.count, sizeof *apply.from)};
    if (apply.from == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %s", map->source);
    char path[PATH_MAX_BYTES] = "";  // dotted, grows and shrinks with the walk
    sh_status status = apply_map(&apply, map, path);
    sh_free(apply.from);
    return status;
}

/* Flags may be written with - or _ alike. */
static bool same_flag(const char *name, size_t length, const char *flag) {
    if (flag == NULL || strlen(flag) != length) return false;
    for (size_t i = 0; i < length; i++) {
        char a = name[i] == '_' ? '-' : name[i], b = flag[i] == '_' ? '-' : flag[i];
        if (a != b) return false;
    }
    return true;
}

/* A row without a flag of its own has the last part of its key. */
const char *sh_option_flag(const sh_option *row) {
    return row->flag != NULL ? row->flag : last_part(row->key);
}

/* The first row that has this flag, alias or full key; rows with the flag itself win. */
static const sh_option *find_flag(sh_option_table table, const char *name, size_t length) {
    for (size_t i = 0; i < table.count; i++)
        if (same_flag(name, length, sh_option_flag(&table.rows[i]))) return &table.rows[i];
    for (size_t i = 0; i < table.count; i++)
        if (same_flag(name, length, table.rows[i].alias) ||
            same_flag(name, length, table.rows[i].key))
            return &table.rows[i];
    return NULL;
}

/* A flag as it stands on the command line. */
typedef struct given_flag {
    const sh_option *row;  // NULL: unknown
    const char *value;     // behind `=` or the letter, NULL: none
    bool negated;          // --no-FLAG
    int shown;             // how much of the argument names the flag, for messages
} given_flag;

/* --flag, --flag=value, and --no-flag for switches. */
static given_flag parse_long(sh_option_table table, const char *argument) {
    const char *name = argument + 2;
    size_t length = strcspn(name, "=");
    given_flag flag = {.row = find_flag(table, name, length), .shown = (int)length + 2};
    if (name[length] == '=') flag.value = name + length + 1;
    if (flag.row == NULL && strncmp(name, "no-", 3) == 0) {
        const sh_option *row = find_flag(table, name + 3, length - 3);
        if (row != NULL && row->type == SH_OPTION_BOOL) {
            flag.row = row;
            flag.negated = true;
        }
    }
    return flag;
}

/* -n4 and -n 4. */
static given_flag parse_letter(sh_option_table table, const char *argument) {
    given_flag flag = {.value = argument[2] != '\0' ? argument + 2 : NULL, .shown = 2};
    for (size_t i = 0; i < table.count && flag.row == NULL; i++)
        if (table.rows[i].letter == argument[1]) flag.row = &table.rows[i];
    return flag;
}

/* A single "-" is a file (standard input), "--" ends the flags. */
static bool looks_like_flag(const char *argument) {
    return argument[0] == '-' && argument[1] != '\0' && strcmp(argument, "--") != 0;
}

/* Long or short, as the second character says. */
static given_flag parse_flag(sh_option_table table, const char *argument) {
    return argument[1] == '-' ? parse_long(table, argument) : parse_letter(table, argument);
}

/* Several tables may serve one command line: the first that knows a flag takes it. */
bool sh_options_knows(sh_option_table table, const char *argument) {
    return looks_like_flag(argument) && parse_flag(table, argument).row != NULL;
}

/* Names for sh_nearest: the flags, then aliases and full keys. */
static const char *flag_at(const void *table_pointer, size_t index) {
    const sh_option_table *table = table_pointer;
    if (index < table->count) return sh_option_flag(&table->rows[index]);
    return key_at(table_pointer, index - table->count);
}

/* Letters get no suggestion: any other letter is as near. */
static sh_status refuse_flag(sh_option_table table, const char *argument, const given_flag *flag) {
    char clipped[SH_OPTION_CLIP], name[SH_OPTION_CLIP];
    snprintf(name, sizeof name, "%.*s", flag->shown, argument);
    sh_status status = SH_FAIL(SH_E_USAGE, "unknown flag '%s'", sh_option_clip(name, clipped));
    if (argument[1] != '-') return status;
    return hint_nearest(status, "--", sh_nearest(name + 2, flag_at, &table));
}

/* --flag, --no-flag and --flag=off; --no-flag=off is nonsense. */
static sh_status set_bool_flag(const given_flag *flag, const char *shown, void *target) {
    if (flag->value == NULL)
        return sh_option_set_text(flag->row, shown, flag->negated ? "false" : "true", target);
    if (flag->negated) return SH_FAIL(SH_E_USAGE, "flag '%s' takes no value", shown);
    return sh_option_set_text(flag->row, shown, flag->value, target);
}

/* Consumes one or two arguments and moves the index behind them. */
sh_status sh_options_flag(sh_option_table table, int argc, char **argv, int *index_inout,
                          void *target, bool *set) {
    int index = *index_inout;
    const char *argument = argv[index];
    if (!looks_like_flag(argument)) return SH_OK;
    given_flag flag = parse_flag(table, argument);
    if (flag.row == NULL) return refuse_flag(table, argument, &flag);

    char shown[SH_OPTION_CLIP];
    snprintf(shown, sizeof shown, "%.*s", flag.shown, argument);
    if (flag.row->type == SH_OPTION_BOOL) {
        // `--overlap off`: a word that can only be its value is.
        bool read, alone = flag.value == NULL && !flag.negated;
        if (alone && index + 1 < argc && sh_option_read_bool(argv[index + 1], &read))
            flag.value = argv[++index];
        SH_TRY(set_bool_flag(&flag, shown, target));
    } else {
        if (flag.value == NULL && index + 1 < argc && strncmp(argv[index + 1], "--", 2) != 0)
            flag.value = argv[++index];
        if (flag.value == NULL) return SH_FAIL(SH_E_USAGE, "flag '%s' needs a value", shown);
        SH_TRY(sh_option_set_text(flag.row, shown, flag.value, target));
    }
    if (set != NULL) set[flag.row - table.rows] = true;
    *index_inout = index + 1;
    return SH_OK;
}

/* The row of a key or alias; otherwise fails with the nearest name. */
static sh_status find_row(sh_option_table table, const char *key, const sh_option **row_out) {
    *row_out = find_key(table, key);
    if (*row_out == NULL) *row_out = find_alias(table, key);
    if (*row_out != NULL) return SH_OK;
    char clipped[SH_OPTION_CLIP];
    sh_status status = SH_FAIL(SH_E_USAGE, "unknown key '%s'", sh_option_clip(key, clipped));
    return hint_nearest(status, "", nearest_key(table, key));
}

/* For programs that embed the library: one key, one text. */
sh_status sh_options_set(sh_option_table table, const char *key, const char *text, void *target) {
    const sh_option *row = NULL;
    SH_TRY(find_row(table, key, &row));
    return sh_option_set_text(row, row->key, text, target);
}

/* Back to the default of the table. */
sh_status sh_options_unset(sh_option_table table, const char *key, void *target) {
    const sh_option *row = NULL;
    SH_TRY(find_row(table, key, &row));
    sh_option_clear(row, target);
    return set_initial(row, target);
}

/* Two NaN are equal: both mean that nothing was set. */
static bool equal(sh_option_type type, const void *a, const void *b) {
    if (type == SH_OPTION_INT) return *(const int64_t *)a == *(const int64_t *)b;
    if (type == SH_OPTION_BOOL) return *(const bool *)a == *(const bool *)b;
    if (type == SH_OPTION_REAL) {
        double x = *(const double *)a, y = *(const double *)b;
        return x == y || (isnan(x) && isnan(y));
    }
    SH_ASSERT(type == SH_OPTION_STRING);
    const char *x = *(char *const *)a, *y = *(char *const *)b;
    return x == NULL || y == NULL ? x == y : strcmp(x, y) == 0;
}

bool sh_option_is_initial(const sh_option *row, const void *target) {
    union {
        int64_t number;
        double real;
        bool on;
        char *text;
    } fresh = {0};
    sh_option alone = *row;  // a target that is this field and nothing else
    alone.at = 0;
    sh_option_clear(&alone, &fresh);
    bool same = set_initial(&alone, &fresh) == SH_OK &&
                equal(row->type, (const char *)target + row->at, &fresh);
    sh_option_clear(&alone, &fresh);
    return same;
}
