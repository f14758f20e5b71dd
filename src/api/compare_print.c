/* A comparison as a Markdown table, as JSON and as an SVG picture. All three read the rows
 * (api/compare.h); a number that is NaN is unknown: "-" in the table, null in JSON, no point in
 * the picture. */
#include <math.h>
#include <string.h>

#include <jansson.h>

#include "base/json.h"
#include "base/text.h"
#include "obs/plot.h"
#include "explain/units.h"
#include "api/compare.h"

/* ---- the table ---- */

enum { CELL = 48, COLUMNS = 9 };  // bytes of a cell; most columns of a table

/* A column of the table: heading, and how a row fills its cell. */
typedef struct column {
    const char *head;
    /* Writes a cell; an empty one: unknown. */
    void (*put)(const shoal_variant *row, char cell_out[CELL]);
} column;

/* Whole number; the cell stays empty for NaN. */
static void put_number(double number, char cell_out[CELL]) {
    if (!isnan(number)) sh_snprintf(cell_out, CELL, "%.0f", number);
}

/* A time with a fitting unit; the cell stays empty for NaN. */
static void put_seconds(double seconds, char cell_out[CELL]) {
    char text[SH_UNIT_TEXT];
    if (!isnan(seconds)) snprintf(cell_out, CELL, "%s", sh_seconds_text(seconds, text));
}

/* One function per column writes a cell. `cell_out` comes empty and stays so where the number is
 * unknown. */
static void put_time(const shoal_variant *row, char cell_out[CELL]) {
    put_seconds(row->seconds, cell_out);
}
static void put_virtual(const shoal_variant *row, char cell_out[CELL]) {
    put_seconds(row->virtual_s, cell_out);
}
/* Updates of the model, or of all workers' models together (tools.h). */
static void put_updates(const shoal_variant *row, char cell_out[CELL]) {
    put_number(row->updates, cell_out);
}
static void put_target(const shoal_variant *row, char cell_out[CELL]) {
    put_seconds(row->target_s, cell_out);
}

/* Bytes that all workers sent together, with a fitting unit. */
static void put_sent(const shoal_variant *row, char cell_out[CELL]) {
    char text[SH_UNIT_TEXT];
    if (!isnan(row->sent_bytes))
        snprintf(cell_out, CELL, "%s", sh_bytes_text(row->sent_bytes, text));
}

/* Mean and largest staleness in updates; empty for schemes that have none. */
static void put_staleness(const shoal_variant *row, char cell_out[CELL]) {
    if (!isnan(row->staleness_mean))
        sh_snprintf(cell_out, CELL, "%.2f, at most %.0f", row->staleness_mean, row->staleness_most);
}

/* Where the target is not a class there is a loss alone. */
static void put_accuracy(const shoal_variant *row, char cell_out[CELL]) {
    if (!isnan(row->accuracy)) sh_snprintf(cell_out, CELL, "%.2f %%", 100 * row->accuracy);
}
static void put_loss(const shoal_variant *row, char cell_out[CELL]) {
    if (!isnan(row->loss)) sh_snprintf(cell_out, CELL, "%.4f", row->loss);
}

/* A name that is too long for the cell is cut. */
static void put_name(const shoal_variant *row, char cell_out[CELL]) {
    snprintf(cell_out, CELL, "%.*s", CELL - 1, row->name);
}

/* done, stopped, refused, diverged, failed, or not run. */
static void put_outcome(const shoal_variant *row, char cell_out[CELL]) {
    snprintf(cell_out, CELL, "%s", row->outcome);
}

/* Whether any variant has an accuracy: it decides between accuracy and loss for column and
 * picture, so that all rows show the same measure. */
static bool any_accuracy(const shoal_comparison *comparison) {
    bool any = false;
    for (size_t i = 0; i < comparison->count; i++)
        any = any || isfinite(comparison->rows[i].seen.accuracy);
    return any;
}

/* Columns of this comparison: virtual time only if simulated, time to the target only if there is
 * one. `target_head` is the memory of that column's heading. Returns how many there are. */
