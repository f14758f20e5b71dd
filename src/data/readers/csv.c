/* CSV: numbers between commas, semicolons or tabs (whichever the first line has most of), with or
 * without a header, fields quoted or not. One column is the label. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/option.h"
#include "data/number.h"
#include "data/reader.h"
#include "data/room.h"

enum { COLUMNS_MOST = 1 << 20 };

typedef struct csv {
    const char *name;
    const uint8_t *at, *end;
    size_t line;  // from 1
    uint8_t separator;
    size_t columns;
    size_t label;  // column, or `columns` for none
    /* growing: */
    float *cells;
    double *targets;
    size_t cell_count, cell_capacity, row_count, target_capacity;
    size_t unpacked;  // bytes that the text takes
    sh_capacity room;
} csv;

typedef struct field {
    const uint8_t *at, *end;  // within the quotes
    bool last;                // the line ends behind it
    bool quoted;
} field;

/* The end of the text counts as the end of a line: the last line may lack its newline. */
static bool at_line_end(const csv *c) { return c->at == c->end || *c->at == '\n'; }

/* RFC 4180: a doubled quote inside is one, newlines inside belong to the field. Behind the closing
 * quote only spaces may come, or a typing error would shift columns unnoticed. */
static sh_status take_quoted(csv *c, field *f) {
    size_t start_line = c->line;
    f->quoted = true;
    f->at = ++c->at;
    for (; c->at < c->end; c->at++) {
        if (*c->at == '\n') c->line++;
        if (*c->at != '"') continue;
        if (c->at + 1 < c->end && c->at[1] == '"')
            c->at++;  // a doubled quote stands for one
        else
            break;
    }
    if (c->at == c->end)
        return SH_FAIL(SH_E_FORMAT, "'%s', line %zu: a quoted field does not end", c->name,
                       start_line);
    f->end = c->at++;
    while (!at_line_end(c) && *c->at != c->separator) {
        if (*c->at != ' ' && *c->at != '\r')
            return SH_FAIL(SH_E_FORMAT, "'%s', line %zu: text behind a quoted field", c->name,
                           c->line);
        c->at++;
    }
    return SH_OK;
}

/* The next field of the line; moves behind its separator or the end of the line. */
static sh_status take_field(csv *c, field *f) {
    *f = (field){0};
    while (c->at < c->end && *c->at == ' ') c->at++;
    if (c->at < c->end && *c->at == '"') {
        SH_TRY(take_quoted(c, f));
    } else {
        f->at = c->at;
        while (!at_line_end(c) && *c->at != c->separator) c->at++;
        f->end = c->at;
        while (f->end > f->at && (f->end[-1] == '\r' || f->end[-1] == ' ')) f->end--;
    }
    f->last = at_line_end(c);
    if (c->at < c->end) {
        if (f->last) c->line++;
        c->at++;
    }
    return SH_OK;
}

/* Blank lines between rows, as editors leave them, are no rows. */
static void skip_blank_lines(csv *c) {
    for (;;) {
        const uint8_t *at = c->at;
        while (at < c->end && (*at == ' ' || *at == '\r')) at++;
        if (at == c->end) c->at = at;
        if (at == c->end || *at != '\n') return;
        c->at = at + 1;
        c->line++;
    }
}

/* Separators inside quotes do not count; a tie goes to the comma. */
static uint8_t find_separator(const uint8_t *at, const uint8_t *end) {
    size_t comma = 0, semicolon = 0, tab = 0;
    bool quoted = false;
    for (; at < end && (quoted || *at != '\n'); at++) {
        if (*at == '"') quoted = !quoted;
        if (quoted) continue;
        comma += *at == ',';
        semicolon += *at == ';';
        tab += *at == '\t';
    }
    if (semicolon > comma && semicolon >= tab) return ';';
    return tab > comma ? '\t' : ',';
}

/* Counts the columns of the first line and tells whether it is a header: some field is text, and
 * none is a number. A line of both is a row with a fault, which must not be passed over. */
static sh_status look_at_first_line(csv *c, bool *header_out) {
    csv ahead = *c;
    bool has_text = false, has_number = false;
    size_t columns = 0;
    for (field f = {0}; !f.last; columns++) {
        double number;
        SH_TRY(take_field(&ahead, &f));
        if (columns == COLUMNS_MOST)
            return SH_FAIL(SH_E_FORMAT, "'%s' has more than %d columns", c->name, COLUMNS_MOST);
        if (f.at == f.end) continue;
        if (sh_number_is(f.at, f.end, &number))
            has_number = true;
        else
            has_text = true;
    }
    c->columns = columns;
    *header_out = has_text && !has_number;
    return SH_OK;
}

/* Compares with the text between the quotes; doubled quotes are compared as they stand. */
static bool field_is(const field *f, const char *text) {
    size_t length = strlen(text);
    return (size_t)(f->end - f->at) == length && memcmp(f->at, text, length) == 0;
}

