/* shoal doctor: what this machine offers to Shoal (cores, instruction sets, libraries, MPI,
 * folders) and what is missing. Missing parts are findings, not failures, so the exit code is 0. */
#include "cli/common.h"

typedef struct doctor_options {
    bool json;  // one JSON object instead of the table
} doctor_options;

static const sh_option rows[] = {
    SH_BOOL_ROW(doctor_options, json, "json", "false", "one JSON object"),
};

static shoal_status run_doctor(sh_args *args) {
    const doctor_options *options = args->options;
    shoal_hooks hooks = sh_args_hooks(args);
    return shoal_doctor(&hooks, options->json, &sh_stdout);
}

const sh_command sh_command_doctor = {
    .name = "doctor",
    .help = "report what this machine offers, and what is missing",
    .usage = "  shoal doctor\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(doctor_options),
    .run = run_doctor,
};
