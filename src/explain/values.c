/* The numbers that a user gives to `shoal explain`: a line per rank, an optional name first, any
 * of the usual separators. The file comes from outside, so its size, ranks, names and numbers are
 * bounded, and every fault has its line. */
#include "explain/values.h"

#include <ctype.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/number.h"

enum { FILE_BYTES_MOST = 4 << 20 };

/* Parser state; `values` grows line by line. */
typedef struct reader {
    const char *path;  // for messages
    int line;          // current line, from 1
    int first_line;    // line of the first rank, for the message about lengths
    size_t capacity;   // of values->x
    sh_values *values;
} reader;

/* Separators between values. Brackets count too, so that lists from Python can be pasted. */
static bool is_between(char c) { return c != '\0' && strchr(" \t\r,;:=[]", c) != NULL; }

/* Marks that a name may contain besides letters and digits. */
static bool is_mark(char c) { return c != '\0' && strchr("_-.", c) != NULL; }

/* Tells whether a word can be a rank's name. It starts with a letter, so that no number is taken
 * for a name. */
static bool is_name(const char *word, size_t length) {
    if (length >= SH_VALUES_NAME || !isalpha((unsigned char)word[0])) return false;
    for (size_t i = 0; i < length; i++)
        if (!isalnum((unsigned char)word[i]) && !is_mark(word[i])) return false;
    return true;
}

/* Takes a rank's name; names are unique, since tables and JSON refer to them. */
static sh_status take_name(reader *r, const char *word, size_t length) {
    sh_values *v = r->values;
    if (!is_name(word, length)) {
        SH_FAIL(SH_E_FORMAT, "%s:%d: '%.*s' is neither a number nor a name", r->path, r->line,
                length < 40 ? (int)length : 40, word);
        return sh_error_hint("a name has up to %d letters, digits, '_', '-' and '.'",
                             SH_VALUES_NAME - 1);
    }
    for (int k = 0; k < v->ranks; k++)
        if (strlen(v->names[k]) == length && strncmp(v->names[k], word, length) == 0)
            return SH_FAIL(SH_E_FORMAT, "%s:%d: a second rank is named '%s'", r->path, r->line,
                           v->names[k]);
    memcpy(v->names[v->ranks], word, length);
    v->names[v->ranks][length] = '\0';
    return SH_OK;
}

/* Takes one value: finite and at most 1e15 in magnitude, so that sums of doubles keep the digits
 * that are shown. */
static sh_status take_number(reader *r, const char *word, size_t length, size_t at) {
    sh_values *v = r->values;
    double number;
    const uint8_t *start = (const uint8_t *)word;
    int shown = length < 40 ? (int)length : 40;
    if (!sh_number_is(start, start + length, &number))
        return SH_FAIL(SH_E_FORMAT, "%s:%d: value %zu of rank '%s' is no number: '%.*s'", r->path,
                       r->line, at + 1, v->names[v->ranks], shown, word);
    if (!isfinite(number) || fabs(number) > 1e15)
        return SH_FAIL(SH_E_FORMAT, "%s:%d: value %zu of rank '%s' is out of range: '%.*s'",
                       r->path, r->line, at + 1, v->names[v->ranks], shown, word);
    if (at == SH_VALUES_COUNT)
        return SH_FAIL(SH_E_USAGE, "%s:%d: more than %d values", r->path, r->line, SH_VALUES_COUNT);
    size_t place = (size_t)v->ranks * v->count + at;
    void *x = v->x;
    SH_TRY(sh_grow(&x, &r->capacity, place + 1, sizeof *v->x));
    v->x = x;
    v->x[place] = number;
    return SH_OK;
}

/* Ends a rank's line. All ranks hold buffers of one length, which the first line sets. */
static sh_status end_line(reader *r, size_t count) {
    sh_values *v = r->values;
    if (count == 0)
        return SH_FAIL(SH_E_FORMAT, "%s:%d: rank '%s' has no values", r->path, r->line,
                       v->names[v->ranks]);
    if (v->ranks == 0) {
        v->count = count;
        r->first_line = r->line;
    } else if (count != v->count) {
        SH_FAIL(SH_E_SHAPE, "%s:%d: rank '%s' has %zu values, but '%s' in line %d has %zu", r->path,
                r->line, v->names[v->ranks], count, v->names[0], r->first_line, v->count);
        return sh_error_hint("all ranks hold buffers of one length");
    }
    v->ranks++;
    return SH_OK;
}

/* Reads one line: an optional name, then values. Blank lines and comments (#) are no ranks. */
static sh_status read_line(reader *r, const char *at, const char *end) {
    sh_values *v = r->values;
    size_t words = 0, count = 0;
    while (at < end && is_between(*at)) at++;
    if (at == end || *at == '#') return SH_OK;  // blank, or a comment
    if (v->ranks == SH_VALUES_RANKS)
        return SH_FAIL(SH_E_USAGE, "%s:%d: more than %d ranks", r->path, r->line, SH_VALUES_RANKS);
    // The rank's number, until the line gives a name.
    snprintf(v->names[v->ranks], SH_VALUES_NAME, "%d", v->ranks);
    while (at < end) {
        const char *word = at;
        while (at < end && !is_between(*at)) at++;
        size_t length = (size_t)(at - word);
        double number;
        const uint8_t *start = (const uint8_t *)word;
        // Only the first word can be a name.
        bool names = words++ == 0 && !sh_number_is(start, start + length, &number);
        if (names)
            SH_TRY(take_name(r, word, length));
        else
            SH_TRY(take_number(r, word, length, count++));
        while (at < end && is_between(*at)) at++;
    }
    return end_line(r, count);
}

/* The last line may lack its newline. */
static sh_status read_text(reader *r, const char *text, size_t bytes) {
    const char *at = text, *end = text + bytes;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        if (stop == NULL) stop = end;
        r->line++;
        SH_TRY(read_line(r, at, stop));
        at = stop < end ? stop + 1 : end;
    }
    if (r->values->ranks > 0) return SH_OK;
    SH_FAIL(SH_E_FORMAT, "'%s' holds no values", r->path);
    return sh_error_hint("one line per rank: A 17 11 1 9");
}

/* Caller finishes `values_out`, which is written only on success. */
sh_status sh_values_parse(const char *path, const char *text, size_t bytes, sh_values *values_out) {
    // Names are allocated for the most ranks at once: the bound is small.
    sh_values values = {.names = sh_alloc(SH_VALUES_RANKS, sizeof *values.names)};
    reader r = {.path = path, .values = &values};
    sh_status status = SH_OK;
    if (values.names == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", path);
    else if (bytes > FILE_BYTES_MOST)
        status = SH_FAIL(SH_E_USAGE, "'%s' has %zu bytes; values are read from up to %d", path,
                         bytes, FILE_BYTES_MOST);
    else
        status = read_text(&r, text, bytes);
    if (status != SH_OK) {
        sh_values_fini(&values);
        return status;
    }
    *values_out = values;
    return SH_OK;
}

/* Maps the file for the parse; an empty file has no mapping and holds no values. */
sh_status sh_values_read(const char *path, sh_values *values_out) {
    sh_mapped mapped;
    SH_TRY(sh_file_map(path, &mapped));
    const char *text = mapped.data != NULL ? (const char *)mapped.data : "";
    sh_status status = sh_values_parse(path, text, mapped.bytes, values_out);
    sh_file_unmap(&mapped);
    return status;
}

void sh_values_fini(sh_values *values) {
    sh_free(values->x);
    sh_free(values->names);
    *values = (sh_values){0};
}
