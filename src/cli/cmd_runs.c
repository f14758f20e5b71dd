/* shoal runs: the runs of a folder as a table, or with `diff` two runs side by side with the
 * settings that differ. Reads the folders alone; a run that is going on is not disturbed. */
#include <string.h>

#include "cli/common.h"

typedef struct runs_options {
    bool json;  // machine-readable instead of a table
} runs_options;

static const sh_option rows[] = {
    SH_BOOL_ROW(runs_options, json, "json", "false", "as JSON"),
};

/* "diff" as the first operand is the action; a folder of that name is reached as ./diff. */
static shoal_status run_runs(sh_args *args) {
    const runs_options *options = args->options;
    // `first`: DIR or "diff"; NULL: the library lists the folder "runs"
    const char *first = args->operand_count > 0 ? args->operands[0] : NULL;
    if (first != NULL && strcmp(first, "diff") == 0) {
        if (args->operand_count != 3) {
            CLI_FAIL(SHOAL_E_USAGE, "diff takes two runs");
            return CLI_HINT("shoal runs diff runs/A runs/B");
        }
        return shoal_runs_diff(args->operands[1], args->operands[2], options->json, &sh_stdout);
    }
    if (args->operand_count > 1) {
        CLI_FAIL(SHOAL_E_USAGE, "one folder at a time");
        return CLI_HINT("shoal runs DIR; shoal runs diff A B compares two runs");
    }
    return shoal_runs(first, options->json, &sh_stdout);
}

const sh_command sh_command_runs = {
    .name = "runs",
    .help = "list the runs of a folder, or show in what two runs differ",
    .usage =
        "  shoal runs [DIR] [--json]\n"
        "  shoal runs diff runs/A runs/B [--json]\n\n"
        "DIR holds the folders of runs; default runs. A run is finished, running, or stopped.\n"
        "diff shows both runs' results, and the settings that differ.\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(runs_options),
    .operands_least = 0,
    .operands_most = 3,
    .run = run_runs,
};
