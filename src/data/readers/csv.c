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

/* Bound on columns: without it a first line of gigabytes would be counted to its end, and the
 * column arithmetic below could overflow. */
enum { COLUMNS_MOST = 1 << 20 };

/* Parser state for one CSV text. The text is borrowed; `cells` and `targets` are owned until
 * make_source hands the cells to the source. */
typedef struct csv {
    const char *name;         // file name for messages
    const uint8_t *at, *end;  // unread rest of the text
    size_t line;              // line number of `at`, from 1; error messages quote it
    uint8_t separator;        // ',', ';' or a tab; one per file
    size_t columns;           // fields per line, label included; set by the first line
    size_t label;             // index of the label column; `columns` if the file has no label
    /* Grown by sh_grow while rows arrive: */
    float *cells;     // (row_count, features), row-major
    double *targets;  // (row_count); double, so that large integer class labels stay exact
    size_t cell_count, cell_capacity, row_count, target_capacity;
    size_t unpacked;   // bytes of memory the text itself occupies (0 when it is mapped)
    sh_capacity room;  // memory limit for the data set, text included
} csv;

/* One field of a line, as a range of the text: nothing is copied. */
typedef struct field {
    const uint8_t *at, *end;  // contents without the surrounding quotes
    bool last;                // the field is the last of its line
    bool quoted;
} field;

/* The end of the text counts as the end of a line: the last line may lack its newline. */
static bool at_line_end(const csv *c) { return c->at == c->end || *c->at == '\n'; }

/* Parses a quoted field by RFC 4180: a doubled quote inside stands for one, and newlines inside
 * belong to the field. After the closing quote only spaces may follow; otherwise a typing error
 * would shift the remaining columns unnoticed. */
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

/* Parses the next field of the line and moves past its separator or line end. Spaces around an
 * unquoted field are dropped, and '\r' too, so that Windows line ends read alike. */
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
    // Past the separator or newline; at the end of the text there is neither.
    if (c->at < c->end) {
        if (f->last) c->line++;
        c->at++;
    }
    return SH_OK;
}

/* Skips blank lines, which editors leave between rows and at the end: they are no rows and must
 * not fail the column count. */
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

/* Chooses the separator: the most frequent of comma, semicolon and tab in the first line.
 * Separators inside quotes do not count; a tie goes to the comma. */
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

/* Counts the columns of the first line and decides whether it is a header: a header has some text
 * field and no number. A line with both is a faulty row, which must be reported and not skipped.
 * Works on a copy of the parser, so `c` stays at the first line. */
static sh_status look_at_first_line(csv *c, bool *header_out) {
    csv ahead = *c;
    bool has_text = false, has_number = false;
    size_t columns = 0;
    for (field f = {0}; !f.last; columns++) {
        double number;
        SH_TRY(take_field(&ahead, &f));
        if (columns == COLUMNS_MOST)
            return SH_FAIL(SH_E_FORMAT, "'%s' has more than %d columns", c->name, COLUMNS_MOST);
        if (f.at == f.end) continue;  // an empty field decides nothing
        if (sh_number_is(f.at, f.end, &number))
            has_number = true;
        else
            has_text = true;
    }
    c->columns = columns;
    *header_out = has_text && !has_number;
    return SH_OK;
}

/* Compares a field with `text` byte by byte. Doubled quotes are not undone, so a column name with
 * a quote in it cannot be matched by its plain spelling. */
static bool field_is(const field *f, const char *text) {
    size_t length = strlen(text);
    return (size_t)(f->end - f->at) == length && memcmp(f->at, text, length) == 0;
}

/* Column names of a header, each with its terminating zero; names that no longer fit are left out.
 * Only the "did you mean" hint reads it, so a cut list does no harm. */
typedef struct heading {
    char text[4096];
    size_t used;
} heading;

/* Name getter for sh_nearest: the column name at `index`, NULL past the last. */
static const char *heading_at(const void *names, size_t index) {
    const heading *h = names;
    size_t at = 0;
    for (; index > 0 && at < h->used; index--) at += strlen(h->text + at) + 1;
    return at < h->used ? h->text + at : NULL;
}

