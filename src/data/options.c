/* The options of data, as a run file has them. */
#include "base/option.h"
#include "data/dataset.h"

static const char *normalise_choice(size_t index) {
    static const char *const names[] = {"auto", "unit", "none"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *targets_choice(size_t index) {
    static const char *const names[] = {"auto", "classes", "values"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *tokens_choice(size_t index) {
    static const char *const names[] = {"chars", "bytes"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const sh_option rows[] = {
    SH_TEXT_ROW(sh_data_options, train, "data.train", NULL,
                "mnist, digits, shakespeare, synthetic:..., or a file; with %r in its name, a file "
                "for each worker",
                .flag = "train-data", .alias = "data", .value = "DATA"),
    SH_TEXT_ROW(sh_data_options, test, "data.test", NULL, "test data; named sets bring their own",
                .flag = "test-data", .value = "DATA"),
    SH_TEXT_ROW(sh_data_options, validation, "data.validation", NULL, "validation data",
                .flag = "validation-data", .value = "DATA"),
    SH_TEXT_ROW(sh_data_options, labels, "data.labels", NULL,
                "labels, where they are in a file of their own", .value = "FILE"),
    SH_TEXT_ROW(sh_data_options, label_column, "data.label_column", NULL,
                "CSV: name or index of the label column; default the last", .value = "COLUMN"),
    SH_TEXT_ROW(sh_data_options, targets, "data.targets", "auto",
                "auto: whole numbers are classes; values: they are numbers to regress on",
                .choices = targets_choice),
    SH_REAL_ROW(sh_data_options, hold_out, "data.hold_out", "nan", 0, 0.9,
                "part of the training data kept for validation; default 0, for text without a test "
                "part 0.1"),
    SH_REAL_ROW(sh_data_options, hold_out_test, "data.hold_out_test", "0", 0, 0.9,
                "part of the training data kept for testing, where there is no test data"),
    SH_INT_ROW(sh_data_options, context, "data.context", "64", 1, 1 << 20,
               "text: tokens per sample", .value = "N"),
    SH_TEXT_ROW(sh_data_options, tokens, "data.tokens", "chars", "text: what a token is",
                .choices = tokens_choice),
    SH_TEXT_ROW(sh_data_options, normalise, "data.normalise", "auto",
                "auto: mean 0 and deviation 1 over the training set; unit: 0 to 1",
                .choices = normalise_choice),
    SH_INT_ROW(sh_data_options, crop, "data.crop", "0", 0, 64,
               "random crops after padding by N pixels", .value = "N"),
    SH_BOOL_ROW(sh_data_options, flip, "data.flip", "false", "random horizontal flips"),
};

const sh_option_table sh_data_table = {rows, SH_COUNT(rows)};
