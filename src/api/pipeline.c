/* shoal_explain_pipeline: checks the options of a pipeline's explanation (schedule, times, link,
 * size) and has explain/pipeline.h print the chart. Times are either all plain numbers, in units
 * of the chart, or all in seconds: only the latter can be compared with a link. */
#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "explain/pipeline.h"
#include "api/sink.h"
#include "shoal/tools.h"

/* What options that are 0 mean; tools.h and the command's help name the same. */
enum { RANKS_DEFAULT = 4, MICROS_DEFAULT = 8 };
/* Bytes that a stage sends for a micro-batch: default and limit. */
static const double VALUE_BYTES = 0x1p20, VALUE_BYTES_MOST = 0x1p50;

/* Error of --times with an example of both forms. */
static sh_status refuse_times(const char *text, const char *wrong) {
    SH_FAIL(SH_E_USAGE, "--times '%.60s': %s", text, wrong);
    return sh_error_hint("--times 1,1,1 or --times 20ms,20ms,15ms: F, B and W of a rank");
}

/* One entry of --times in [at, end): a number, or a time with its unit. `*seconds_out`: it had a
 * unit. False: it is neither, negative or not finite. */
static bool take_time(const char *at, const char *end, bool *seconds_out, double *time_out) {
    char *stop;
    *seconds_out = sh_seconds_take(at, end, time_out);
    if (*seconds_out) return isfinite(*time_out);
    if (at == end || strspn(at, "0123456789.eE+-") < (size_t)(end - at)) return false;
    *time_out = sh_strtod(at, &stop);
    return stop == end && isfinite(*time_out) && *time_out >= 0;
}

/* "F,B,W": forward, backward for data and for weights, of a rank and micro-batch; three numbers,
 * or three times with units. At least one is above 0, or the chart would have no length. */
static sh_status set_times(const char *text, sh_pipe_question *question) {
    double *const out[] = {&question->times.forward_s, &question->times.data_s,
                           &question->times.weight_s};
    const char *at = text;
    int with_unit = 0;
    for (int i = 0; i < 3; i++) {
        const char *end = at + strcspn(at, ",");
        bool seconds;
        if (!take_time(at, end, &seconds, out[i]))
            return refuse_times(text, "three times are wanted, 0 or more");
        if ((*end == ',') != (i < 2)) return refuse_times(text, "these are not three times");
        with_unit += seconds;
        at = end + 1;
    }
    if (with_unit != 0 && with_unit != 3)
        return refuse_times(text, "all three have a unit, or none");
    question->seconds = with_unit == 3;
    double sum = *out[0] + *out[1] + *out[2];
    if (sum > 0 && isfinite(sum)) return SH_OK;
    return refuse_times(text, "at least one of them is above 0, and their sum is a number");
}

/* Size of a message and the link that carries it; without a link messages take no time. A link's
 * costs are seconds, so times must be, too. */
static sh_status set_link(const shoal_pipeline_options *options, sh_pipe_question *question) {
    question->value_bytes = options->size_bytes == 0 ? VALUE_BYTES : (double)options->size_bytes;
    if (options->size_bytes < 0 || question->value_bytes > VALUE_BYTES_MOST)
        return SH_FAIL(SH_E_USAGE, "--size %ld: from 1 byte to 1 PiB", (long)options->size_bytes);
    if (options->link == NULL) return SH_OK;
    if (!question->seconds) {
        SH_FAIL(SH_E_USAGE, "--link needs the times of a rank in seconds");
        return sh_error_hint("--times 20ms,20ms,15ms");
    }
    question->linked = true;
    return sh_link_parse(options->link, "link", &question->link);
}

/* The picture is written through a temporary file: it is whole or not there. */
static sh_status write_svg(const sh_pipe_question *question, const char *path) {
    sh_writer writer;
    SH_TRY(sh_writer_open_through(&writer, path));
    sh_status status = sh_pipeline_svg(question, writer.file);
    if (status == SH_OK) return sh_writer_commit(&writer);
    sh_writer_abandon(&writer);
    return status;
}

/* A count as int: 0 is the default, and what no int holds becomes -1, which sh_pipeline_init
 * refuses. */
static int count_of(int64_t count, int initial) {
    if (count == 0) return initial;
    return count < 0 || count > INT32_MAX ? -1 : (int)count;
}

/* Everything is checked before the picture is written or a line printed. */
static sh_status explain(const shoal_pipeline_options *options, FILE *file) {
    sh_pipe_question question = {0};
    SH_TRY(sh_pipeline_init(
        &question.pipeline, options->schedule != NULL ? options->schedule : "1f1b",
        count_of(options->ranks, RANKS_DEFAULT), count_of(options->micro_batches, MICROS_DEFAULT)));
    SH_TRY(set_times(options->times != NULL ? options->times : "1,1,1", &question));
    SH_TRY(set_link(options, &question));
    if (options->svg != NULL) SH_TRY(write_svg(&question, options->svg));
    return options->json ? sh_pipeline_json(&question, file)
                         : sh_pipeline_text_page(&question, file);
}

shoal_status shoal_explain_pipeline(const shoal_pipeline_options *options, const shoal_sink *sink) {
    SHOAL_NEED(options);
    SHOAL_NEED_SINK(sink);
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    return sh_sink_close(file, explain(options, file));
}
