/* shoal explain pipeline: a pipeline schedule as a chart over time: when each rank computes which
 * micro-batch, idle time, live activations and messages. Times are given by flags, nothing is
 * measured. */
#include "cli/list.h"

/* Flags; NULL and 0 are the library's defaults, which the help names. */
typedef struct pipeline_options {
    char *schedule, *times, *link, *svg;  // times: "F,B,W" of a rank and micro-batch
    int64_t ranks, micro_batches, size;   // size: bytes that a stage sends for a micro-batch
    bool json;
} pipeline_options;

static const sh_option rows[] = {
    SH_TEXT_ROW(pipeline_options, schedule, "schedule", NULL,
                "naive, gpipe, 1f1b, interleaved:V, zb-h1 or zb-h2; default 1f1b", .value = "NAME"),
    SH_INT_ROW(pipeline_options, ranks, "ranks", NULL, 1, 4096, "workers in a row; default 4",
               .letter = 'p', .value = "P"),
    SH_INT_ROW(pipeline_options, micro_batches, "micro-batches", NULL, 1, 65536,
               "parts of a batch; default 8", .letter = 'm', .value = "M"),
    SH_TEXT_ROW(pipeline_options, times, "times", NULL,
                "of a rank and micro-batch: forward, backward for data, for weights; default 1,1,1",
                .value = "F,B,W"),
    SH_INT_ROW(pipeline_options, size, "size", NULL, 1, 0x1p50,
               "what a stage sends for a micro-batch, such as 64k; default 1M", .value = "BYTES"),
    SH_TEXT_ROW(pipeline_options, link, "link", NULL,
                "between ranks, such as 1Gbit,50us; default: messages take no time",
                .value = "RATE,LATENCY"),
    SH_TEXT_ROW(pipeline_options, svg, "svg", NULL, "draws the chart", .value = "FILE"),
    SH_BOOL_ROW(pipeline_options, json, "json", "false",
                "one JSON object, with every action and message"),
};

/* The picture is an extra file: the chart as text or JSON goes to stdout either way. */
static shoal_status run_pipeline(sh_args *args) {
    const pipeline_options *o = args->options;
    shoal_pipeline_options options = {
        .schedule = o->schedule,
        .ranks = o->ranks,
        .micro_batches = o->micro_batches,
        .times = o->times,
        .size_bytes = o->size,
        .link = o->link,
        .svg = o->svg,
        .json = o->json,
    };
    CLI_TRY(shoal_explain_pipeline(&options, &sh_stdout));
    if (o->svg != NULL) sh_say(args, "drawn: %s", o->svg);
    return SHOAL_OK;
}

const sh_command sh_command_explain_pipeline = {
    .name = "explain",
    .help = "show a pipeline schedule as a chart, its idle time, live activations and messages",
    .usage =
        "  shoal explain pipeline --schedule 1f1b -p 4 -m 8\n"
        "  shoal explain pipeline --schedule interleaved:2 -p 4 -m 8 --svg pipeline.svg\n"
        "  shoal explain pipeline --schedule zb-h1 --times 20ms,20ms,15ms --link 1Gbit,50us\n",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(pipeline_options),
    .operands_least = 1,
    .operands_most = 1,
    .run = run_pipeline,
};
