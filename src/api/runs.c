/* shoal_runs and shoal_runs_diff: the runs of a folder as a table, and two of them side by side
 * with the settings that differ. Everything comes from what obs/report.h reads of a run's folder,
 * so state and results are those of the report. */
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "api/sink.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/node.h"
#include "base/text.h"
#include "obs/metrics_read.h"
#include "obs/report.h"
#include "run/need.h"
#include "shoal/tools.h"

/* ---- one run in short ---- */

/* One run in short: a row of the table. NaN: unknown. */
typedef struct summary {
    char name[SH_ESCAPED];
    const char *state;                      // "finished", "running" or "stopped"; a literal
    double steps, epoch, workers, train_s;  // from the newest lines of the metrics
    double accuracy, best, loss;            // of the test part; NaN: not measured
} summary;

/* The newest entry of a list; NULL: the list is empty. Borrowed. */
static const json_t *last_of(const json_t *list) {
    size_t count = json_array_size(list);
    return count > 0 ? json_array_get(list, count - 1) : NULL;
}

/* fmax ignores NaN, so evaluations without an accuracy do not count. */
static double best_accuracy(const json_t *evals) {
    double best = NAN;
    for (size_t i = 0; i < json_array_size(evals); i++)
        best = fmax(best, sh_metrics_number(json_array_get(evals, i), "test_accuracy"));
    return best;
}

/* A literal for the state, as the run's JSON does not outlive the row. */
static const char *state_literal(const char *state) {
    if (strcmp(state, "running") == 0) return "running";
    return strcmp(state, "finished") == 0 ? "finished" : "stopped";
}

/* Row of a run, from the object that sh_report_read makes. */
static summary summarise(const json_t *run) {
    // Numbers of missing lines are NaN: sh_metrics_number takes a NULL object.
    const json_t *evals = json_object_get(run, "evals"), *eval = last_of(evals);
    const json_t *step = last_of(json_object_get(run, "steps")), *end = json_object_get(run, "end");
    summary s = {
        .state = state_literal(json_string_value(json_object_get(run, "state"))),
        .steps = sh_metrics_number(step, "step"),
        .epoch = sh_metrics_number(step, "epoch"),
        .workers = sh_metrics_number(end, "workers"),
        .train_s = sh_metrics_number(step, "time_s"),
        .accuracy = sh_metrics_number(eval, "test_accuracy"),
        .best = best_accuracy(evals),
        .loss = sh_metrics_number(eval, "test_loss"),
    };
    sh_escaped(json_string_value(json_object_get(run, "name")), s.name);
    return s;
}

