/* shoal train: trains a model on as many workers as the settings say, shows progress, and prints a
 * summary with the files that it wrote.
 *
 * The base of the settings is a run file, nothing (flags alone), or a run's folder together with
 * --resume. On Ctrl-C the library finishes the step and writes a checkpoint; this command prints
 * the line that goes on from there and ends with exit code 130. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/common.h"

/* Flags of this command alone; everything else is a setting of the run. */
typedef struct train_options {
    bool help_markdown;  // --help-markdown: tools/update-docs puts the table into the docs
} train_options;

static const sh_option rows[] = {
    SH_BOOL_ROW(train_options, help_markdown, "help-markdown", "false",
                "print the options of a run as a Markdown table, and end"),
};

/* State of the hooks during one training. */
typedef struct view {
    sh_view shown;        // first member, as sh_view_line wants it
    shoal_progress last;  // last step reported, for the summary; losses are NaN before the first
    int64_t start_ns;     // monotonic clock at the start of the command
    char *folder;         // of the run, copied when it is open, for the message after a stop; owned
} view;

/* Progress repeats the last evaluation in every step: only a changed loss is a new one, whose line
 * stays on the screen. */
static bool is_new_test(const shoal_progress *now, const shoal_progress *last) {
    return !isnan(now->test_loss) && now->test_loss != last->test_loss;
}

/* The text as one word of a POSIX shell: plain names as they are, others in single quotes. The
 * message after a stop is meant to be copied into a terminal, and a run's folder may hold blanks.
 * Caller frees; NULL: out of memory. */
static char *quoted(const char *text) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%";
    if (*text != '\0' && strspn(text, plain) == strlen(text)) return sh_strdup(text);
    char *result = sh_strdup("'");
    for (; result != NULL && *text != '\0'; text++) {
        char *longer =
            // A single quote inside single quotes: end them, add an escaped one, begin again.
            *text == '\'' ? sh_format("%s'\\''", result) : sh_format("%s%c", result, *text);
        sh_free(result);
        result = longer;
    }
    char *whole = result != NULL ? sh_format("%s'", result) : NULL;
    sh_free(result);
    return whole;
}

/* The command that resumes this run, said before the checkpoint is written, so that the user who
 * pressed Ctrl-C sees at once what the wait is for. */
static void say_how_to_go_on(const view *v, const shoal_progress *now) {
    char *name = quoted(v->folder);
    sh_say(v->shown.args, "stopped after step %lld of %lld; go on with:", (long long)now->step,
           (long long)now->steps);
    sh_say(v->shown.args, "  shoal train %s --resume", name != NULL ? name : v->folder);
    sh_free(name);
}

/* shoal_hooks.folder: the name is only borrowed during the call. A later call replaces the name. */
static void keep_folder(void *user, const char *folder) {
    view *v = user;
    sh_free(v->folder);
    v->folder = sh_strdup(folder);
}

/* Ends of epochs and evaluations stay on the screen; steps between them are redrawn. */
static void show_progress(void *user, const shoal_progress *now) {
    view *v = user;
    if (now->stops) {
        if (v->folder != NULL) say_how_to_go_on(v, now);
        return;
    }
    sh_view_show(&v->shown, now, now->epoch_end || is_new_test(now, &v->last));
    v->last = *now;
}

/* Model file of the run's last checkpoint, by the name that ckpt/ gives to the step; NULL: there
 * is none, as after a run without checkpoints. Caller frees. */
static char *model_file(const char *folder, int64_t step) {
    char *file = sh_format("%s/checkpoints/model-%08lld.safetensors", folder, (long long)step);
    if (file != NULL && sh_file_exists(file)) return file;
    sh_free(file);
    return NULL;
}

/* Results to stdout. Measures that are NaN were not taken (no test data, or targets that are no
 * classes) and have no line. */
static void print_summary(const view *v, const char *folder) {
    const shoal_progress *last = &v->last;
    double seconds = (double)(sh_clock_now_ns(&sh_clock_real) - v->start_ns) / 1e9;
    char *model = model_file(folder, last->step);
    char shown[SH_ESCAPED];
    printf("run            %s\n", sh_escaped(folder, shown));
    if (last->step == 0) {  // the run had been finished before, and no step was left to do
        sh_free(model);
        return;
    }
    printf("steps          %lld (%lld epoch%s)\n", (long long)last->step, (long long)last->epoch,
           last->epoch == 1 ? "" : "s");
    printf("time           %.1f s\n", seconds);
    printf("train loss     %.4f\n", last->train_loss);
    if (!isnan(last->test_loss)) printf("test loss      %.4f\n", last->test_loss);
    if (!isnan(last->test_accuracy)) printf("test accuracy  %.4f\n", last->test_accuracy);
    if (model != NULL) printf("model          %s\n", sh_escaped(model, shown));
    sh_free(model);
}

/* Trains and cleans up. After a stop there is no summary: how to go on has been said. */
static shoal_status train(view *v) {
    shoal_hooks hooks = sh_args_watch(v->shown.args, v, sh_view_line, show_progress);
    hooks.folder = keep_folder;
    char *folder = NULL;
    shoal_status status = shoal_train(v->shown.args->config, &hooks, &folder);
    sh_args_unwatch(v->shown.args);
    if (status == SHOAL_OK && folder != NULL) print_summary(v, folder);
    shoal_free(folder);
    sh_free(v->folder);
    return status;
}

/* Chooses what the settings start from. A run's folder stands for its run.yaml only when resuming:
 * a second training into the folder of the first would overwrite it, so that is refused with exit
 * 2. */
static shoal_status find_base(const sh_args *args, const char **base_out) {
    const char *base = args->operand_count > 0 ? args->operands[0] : NULL;
    // `shoal train --resume runs/NAME` names the folder by the flag alone.
    if (base == NULL && args->resume != NULL && sh_is_folder(args->resume)) base = args->resume;
    if (base != NULL && sh_is_folder(base) && args->resume == NULL) {
        CLI_FAIL(SHOAL_E_USAGE, "'%s' is a folder, and training starts from a run file", base);
        return CLI_HINT("'shoal train %s --resume' goes on with the run in it", base);
    }
    *base_out = base;
    return SHOAL_OK;
}

static shoal_status run_train(sh_args *args) {
    const train_options *options = args->options;
    if (options->help_markdown) {
        return shoal_config_help(true, &sh_stdout);
    }
    view v = {.shown = {.args = args}, .start_ns = sh_clock_now_ns(&sh_clock_real)};
    // NaN: no step and no evaluation yet.
    v.last.train_loss = v.last.test_loss = v.last.test_accuracy = NAN;
    const char *base = NULL;
    CLI_TRY(find_base(args, &base));
    CLI_TRY(sh_args_config(args, base));
    return train(&v);
}

/* Under mpirun every rank trains (joins_ranks); rank 0 alone calls the hooks, and the others only
 * warn. */
const sh_command sh_command_train = {
    .name = "train",
    .help = "train a model, from a run file or from flags",
    .usage =
        "  shoal train RUN.yaml [--key value]...\n"
        "  shoal train --model lenet --data mnist --epochs 3\n"
        "  shoal train runs/NAME --resume\n"
        "  mpirun -n 8 shoal train RUN.yaml\n\n"
        "The run is written to runs/NAME: run.yaml, metrics.jsonl, checkpoints, log. Ctrl-C\n"
        "finishes the step, writes a checkpoint and says how to go on (exit 130).\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(train_options),
    .takes_run_options = true,
    .operands_most = 1,
    .joins_ranks = true,
    .run = run_train,
};
