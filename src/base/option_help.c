/* Help by groups for the terminal, and the same rows as a table for the docs. */
#include "base/option.h"

#include <string.h>

#include "base/memory.h"

enum { WIDTH = 100, FLAG_WIDTH_MAX = 34 };  // columns of the terminal, and of the flags at most

/* Heading of a row in the help. */
static const char *group_of(const sh_option *row) {
    return row->group != NULL ? row->group : "Options";
}

/* Placeholder of the value; switches have none. */
static const char *value_name(const sh_option *row) {
    if (row->value != NULL) return row->value;
    switch (row->type) {
        case SH_OPTION_INT:
            return "N";
        case SH_OPTION_REAL:
            return "X";
        case SH_OPTION_BOOL:
            return "";
        case SH_OPTION_STRING:
            return row->choices != NULL ? "NAME" : "TEXT";
        case SH_OPTION_INTS:
            return "N,N";
        default:
            return "YAML";
    }
}

/* The flag that users will type: an alias is there because it is shorter. */
static const char *shown_flag(const sh_option *row) {
    return row->alias != NULL ? row->alias : sh_option_flag(row);
}

/* Tells whether a switch is on by default; its help then shows [no-]. */
static bool is_on(const sh_option *row) {
    return row->type == SH_OPTION_BOOL && row->initial != NULL && strcmp(row->initial, "true") == 0;
}

/* "-n, --workers N". Underscores of the key read as dashes, as flags usually do. */
static void format_flag(const sh_option *row, char *text_out, size_t bytes) {
    char letter[8] = "    ", flag[64];
    if (row->letter != 0) snprintf(letter, sizeof letter, "-%c, ", row->letter);
    snprintf(flag, sizeof flag, "%s", shown_flag(row));
    for (char *c = flag; *c != '\0'; c++)
        if (*c == '_') *c = '-';
    const char *value = value_name(row);
    snprintf(text_out, bytes, "%s--%s%s%s%s", letter, is_on(row) ? "[no-]" : "", flag,
             *value != '\0' ? " " : "", value);
}

/* Appends to an allocated text; NULL stays NULL, so that one check at the end suffices. */
static void append(char **text_inout, const char *part) {
    if (*text_inout == NULL) return;
    char *longer = sh_format("%s%s", *text_inout, part);
    sh_free(*text_inout);
    *text_inout = longer;
}

/* Defaults that mean "not set" are not shown. */
static bool shows_default(const sh_option *row) {
    if (row->initial == NULL || *row->initial == '\0') return false;
    return row->type == SH_OPTION_BOOL ? is_on(row) : strcmp(row->initial, "nan") != 0;
}

/* The help line with choices and default. NULL: out of memory. */
static char *describe(const sh_option *row, bool with_default) {
    char *text = sh_strdup(row->help != NULL ? row->help : "");
    const char *name;
    for (size_t i = 0; row->choices != NULL && (name = row->choices(i)) != NULL; i++) {
        append(&text, i == 0 ? ": " : ", ");
        append(&text, name);
    }
    if (with_default && shows_default(row)) {
        append(&text, " (default ");
        append(&text, row->initial);
        append(&text, ")");
    }
    return text;
}

/* Writes words from `column` on, wrapping so that lines begin at `column` again. */
static void write_wrapped(FILE *file, const char *text, int column) {
    int at = column;
    while (*text != '\0') {
        int length = (int)strcspn(text, " ");
        if (at > column && at + 1 + length > WIDTH) {
            fprintf(file, "\n%*s", column, "");
            at = column;
        }
        at += fprintf(file, "%s%.*s", at > column ? " " : "", length, text);
        text += length;
        text += strspn(text, " ");
    }
    fputc('\n', file);
}

/* Column where help texts begin; longer flags get a line of their own. */
static int flag_column(sh_option_table table) {
    int widest = 0;
    for (size_t i = 0; i < table.count; i++) {
        char text[128];
        format_flag(&table.rows[i], text, sizeof text);
        int width = (int)strlen(text);
        if (width > widest && width <= FLAG_WIDTH_MAX) widest = width;
    }
    return 2 + widest + 2;
}

/* One option: its flag, and the help in a column beside it, or below if the flag is long. */
static void write_row(const sh_option *row, FILE *file, int column) {
    char text[128];
    format_flag(row, text, sizeof text);
    int width = fprintf(file, "  %s", text);
    if (width + 2 > column)
        fprintf(file, "\n%*s", column, "");
    else
        fprintf(file, "%*s", column - width, "");
    char *described = describe(row, true);
    write_wrapped(file, described != NULL ? described : row->help, column);
    sh_free(described);
}

/* A bar would end the cell. */
static void write_cell(FILE *file, const char *text) {
    for (; *text != '\0'; text++) {
        if (*text == '|') fputc('\\', file);
        fputc(*text == '\n' ? ' ' : *text, file);
    }
}

/* One option as a row of the reference's table. */
static void write_markdown_row(const sh_option *row, FILE *file) {
    char text[128];
    format_flag(row, text, sizeof text);
    fprintf(file, "| `%s`", row->key);
    if (row->alias != NULL) fprintf(file, ", `%s`", row->alias);
    fprintf(file, " | `%s` | ", text + strspn(text, " "));
    bool has_default = row->initial != NULL && strcmp(row->initial, "nan") != 0;
    if (has_default) fprintf(file, "`");
    if (has_default) write_cell(file, *row->initial != '\0' ? row->initial : "\"\"");
    if (has_default) fprintf(file, "`");
    fprintf(file, " | ");
    char *described = describe(row, false);
    write_cell(file, described != NULL ? described : "");
    fprintf(file, " |\n");
    sh_free(described);
}

/* Tells whether a row is the first of its group; rows of a group need not be adjacent. */
static bool starts_group(sh_option_table table, size_t index) {
    for (size_t i = 0; i < index; i++)
        if (strcmp(group_of(&table.rows[i]), group_of(&table.rows[index])) == 0) return false;
    return true;
}

/* All options of one group, under its heading. */
static void write_group(sh_option_table table, size_t first, FILE *file, bool markdown) {
    const char *group = group_of(&table.rows[first]);
    if (markdown)
        fprintf(file, "### %s\n\n| key | flag | default | meaning |\n|---|---|---|---|\n", group);
    else
        fprintf(file, "%s:\n", group);
    int column = flag_column(table);
    for (size_t i = first; i < table.count; i++) {
        if (strcmp(group_of(&table.rows[i]), group) != 0) continue;
        if (markdown)
            write_markdown_row(&table.rows[i], file);
        else
            write_row(&table.rows[i], file, column);
    }
}

/* Groups stand in the order of their first rows. */
void sh_options_help(sh_option_table table, FILE *file, bool markdown) {
    for (size_t i = 0; i < table.count; i++) {
        if (!starts_group(table, i)) continue;
        if (i > 0) fputc('\n', file);
        write_group(table, i, file, markdown);
    }
}
