/* shoal compare: trains every combination of schemes, codecs and numbers of workers from the same
 * settings, one after the other, and prints them as a table. The library runs the variants and
 * writes the files (shoal_compare in tools.h); this command shows how far it is. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/simulation.h"

/* Comma lists whose combinations are the variants; NULL: what the settings say. */
typedef struct compare_options {
    char *sync, *compress, *workers;
    bool json, simulate;
    sh_world world;  // last member: check_world tells its rows by their offsets
} compare_options;

static const sh_option rows[] = {
    SH_TEXT_ROW(compare_options, sync, "sync", NULL,
                "schemes, separated by commas: bsp,local:8; 'shoal list sync'", .value = "SCHEMES"),
    SH_TEXT_ROW(compare_options, compress, "compress", NULL,
                "codecs, separated by commas: none,topk:1%; 'shoal list codecs'",
                .value = "CODECS"),
    SH_TEXT_ROW(compare_options, workers, "workers", NULL,
                "numbers of workers, separated by commas: 1,2,4", .letter = 'n',
                .value = "NUMBERS"),
    SH_BOOL_ROW(compare_options, json, "json", "false", "print the rows and their curves as JSON"),
    SH_BOOL_ROW(compare_options, simulate, "simulate", "false",
                "simulated workers on a virtual clock; the flags below describe their world"),
    SH_WORLD_ROWS(compare_options),
};

/* State of the hooks over all variants. */
typedef struct view {
    sh_args *args;
    sh_view shown;    // progress of the variant under way
    char label[200];  // text before its line: "2/5 ssp:3"
} view;

/* Every run has a log of its own, so only warnings and errors of the variants are shown, with the
 * variant's name before them. */
static void show_line(void *user, shoal_log_level level, const char *text) {
    view *v = user;
    if (level < SHOAL_LOG_WARNING) return;
    shoal_hooks hooks = sh_args_hooks(v->args);
    char *line = sh_format("%s: %s", v->label, text);
    hooks.line(hooks.user, level, line != NULL ? line : text);
    sh_free(line);
}

/* shoal_compare_options.begin: index counts from 0, the label from 1. */
static void show_begin(void *user, size_t index, size_t count, const char *name) {
    view *v = user;
    snprintf(v->label, sizeof v->label, "%zu/%zu %s", index + 1, count, name);
}

/* No step stays on the screen: a variant has one line, which show_end writes. */
static void show_progress(void *user, const shoal_progress *now) {
    view *v = user;
    sh_view_show(&v->shown, now, false);
}

/* shoal_compare_options.end: one line that stays for each variant, with its outcome. The progress
 * line is destroyed, so that the next variant begins its own with its own length. */
static void show_end(void *user, const shoal_variant *row) {
    view *v = user;
    sh_progress_destroy(v->args->progress);
    v->args->progress = NULL;
    char score[64] = "";
    if (!isnan(row->accuracy))
        snprintf(score, sizeof score, ", accuracy %.2f %%", 100 * row->accuracy);
    else if (!isnan(row->loss))
        snprintf(score, sizeof score, ", test loss %.4f", row->loss);
    if (isnan(row->seconds))
        sh_say(v->args, "%s: %s", v->label, row->outcome);
    else
        sh_say(v->args, "%s: %s after %.0f steps and %.1f s%s", v->label, row->outcome, row->steps,
               row->seconds, score);
}

/* The table or JSON on stdout, then where the files are. The names are those that shoal_compare
 * writes. */
static shoal_status print_result(const view *v, const shoal_comparison *comparison) {
    const compare_options *options = v->args->options;
    if (!options->json) putchar('\n');
    shoal_status status = shoal_comparison_print(comparison, options->json, &sh_stdout);
    if (!options->json) {
        const char *folder = shoal_comparison_folder(comparison);
        char shown[SH_ESCAPED];
        sh_escaped(folder, shown);
        printf("\ntable    %s/compare.md\npicture  %s/compare.svg\nreport   %s/report.html\n",
               shown, shown, shown);
    }
    return status;
}

/* Runs the comparison and prints what there is, also after a failure or Ctrl-C: variants that are
 * done are a result. */
static shoal_status compare(view *v) {
    const compare_options *options = v->args->options;
    shoal_hooks hooks = sh_args_watch(v->args, v, show_line, show_progress);
    shoal_compare_options lists = {.sync = options->sync,
                                   .compress = options->compress,
                                   .workers = options->workers,
                                   .begin = show_begin,
                                   .end = show_end};
    shoal_simulation simulation = sh_world_simulation(&options->world);
    if (options->simulate) lists.simulation = &simulation;
    shoal_comparison *comparison = NULL;
    shoal_status status = shoal_compare(v->args->config, &hooks, &lists, &comparison);
    sh_args_unwatch(v->args);
    if (comparison != NULL) {
        shoal_status printed = print_result(v, comparison);
        if (status == SHOAL_OK) status = printed;
    }
    if (status == SHOAL_E_INTERRUPTED) sh_say(v->args, "stopped; the rest was not run");
    shoal_comparison_destroy(comparison);
    return status;
}

/* Refuses flags of a simulated world without --simulate (exit 2): whoever sets a straggler that
 * nobody simulates would take the result for that of a straggler. */
static shoal_status check_world(const sh_args *args) {
    const compare_options *options = args->options;
    for (size_t i = 0; i < SH_COUNT(rows) && !options->simulate; i++) {
        bool describes = rows[i].at >= offsetof(compare_options, world);
        if (!args->set[i] || !describes) continue;
        CLI_FAIL(SHOAL_E_USAGE, "--%s describes simulated workers", rows[i].key);
        return CLI_HINT("add --simulate");
    }
    return SHOAL_OK;
}

/* The world is checked before any file is read, as it needs the flags alone. */
static shoal_status run_compare(sh_args *args) {
    view v = {.args = args, .shown = {.args = args}};
    v.shown.label = v.label;
    CLI_TRY(check_world(args));
    CLI_TRY(sh_args_config(args, args->operand_count > 0 ? args->operands[0] : NULL));
    return compare(&v);
}

const sh_command sh_command_compare = {
    .name = "compare",
    .help = "train a run in several ways, and compare them in a table and a picture",
    .usage =
        "  shoal compare RUN.yaml --sync bsp,local:8 [--key value]...\n"
        "  shoal compare RUN.yaml --compress none,fp16,topk:1% -n 4\n"
        "  shoal compare --model mlp --data digits --epochs 10 --workers 1,2,4 --target 0.9\n"
        "  shoal compare RUN.yaml -n 8 --sync bsp,ssp:3,async --simulate --straggler 3:4x\n\n"
        "Every combination of the lists is trained with the same model, data, seed and number of\n"
        "samples, one after the other, in runs/NAME-compare (or --out). There, compare.md has the\n"
        "table, compare.json the numbers, compare.svg the accuracy over time, and report.html all "
        "charts.\n\n"
        "--target does not stop a run here: it is the accuracy that the last column gives the "
        "time\n"
        "to. Accuracy is measured twenty times a run unless --eval-every says otherwise. What "
        "does\n"
        "not go together is a row that says so. Ctrl-C finishes the step and prints what is "
        "there.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(compare_options),
    .takes_run_options = true,
    .operands_most = 1,
    .run = run_compare,
};
