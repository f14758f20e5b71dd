/* shoal explain allreduce (and the other collectives): every step of an algorithm, its cost by the
 * alpha-beta model, and which algorithm is the cheapest at which size. Optionally works through
 * the user's own numbers and draws the steps. */
#include "cli/list.h"

/* Flags; 0 and NULL mean the default that the help names, which the library fills in. */
typedef struct collective_options {
    char *algorithm, *values, *svg, *link, *node_link;  // values, svg: files to read and to write
    int64_t ranks, per_node, root, size;                // size: bytes of the whole buffer
    bool json;
} collective_options;

/* No row has an initial value: a default depends on other flags (ranks on --values, links on what
 * runs have measured), so only the library can choose it. */
static const sh_option rows[] = {
    SH_TEXT_ROW(collective_options, algorithm, "algorithm", NULL,
                "as in 'shoal list collectives'; default: the cheapest for the size and links",
                .value = "NAME"),
    SH_INT_ROW(collective_options, ranks, "ranks", NULL, 1, 4096,
               "workers that take part; default: as many as the values have, or 4", .letter = 'n',
               .value = "N"),
    SH_INT_ROW(collective_options, per_node, "per-node", NULL, 1, 4096,
               "ranks on each node; default 1", .value = "N"),
    SH_INT_ROW(collective_options, root, "root", NULL, 0, 4095,
               "where a broadcast starts; default 0", .value = "RANK"),
    SH_INT_ROW(collective_options, size, "size", NULL, 4, 0x1p50,
               "of the whole buffer, such as 64k or 25M; default 1M", .value = "BYTES"),
    SH_TEXT_ROW(collective_options, link, "link", NULL,
                "between nodes; default: as measured by runs of so many ranks, or 1Gbit,50us",
                .value = "RATE,LATENCY"),
    SH_TEXT_ROW(collective_options, node_link, "node-link", NULL,
                "inside a node; default likewise, or 5GB,1us", .value = "RATE,LATENCY"),
    SH_TEXT_ROW(collective_options, values, "values", NULL,
                "numbers to work through: a line per rank, a name (optional) and its values",
                .value = "FILE"),
    SH_TEXT_ROW(collective_options, svg, "svg", NULL, "draws all steps", .value = "FILE"),
    SH_BOOL_ROW(collective_options, json, "json", "false", "one JSON object"),
};

/* The cache folder holds the link costs that runs have measured on this machine. */
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
