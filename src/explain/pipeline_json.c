/* A pipeline schedule for machines: one JSON object on one line. */
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "explain/pipeline.h"

/* A number, or null where it is not finite, which JSON cannot write. */
static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

/* One event; an update belongs to no micro-batch, and only messages have a peer. */
static json_t *event_json(const sh_pipe_event *e) {
    json_t *root = json_pack("{s:s, s:f, s:f}", "kind", sh_pipe_kind_name(e->action.kind), "start",
                             e->start_s, "end", e->end_s);
    if (root == NULL || e->action.kind == SH_PIPE_UPDATE) return root;
    json_object_set_new(root, "micro_batch", json_integer(e->action.micro));
    json_object_set_new(root, "chunk", json_integer(e->action.chunk));
    if (e->action.peer >= 0) json_object_set_new(root, "peer", json_integer(e->action.peer));
    return root;
}

/* One rank with its events. Events lie rank by rank, so `*event_inout` walks through all ranks'
 * events once. */
static json_t *rank_json(const sh_pipe_answer *answer, int rank, size_t *event_inout) {
    const sh_pipe_rank_result *r = &answer->ranks[rank];
    json_t *root = json_pack("{s:i, s:i, s:f, s:f, s:i, s:f}", "live", r->live_most, "weight_parts",
                             r->late_most, "busy", r->busy_s, "end", r->end_s, "messages",
                             r->messages, "sent_bytes", r->sent_bytes);
    if (root == NULL || answer->events == NULL) return root;
    json_t *actions = json_array();
    for (; *event_inout < answer->event_count && answer->events[*event_inout].rank == rank;
         (*event_inout)++)
        json_array_append_new(actions, event_json(&answer->events[*event_inout]));
    json_object_set_new(root, "actions", actions);
    return root;
}

/* The whole object; NULL when out of memory. */
static json_t *answer_json(const sh_pipe_question *q, const sh_pipe_answer *answer) {
    char name[SH_PIPE_TEXT];
    const sh_pipeline *pipeline = &q->pipeline;
    json_t *root = json_pack(
        "{s:s, s:i, s:i, s:i, s:s, s:{s:f, s:f, s:f}, s:f, s:f, s:f, s:f, s:f, s:o, s:s}",
        "schedule", sh_pipeline_text(pipeline, name), "ranks", pipeline->ranks, "micro_batches",
        pipeline->micros, "chunks", pipeline->chunks, "unit", q->seconds ? "s" : "1", "times",
        "forward", q->times.forward_s, "backward_data", q->times.data_s, "backward_weight",
        q->times.weight_s, "value_bytes", q->value_bytes, "makespan", answer->makespan_s, "idle",
        answer->idle_share, "period", answer->period_s, "period_idle", answer->period_idle_share,
        "closed_form", number(answer->closed_s), "formula", pipeline->schedule->formula);
    if (root == NULL) return NULL;
    json_t *ranks = json_array();
    size_t event = 0;
    for (int r = 0; r < pipeline->ranks; r++)
        json_array_append_new(ranks, rank_json(answer, r, &event));
    json_object_set_new(root, "per_rank", ranks);
    return root;
}

sh_status sh_pipeline_json(const sh_pipe_question *question, FILE *file) {
    sh_pipe_answer answer;
    sh_status status = sh_pipe_answer_init(&answer, question);
    if (status == SH_OK) {
        json_t *root = answer_json(question, &answer);
        int written =
            root != NULL ? json_dumpf(root, file, JSON_COMPACT | JSON_REAL_PRECISION(12)) : -1;
        json_decref(root);
        if (written != 0) status = SH_FAIL(SH_E_MEMORY, "out of memory for a pipeline's JSON");
        if (written == 0) fputc('\n', file);
    }
    sh_pipe_answer_fini(&answer);
    return status;
}
