/* shoal explain cost: what communication costs in a step by the alpha-beta formulas, layer by
 * layer, for layouts that divide batch, model or images among workers. Nothing is trained; data is
 * opened only for the shape of its samples. */
#include "cli/list.h"

/* Flags beside the settings of the run, whose workers and batch apply. */
typedef struct cost_options {
    char *layout, *link;  // how layers are divided; the link between workers
    bool json;
} cost_options;

static const sh_option rows[] = {
    SH_TEXT_ROW(cost_options, layout, "layout", NULL,
                "data=64,tensor=8, space=4x2, or '{conv: space=4, dense: tensor=4}'; default: data",
                .value = "LAYOUT"),
    SH_TEXT_ROW(cost_options, link, "link", NULL, "between workers; default 1Gbit,50us",
                .value = "RATE,LATENCY"),
    SH_BOOL_ROW(cost_options, json, "json", "false", "one JSON object"),
};

/* Operand 0 is the word "cost"; the run file, if any, comes behind it. */
static shoal_status run_cost(sh_args *args) {
    const cost_options *o = args->options;
    const char *base = args->operand_count > 1 ? args->operands[1] : NULL;
    CLI_TRY(sh_args_config(args, base));
    shoal_cost_options options = {.layout = o->layout, .link = o->link, .json = o->json};
    shoal_hooks hooks = sh_args_hooks(args);
    return shoal_explain_cost(args->config, &options, &hooks, &sh_stdout);
}

const sh_command sh_command_explain_cost = {
    .name = "explain",
    .help =
        "show what a step's communication costs by the alpha-beta formulas of batch, model and "
        "domain parallelism",
    .usage =
        "  shoal explain cost RUN.yaml -n 512 --layout data=64,tensor=8\n"
        "  shoal explain cost --model lenet --data mnist -n 8 --layout space=4 --link 1Gbit,50us\n"
        "  shoal explain cost RUN.yaml -n 512 --layout '{conv: data=512, dense: tensor=32}'\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(cost_options),
    .takes_run_options = true,
    .operands_least = 1,
    .operands_most = 2,
    .run = run_cost,
};
