/* shoal_compare: trains the variants of a run one after the other, and concludes.
 *
 * Each variant is a config of its own (scheme, codec, workers, folder) made from the common one.
 * It runs in forked processes or in the simulator; its numbers are then read from its
 * metrics.jsonl, so that a variant is judged by what any run writes. After each variant all files
 * of the comparison are written again: what is there survives whatever comes. A variant that fails
 * does not end the comparison. */
#include "api/compare.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "host/launch.h"
#include "obs/report.h"
#include "run/scheme.h"
#include "api/sink.h"

/* Failure of any allocation of this file. */
static sh_status no_memory(void) { return SH_FAIL(SH_E_MEMORY, "out of memory for a comparison"); }

/* Steps between checkpoints that no run reaches: there is only the one at the end. */
static const int64_t CHECKPOINT_LAST = 1000000000000;

/* State of one call of shoal_compare. */
typedef struct comparing {
    const shoal_compare_options *options;
    const shoal_hooks *hooks;
    // Settings common to all variants; owned.
    sh_config config;
    shoal_comparison *comparison;  // handed to the caller if a variant began
} comparing;

/* ---- the folder ---- */

/* Whether folder/name/file exists; an empty `name` is the folder itself. */
static bool exists_in(const char *folder, const char *name, const char *file) {
    char *path = sh_format("%s/%s%s%s", folder, name, *name != '\0' ? "/" : "", file);
    bool exists = path != NULL && sh_file_exists(path);
    sh_free(path);
    return exists;
}

/* Whether a folder already holds a comparison, or a run where a variant's would go. */
static bool is_taken(const shoal_comparison *comparison, const char *folder) {
    bool taken = exists_in(folder, "", "compare.json");
    for (size_t i = 0; i < comparison->count; i++)
        taken = taken || exists_in(folder, comparison->rows[i].seen.folder, "run.yaml");
    return taken;
}

/* The first of runs/NAME-compare, runs/NAME-compare-2, ... that is not taken. Caller frees; NULL:
 * out of memory. */
static char *free_folder(const shoal_comparison *comparison, const char *name) {
    for (int i = 1;; i++) {
        char *folder =
            i == 1 ? sh_format("runs/%s-compare", name) : sh_format("runs/%s-compare-%d", name, i);
        if (folder == NULL || !is_taken(comparison, folder)) return folder;
        sh_free(folder);
    }
}

/* Makes the comparison's folder. One that the user named and that is taken is refused without
 * --overwrite, so that results are never lost by accident. */
static sh_status choose_folder(comparing *c) {
    shoal_comparison *comparison = c->comparison;
    const sh_config *config = &c->config;
    SH_TRY(sh_config_check_out(config));
    comparison->folder = config->out != NULL
                             ? sh_strdup(config->out)
                             : free_folder(comparison, config->name != NULL ? config->name : "run");
    if (comparison->folder == NULL) return no_memory();
    if (is_taken(comparison, comparison->folder) && !config->overwrite) {
        SH_FAIL(SH_E_USAGE, "'%s' already holds a comparison", comparison->folder);
        return sh_error_hint("--overwrite starts afresh, --out DIR goes elsewhere");
    }
    return sh_make_folders(comparison->folder);
}

/* Writes one of the comparison's files. */
typedef sh_status (*printer)(const shoal_comparison *comparison, FILE *file);

/* Writes folder/name through a temporary file, so that a reader never sees half of it. */
static sh_status write_file(const shoal_comparison *comparison, const char *name, printer print) {
    char *path = sh_path_join(comparison->folder, name);
    if (path == NULL) return no_memory();
    sh_writer writer;
    sh_status status = sh_writer_open_through(&writer, path);
    sh_free(path);
    SH_TRY(status);
    status = print(comparison, writer.file);
    if (status == SH_OK) return sh_writer_commit(&writer);
    sh_writer_abandon(&writer);
    return status;
}

/* compare.md: title, table, and the picture beside it. */
static sh_status print_page(const shoal_comparison *comparison, FILE *file) {
    char title[SH_ESCAPED];
    fprintf(file, "# %s\n\n", sh_escaped(comparison->title, title));
    SH_TRY(sh_compare_table(comparison, file));
    fputs("\n![accuracy over time](compare.svg)\n", file);
    return SH_OK;
}

/* Writes JSON, page and picture. Called after every variant, so that what has been measured
 * survives a crash of the next. */
