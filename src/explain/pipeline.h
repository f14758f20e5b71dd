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
    SH_PIPE_SHOWN_RANKS = 64,       // of a chart
    SH_PIPE_SHOWN_EVENTS = 1 << 15  // of JSON and of a picture
};

/* What is asked about: all ranks alike. */
typedef struct sh_pipe_question {
    sh_pipeline pipeline;
    sh_pipe_rank_times times;  // of a rank and micro-batch, over all its chunks
    bool seconds;              // the times have a unit; otherwise they are numbers
    bool linked;
    sh_link link;        // messages take no time unless `linked`
    double value_bytes;  // what a stage sends for a micro-batch
} sh_pipe_question;

/* What a schedule comes to. */
typedef struct sh_pipe_answer {
    double makespan_s, period_s;
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

sh_status sh_pipeline_text_page(const sh_pipe_question *question, FILE *file);
sh_status sh_pipeline_json(const sh_pipe_question *question, FILE *file);
/* One SVG document. Fails where a picture would be too large to read. */
sh_status sh_pipeline_svg(const sh_pipe_question *question, FILE *file);

#endif
