/* shoal eval: loss and accuracy of a checkpoint on the test part, or on other data and parts
 * (cli/saved.h). The result is for people, or with --json one line for scripts. */
#include <math.h>

#include "cli/saved.h"

/* `saved` comes first, as SH_SAVED_ROWS count their offsets from it. */
typedef struct eval_options {
    sh_saved_options saved;
    bool json;  // one JSON object on one line instead of the table
} eval_options;

static const sh_option rows[] = {
    SH_SAVED_ROWS,
    SH_BOOL_ROW(eval_options, json, "json", "false", "the result as one line of JSON"),
};

/* Keys are stable, and accuracy is null where targets are no classes, so a script can rely on
 * both. */
static void print_json(const char *checkpoint, const char *part, const shoal_result *result) {
    printf("{\"checkpoint\":");
    sh_json_text(stdout, checkpoint);
    printf(",\"part\":\"%s\",\"loss\":", part);
    sh_json_number(stdout, result->loss);
    printf(",\"accuracy\":");
    sh_json_number(stdout, result->accuracy);
    printf(",\"samples\":%lld}\n", (long long)result->samples);
}

/* Accuracy is left out where it has no meaning (values as targets). */
static void print_text(const shoal_result *result) {
    printf("loss      %.6f\n", result->loss);
    if (!isnan(result->accuracy)) printf("accuracy  %.6f\n", result->accuracy);
    printf("samples   %lld\n", (long long)result->samples);
}

/* `size` tells the library how much of the struct this program knows (shoal.h). */
static shoal_status run_eval(sh_args *args) {
    const eval_options *options = args->options;
    shoal_run *run = NULL;
    CLI_TRY(sh_saved_open(args, &options->saved, &run));
    shoal_result result = {.size = sizeof result};
    shoal_status status = shoal_run_evaluate(run, options->saved.part, &result);
    shoal_run_close(run);
    if (status != SHOAL_OK) return status;
    if (options->json)
        print_json(args->operands[0], options->saved.part, &result);
    else
        print_text(&result);
    return SHOAL_OK;
}

const sh_command sh_command_eval = {
    .name = "eval",
    .help = "measure the loss and the accuracy of a checkpoint",
    .usage =
        "  shoal eval CHECKPOINT [--data DATA] [--key value]...\n\n"
        "CHECKPOINT is a run's folder, one of its checkpoints, or a model file; a model file\n"
        "that lies in no run's folder needs --data. The training data need not be there.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(eval_options),
    .takes_run_options = true,
    .operands_least = 1,
    .operands_most = 1,
    .run = run_eval,
};
