/* One value of an option: read from a node or a text, checked against its row, stored, cleared.
 * Every refusal names the option as the user wrote it, what was wanted with its bounds, and what
 * was found, clipped, for it may be long or hostile. */
#include "base/option_value.h"

#include <ctype.h>
#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/memory.h"
#include "base/text.h"

/* Names the option that could not be stored. */
static sh_status out_of_memory(const char *shown) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for option '%s'", shown);
}

/* Cuts a long text for a message, never within a UTF-8 character. */
const char *sh_option_clip(const char *text, char clipped_out[SH_OPTION_CLIP]) {
    size_t length = 0;
    for (; length < SH_OPTION_CLIP - 4 && text[length] != '\0'; length++)
        clipped_out[length] = text[length];
    bool cut = text[length] != '\0';
    while (cut && length > 0 && (text[length] & 0xc0) == 0x80) length--;  // no half characters
    strcpy(clipped_out + length, cut ? "..." : "");
    return clipped_out;
}

/* "run.yaml:5:9: 'data.batch' must be WANTED, found 'abc'". */
static sh_status refuse(const char *shown, const sh_node *value, const char *wanted) {
    char clipped[SH_OPTION_CLIP], found[SH_OPTION_CLIP + 4] = "nothing";
    if (value->kind == SH_NODE_SCALAR)
        snprintf(found, sizeof found, "'%s'", sh_option_clip(value->text, clipped));
    else if (value->kind != SH_NODE_NULL)
        snprintf(found, sizeof found, "a %s", value->kind == SH_NODE_LIST ? "list" : "map");
    if (value->source == NULL)
        return SH_FAIL(SH_E_USAGE, "'%s' must be %s, found %s", shown, wanted, found);
    return SH_FAIL_AT(value, SH_E_USAGE, "'%s' must be %s, found %s", shown, wanted, found);
}

/* "a whole number from 1 to 64", leaving out bounds that no value can reach. */
static const char *wanted_number(const sh_option *row, const char *what, char wanted_out[128]) {
    const double reach = row->type == SH_OPTION_REAL ? DBL_MAX : 9e18;
    const int digits = row->type == SH_OPTION_REAL ? 15 : 19;
    bool checked = row->least != 0 || row->most != 0;
    if (!checked)
        snprintf(wanted_out, 128, "%s", what);
    else if (row->most >= reach)
        sh_snprintf(wanted_out, 128, "%s, at least %.*g", what, digits, row->least);
    else if (row->least <= -reach)
        sh_snprintf(wanted_out, 128, "%s, at most %.*g", what, digits, row->most);
    else
        sh_snprintf(wanted_out, 128, "%s from %.*g to %.*g", what, digits, row->least, digits,
                    row->most);
    return wanted_out;
}

/* Bounds of 0 and 0 mean that the row has none. */
static bool in_range(const sh_option *row, double value) {
    return (row->least == 0 && row->most == 0) || (value >= row->least && value <= row->most);
}

/* A finite decimal number with nothing behind it but what `rest_out` points to. strtod alone would
 * take blanks, hexadecimal, "inf" and "nan" as well. */
static bool parse_decimal(const char *text, double *value_out, const char **rest_out) {
    const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
    if (!isdigit((unsigned char)digits[0]) &&
        !(digits[0] == '.' && isdigit((unsigned char)digits[1])))
        return false;
    if (digits[0] == '0' && (digits[1] == 'x' || digits[1] == 'X')) return false;
    char *end;
    *value_out = sh_strtod(text, &end);
    *rest_out = end;
    return isfinite(*value_out);
}

/* "1%" is 0.01. */
static bool parse_real(const char *text, double *value_out) {
    const char *rest;
    double value;
    if (!parse_decimal(text, &value, &rest)) return false;
    if (rest[0] == '%' && rest[1] == '\0') {
        *value_out = value / 100;
        return true;
    }
    *value_out = value;
    return *rest == '\0';
}

