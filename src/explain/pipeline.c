#include "explain/pipeline.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"

const char *sh_pipe_time_text(const sh_pipe_question *question, double time,
                              char text_out[SH_UNIT_TEXT]) {
    if (question->seconds) return sh_seconds_text(time, text_out);
    return sh_snprintf(text_out, SH_UNIT_TEXT, "%.6g", time), text_out;
}

/* ---- Events ---------------------------------------------------------------------------------- */

/* Timeline callback. Counts also the events that no longer fit, so that sort_events notices. */
static void note(void *self, const sh_pipe_event *event) {
    sh_pipe_answer *answer = self;
    if (answer->event_count < answer->event_capacity) answer->events[answer->event_count] = *event;
    answer->event_count++;
}

/* Order for qsort: by rank, then by time; charts and JSON go through events rank by rank. */
static int by_rank(const void *a_pointer, const void *b_pointer) {
    const sh_pipe_event *a = a_pointer, *b = b_pointer;
    if (a->rank != b->rank) return a->rank < b->rank ? -1 : 1;
    if (a->start_s != b->start_s) return a->start_s < b->start_s ? -1 : 1;
    return (a->end_s > b->end_s) - (a->end_s < b->end_s);
}

/* Sorts the events; drops them all if some did not fit, since a chart with gaps would show idle
 * time that there is not. */
static void sort_events(sh_pipe_answer *answer) {
    if (answer->event_count > answer->event_capacity) {
        sh_free(answer->events);
        answer->events = NULL;
        answer->event_count = 0;
    }
    if (answer->events != NULL)
        qsort(answer->events, answer->event_count, sizeof *answer->events, by_rank);
}

/* ---- The answer ------------------------------------------------------------------------------ */

/* Gives each stage its share: a rank's times are over all its chunks, and stages are alike. */
static void fill_stages(const sh_pipe_question *question, sh_pipe_stage *stages) {
    const sh_pipe_rank_times *t = &question->times;
    int chunks = question->pipeline.chunks, count = sh_pipeline_stages(&question->pipeline);
    for (int s = 0; s < count; s++)
        stages[s] = (sh_pipe_stage){.forward_s = t->forward_s / chunks,
                                    .data_s = t->data_s / chunks,
                                    .weight_s = t->weight_s / chunks,
                                    .value_bytes = question->value_bytes};
}

/* Runs the timeline once for the first step and once for the steady state, and derives both idle
 * shares: 1 - busy / (ranks x length). */
static sh_status time_it(sh_pipe_answer *answer, const sh_pipe_setting *setting) {
    SH_TRY(sh_pipe_timeline(setting, note, answer, answer->ranks, &answer->makespan_s));
    sort_events(answer);
    SH_TRY(sh_pipe_period(setting, &answer->period_s));
    double busy_s = 0;
    int ranks = setting->pipeline->ranks;
    for (int r = 0; r < ranks; r++) busy_s += answer->ranks[r].busy_s;
    answer->idle_share = 1 - busy_s / ranks / answer->makespan_s;
    // Whole multiples of a period may come out a rounding error below it.
    answer->period_idle_share = fmax(0, 1 - busy_s / ranks / answer->period_s);
    return SH_OK;
}

sh_status sh_pipe_answer_init(sh_pipe_answer *answer, const sh_pipe_question *question) {
    const sh_pipeline *pipeline = &question->pipeline;
    *answer = (sh_pipe_answer){.event_capacity = SH_PIPE_SHOWN_EVENTS};
    sh_pipe_stage *stages = sh_alloc((size_t)sh_pipeline_stages(pipeline), sizeof *stages);
    answer->ranks = sh_alloc((size_t)pipeline->ranks, sizeof *answer->ranks);
    answer->events = sh_alloc(answer->event_capacity, sizeof *answer->events);
    sh_status status = SH_OK;
    if (stages == NULL || answer->ranks == NULL || answer->events == NULL)
        status = SH_FAIL(SH_E_MEMORY, "out of memory for %d ranks", pipeline->ranks);
    if (status == SH_OK) {
        fill_stages(question, stages);
        sh_pipe_setting setting = {.pipeline = pipeline, .stages = stages, .steps = 1};
        if (question->linked) {
            // Unlinked, both stay 0: messages take no time.
            setting.alpha_s = question->link.alpha_s;
            setting.beta_s = question->link.beta_s;
        }
        status = time_it(answer, &setting);
    }
    // The closed forms assume that messages take no time.
    answer->closed_s =
        question->linked ? NAN : pipeline->schedule->makespan(pipeline, &question->times);
    sh_free(stages);
    return status;
}

void sh_pipe_answer_fini(sh_pipe_answer *answer) {
    sh_free(answer->ranks);
    sh_free(answer->events);
    *answer = (sh_pipe_answer){0};
}
