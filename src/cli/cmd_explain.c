/* shoal explain: layers, work, memory and kernels of a run, without training it. Given a run's
 * folder it also uses what that run measured. A first word that names a collective, gossip, a
 * pipeline or cost hands over to a command of its own. */
#include "base/file.h"
#include "cli/list.h"

#include <string.h>

/* sh_command.instead: finds the word that asks for something else than a run, wherever flags
 * stand. A word behind a --flag is the flag's value, so `--sync gossip` remains a run. The name of
 * a collective counts anywhere. */
static const sh_command *instead_of_run(int argc, char **argv) {
    for (int i = 0; i < argc; i++) {
        if (shoal_is_collective(argv[i])) return &sh_command_explain_collective;
        if (i > 0 && strncmp(argv[i - 1], "--", 2) == 0) continue;
        if (strcmp(argv[i], "gossip") == 0) return &sh_command_explain_gossip;
        if (strcmp(argv[i], "pipeline") == 0) return &sh_command_explain_pipeline;
        if (strcmp(argv[i], "cost") == 0) return &sh_command_explain_cost;
    }
    return NULL;
}

/* `folder` is given only where the operand is a run's folder: the library then takes threads and
 * kernels from its newest checkpoint. */
static shoal_status run_explain(sh_args *args) {
    const char *operand = args->operand_count > 0 ? args->operands[0] : NULL;
    const char *folder = operand != NULL && sh_is_folder(operand) ? operand : NULL;
    CLI_TRY(sh_args_config(args, operand));
    // The library reads the measured memory from the metrics in the folder `out`.
    if (folder != NULL) CLI_TRY(shoal_config_set(args->config, "out", folder));
    shoal_hooks hooks = sh_args_hooks(args);
    return shoal_explain(args->config, folder, &hooks, &sh_stdout);
}

const sh_command sh_command_explain = {
    .name = "explain",
    .help = "show layers, work, memory and kernels of a run, or a collective, gossip or a pipeline",
    .usage =
        "  shoal explain RUN.yaml [--key value]...\n"
        "  shoal explain runs/NAME\n"
        "  shoal explain --model lenet --data mnist\n"
        "  shoal explain allreduce --algorithm ring -n 4   (see: shoal explain allreduce --help)\n"
        "  shoal explain gossip --graph ring -n 16         (see: shoal explain gossip --help)\n"
        "  shoal explain pipeline --schedule 1f1b -p 4     (see: shoal explain pipeline --help)\n"
        "  shoal explain cost RUN.yaml -n 512              (see: shoal explain cost --help)\n",
    .takes_run_options = true,
    .operands_most = 1,
    .run = run_explain,
    .instead = instead_of_run,
};
