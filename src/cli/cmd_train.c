/* shoal train: trains, shows how far it is, and on Ctrl-C stops where it can go on later. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/common.h"

typedef struct train_options {
    bool help_markdown;
} train_options;

static const sh_option rows[] = {
    SH_BOOL_ROW(train_options, help_markdown, "help-markdown", "false",
                "print the options of a run as a Markdown table, and end"),
};

/* What the hooks see of a training run. */
typedef struct view {
    sh_view shown;
    shoal_progress last;
    int64_t start_ns;
    char *folder;  // of the run, once it is open
} view;

static bool is_new_test(const shoal_progress *now, const shoal_progress *last) {
    return !isnan(now->test_loss) && now->test_loss != last->test_loss;
}

/* As a shell takes it. */
static char *quoted(const char *text) {
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-+=:,@%";
    if (*text != '\0' && strspn(text, plain) == strlen(text)) return sh_strdup(text);
    char *result = sh_strdup("'");
    for (; result != NULL && *text != '\0'; text++) {
        char *longer =
            *text == '\'' ? sh_format("%s'\\''", result) : sh_format("%s%c", result, *text);
        sh_free(result);
        result = longer;
    }
    char *whole = result != NULL ? sh_format("%s'", result) : NULL;
    sh_free(result);
    return whole;
}

static void say_how_to_go_on(const view *v, const shoal_progress *now) {
    char *name = quoted(v->folder);
    sh_say(v->shown.args, "stopped after step %lld of %lld; go on with:", (long long)now->step,
           (long long)now->steps);
    sh_say(v->shown.args, "  shoal train %s --resume", name != NULL ? name : v->folder);
    sh_free(name);
}

static void keep_folder(void *user, const char *folder) {
    view *v = user;
    sh_free(v->folder);
    v->folder = sh_strdup(folder);
}

static void show_progress(void *user, const shoal_progress *now) {
    view *v = user;
    if (now->stops) {
        if (v->folder != NULL) say_how_to_go_on(v, now);
        return;
    }
    sh_view_show(&v->shown, now, now->epoch_end || is_new_test(now, &v->last));
    v->last = *now;
}

/* The newest model file of a run's folder; NULL when there is none. */
static char *model_file(const char *folder, int64_t step) {
    char *file = sh_format("%s/checkpoints/model-%08lld.safetensors", folder, (long long)step);
    if (file != NULL && sh_file_exists(file)) return file;
    sh_free(file);
    return NULL;
}

static void print_summary(const view *v, const char *folder) {
    const shoal_progress *last = &v->last;
    double seconds = (double)(sh_clock_now_ns(&sh_clock_real) - v->start_ns) / 1e9;
    char *model = model_file(folder, last->step);
    char shown[SH_ESCAPED];
    printf("run            %s\n", sh_escaped(folder, shown));
    if (last->step == 0) {  // there was nothing left to do
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

/* A run's folder stands for its run file, but only to go on with it: a second training there would
 * overwrite the first. */
static shoal_status find_base(const sh_args *args, const char **base_out) {
    const char *base = args->operand_count > 0 ? args->operands[0] : NULL;
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
    v.last.train_loss = v.last.test_loss = v.last.test_accuracy = NAN;
    const char *base = NULL;
    CLI_TRY(find_base(args, &base));
    CLI_TRY(sh_args_config(args, base));
    return train(&v);
}

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