/* The names of a header, as many as there is room for, each with its final zero. */
typedef struct heading {
    char text[4096];
    size_t used;
} heading;

/* For sh_nearest: the name of a column by its index, NULL behind the last. */
static const char *heading_at(const void *names, size_t index) {
    const heading *h = names;
    size_t at = 0;
    for (; index > 0 && at < h->used; index--) at += strlen(h->text + at) + 1;
    return at < h->used ? h->text + at : NULL;
}

static sh_status read_heading(csv header, heading *h) {
    for (field f = {0}; !f.last;) {
        SH_TRY(take_field(&header, &f));
        size_t length = (size_t)(f.end - f.at);
        if (length >= sizeof h->text - h->used) break;
        memcpy(h->text + h->used, f.at, length);
        h->used += length + 1;
    }
    return SH_OK;
}

/* `header` stands at the first line; NULL: there is no header. */
static sh_status fail_column(const csv *c, const char *wanted, const csv *header) {
    heading names = {0};
    if (header != NULL) SH_TRY(read_heading(*header, &names));
    const char *near = sh_nearest(wanted, heading_at, &names);
    SH_FAIL(SH_E_USAGE, "'%s' has no column '%s'", c->name, wanted);
    if (near != NULL) return sh_error_hint("did you mean '%s'?", near);
    return sh_error_hint(header != NULL ? "name one of the header, or an index from 0 to %zu"
                                        : "the file has no header: use an index from 0 to %zu",
                         c->columns - 1);
}

/* Passes the header, if there is one, and finds the label column: by name first, then by index. A
 * file that has as many columns as training has features, and none of that name, has no label. */
static sh_status find_label(csv *c, const char *wanted, bool has_header, int64_t width) {
    const csv header = *c;
    bool found = false;
    field f = {0};
    for (size_t i = 0; has_header && !f.last; i++) {
        SH_TRY(take_field(c, &f));
        if (wanted != NULL && !found && field_is(&f, wanted)) {
            c->label = i;
            found = true;
        }
    }
    if (found) return SH_OK;
    if ((size_t)width == c->columns || (wanted != NULL && strcmp(wanted, "none") == 0)) {
        c->label = c->columns;
        return SH_OK;
    }
    if (wanted == NULL) {
        c->label = c->columns - 1;
        return SH_OK;
    }
    char *rest;
    long index = strtol(wanted, &rest, 10);
    if (index < 0) index += (long)c->columns;
    if (rest == wanted || *rest != '\0' || index < 0 || (size_t)index >= c->columns)
        return fail_column(c, wanted, has_header ? &header : NULL);
    c->label = (size_t)index;
    return SH_OK;
}

/* A field as a number. Values must be finite as a float: an infinity would spoil every gradient. */
static sh_status take_value(const csv *c, const field *f, size_t line, size_t column,
                            double *value_out) {
    int shown = f->end - f->at > 40 ? 40 : (int)(f->end - f->at);
    if (f->at == f->end) {
        SH_FAIL(SH_E_FORMAT, "'%s', line %zu, column %zu: the field is empty", c->name, line,
                column + 1);
        return sh_error_hint("give it a number, or leave out the line or the column");
    }
    if (!sh_number_is(f->at, f->end, value_out)) {
        SH_FAIL(SH_E_FORMAT, "'%s', line %zu, column %zu: '%.*s' is not a number", c->name, line,
                column + 1, shown, (const char *)f->at);
        return sh_error_hint(
            c->row_count == 0 ? "write numbers for words; a header is a first line of words alone"
                              : "write numbers for words, or leave out the column");
    }
    if (!isfinite((float)*value_out)) {
        SH_FAIL(SH_E_NUMERIC, "'%s', line %zu, column %zu: %.*s is not a finite float", c->name,
                line, column + 1, shown, (const char *)f->at);
        return sh_hint_not_finite();
    }
    return SH_OK;
}

static sh_status hint_columns(void) {
    return sh_error_hint("every line needs as many columns as the first");
}

/* The targets are there twice while they become classes or values. */
static size_t bytes_after_row(const csv *c) {
    size_t row = sizeof *c->targets + sizeof(int32_t);
    return c->unpacked + (c->cell_count + c->columns) * sizeof *c->cells + (c->row_count + 1) * row;
}

/* One row; the memory is checked before it grows, so a huge file ends with a message. */
static sh_status take_row(csv *c) {
    size_t line = c->line, column = 0;
    if (bytes_after_row(c) > c->room.bytes) return sh_room_fail_above(c->name, &c->room);
    SH_TRY(sh_grow((void **)&c->cells, &c->cell_capacity, c->cell_count + c->columns,
                   sizeof *c->cells));
    SH_TRY(
        sh_grow((void **)&c->targets, &c->target_capacity, c->row_count + 1, sizeof *c->targets));
    for (field f = {0}; !f.last; column++) {
        double value = 0;
        SH_TRY(take_field(c, &f));
        if (column == c->columns) {
            SH_FAIL(SH_E_FORMAT, "'%s', line %zu: more than %zu columns", c->name, line,
                    c->columns);
            return hint_columns();
        }
        SH_TRY(take_value(c, &f, line, column, &value));
        if (column == c->label)
            c->targets[c->row_count] = value;
        else
            c->cells[c->cell_count++] = (float)value;
    }
    if (column < c->columns) {
        SH_FAIL(SH_E_FORMAT, "'%s', line %zu: %zu columns where %zu are expected", c->name, line,
                column, c->columns);
        return hint_columns();
    }
    c->row_count++;
    return SH_OK;
}

