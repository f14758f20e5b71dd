/* shoal report: one or several runs as one HTML page with charts. The library reads the runs'
 * folders and writes the page (shoal_report in tools.h). */
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "cli/common.h"

typedef struct report_options {
    char *out;   // file of the page; NULL: report.html in the first run's folder
    bool quick;  // leaves out what needs a forward pass over the test part
} report_options;

static const sh_option rows[] = {
    SH_TEXT_ROW(report_options, out, "out", NULL,
                "where the page goes; default report.html in the (first) run's folder",
                .letter = 'o', .value = "FILE"),
    SH_BOOL_ROW(report_options, quick, "quick", "false",
                "leave out what asks the checkpoint again: confusion matrix, worst mistakes"),
};

/* The default path is made here again only to name it; `inside` NULL (out of memory) shows as
 * empty. */
static shoal_status run_report(sh_args *args) {
    const report_options *options = args->options;
    shoal_hooks hooks = sh_args_hooks(args);
    CLI_TRY(shoal_report(args->operands, (size_t)args->operand_count, !options->quick, &hooks,
                         options->out));
    char shown[SH_ESCAPED];
    char *inside = sh_path_join(args->operands[0], "report.html");
    printf("report  %s\n", sh_escaped(options->out != NULL ? options->out : inside, shown));
    sh_free(inside);
    return SHOAL_OK;
}

const sh_command sh_command_report = {
    .name = "report",
    .help = "write what runs did as one page with charts, for any browser",
    .usage =
        "  shoal report runs/NAME [-o FILE.html]\n"
        "  shoal report runs/A runs/B runs/C -o compared.html\n\n"
        "The page holds all it needs, opens offline, and shows loss, accuracy, throughput, where\n"
        "each worker's time went, bytes, staleness, some steps of the trace (--trace), and what a\n"
        "classifier takes for what. Several runs share the charts. Finished, stopped and running\n"
        "runs can be shown.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(report_options),
    .operands_least = 1,
    .operands_most = SH_OPERANDS_MOST,
    .run = run_report,
};