static int columns_of(const shoal_comparison *comparison, char target_head[CELL],
                      column columns[COLUMNS]) {
    int count = 0;
    // The first two columns are words, by which print_row and print_rule align.
    columns[count++] = (column){"variant", put_name};
    columns[count++] = (column){"outcome", put_outcome};
    columns[count++] = (column){"time", put_time};
    if (comparison->simulated) columns[count++] = (column){"virtual time", put_virtual};
    columns[count++] = (column){"updates", put_updates};
    columns[count++] = (column){"sent", put_sent};
    columns[count++] = (column){"staleness", put_staleness};
    columns[count++] = any_accuracy(comparison) ? (column){"accuracy", put_accuracy}
                                                : (column){"test loss", put_loss};
    if (comparison->target > 0) {
        sh_snprintf(target_head, CELL, "time to %.4g %%", 100 * comparison->target);
        columns[count++] = (column){target_head, put_target};
    }
    return count;
}

/* Text of one cell; `row` NULL: the heading. Names may hold control characters, which are escaped;
 * "-" stands for unknown. */
static void put_cell(const column *of, const shoal_variant *row, char cell_out[CELL]) {
    snprintf(cell_out, CELL, "%s", row == NULL ? of->head : "");
    char cell[CELL];
    if (row != NULL) {
        of->put(row, cell_out);
        snprintf(cell, CELL, "%s", cell_out);
        sh_escape(cell_out, CELL, cell, false);
    }
    if (*cell_out == '\0') snprintf(cell_out, CELL, "-");
}

/* One line of the table; `row` NULL: the headings. The first two columns are words and stand left,
 * numbers stand right. */
static void print_row(const column *columns, const int *widths, int count, const shoal_variant *row,
                      FILE *file) {
    for (int i = 0; i < count; i++) {
        char cell[CELL];
        put_cell(&columns[i], row, cell);
        fprintf(file, i < 2 ? "| %-*s " : "| %*s ", widths[i], cell);
    }
    fputs("|\n", file);
}

/* Markdown's line between headings and rows; a colon aligns a column right. */
static void print_rule(const int *widths, int count, FILE *file) {
    for (int i = 0; i < count; i++) {
        fputs("|", file);
        for (int k = 0; k < widths[i] + 1; k++) fputc('-', file);
        fputc(i < 2 ? '-' : ':', file);
    }
    fputs("|\n", file);
}

/* Below the table, why variants were refused or failed. A blank line ends the table for Markdown.
 */
static void print_reasons(const shoal_comparison *comparison, FILE *file) {
    const char *blank = "\n";
    for (size_t i = 0; i < comparison->count; i++) {
        const shoal_variant *row = &comparison->rows[i].seen;
        if (row->reason[0] == '\0') continue;
        char name[SH_ESCAPED];
        fprintf(file, "%s- %s %s: %s\n", blank, sh_escaped(row->name, name), row->outcome,
                row->reason);
        blank = "";
    }
}

/* Two passes: the first finds the widths, so that the Markdown source reads as a table too. */
sh_status sh_compare_table(const shoal_comparison *comparison, FILE *file) {
    char target_head[CELL];
    column columns[COLUMNS];
    int widths[COLUMNS], count = columns_of(comparison, target_head, columns);
    for (int i = 0; i < count; i++) {
        widths[i] = (int)strlen(columns[i].head);
        for (size_t r = 0; r < comparison->count; r++) {
            char cell[CELL];
            put_cell(&columns[i], &comparison->rows[r].seen, cell);
            if ((int)strlen(cell) > widths[i]) widths[i] = (int)strlen(cell);
        }
    }
    print_row(columns, widths, count, NULL, file);
    print_rule(widths, count, file);
    for (size_t r = 0; r < comparison->count; r++)
        print_row(columns, widths, count, &comparison->rows[r].seen, file);
    print_reasons(comparison, file);
    return SH_OK;
}

/* ---- for machines ---- */

/* NaN and infinities are null, as JSON has no such numbers. */
static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* Counts as integers, which doubles hold exactly below 2^53. */
static json_t *whole(double value) {
    return fabs(value) < 0x1p53 ? json_integer((json_int_t)value) : number(value);
}

/* Evaluations of a variant in order. */
static json_t *points_of(const shoal_variant *row) {
    json_t *points = json_array();
    for (size_t i = 0; i < row->point_count; i++) {
        const shoal_point *p = &row->points[i];
        json_array_append_new(
            points,
            json_pack("{sI so so so}", "step", (json_int_t)p->step, "train_s", number(p->train_s),
                      "test_loss", number(p->loss), "test_accuracy", number(p->accuracy)));
    }
    return points;
}