/* NaN and infinities are null, as JSON has no such numbers. */
static json_t *number_json(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* The row as an object with the same keys for every run. */
static json_t *summary_json(const summary *s) {
    return json_pack("{s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", s->name, "state",
                     s->state, "steps", number_json(s->steps), "epoch", number_json(s->epoch),
                     "workers", number_json(s->workers), "train_s", number_json(s->train_s),
                     "test_accuracy", number_json(s->accuracy), "best_accuracy",
                     number_json(s->best), "test_loss", number_json(s->loss));
}

/* ---- a folder of runs ---- */

/* scandir's filter: hidden entries are left out; read_row decides about the others. */
static int is_run(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* Prints a value and gives it up. NULL stands for out of memory. */
static sh_status print_json(FILE *file, json_t *value) {
    char *text = value != NULL ? json_dumps(value, JSON_INDENT(1) | JSON_REAL_PRECISION(12)) : NULL;
    json_decref(value);
    if (text == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a table");
    fprintf(file, "%s\n", text);
    free(text);  // jansson's
    return SH_OK;
}

/* A number as a cell of the table; "-" where it is unknown. Returns text_out. */
static const char *cell(double value, const char *format, char text_out[32]) {
    sh_snprintf(text_out, 32, isfinite(value) ? format : "-", value);
    return text_out;
}

/* One line; the formats agree with the heading of print_table. */
static void print_row(FILE *file, int width, const summary *s) {
    char steps[32], epoch[32], workers[32], time[32], accuracy[32], best[32], loss[32];
    sh_fprintf(file, "%-*s  %-8s  %8s  %6s  %7s  %9s  %8s  %8s  %9s\n", width, s->name, s->state,
               cell(s->steps, "%.0f", steps), cell(s->epoch, "%.0f", epoch),
               cell(s->workers, "%.0f", workers), cell(s->train_s, "%.1f s", time),
               cell(100 * s->accuracy, "%.2f %%", accuracy), cell(100 * s->best, "%.2f %%", best),
               cell(s->loss, "%.4f", loss));
}

/* The name column is as wide as the longest name. */
static void print_table(FILE *file, const summary *rows, size_t count) {
    int width = 4;
    for (size_t i = 0; i < count; i++)
        if ((int)strlen(rows[i].name) > width) width = (int)strlen(rows[i].name);
    if (count == 0) fputs("no runs\n", file);
    if (count > 0)
        fprintf(file, "%-*s  %-8s  %8s  %6s  %7s  %9s  %8s  %8s  %9s\n", width, "run", "state",
                "steps", "epoch", "workers", "training", "accuracy", "best", "test loss");
    for (size_t i = 0; i < count; i++) print_row(file, width, &rows[i]);
}

/* Reads one entry of a folder. False: it is no run's folder or its metrics are damaged, and it has
 * no row. */
static bool read_row(const char *folder, const char *name, summary *row_out) {
    char *path = sh_path_join(folder, name);
    json_t *run = NULL;
    bool good = path != NULL && sh_is_folder(path) && sh_report_read(path, &run) == SH_OK;
    if (good) *row_out = summarise(run);
    json_decref(run);
    sh_free(path);
    return good;
}

/* Rows as a table, or as a JSON list. */
static sh_status print_runs(FILE *file, const summary *rows, size_t count, bool json) {
    if (!json) {
        print_table(file, rows, count);
        return SH_OK;
    }
    json_t *list = json_array();
    for (size_t i = 0; i < count; i++) json_array_append_new(list, summary_json(&rows[i]));
    return print_json(file, list);
}

/* All runs of a folder by name. What is no run is skipped without a word, as users keep other
 * files there, so the errors of reading it are cleared. */
static sh_status list_runs(const char *folder, bool json, FILE *file) {
    // scandir sorts by name, so that the table is the same on every file system.
    struct dirent **names = NULL;
    int found = scandir(folder, &names, is_run, alphasort);
    if (found < 0) {
        SH_FAIL(SH_E_IO, "cannot list '%s': %s", folder, strerror(errno));
        return sh_error_hint("shoal runs DIR, the folder that holds the runs' folders");
    }
    summary *rows = sh_alloc((size_t)found + 1, sizeof *rows);
    size_t count = 0;
    for (int i = 0; i < found; i++) {
        if (rows != NULL && read_row(folder, names[i]->d_name, &rows[count])) count++;
        free(names[i]);
    }
    free(names);
    sh_error_clear();  // of folders that are no runs
    sh_status status = rows != NULL ? print_runs(file, rows, count, json)
                                    : SH_FAIL(SH_E_MEMORY, "out of memory for a table");
    sh_free(rows);
    return status;
}

/* Public entry; `folder` NULL: "runs", where training writes by default. */
shoal_status shoal_runs(const char *folder, bool json, const shoal_sink *sink) {
    SHOAL_NEED_SINK(sink);
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    return sh_sink_close(file, list_runs(folder != NULL ? folder : "runs", json, file));
}

/* ---- two runs ---- */

/* Called for every setting of a run file, with its dotted key ("optimizer.lr") and its text. A
 * list is one text. */
typedef void (*setting_taker)(void *user, const char *key, const char *text);

/* Walks a tree of settings depth first; `prefix` is the key so far. */
static void each_setting(const sh_node *node, const char *prefix, setting_taker take, void *user) {
    for (const sh_node *entry = node->child; entry != NULL; entry = entry->next) {
        char *key = sh_format("%s%s%s", prefix, *prefix != '\0' ? "." : "", entry->key);
        if (key == NULL) return;
        if (entry->kind == SH_NODE_MAP) {
            each_setting(entry, key, take, user);
        } else {
            char *text =
                entry->kind == SH_NODE_SCALAR ? sh_strdup(entry->text) : sh_node_print(entry);
            if (text != NULL) take(user, key, text);
            sh_free(text);
        }
        sh_free(key);
    }
}

/* Puts a setting into the JSON object `user`. */
static void add_setting(void *user, const char *key, const char *text) {
    json_object_set_new(user, key, sh_json_string(text));
}

/* Settings of a run as one flat map from dotted key to text. Caller gives it up. */
static json_t *settings_of(const json_t *run) {
    json_t *map = json_object();
    const char *text = json_string_value(json_object_get(run, "settings"));
    sh_node *node = NULL;
    if (text != NULL && sh_node_parse("run.yaml", text, strlen(text), &node) == SH_OK)
        each_setting(node, "", add_setting, map);
    sh_node_destroy(node);
    return map;
}

/* A setting's text; "" where the run does not have it. */
static const char *text_of(const json_t *settings, const char *key) {
    const char *text = json_string_value(json_object_get(settings, key));
    return text != NULL ? text : "";
}

/* Settings that differ, as {key: [of a, of b]}. The folder of a run always differs and says
 * nothing, so it is left out. */
static json_t *differing(const json_t *a, const json_t *b) {
    // All keys of both runs: a setting that only one of them has differs, too.
    json_t *all = json_copy((json_t *)a), *differences = json_object();
    json_object_update(all, (json_t *)b);
    const char *key;
    json_t *ignored;
    json_object_foreach(all, key, ignored) {
        if (strcmp(key, "out") == 0 || strcmp(text_of(a, key), text_of(b, key)) == 0) continue;
        json_object_set_new(differences, key,
                            json_pack("[s, s]", text_of(a, key), text_of(b, key)));
    }
    json_decref(all);
    return differences;
}

/* A line per setting that differs: key, first run, second run. */
static void print_differences(FILE *file, const json_t *differences) {
    const char *key;
    json_t *pair;
    if (json_object_size(differences) == 0)
        fputs("\nthe settings are the same\n", file);
    else
        fputs("\nsettings that differ\n", file);
    json_object_foreach((json_t *)differences, key, pair) {
        char shown[SH_ESCAPED], one[SH_ESCAPED], other[SH_ESCAPED];
        fprintf(file, "  %-24s %-20s %s\n", sh_escaped(key, shown),
                sh_escaped(json_string_value(json_array_get(pair, 0)), one),
                sh_escaped(json_string_value(json_array_get(pair, 1)), other));
    }
}

/* Results of both runs as a table of two rows, then the settings. */
static sh_status print_diff(FILE *file, const json_t *a, const json_t *b, bool json) {
    // The differences are handed over to the JSON object, or given up after the text.
    summary rows[] = {summarise(a), summarise(b)};
    json_t *left = settings_of(a), *right = settings_of(b);
    json_t *differences = differing(left, right);
    json_decref(left);
    json_decref(right);
    if (json)
        return print_json(file, json_pack("{s:[o, o], s:o}", "runs", summary_json(&rows[0]),
                                          summary_json(&rows[1]), "settings", differences));
    print_table(file, rows, SH_COUNT(rows));
    print_differences(file, differences);
    json_decref(differences);
    return SH_OK;
}

/* Both folders are read before anything is printed. */
shoal_status shoal_runs_diff(const char *one, const char *other, bool json,
                             const shoal_sink *sink) {
    SHOAL_NEED(one);
    SHOAL_NEED(other);
    SHOAL_NEED_SINK(sink);
    json_t *a = NULL, *b = NULL;
    FILE *file = NULL;
    sh_status status = sh_report_read(one, &a);
    if (status == SH_OK) status = sh_report_read(other, &b);
    if (status == SH_OK) status = sh_sink_open(sink, &file);
    shoal_status ended =
        status == SH_OK ? sh_sink_close(file, print_diff(file, a, b, json)) : (shoal_status)status;
    json_decref(a);
    json_decref(b);
    return ended;
}
