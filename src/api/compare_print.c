#include <math.h>
#include <string.h>

#include <jansson.h>

#include "base/json.h"
#include "base/text.h"
#include "obs/plot.h"
#include "explain/units.h"
#include "api/compare.h"

/* ---- the table ---- */

enum { CELL = 48, COLUMNS = 9 };

typedef struct column {
    const char *head;
    /* Writes a cell; an empty one: unknown. */
    void (*put)(const shoal_variant *row, char cell_out[CELL]);
} column;

static void put_number(double number, char cell_out[CELL]) {
    if (!isnan(number)) sh_snprintf(cell_out, CELL, "%.0f", number);
}

static void put_seconds(double seconds, char cell_out[CELL]) {
    char text[SH_UNIT_TEXT];
    if (!isnan(seconds)) snprintf(cell_out, CELL, "%s", sh_seconds_text(seconds, text));
}

static void put_time(const shoal_variant *row, char cell_out[CELL]) {
    put_seconds(row->seconds, cell_out);
}
static void put_virtual(const shoal_variant *row, char cell_out[CELL]) {
    put_seconds(row->virtual_s, cell_out);
}
static void put_updates(const shoal_variant *row, char cell_out[CELL]) {
    put_number(row->updates, cell_out);
}
static void put_target(const shoal_variant *row, char cell_out[CELL]) {
    put_seconds(row->target_s, cell_out);
}

static void put_sent(const shoal_variant *row, char cell_out[CELL]) {
    char text[SH_UNIT_TEXT];
    if (!isnan(row->sent_bytes))
        snprintf(cell_out, CELL, "%s", sh_bytes_text(row->sent_bytes, text));
}

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

static void put_name(const shoal_variant *row, char cell_out[CELL]) {
    snprintf(cell_out, CELL, "%.*s", CELL - 1, row->name);
}

static void put_outcome(const shoal_variant *row, char cell_out[CELL]) {
    snprintf(cell_out, CELL, "%s", row->outcome);
}

static bool any_accuracy(const shoal_comparison *comparison) {
    bool any = false;
    for (size_t i = 0; i < comparison->count; i++)
        any = any || isfinite(comparison->rows[i].seen.accuracy);
    return any;
}

static int columns_of(const shoal_comparison *comparison, char target_head[CELL],
                      column columns[COLUMNS]) {
    int count = 0;
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

/* One line; `row` NULL: the heads. Names stand left, numbers right. */
static void print_row(const column *columns, const int *widths, int count, const shoal_variant *row,
                      FILE *file) {
    for (int i = 0; i < count; i++) {
        char cell[CELL];
        put_cell(&columns[i], row, cell);
        fprintf(file, i < 2 ? "| %-*s " : "| %*s ", widths[i], cell);
    }
    fputs("|\n", file);
}

static void print_rule(const int *widths, int count, FILE *file) {
    for (int i = 0; i < count; i++) {
        fputs("|", file);
        for (int k = 0; k < widths[i] + 1; k++) fputc('-', file);
        fputc(i < 2 ? '-' : ':', file);
    }
    fputs("|\n", file);
}

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

static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

static json_t *whole(double value) {
    return fabs(value) < 0x1p53 ? json_integer((json_int_t)value) : number(value);
}

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

sh_status sh_compare_json(const shoal_comparison *comparison, FILE *file) {
    json_t *rows = json_array();
    for (size_t i = 0; i < comparison->count; i++)
        json_array_append_new(rows, row_of(&comparison->rows[i].seen));
    json_t *whole_one = json_pack("{so so so sb so}", "title", sh_json_string(comparison->title),
                                  "folder", sh_json_string(comparison->folder), "target",
                                  number(comparison->target > 0 ? comparison->target : NAN),
                                  "simulated", (int)comparison->simulated, "rows", rows);
    const size_t flags = JSON_INDENT(1) | JSON_REAL_PRECISION(12) | JSON_ENSURE_ASCII;
    bool written = whole_one != NULL && json_dumpf(whole_one, file, flags) == 0;
    json_decref(whole_one);
    fputc('\n', file);
    return written ? SH_OK : SH_FAIL(SH_E_IO, "cannot write the comparison as JSON");
}

/* ---- the picture ---- */

static sh_plot_line line_of(const shoal_variant *row, bool accuracy, sh_plot_point *points) {
    for (size_t i = 0; i < row->point_count; i++)
        points[i] = (sh_plot_point){row->points[i].train_s,
                                    accuracy ? row->points[i].accuracy : row->points[i].loss};
    return (sh_plot_line){row->name, points, row->point_count};
}

sh_status sh_compare_picture(const shoal_comparison *comparison, FILE *file) {
    bool accuracy = any_accuracy(comparison);
    size_t total = 0, used = 0;
    for (size_t i = 0; i < comparison->count; i++) total += comparison->rows[i].seen.point_count;
    sh_plot_line *lines = sh_alloc(comparison->count + 1, sizeof *lines);
    sh_plot_point *points = sh_alloc(total + 1, sizeof *points);
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