static sh_status write_all(const shoal_comparison *comparison) {
    SH_TRY(write_file(comparison, "compare.json", sh_compare_json));
    SH_TRY(write_file(comparison, "compare.md", print_page));
    return write_file(comparison, "compare.svg", sh_compare_picture);
}

/* report.html: the runs of all variants on one page of charts. Variants without an evaluation have
 * nothing to show and are left out, and one whose folder cannot be read does not spoil the page. */
static sh_status write_report(const shoal_comparison *comparison) {
    json_t *runs = json_array();
    for (size_t i = 0; i < comparison->count; i++) {
        const shoal_variant *row = &comparison->rows[i].seen;
        char *folder = sh_path_join(comparison->folder, row->folder);
        json_t *run = NULL;
        if (folder != NULL && row->point_count > 0 && sh_report_read(folder, &run) == SH_OK) {
            json_object_set_new(run, "name", sh_json_string(row->name));
            json_array_append_new(runs, run);
        }
        sh_free(folder);
    }
    char *path = sh_path_join(comparison->folder, "report.html");
    sh_status status = path == NULL || runs == NULL ? no_memory() : SH_OK;
    if (status == SH_OK && json_array_size(runs) > 0) status = sh_report_write(runs, path);
    json_decref(runs);
    sh_free(path);
    return status;
}

/* ---- one variant ---- */

/* One setting by its key, as a run file would set it. */
static sh_status set(sh_config *config, const char *key, const char *value) {
    return sh_options_set(sh_config_table(), key, value, config);
}

/* The config of one variant: the common settings with its folder, scheme, codec and workers.
 * Options of the other schemes are forgotten, as they would be refused. Caller owns `*config`,
 * also on failure. */
static sh_status configure(const comparing *c, const shoal_variant *row, sh_config *config) {
    SH_TRY(sh_config_copy(&c->config, config));
    char *out = sh_path_join(c->comparison->folder, row->folder);
    if (out == NULL) return no_memory();
    sh_status status = set(config, "out", out);
    sh_free(out);
    SH_TRY(status);
    SH_TRY(set(config, "sync.name", row->sync));
    SH_TRY(sh_scheme_forget_others(config));
    SH_TRY(set(config, "compress.name", row->compress));
    config->workers = row->workers;
    return SH_OK;
}

/* sh_job.body: what each worker does with its open run. */
static sh_status train_body(shoal_run *run, void *argument) {
    (void)argument;
    return (sh_status)shoal_run_train(run);
}

/* Trains a variant on processes. Even a single worker is a process of its own: this one must not
 * compute, as a process that has used OpenMP cannot fork the next variant. `*began_out`: the run's
 * folder was opened, so its metrics are this run's. */
static sh_status train(const comparing *c, sh_config *config, bool *began_out) {
    SH_TRY(sh_config_check(config));
    sh_job job = {.config = config, .hooks = c->hooks, .body = train_body, .restarts = true};
    sh_outcome outcome = {0};
    sh_status status = sh_launch(&job, &outcome);
    *began_out = outcome.folder != NULL;
    sh_free(outcome.folder);
    return status;
}

/* Trains a variant on simulated workers, which are coroutines of this process: nothing is forked.
 */
static sh_status simulate(const comparing *c, sh_config *config, bool *began_out) {
    const shoal_config wrapped = {*config};
    char *folder = NULL;
    SH_TRY(sh_config_check(config));
    shoal_status status = shoal_simulate(&wrapped, c->hooks, c->options->simulation, &folder, NULL);
    *began_out = folder != NULL;
    sh_free(folder);
    return (sh_status)status;
}

/* Word for a status (tools.h lists them). Settings that do not go together are "refused" only if
 * the run did not begin; later the same status is a failure. */
static const char *outcome_of(sh_status status, bool began) {
    if (status == SH_OK) return "done";
    if (status == SH_E_INTERRUPTED) return "stopped";
    if (status == SH_E_NUMERIC) return "diverged";
    bool settings = status == SH_E_USAGE || status == SH_E_UNSUPPORTED;
    return settings && !began ? "refused" : "failed";
}

/* Whether a variant ended with this outcome. */
static bool is(const shoal_variant *row, const char *outcome) {
    return strcmp(row->outcome, outcome) == 0;
}

/* Keeps status, outcome and the error's texts in the row: the error record is overwritten by the
 * next variant. */
