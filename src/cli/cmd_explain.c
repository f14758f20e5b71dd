/* shoal explain: what a run would do, without training. */
#include "cli/common.h"

static shoal_status run_explain(sh_args *args) {
    const char *operand = args->operand_count > 0 ? args->operands[0] : NULL;
    CLI_TRY(sh_args_config(args, operand));
    if (operand != NULL && sh_is_folder(operand))  // what that run measured stands beside
        CLI_TRY(shoal_config_set(args->config, "out", operand));
    shoal_hooks hooks = sh_args_hooks(args);
    shoal_run *run = NULL;
    CLI_TRY(shoal_run_open(args->config, &hooks, &run));
    shoal_status status = shoal_run_explain(run, stdout);
    shoal_run_close(run);
    return status;
}

const sh_command sh_command_explain = {
    .name = "explain",
    .help = "show layers, shapes, parameters, work, memory and kernels of a run",
    .usage =
        "  shoal explain RUN.yaml [--key value]...\n"
        "  shoal explain runs/NAME\n"
        "  shoal explain --model lenet --data mnist\n",
    .takes_run_options = true,
    .operands_most = 1,
    .run = run_explain,
};
