/* shoal explain gossip: the mixing matrix of a graph of workers, and how fast their models agree,
 * which the matrix's second eigenvalue decides. */
#include "cli/list.h"

/* Flags; NULL and 0 are the library's defaults. */
typedef struct gossip_options {
    char *graph;
    int64_t ranks;
    bool json;
} gossip_options;

static const sh_option rows[] = {
    SH_TEXT_ROW(gossip_options, graph, "graph", NULL,
                "ring, torus, exponential or complete; default ring", .value = "NAME"),
    SH_INT_ROW(gossip_options, ranks, "ranks", NULL, 2, 4096, "workers; default 4", .letter = 'n',
               .value = "N"),
    SH_BOOL_ROW(gossip_options, json, "json", "false", "one JSON object"),
};

/* Operand 0 is the word "gossip"; nothing else is read. */
static shoal_status run_gossip(sh_args *args) {
    const gossip_options *o = args->options;
    shoal_gossip_options options = {.graph = o->graph, .ranks = o->ranks, .json = o->json};
    return shoal_explain_gossip(&options, &sh_stdout);
}

const sh_command sh_command_explain_gossip = {
    .name = "explain",
    .help = "show the mixing matrix of a gossip graph and how fast the models agree",
    .usage =
        "  shoal explain gossip --graph ring -n 16\n"
        "  shoal explain gossip --graph torus -n 64 --json\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(gossip_options),
    .operands_least = 1,
    .operands_most = 1,
    .run = run_gossip,
};
