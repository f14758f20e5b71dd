/* `shoal explain pipeline`: a schedule as a chart in text, as JSON or as a picture, with its idle
 * time, live activations and messages, beside the other schedules. All of it is read from the
 * schedule itself (parallel/pipeline.h) and its timeline. */
#ifndef SH_EXPLAIN_PIPELINE_H
#define SH_EXPLAIN_PIPELINE_H

#include <stdio.h>

#include "comm/schedule.h"
#include "explain/units.h"
#include "parallel/pipeline_timeline.h"

enum {
    SH_PIPE_SHOWN_RANKS = 64,       // most ranks of a chart
    SH_PIPE_SHOWN_EVENTS = 1 << 15  // most events that JSON and pictures list
};

/* What is asked about: all ranks alike. */
typedef struct sh_pipe_question {
    sh_pipeline pipeline;
    sh_pipe_rank_times times;  // per rank and micro-batch, summed over the rank's chunks
    bool seconds;              // times are in seconds; false: plain numbers
    bool linked;               // `link` applies
    sh_link link;              // alpha and beta of messages, which take no time unless `linked`
    double value_bytes;        // activations that a stage sends per micro-batch
} sh_pipe_question;

/* What the timeline of a schedule yields. Owns its arrays; sh_pipe_answer_fini frees them. */
typedef struct sh_pipe_answer {
    double makespan_s, period_s;           // first step alone; one of many steps without a barrier
    double closed_s;                       // the makespan by the closed form; NAN: it has none here
    double idle_share, period_idle_share;  // of the time of all ranks
    sh_pipe_rank_result *ranks;            // one per rank
    sh_pipe_event *events;                 // of the first step, rank by rank; NULL: too many
    size_t event_count, event_capacity;
} sh_pipe_answer;

/* Caller finishes the answer in any case. */
sh_status sh_pipe_answer_init(sh_pipe_answer *answer, const sh_pipe_question *question);
void sh_pipe_answer_fini(sh_pipe_answer *answer);

/* A time of the question's kind: "1.25 ms", or "33". */
const char *sh_pipe_time_text(const sh_pipe_question *question, double time,
                              char text_out[SH_UNIT_TEXT]);

/* Chart and tables for people. */
sh_status sh_pipeline_text_page(const sh_pipe_question *question, FILE *file);
/* One JSON object on one line; without `actions` above SH_PIPE_SHOWN_EVENTS events. */
sh_status sh_pipeline_json(const sh_pipe_question *question, FILE *file);
/* One SVG document. Fails where a picture would be too large to read. */
sh_status sh_pipeline_svg(const sh_pipe_question *question, FILE *file);

#endif
