/* shoal explain allreduce: how workers exchange data, step by step. */
#include "cli/common.h"
#include "cli/explain.h"

typedef struct collective_options {
    char *algorithm, *values, *svg, *link, *node_link;
    int64_t ranks, per_node, root, size;
    bool json;
} collective_options;

static const sh_option rows[] = {
    {.key = "algorithm",
     .type = SH_OPTION_STRING,
     .at = offsetof(collective_options, algorithm),
     .value = "NAME",
     .help = "as in 'shoal list collectives'; default: the cheapest for the size and links"},
    {.key = "ranks",
     .letter = 'n',
     .type = SH_OPTION_INT,
     .at = offsetof(collective_options, ranks),
     .least = 1,
     .most = 4096,
     .value = "N",
     .help = "workers that take part; default: as many as the values have, or 4"},
    {.key = "per-node",
     .type = SH_OPTION_INT,
     .at = offsetof(collective_options, per_node),
     .least = 1,
     .most = 4096,
     .value = "N",
     .help = "ranks on each node; default 1"},
    {.key = "root",
     .type = SH_OPTION_INT,
     .at = offsetof(collective_options, root),
     .least = 0,
     .most = 4095,
     .value = "RANK",
     .help = "where a broadcast starts; default 0"},
    {.key = "size",
     .type = SH_OPTION_INT,
     .at = offsetof(collective_options, size),
     .least = 4,
     .most = 0x1p50,
     .value = "BYTES",
     .help = "of the whole buffer, such as 64k or 25M; default 1M"},
    {.key = "link",
     .type = SH_OPTION_STRING,
     .at = offsetof(collective_options, link),
     .value = "RATE,LATENCY",
     .help = "between nodes; default: as measured by runs of so many ranks, or 1Gbit,50us"},
    {.key = "node-link",
     .type = SH_OPTION_STRING,
     .at = offsetof(collective_options, node_link),
     .value = "RATE,LATENCY",
     .help = "inside a node; default likewise, or 5GB,1us"},
    {.key = "values",
     .type = SH_OPTION_STRING,
     .at = offsetof(collective_options, values),
     .value = "FILE",
     .help = "numbers to work through: a line per rank, a name (optional) and its values"},
    {.key = "svg",
     .type = SH_OPTION_STRING,
     .at = offsetof(collective_options, svg),
     .value = "FILE",
     .help = "draws all steps"},
    {.key = "json",
     .type = SH_OPTION_BOOL,
     .at = offsetof(collective_options, json),
     .initial = "false",
     .help = "one JSON object"},
};

static shoal_status run_collective(sh_args *args) {
    const collective_options *o = args->options;
    shoal_collective_options options = {
        .collective = args->operands[0],
        .algorithm = o->algorithm,
        .ranks = o->ranks,
        .per_node = o->per_node,
        .root = o->root,
        .size_bytes = o->size,
        .link = o->link,
        .node_link = o->node_link,
        .values = o->values,
        .svg = o->svg,
        .json = o->json,
        .cache_folder = sh_args_hooks(args).cache_folder,
    };
    CLI_TRY(shoal_explain_collective(&options, &sh_stdout));
    if (o->svg != NULL) sh_say(args, "drawn: %s", o->svg);
    return SHOAL_OK;
}

const sh_command sh_command_explain_collective = {
    .name = "explain",
    .help = "show every step of a collective, its cost, and which algorithm wins at which size",
    .usage =
        "  shoal explain allreduce|reduce-scatter|all-gather|broadcast|all-to-all|barrier\n"
        "  shoal explain allreduce --algorithm ring -n 4 --svg ring.svg\n"
        "  shoal explain allreduce -n 16 --per-node 4 --size 25M --link 10Gbit,20us\n"
        "  shoal explain allreduce --algorithm ring --values numbers.txt\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(collective_options),
    .operands_least = 1,
    .operands_most = 1,
    .run = run_collective,
};
