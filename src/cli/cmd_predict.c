/* shoal predict: outputs of a checkpoint for every sample of a part, as CSV (stdout or a file) or
 * as a NumPy array. A CSV row has the sample's index, its likeliest class if there is one, and the
 * outputs of the last layer. */
#include <errno.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "cli/saved.h"

/* `saved` comes first, as SH_SAVED_ROWS count their offsets from it. */
typedef struct predict_options {
    sh_saved_options saved;
    char *output;  // FILE.csv or FILE.npy; NULL: CSV to stdout
    bool classes;  // CSV without the outputs
} predict_options;

static const sh_option rows[] = {
    SH_SAVED_ROWS,
    SH_TEXT_ROW(predict_options, output, "output", NULL,
                "FILE.csv, or FILE.npy: float32 (samples, outputs); default CSV to stdout",
                .letter = 'o', .value = "FILE"),
    SH_BOOL_ROW(predict_options, classes, "classes", "false",
                "CSV: the likeliest class alone, without the scores"),
};

/* Where rows go and in which form, decided once before the first row. */
typedef struct sink {
    FILE *file;  // stdout or the writer's file; borrowed
    bool npy, classes_only;
    int64_t classes;       // classes of the target; 0: targets are values
    int64_t count, width;  // rows so far; outputs in each
} sink;

enum { NPY_HEADER = 128 };  // bytes; a multiple of 64, as the format wants it

/* Index of the largest output: the likeliest class. The first wins among equals. */
static int64_t best_of(const float *output, int64_t width) {
    int64_t best = 0;
    for (int64_t i = 1; i < width; i++)
        if (output[i] > output[best]) best = i;
    return best;
}

/* Whether a row has one class. A language model has outputs per token and class, so its width is a
 * multiple of the classes, and the largest output names no class of the sample. */
static bool has_class(const sink *s) { return s->width == s->classes; }

/* Column names, before the first row: only then the width is known. */
static void write_heading(const sink *s) {
    fputs("sample", s->file);
    if (has_class(s)) fputs(",class", s->file);
    for (int64_t i = 0; i < s->width && !s->classes_only; i++)
        fprintf(s->file, ",output%lld", (long long)i);
    fputc('\n', s->file);
}

/* Nine digits give each float32 back exactly. */
static void write_csv_row(const sink *s, int64_t index, const float *output) {
    fprintf(s->file, "%lld", (long long)index);
    if (has_class(s)) fprintf(s->file, ",%lld", (long long)best_of(output, s->width));
    for (int64_t i = 0; i < s->width && !s->classes_only; i++)
        fprintf(s->file, ",%.9g", (double)output[i]);
    fputc('\n', s->file);
}

/* Callback of shoal_run_predict. It cannot fail: errors stay in the stream and are found when the
 * file is committed, or by main for stdout. */
static void take_row(void *user, int64_t index, const float *output, int64_t width) {
    sink *s = user;
    if (s->count++ == 0) {
        s->width = width;
        if (!s->npy) write_heading(s);
    }
    if (s->npy)
        fwrite(output, sizeof(float), (size_t)width, s->file);
    else
        write_csv_row(s, index, output);
}

/* Header of NPY version 1.0: magic, version, length of the rest (little endian), and a Python
 * dictionary padded with blanks to a fixed size. It is written twice, first to reserve the room
 * and then with the number of rows, which is known only at the end. */
static void write_npy_header(sink *s) {
    char header[NPY_HEADER + 1];
    int length = snprintf(header, sizeof header, "%cNUMPY%c%c%c%c", 0x93, 1, 0, NPY_HEADER - 10, 0);
    snprintf(header + length, sizeof header - (size_t)length,
             "{'descr': '<f4', 'fortran_order': False, 'shape': (%lld, %lld), }",
             (long long)s->count, (long long)s->width);
    size_t end = (size_t)length + strlen(header + length);
    memset(header + end, ' ', NPY_HEADER - end);
    header[NPY_HEADER - 1] = '\n';
    fwrite(header, 1, NPY_HEADER, s->file);
}

/* The writer replaces the named file only on commit, so a failure leaves the old one whole. A pipe
 * cannot be rewound for the second header, which fails with the system's reason. */
static shoal_status write_file(shoal_run *run, const predict_options *options, sink *s) {
    sh_writer writer;
    CLI_TRY((shoal_status)sh_writer_open_through(&writer, options->output));
    s->file = writer.file;
    if (s->npy) write_npy_header(s);
    shoal_status status = shoal_run_predict(run, options->saved.part, take_row, s);
    if (status == SHOAL_OK && s->npy) {
        if (fseek(s->file, 0, SEEK_SET) == 0)
            write_npy_header(s);
        else
            status =
                CLI_FAIL(SHOAL_E_IO, "cannot write '%s': %s", options->output, strerror(errno));
    }
    if (status == SHOAL_OK) return (shoal_status)sh_writer_commit(&writer);
    sh_writer_abandon(&writer);
    return status;
}

/* Refuses an output that cannot be written (exit 2) before the model is loaded and run, not after.
 */
static shoal_status check_output(const predict_options *options) {
    const char *path = options->output;
    if (path != NULL && !sh_name_ends_in(path, ".csv") && !sh_name_ends_in(path, ".npy")) {
        CLI_FAIL(SHOAL_E_USAGE, "the output '%s' is neither .csv nor .npy", path);
        return CLI_HINT("-o predictions.csv");
    }
    if (path != NULL && options->classes && sh_name_ends_in(path, ".npy")) {
        CLI_FAIL(SHOAL_E_USAGE, "--classes goes with CSV only");
        return CLI_HINT("-o predictions.csv --classes");
    }
    return SHOAL_OK;
}

/* Target classes come from the run: the width alone does not tell classes from values. */
static shoal_status run_predict(sh_args *args) {
    const predict_options *options = args->options;
    CLI_TRY(check_output(options));
    shoal_run *run = NULL;
    CLI_TRY(sh_saved_open(args, &options->saved, &run));
    sink s = {.file = stdout, .classes_only = options->classes, .classes = shoal_run_classes(run)};
    s.npy = options->output != NULL && sh_name_ends_in(options->output, ".npy");
    shoal_status status = options->output != NULL
                              ? write_file(run, options, &s)
                              : shoal_run_predict(run, options->saved.part, take_row, &s);
    shoal_run_close(run);
    if (status == SHOAL_OK && options->output != NULL)
        sh_say(args, "%s: %lld samples, %lld outputs each", options->output, (long long)s.count,
               (long long)s.width);
    return status;
}

const sh_command sh_command_predict = {
    .name = "predict",
    .help = "write the outputs of a checkpoint, as CSV or NPY",
    .usage =
        "  shoal predict CHECKPOINT [--data DATA] [-o FILE.csv|FILE.npy] [--key value]...\n\n"
        "CHECKPOINT is as for 'shoal eval'; DATA needs no labels. A row has the sample's index,\n"
        "the likeliest class and the outputs of the last layer.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(predict_options),
    .takes_run_options = true,
    .operands_least = 1,
    .operands_most = 1,
    .run = run_predict,
};