static sh_status read_all(csv *c, const sh_read *read) {
    bool has_header = false;
    const char *wanted = read->options != NULL ? read->options->label_column : NULL;
    skip_blank_lines(c);
    if (c->at == c->end) {
        SH_FAIL(SH_E_FORMAT, "'%s' has no lines", c->name);
        return sh_hint_damaged();
    }
    c->separator = find_separator(c->at, c->end);
    SH_TRY(look_at_first_line(c, &has_header));
    SH_TRY(find_label(c, wanted, has_header, read->width));
    if (c->columns == 1 && c->label == 0) {
        SH_FAIL(SH_E_FORMAT, "'%s' has one column and no features", c->name);
        return sh_error_hint("columns are separated by ',', ';' or tabs");
    }
    for (skip_blank_lines(c); c->at < c->end; skip_blank_lines(c)) SH_TRY(take_row(c));
    if (c->row_count > 0) return SH_OK;
    SH_FAIL(SH_E_FORMAT, "'%s' has a header and no rows", c->name);
    return sh_error_hint("a first line of words alone is a header; rows are lines of numbers");
}

static sh_status make_source(csv *c, const sh_read *read, sh_source **source_out) {
    sh_source *source = NULL;
    SH_TRY(sh_source_create(c->name, &source));
    bool has_label = c->label < c->columns;
    source->memory[0] = c->cells;
    source->cells = c->cells;
    c->cells = NULL;
    source->cell = SH_CELL_F32;
    source->stored = source->info.count = c->row_count;
    source->info.sample = SH_SHAPE((int64_t)(has_label ? c->columns - 1 : c->columns));
    sh_status status = sh_source_check(source);
    if (status == SH_OK && has_label) status = sh_source_set_targets(source, c->targets, read);
    if (status != SH_OK) {
        sh_source_release(source);
        return status;
    }
    *source_out = source;
    return SH_OK;
}

sh_status sh_csv_parse(const sh_read *read, const uint8_t *data, size_t bytes,
                       sh_source **source_out) {
    csv c = {.name = read->path, .at = data, .end = data + bytes, .line = 1};
    c.unpacked = read->unpacked;
    c.room = sh_room_now(c.unpacked);
    if (bytes >= 3 && memcmp(data, "\xef\xbb\xbf", 3) == 0) c.at += 3;  // a byte-order mark
    sh_status status = read_all(&c, read);
    if (status == SH_OK) status = make_source(&c, read, source_out);
    sh_free(c.cells);
    sh_free(c.targets);
    return status;
}

static sh_status csv_open(const sh_read *read, sh_source **source_out) {
    sh_blob blob = {0};
    SH_TRY(sh_blob_open(read->path, NULL, &blob));
    sh_read unpacked = *read;
    unpacked.unpacked = sh_blob_memory(&blob);
    sh_status status = sh_csv_parse(&unpacked, blob.data, blob.bytes, source_out);
    sh_blob_close(&blob);
    return status;
}

/* Two or more numbers in each of the fields of a line, with a separator between them. */
static bool is_row_of_numbers(csv *c) {
    size_t columns = 0;
    for (field f = {0}; !f.last; columns++) {
        double number;
        if (take_field(c, &f) != SH_OK || !sh_number_is(f.at, f.end, &number)) return false;
    }
    return columns >= 2;
}

/* By the name, or by a first or second line of numbers. */
static bool csv_detects(const char *path, const uint8_t *head, size_t head_bytes) {
    static const char *const ends[] = {".csv", ".tsv", ".csv.gz", ".tsv.gz"};
    if (head_bytes == 0) return false;
    for (size_t i = 0; i < SH_COUNT(ends); i++)
        if (sh_name_ends_in(path, ends[i])) return true;
    csv c = {.name = path, .at = head, .end = head + head_bytes};
    c.separator = find_separator(c.at, c.end);
    if (is_row_of_numbers(&c)) return true;
    const uint8_t *second = memchr(head, '\n', head_bytes);
    if (second == NULL || second + 1 == c.end) return false;
    c.at = second + 1;
    return is_row_of_numbers(&c);
}

extern const sh_reader sh_reader_csv;
const sh_reader sh_reader_csv = {
    .name = "csv",
    .help = "numbers in .csv or .tsv files; 'label_column' by name or index, the last by default",
    .detects = csv_detects,
    .open = csv_open,
};