/* One variant with all its numbers; NULL: out of memory. */
static json_t *row_of(const shoal_variant *row) {
    json_t *object =
        json_pack("{so so ss ss sI ss}", "name", sh_json_string(row->name), "folder",
                  sh_json_string(row->folder), "sync", row->sync, "compress", row->compress,
                  "workers", (json_int_t)row->workers, "outcome", row->outcome);
    if (object == NULL) return NULL;
    if (row->reason[0] != '\0') {
        json_object_set_new(object, "reason", sh_json_string(row->reason));
        json_object_set_new(object, "hint", sh_json_string(row->hint));
    }
    // Numbers of a variant; the units are in the names: _s seconds, _bytes bytes.
    const struct {
        const char *name;
        json_t *value;
    } fields[] = {
        {"seconds", number(row->seconds)},
        {"virtual_s", number(row->virtual_s)},
        {"steps", whole(row->steps)},
        {"updates", whole(row->updates)},
        {"sent_bytes", whole(row->sent_bytes)},
        {"staleness_mean", number(row->staleness_mean)},
        {"staleness_most", whole(row->staleness_most)},
        {"test_loss", number(row->loss)},
        {"test_accuracy", number(row->accuracy)},
        {"target_s", number(row->target_s)},
        {"points", points_of(row)},
    };
    for (size_t i = 0; i < SH_COUNT(fields); i++)
        json_object_set_new(object, fields[i].name, fields[i].value);
    return object;
}

/* `rows` is handed over to the object, and freed with it. */
sh_status sh_compare_json(const shoal_comparison *comparison, FILE *file) {
    json_t *rows = json_array();
    for (size_t i = 0; i < comparison->count; i++)
        json_array_append_new(rows, row_of(&comparison->rows[i].seen));
    json_t *whole_one = json_pack("{so so so sb so}", "title", sh_json_string(comparison->title),
                                  "folder", sh_json_string(comparison->folder), "target",
                                  number(comparison->target > 0 ? comparison->target : NAN),
                                  "simulated", (int)comparison->simulated, "rows", rows);
    // Twelve significant digits are more than any measurement has.
    const size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(12) | JSON_ENSURE_ASCII;
    bool written = whole_one != NULL && json_dumpf(whole_one, file, flags) == 0;
    json_decref(whole_one);
    fputc('\n', file);
    return written ? SH_OK : SH_FAIL(SH_E_IO, "cannot write the comparison as JSON");
}

/* ---- the picture ---- */

/* Curve of a variant over its training time; `points` is the caller's memory. */
static sh_plot_line line_of(const shoal_variant *row, bool accuracy, sh_plot_point *points) {
    for (size_t i = 0; i < row->point_count; i++)
        points[i] = (sh_plot_point){row->points[i].train_s,
                                    accuracy ? row->points[i].accuracy : row->points[i].loss};
    return (sh_plot_line){row->name, points, row->point_count};
}

/* Accuracy (or loss) over training time, a curve per variant, and the target as a mark. All points
 * lie in one array, each curve behind the one before. */
sh_status sh_compare_picture(const shoal_comparison *comparison, FILE *file) {
    bool accuracy = any_accuracy(comparison);
    size_t total = 0, used = 0;
    for (size_t i = 0; i < comparison->count; i++) total += comparison->rows[i].seen.point_count;
    sh_plot_line *lines = sh_alloc(comparison->count + 1, sizeof *lines);
    sh_plot_point *points = sh_alloc(total + 1, sizeof *points);
    // The target is drawn as a line, if accuracy is what the picture shows.
    char mark[CELL];
    sh_snprintf(mark, sizeof mark, "target %.4g %%", 100 * comparison->target);
    sh_plot plot = {
        .title = comparison->title,
        .x = {comparison->simulated ? "virtual time of training" : "time of training",
              SH_PLOT_SECONDS},
        .y = {accuracy ? "test accuracy" : "test loss", accuracy ? SH_PLOT_PERCENT : SH_PLOT_PLAIN},
        .lines = lines,
        .mark = accuracy && comparison->target > 0 ? comparison->target : NAN,
        .mark_name = comparison->target > 0 ? mark : NULL,
    };
    // Without memory for the curves no half picture is drawn.
    bool has = lines != NULL && points != NULL;
    for (size_t i = 0; has && i < comparison->count; i++) {
        const shoal_variant *row = &comparison->rows[i].seen;
        if (row->point_count == 0) continue;  // nothing to show, no place in the legend
        lines[plot.line_count++] = line_of(row, accuracy, points + used);
        used += row->point_count;
    }
    if (has) sh_plot_svg(&plot, file);
    sh_free(lines);
    sh_free(points);
    return has ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for a picture");
}
