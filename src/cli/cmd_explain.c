/* shoal explain: what a run would do, without training; or what a collective or gossip does. */
#include "base/file.h"
#include "cli/explain.h"

#include <string.h>

/* A word that names a collective or gossip, and is no run file, asks about it. */
static const sh_command *instead_of_run(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (shoal_is_collective(argv[i])) return &sh_command_explain_collective;
        if (strcmp(argv[i], "gossip") == 0 && (i == 0 || strncmp(argv[i - 1], "--", 2) != 0))
            return &sh_command_explain_gossip;
    }
    return NULL;
}

static shoal_status run_explain(sh_args *args) {
    const char *operand = args->operand_count > 0 ? args->operands[0] : NULL;
    const char *folder = operand != NULL && sh_is_folder(operand) ? operand : NULL;
    CLI_TRY(sh_args_config(args, operand));
    // What that run measured stands beside.
    if (folder != NULL) CLI_TRY(shoal_config_set(args->config, "out", folder));
    shoal_hooks hooks = sh_args_hooks(args);
    return shoal_explain(args->config, folder, &hooks, stdout);
}

const sh_command sh_command_explain = {
    .name = "explain",
    .help =
        "show layers, work, memory and kernels of a run, a collective's steps, or gossip's graph",
    .usage =
        "  shoal explain RUN.yaml [--key value]...\n"
        "  shoal explain runs/NAME\n"
        "  shoal explain --model lenet --data mnist\n"
        "  shoal explain allreduce --algorithm ring -n 4   (see: shoal explain allreduce --help)\n"
        "  shoal explain gossip --graph ring -n 16         (see: shoal explain gossip --help)\n",
    .takes_run_options = true,
    .operands_most = 1,
    .run = run_explain,
    .instead = instead_of_run,
};