/* 1024-based suffix, as k or KiB, or 0 when `rest` is none. */
static double suffix_factor(const char *rest) {
    if (rest[0] == '\0') return 1;
    if (rest[1] != '\0' && strcmp(rest + 1, "iB") != 0) return 0;
    switch (rest[0]) {
        case 'k':
        case 'K':
            return 0x1p10;
        case 'M':
            return 0x1p20;
        case 'G':
            return 0x1p30;
        case 'T':
            return 0x1p40;
        default:
            return 0;
    }
}

/* "64k" is 65536; 1e3 is 1000, 1.5 is refused. */
static bool parse_int(const char *text, int64_t *value_out) {
    const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
    size_t count = strspn(digits, "0123456789");
    if (count > 0 && digits[count] == '\0') {  // exact up to 64 bits, where a double is not
        errno = 0;
        *value_out = strtoll(text, NULL, 10);
        return errno == 0;
    }
    const char *rest;
    double value;
    if (!parse_decimal(text, &value, &rest)) return false;
    value *= suffix_factor(rest);
    if (suffix_factor(rest) == 0 || value != floor(value)) return false;
    if (value < -0x1p63 || value >= 0x1p63) return false;
    *value_out = (int64_t)value;
    return true;
}

/* The words that YAML 1.1 and command lines have in common; 0 and 1 are not among them. */
bool sh_option_read_bool(const char *text, bool *value_out) {
    static const char *const words[2][3] = {{"false", "no", "off"}, {"true", "yes", "on"}};
    for (int value = 0; value < 2; value++)
        for (int i = 0; i < 3; i++)
            if (strcasecmp(text, words[value][i]) == 0) {
                *value_out = value == 1;
                return true;
            }
    return false;
}

static sh_status set_int(const sh_option *row, const char *shown, const sh_node *value,
                         int64_t *field) {
    char wanted[128];
    int64_t number;
    if (value->kind != SH_NODE_SCALAR || !parse_int(value->text, &number) ||
        !in_range(row, (double)number))
        return refuse(shown, value, wanted_number(row, "a whole number", wanted));
    *field = number;
    return SH_OK;
}

/* Reals whose default is nan: not set is a value of theirs. */
static bool may_be_unset(const sh_option *row) {
    return row->initial != NULL && strcmp(row->initial, "nan") == 0;
}

/* Stores a number within the row's bounds; null unsets where the default is "nan". */
static sh_status set_real(const sh_option *row, const char *shown, const sh_node *value,
                          double *field) {
    char wanted[128];
    double number;
    if (value->kind == SH_NODE_NULL && may_be_unset(row)) {
        *field = NAN;
        return SH_OK;
    }
    if (value->kind != SH_NODE_SCALAR || !parse_real(value->text, &number) ||
        !in_range(row, number))
        return refuse(shown, value, wanted_number(row, "a number", wanted));
    *field = number;
    return SH_OK;
}

/* Anything but the six words is refused. */
static sh_status set_bool(const char *shown, const sh_node *value, bool *field) {
    if (value->kind != SH_NODE_SCALAR || !sh_option_read_bool(value->text, field))
        return refuse(shown, value, "true or false");
    return SH_OK;
}

/* For sh_nearest: the names that a row allows. */
static const char *choice_at(const void *row, size_t index) {
    return ((const sh_option *)row)->choices(index);
}

/* Reports a word that is no choice, with all choices and the nearest one. */
static sh_status refuse_choice(const sh_option *row, const char *shown, const sh_node *value) {
    char wanted[768] = "one of ";
    size_t length = strlen(wanted);
    const char *name;
    for (size_t i = 0; (name = row->choices(i)) != NULL && length < sizeof wanted; i++)
        length += (size_t)snprintf(wanted + length, sizeof wanted - length, "%s%s",
                                   i > 0 ? ", " : "", name);
    sh_status status = refuse(shown, value, wanted);
    const char *near =
        value->kind == SH_NODE_SCALAR ? sh_nearest(value->text, choice_at, row) : NULL;
    return near != NULL ? sh_error_hint("did you mean '%s'?", near) : status;
}