/* Copies the header's column names into `h`. `header` is a parser by value: the caller's position
 * stays. */
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

/* Reports an unknown label column with the nearest column name, if one is near. `header` is a
 * parser at the first line; NULL: the file has no header. */
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

/* Skips the header, if there is one, and sets `c->label`. The wanted column is looked up by name
 * first, then as an index (negative: from the last column). A file with exactly as many columns as
 * training has features (`width`), and no column of that name, has no label: so the input of a
 * prediction needs none. */
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
    if (index < 0) index += (long)c->columns;  // from the last column
    if (rest == wanted || *rest != '\0' || index < 0 || (size_t)index >= c->columns)
        return fail_column(c, wanted, has_header ? &header : NULL);
    c->label = (size_t)index;
    return SH_OK;
}

/* Converts a field to a number. It must be finite as a float, since that is how it is stored: an
 * infinity would make every gradient NaN. */
static sh_status take_value(const csv *c, const field *f, size_t line, size_t column,
                            double *value_out) {
    // Messages quote at most 40 characters of the field.
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

/* Adds the hint for a row that is too long or too short; returns the failure's code. */
static sh_status hint_columns(void) {
    return sh_error_hint("every line needs as many columns as the first");
}

/* Memory in use after one more row. Targets count 12 bytes: the double kept here and the int32
 * class (or float value) made of it exist at the same time in sh_source_set_targets. */
static size_t bytes_after_row(const csv *c) {
    size_t row = sizeof *c->targets + sizeof(int32_t);
    return c->unpacked + (c->cell_count + c->columns) * sizeof *c->cells + (c->row_count + 1) * row;
}

/* Parses one row into `cells` and `targets`. The memory limit is checked before the arrays grow,
 * so a huge file ends with a message and not with the process being killed. */
static sh_status take_row(csv *c) {
    size_t line = c->line, column = 0;  // quoted fields may move c->line on before an error
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

/* Parses the whole text: separator, header, label column, then the rows. The order matters: each
 * stage needs what the one before has found. */
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
    // One pass: the number of rows is unknown, so the arrays grow as rows arrive.
    for (skip_blank_lines(c); c->at < c->end; skip_blank_lines(c)) SH_TRY(take_row(c));
    if (c->row_count > 0) return SH_OK;
    SH_FAIL(SH_E_FORMAT, "'%s' has a header and no rows", c->name);
    return sh_error_hint("a first line of words alone is a header; rows are lines of numbers");
}

/* Turns the parsed rows into a source, which takes over `c->cells`. `c->targets` stay the parser's
 * and are freed by sh_csv_parse. */
static sh_status make_source(csv *c, const sh_read *read, sh_source **source_out) {
    sh_source *source = NULL;
    SH_TRY(sh_source_create(c->name, &source));
    bool has_label = c->label < c->columns;
    source->memory[0] = c->cells;  // the source now owns the cells
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

/* Parses CSV from memory, for csv_open, the tests and the fuzzer. All values are copied; `data`
 * may be freed afterwards. */
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

/* Opens a plain or gzip CSV file. An unpacked text counts toward the memory limit while it is
 * parsed; the source does not refer to it afterwards. */
static sh_status csv_open(const sh_read *read, sh_source **source_out) {
    sh_blob blob = {0};
    SH_TRY(sh_blob_open(read->path, NULL, &blob));
    sh_read unpacked = *read;
    // A mapped file takes no memory of its own; an unpacked .gz does.
    unpacked.unpacked = sh_blob_memory(&blob);
    sh_status status = sh_csv_parse(&unpacked, blob.data, blob.bytes, source_out);
    sh_blob_close(&blob);
    return status;
}

/* Tells whether the line at `c->at` is two or more numbers with separators between them. Moves
 * `c`; the caller sets its position anew. */
static bool is_row_of_numbers(csv *c) {
    size_t columns = 0;
    for (field f = {0}; !f.last; columns++) {
        double number;
        if (take_field(c, &f) != SH_OK || !sh_number_is(f.at, f.end, &number)) return false;
    }
    return columns >= 2;
}

/* Recognises CSV by file name, or by a first or second line of numbers (the second, in case the
 * first is a header). */
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