static void note_outcome(sh_variant *row, sh_status status, bool began) {
    const sh_error *error = sh_error_last();
    row->seen.status = (shoal_status)status;
    row->seen.outcome = outcome_of(status, began);
    if (status == SH_OK) return;
    snprintf(row->reason, sizeof row->reason, "%s", error->text);
    snprintf(row->hint, sizeof row->hint, "%s", error->hint);
}

/* Numbers of a variant from its run's metrics. */
static sh_status read_row(const comparing *c, sh_variant *row) {
    char *path = sh_format("%s/%s/metrics.jsonl", c->comparison->folder, row->seen.folder);
    if (path == NULL) return no_memory();
    sh_status status = sh_compare_read(path, c->comparison->target, row);
    sh_free(path);
    return status;
}

/* Trains one variant and fills its row. Returns a failure only of the comparison itself; the
 * variant's own is its outcome. */
static sh_status run_variant(const comparing *c, sh_variant *row) {
    sh_config config = {0};
    bool began = false;
    sh_status status = configure(c, &row->seen, &config);
    int64_t begin = sh_clock_now_ns(&sh_clock_real);
    bool simulated = c->comparison->simulated;
    if (status == SH_OK) status = (simulated ? simulate : train)(c, &config, &began);
    sh_config_fini(&config);
    note_outcome(row, status, began);
    if (!began) return SH_OK;  // metrics in that folder are an older run's
    SH_TRY(read_row(c, row));
    if (!simulated) return SH_OK;
    // The simulated run's metrics count virtual time; real time is measured here.
    row->seen.virtual_s = row->seen.seconds;  // the run's clock was virtual
    row->seen.seconds = (double)(sh_clock_now_ns(&sh_clock_real) - begin) * 1e-9;
    return SH_OK;
}

/* ---- all of them ---- */

/* Whether the user asked to stop; the run under way is asked by its own hooks. */
static bool wants_stop(const comparing *c) {
    return c->hooks->stop != NULL && c->hooks->stop(c->hooks->user);
}

/* Runs the variants in order. Those behind a stop stay "not run". */
static sh_status run_all(const comparing *c) {
    shoal_comparison *comparison = c->comparison;
    const shoal_compare_options *options = c->options;
    void *user = c->hooks->user;
    for (size_t i = 0; i < comparison->count && !wants_stop(c); i++) {
        sh_variant *row = &comparison->rows[i];
        if (options->begin != NULL) options->begin(user, i, comparison->count, row->seen.name);
        SH_TRY(run_variant(c, row));
        if (options->end != NULL) options->end(user, &row->seen);
        SH_TRY(write_all(comparison));
    }
    return write_report(comparison);
}

/* Reports a variant's failure as that of the comparison, with its reason and hint. */
static sh_status fail_as(const shoal_variant *row, sh_status code) {
    SH_FAIL(code, "%s %s: %s", row->name, row->outcome, row->reason);
    return row->hint[0] != '\0' ? sh_error_hint("%s", row->hint) : code;
}

/* Status of the whole, by the rules that tools.h promises: interrupted if anything was left; else
 * the first failure; else, if all were refused, the first refusal. Refused and diverged variants
 * are results. */
static sh_status conclude(const shoal_comparison *comparison) {
    const shoal_variant *first = NULL;
    size_t refused = 0, left = 0;
    for (size_t i = 0; i < comparison->count; i++) {
        const shoal_variant *row = &comparison->rows[i].seen;
        if (is(row, "failed") && first == NULL) first = row;
        if (is(row, "refused")) refused++;
        if (is(row, "stopped") || is(row, "not run")) left++;
    }
    if (refused == comparison->count) first = &comparison->rows[0].seen;
    if (left > 0) {
        SH_FAIL(SH_E_INTERRUPTED, "stopped; what has been compared is in '%s'", comparison->folder);
        return sh_error_hint("start again with --overwrite");
    }
    return first != NULL ? fail_as(first, (sh_status)first->status) : SH_OK;
}

/* `text`, or `other` where it is NULL. */
static const char *or_else(const char *text, const char *other) {
    return text != NULL ? text : other;
}

/* Title of page and picture: what all variants share. The number of workers is part of it unless
 * variants differ in it. */