/* Exact spelling; the suggestion helps with the rest. */
static bool is_choice(const sh_option *row, const char *text) {
    const char *name;
    for (size_t i = 0; (name = row->choices(i)) != NULL; i++)
        if (strcmp(name, text) == 0) return true;
    return false;
}

/* Texts end up in run files, which are UTF-8. Refuses overlong forms, surrogates, and more than
 * 0x10ffff. */
static bool is_utf8(const char *text) {
    const unsigned char *c = (const unsigned char *)text;
    while (*c != '\0') {
        int more = *c < 0x80 ? 0 : *c >= 0xc2 && *c < 0xe0 ? 1 : (*c & 0xf0) == 0xe0 ? 2 : 3;
        if (*c >= 0x80 && (*c < 0xc2 || *c > 0xf4)) return false;
        unsigned first = c[0], second = more > 0 ? c[1] : 0;
        if ((first == 0xe0 && second < 0xa0) || (first == 0xed && second > 0x9f)) return false;
        if ((first == 0xf0 && second < 0x90) || (first == 0xf4 && second > 0x8f)) return false;
        for (c++; more > 0; more--, c++)
            if ((*c & 0xc0) != 0x80) return false;
    }
    return true;
}

/* Null clears the text; choices are checked with a suggestion. */
static sh_status set_string(const sh_option *row, const char *shown, const sh_node *value,
                            char **field) {
    char *copy = NULL;
    if (value->kind != SH_NODE_NULL) {
        if (row->choices != NULL && (value->kind != SH_NODE_SCALAR || !is_choice(row, value->text)))
            return refuse_choice(row, shown, value);
        if (value->kind != SH_NODE_SCALAR) return refuse(shown, value, "a text");
        if (!is_utf8(value->text)) return refuse(shown, value, "a text in UTF-8");
        copy = sh_strdup(value->text);
        if (copy == NULL) return out_of_memory(shown);
    }
    sh_free(*field);
    *field = copy;
    return SH_OK;
}

/* A YAML list: each item obeys the row's bounds. */
static sh_status ints_of_list(const sh_option *row, const char *shown, const sh_node *list,
                              sh_ints *ints_out) {
    sh_ints ints = {.items = sh_alloc(sh_node_count(list), sizeof(int64_t))};
    if (ints.items == NULL) return out_of_memory(shown);
    for (const sh_node *child = list->child; child != NULL; child = child->next) {
        sh_status status = set_int(row, shown, child, &ints.items[ints.count++]);
        if (status == SH_OK) continue;
        sh_free(ints.items);
        return status;
    }
    *ints_out = ints;
    return SH_OK;
}

/* "512,512", "[512, 512]", or one number: the forms that fit on a command line. */
static sh_status ints_of_text(const sh_option *row, const char *shown, const sh_node *value,
                              sh_ints *ints_out) {
    char *copy = sh_strdup(value->text);
    sh_ints ints = {.items = sh_alloc(strlen(value->text) / 2 + 1, sizeof(int64_t))};
    sh_status status = copy == NULL || ints.items == NULL ? out_of_memory(shown) : SH_OK;
    char *from = copy;
    if (status == SH_OK && *from == '[' && from[strlen(from) - 1] == ']') {
        from[strlen(from) - 1] = '\0';
        from++;
    }
    bool more = status == SH_OK && from[strspn(from, " ")] != '\0';
    while (more && status == SH_OK) {
        from += strspn(from, " ");
        char *end = from + strcspn(from, ",");
        more = *end == ',';
        char *last = end;
        while (last > from && last[-1] == ' ') last--;
        *last = '\0';
        sh_node part = *value;
        part.text = from;
        status = set_int(row, shown, &part, &ints.items[ints.count++]);
        from = end + 1;
    }
    sh_free(copy);
    if (status != SH_OK) {
        sh_free(ints.items);
        return status;
    }
    *ints_out = ints;
    return SH_OK;
}

