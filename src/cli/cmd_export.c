/* shoal export: a trained model for programs without Shoal, as C99 source or as an ONNX file, or
 * both in one call. Normalisation of the input is part of what is written, so samples go in as the
 * data file has them. */
#include <string.h>

#include "base/text.h"
#include "cli/common.h"

/* Files to write, NULL: not wanted; and the prefix of names inside them. */
typedef struct export_options {
    char *c, *onnx, *name;
} export_options;

static const sh_option rows[] = {
    SH_TEXT_ROW(export_options, c, "c", NULL,
                "C99 source without dependencies, and a header beside it", .value = "FILE.c"),
    SH_TEXT_ROW(export_options, onnx, "onnx", NULL, "ONNX, operator set 17", .value = "FILE.onnx"),
    SH_TEXT_ROW(export_options, name, "name", "model",
                "what the names in the file begin with: NAME_run, NAME.h", .value = "NAME"),
};

/* Without an output the command has nothing to do: exit 2, before the checkpoint is read. */
static shoal_status check_options(const export_options *options) {
    if (options->c == NULL && options->onnx == NULL) {
        CLI_FAIL(SHOAL_E_USAGE, "nothing to write");
        return CLI_HINT("--c model.c, or --onnx model.onnx, or both");
    }
    return SHOAL_OK;
}

/* Each file is complete or not written at all; if the second fails, the first stays. */
static shoal_status write_files(const shoal_model *model, const export_options *options) {
    if (options->c != NULL) CLI_TRY(shoal_model_export_c(model, options->name, options->c));
    if (options->onnx == NULL) return SHOAL_OK;
    return shoal_model_export_onnx(model, options->name, options->onnx);
}

/* Files are named on stdout only after both have been written. */
static shoal_status run_export(sh_args *args) {
    const export_options *options = args->options;
    CLI_TRY(check_options(options));
    shoal_model *model = NULL;
    CLI_TRY(shoal_model_open(args->operands[0], NULL, &model));
    shoal_status status = write_files(model, options);
    int64_t params = shoal_model_param_count(model);
    shoal_model_destroy(model);
    CLI_TRY(status);
    char shown[SH_ESCAPED];
    if (options->c != NULL) printf("c     %s\n", sh_escaped(options->c, shown));
    if (options->onnx != NULL) printf("onnx  %s\n", sh_escaped(options->onnx, shown));
    sh_say(args, "%lld parameters; 'shoal help export' says how to use the files",
           (long long)params);
    return SHOAL_OK;
}

const sh_command sh_command_export = {
    .name = "export",
    .help = "write a trained model as C source or ONNX, for where Shoal is not",
    .usage =
        "  shoal export CHECKPOINT --c model.c [--name NAME]\n"
        "  shoal export CHECKPOINT --onnx model.onnx\n\n"
        "CHECKPOINT is a run's folder, one of its checkpoints, or a model file. Samples go in as "
        "the\n"
        "data file has them: their normalisation is part of what is written.\n\n"
        "The source is C99 without allocation; its working memory is static and stated at the "
        "top:\n"
        "  #include \"model.h\"\n"
        "  float out[MODEL_OUTPUTS];\n"
        "  model_run(sample, out);        /* cc -O2 main.c model.c -lm */\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(export_options),
    .operands_least = 1,
    .operands_most = 1,
    .run = run_export,
};