static sh_status title(comparing *c) {
    const sh_config *config = &c->config;
    char workers[32] = "";
    if (c->options->workers == NULL || strchr(c->options->workers, ',') == NULL)
        snprintf(workers, sizeof workers, ", %ld worker%s",
                 (long)c->comparison->rows[0].seen.workers,
                 c->comparison->rows[0].seen.workers == 1 ? "" : "s");
    c->comparison->title = sh_format("%s: %s, batch %ld, seed %ld%s", or_else(config->name, "run"),
                                     or_else(config->data.train, "no data"), (long)config->batch,
                                     (long)config->seed, workers);
    return c->comparison->title != NULL ? SH_OK : no_memory();
}

/* Refuses what a comparison cannot do: work under MPI, where this process is a rank and may not
 * fork, and resume. */
static sh_status check(const comparing *c) {
    bool under_mpi = false;
    SH_TRY(sh_launcher_check(c->hooks, c->config.transport, &under_mpi));
    if (under_mpi) {
        SH_FAIL(SH_E_USAGE, "compare starts the workers itself, on this machine");
        return sh_error_hint("leave mpirun out; on a cluster, train the variants one by one");
    }
    if (c->config.resume != NULL) {
        SH_FAIL(SH_E_USAGE, "a comparison cannot be resumed");
        return sh_error_hint("leave --resume out; --overwrite starts afresh in its folder");
    }
    return SH_OK;
}

/* Common settings, rows and folder. The files are written once before the first variant, so that a
 * folder that cannot be written fails at once. */
static sh_status prepare(comparing *c, const shoal_config *config) {
    SH_TRY(sh_config_copy(&config->config, &c->config));
    SH_TRY(check(c));
    c->comparison->target = c->config.target;
    c->comparison->simulated = c->options->simulation != NULL;
    c->config.target = 0;  // every variant gets the whole budget
    if (c->config.eval_every == 0) c->config.eval_every = 0.05;  // a twentieth of the run
    // Workers meet for a checkpoint, which would change schemes where they go alone for long.
    if (c->config.checkpoint_every == 0) c->config.checkpoint_every = CHECKPOINT_LAST;
    SH_TRY(sh_compare_list(&c->config, c->options, c->comparison));
    SH_TRY(title(c));
    SH_TRY(choose_folder(c));
    return write_all(c->comparison);
}

/* The comparison belongs to the caller as soon as preparation has succeeded, whatever the variants
 * come to. */
shoal_status shoal_compare(const shoal_config *config, const shoal_hooks *hooks,
                           const shoal_compare_options *options,
                           shoal_comparison **comparison_out) {
    SHOAL_NEED(config);
    SHOAL_NEED(comparison_out);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    static const shoal_compare_options no_options;
    comparing c = {.options = options != NULL ? options : &no_options, .hooks = &whole};
    *comparison_out = NULL;
    c.comparison = sh_alloc(1, sizeof *c.comparison);
    if (c.comparison == NULL) return (shoal_status)no_memory();
    sh_status status = prepare(&c, config);
    if (status == SH_OK) {
        *comparison_out = c.comparison;
        status = run_all(&c);
        if (status == SH_OK) status = conclude(c.comparison);
    } else {
        shoal_comparison_destroy(c.comparison);
    }
    sh_config_fini(&c.config);
    return (shoal_status)status;
}

/* Frees rows with their points, texts, and the comparison. */
void shoal_comparison_destroy(shoal_comparison *comparison) {
    if (comparison == NULL) return;
    for (size_t i = 0; i < comparison->count; i++) sh_free(comparison->rows[i].points);
    sh_free(comparison->rows);
    sh_free(comparison->title);
    sh_free(comparison->folder);
    sh_free(comparison);
}

const char *shoal_comparison_folder(const shoal_comparison *comparison) {
    SHOAL_NEED_OR(comparison, NULL);
    return comparison->folder;
}

/* The row is valid as long as the comparison. */
const shoal_variant *shoal_comparison_at(const shoal_comparison *comparison, size_t index) {
    SHOAL_NEED_OR(comparison, NULL);
    return index < comparison->count ? &comparison->rows[index].seen : NULL;
}

/* Table or JSON to a sink, from the same functions that write the files. */
shoal_status shoal_comparison_print(const shoal_comparison *comparison, bool json,
                                    const shoal_sink *sink) {
    SHOAL_NEED(comparison);
    SHOAL_NEED_SINK(sink);
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    return sh_sink_close(file, (json ? sh_compare_json : sh_compare_table)(comparison, file));
}