/* Replaces the whole list; null makes it empty. */
static sh_status set_ints(const sh_option *row, const char *shown, const sh_node *value,
                          sh_ints *field) {
    sh_ints ints = {0};
    if (value->kind == SH_NODE_MAP) return refuse(shown, value, "a list of whole numbers");
    if (value->kind == SH_NODE_LIST) SH_TRY(ints_of_list(row, shown, value, &ints));
    if (value->kind == SH_NODE_SCALAR) SH_TRY(ints_of_text(row, shown, value, &ints));
    sh_free(field->items);
    *field = ints;
    return SH_OK;
}

/* Keeps a copy: the run file's tree does not live as long. */
static sh_status set_tree(const char *shown, const sh_node *value, sh_node **field) {
    sh_node *copy = NULL;
    if (value->kind != SH_NODE_NULL) {
        copy = sh_node_copy(value);
        if (copy == NULL) return out_of_memory(shown);
    }
    sh_node_destroy(*field);
    *field = copy;
    return SH_OK;
}

/* `shown` is how the user named the option: a key or a flag. */
sh_status sh_option_set(const sh_option *row, const char *shown, const sh_node *value,
                        void *target) {
    void *field = (char *)target + row->at;
    switch (row->type) {
        case SH_OPTION_INT:
            return set_int(row, shown, value, field);
        case SH_OPTION_REAL:
            return set_real(row, shown, value, field);
        case SH_OPTION_BOOL:
            return set_bool(shown, value, field);
        case SH_OPTION_STRING:
            return set_string(row, shown, value, field);
        case SH_OPTION_INTS:
            return set_ints(row, shown, value, field);
        default:
            return set_tree(shown, value, field);
    }
}

/* A tree given as text is YAML itself: `--model '[{dense: 10}]'`. */
static sh_status set_tree_text(const char *shown, const char *text, sh_node **field) {
    sh_node *parsed;
    sh_status status = sh_node_parse(shown, text, strlen(text), &parsed);
    if (status == SH_E_FORMAT) {
        sh_error error = *sh_error_last();  // the fault is in what the user typed
        error.code = SH_E_USAGE;
        return sh_error_adopt(&error);
    }
    SH_TRY(status);
    sh_node_destroy(*field);
    *field = parsed;
    return SH_OK;
}

/* Sets an option from a flag's text by the same checks as from a run file. */
sh_status sh_option_set_text(const sh_option *row, const char *shown, const char *text,
                             void *target) {
    void *field = (char *)target + row->at;
    if (row->type == SH_OPTION_NODE) return set_tree_text(shown, text, field);
    char *copy = sh_strdup(text);
    if (copy == NULL) return out_of_memory(shown);
    sh_node value = {.kind = SH_NODE_SCALAR, .text = copy};
    sh_status status = sh_option_set(row, shown, &value, target);
    sh_free(copy);
    return status;
}

/* Zero, false, empty, or not set; frees what the field owned. */
void sh_option_clear(const sh_option *row, void *target) {
    void *field = (char *)target + row->at;
    switch (row->type) {
        case SH_OPTION_INT:
            *(int64_t *)field = 0;
            break;
        case SH_OPTION_REAL:
            *(double *)field = may_be_unset(row) ? NAN : 0;
            break;
        case SH_OPTION_BOOL:
            *(bool *)field = false;
            break;
        case SH_OPTION_STRING:
            sh_free(*(char **)field);
            *(char **)field = NULL;
            break;
        case SH_OPTION_INTS:
            sh_free(((sh_ints *)field)->items);
            *(sh_ints *)field = (sh_ints){0};
            break;
        case SH_OPTION_NODE:
            sh_node_destroy(*(sh_node **)field);
            *(sh_node **)field = NULL;
            break;
    }
}
