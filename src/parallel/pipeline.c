/* Pipeline schedules as pure functions (pipeline.h): parsing, the order of a rank's work, and the
 * messages around each piece of it. Every function is O(1) but for parsing, so that a rank walks
 * its step without a list. */
#include "parallel/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/option.h"
#include "parallel/pipelines/list.h"

#define X(name) &sh_pipe_##name,
static const sh_pipe_schedule *const schedules[] = {SH_PIPE_SCHEDULE_LIST(X)};
#undef X

/* NULL behind the last row. */
const sh_pipe_schedule *sh_pipe_schedule_at(size_t index) {
    return index < SH_COUNT(schedules) ? schedules[index] : NULL;
}

static int least_of(int a, int b) { return a < b ? a : b; }

/* ---- From text and back ---------------------------------------------------------------------- */

/* Adapter for sh_nearest. */
static const char *name_at(const void *names, size_t index) {
    (void)names;
    const sh_pipe_schedule *row = sh_pipe_schedule_at(index);
    return row != NULL ? row->name : NULL;
}

/* Lists all schedules, and suggests the nearest name. */
static sh_status refuse_name(const char *text) {
    char all[128] = "";
    const char *name;
    for (size_t i = 0; (name = name_at(NULL, i)) != NULL; i++) {
        if (i > 0) strncat(all, ", ", sizeof all - strlen(all) - 1);
        strncat(all, name, sizeof all - strlen(all) - 1);
    }
    SH_FAIL(SH_E_USAGE, "there is no pipeline schedule '%.32s': %s", text, all);
    const char *near = sh_nearest(text, name_at, NULL);
    return sh_error_hint(near != NULL ? "did you mean '%s'?" : "--schedule %s",
                         near != NULL ? near : "1f1b");
}

/* A whole number from `least` to `most`, and nothing behind it; 0: it is none. */
static int take_count(const char *text, int least, int most) {
    int count = 0;
    if (*text == '\0') return 0;
    // Digits stop above `most`: no overflow.
    for (; *text >= '0' && *text <= '9' && count <= most; text++) count = count * 10 + *text - '0';
    return *text == '\0' && count >= least && count <= most ? count : 0;
}

/* "interleaved:4" has chunks, "1f1b" has none; chunks are 2 unless given. */
static sh_status parse(const char *text, sh_pipeline *pipeline) {
    size_t length = strcspn(text, ":");
    const sh_pipe_schedule *row = NULL;
    for (size_t i = 0; i < SH_COUNT(schedules); i++)
        if (strlen(schedules[i]->name) == length && strncmp(schedules[i]->name, text, length) == 0)
            row = schedules[i];
    if (row == NULL) return refuse_name(text);
    pipeline->schedule = row;
    pipeline->chunks = row->chunked ? 2 : 1;  // a default, unless ":CHUNKS" follows
    if (text[length] == '\0') return SH_OK;
    if (!row->chunked) {
        SH_FAIL(SH_E_USAGE, "schedule '%s' takes no chunks, '%.32s' was given", row->name, text);
        return sh_error_hint("interleaved%.16s has chunks", text + length);
    }
    pipeline->chunks = take_count(text + length + 1, 1, SH_PIPE_CHUNKS_MOST);
    if (pipeline->chunks != 0) return SH_OK;
    SH_FAIL(SH_E_USAGE, "schedule '%.32s': the chunks of a rank are a number from 1 to %d", text,
            SH_PIPE_CHUNKS_MOST);
    return sh_error_hint("%s:2", row->name);
}

/* Bounds keep tags of messages and counts within their integers. */
sh_status sh_pipeline_init(sh_pipeline *pipeline, const char *schedule, int ranks, int micros) {
    SH_TRY(parse(schedule, pipeline));
    if (ranks < 1 || ranks > SH_PIPE_RANKS_MOST)
        return SH_FAIL(SH_E_USAGE, "a pipeline of %d ranks: not between 1 and %d", ranks,
                       SH_PIPE_RANKS_MOST);
    if (micros < 1 || micros > SH_PIPE_MICROS_MOST)
        return SH_FAIL(SH_E_USAGE, "%d micro-batches: not between 1 and %d", micros,
                       SH_PIPE_MICROS_MOST);
    pipeline->ranks = ranks;
    pipeline->micros = micros;
    return SH_OK;
}

/* Inverse of parsing, with the number of chunks spelt out. */
const char *sh_pipeline_text(const sh_pipeline *pipeline, char text_out[SH_PIPE_TEXT]) {
    const sh_pipe_schedule *row = pipeline->schedule;
    if (row->chunked)
        snprintf(text_out, SH_PIPE_TEXT, "%s:%d", row->name, pipeline->chunks);
    else
        snprintf(text_out, SH_PIPE_TEXT, "%s", row->name);
    return text_out;
}

/* ---- Order ----------------------------------------------------------------------------------- */

/* Forwards of a rank in a step: micro-batches times chunks. */
static int total(const sh_pipeline *pipeline) { return pipeline->micros * pipeline->chunks; }

/* Rounds are as many as full ones fit, at least one; sizes differ by one at most, larger first. */
static int rounds(const sh_pipeline *pipeline) {
    int full = pipeline->micros / pipeline->ranks;
    return full > 0 ? full : 1;
}

/* Micro-batches of the largest round. */
int sh_pipeline_round(const sh_pipeline *pipeline) {
    int count = rounds(pipeline);
    return (pipeline->micros + count - 1) / count;
}

int sh_pipeline_room(const sh_pipeline *pipeline) {
    return pipeline->chunks > 1 ? sh_pipeline_round(pipeline) : 1;
}

/* Forward `index` of a rank is which micro-batch of which chunk: for each round, for each chunk,
 * the round's micro-batches. Larger rounds come first. */
static void place(const sh_pipeline *pipeline, int index, int *micro_out, int *chunk_out) {
    int v = pipeline->chunks, count = rounds(pipeline);
    int small = pipeline->micros / count, larger = pipeline->micros % count;
    int in_larger = larger * (small + 1);  // micro-batches of the larger rounds
    bool is_larger = index < in_larger * v;
    int size = is_larger ? small + 1 : small;
    int first = is_larger ? 0 : in_larger;
    int at = index - first * v;
    int round = at / (size * v), inside = at % (size * v);
    *chunk_out = inside / size;
    *micro_out = first + round * size + inside % size;
}

/* The weight parts that are done when `backwards` data parts are: all but `late`, and in the drain,
 * when no forward is left, one after each data part. */
static int weights_due(const sh_pipeline *pipeline, const sh_pipe_limits *limits,
                       const sh_pipe_cursor *c) {
    // Forwards that remain ahead until the drain begins.
    int all = total(pipeline), drain = all - least_of(limits->ahead, all);
    if (c->forwards < all || c->backwards <= drain)
        return c->backwards > limits->late ? c->backwards - limits->late : 0;
    int before = drain > limits->late ? drain - limits->late : 0;
    return before + c->backwards - drain;
}

/* What the rank computes next; SH_PIPE_UPDATE: nothing is left. */
static sh_pipe_kind next_kind(const sh_pipeline *pipeline, int rank, const sh_pipe_cursor *c) {
    bool splits = pipeline->schedule->splits;
    int all = total(pipeline);
    sh_pipe_limits limits = pipeline->schedule->limits(pipeline, rank);
    // Weight parts that are due go first: they wait for no message.
    if (splits && c->weights < weights_due(pipeline, &limits, c)) return SH_PIPE_BACKWARD_WEIGHT;
    // The limit on live micro-batches.
    if (c->forwards < all && c->forwards - c->backwards <= limits.ahead) return SH_PIPE_FORWARD;
    if (c->backwards < all) return splits ? SH_PIPE_BACKWARD_DATA : SH_PIPE_BACKWARD;
    return splits && c->weights < all ? SH_PIPE_BACKWARD_WEIGHT : SH_PIPE_UPDATE;
}

/* Forwards done before the first backward, and the one at work. */
int sh_pipeline_live_most(const sh_pipeline *pipeline, int rank) {
    sh_pipe_limits limits = pipeline->schedule->limits(pipeline, rank);
    return least_of(limits.ahead + 1, total(pipeline));
}

/* Data parts whose weight part is not done, and the one at work; 0 where backward is not split. */
int sh_pipeline_late_most(const sh_pipeline *pipeline, int rank) {
    if (!pipeline->schedule->splits) return 0;
    sh_pipe_limits limits = pipeline->schedule->limits(pipeline, rank);
    return least_of(limits.late + 1, total(pipeline));
}

/* ---- Actions --------------------------------------------------------------------------------- */

/* Backwards visit chunks in the opposite order of forwards. */
static sh_pipe_action work(const sh_pipeline *pipeline, int rank, const sh_pipe_cursor *c) {
    sh_pipe_action action = {.kind = next_kind(pipeline, rank, c), .peer = -1};
    if (action.kind == SH_PIPE_UPDATE) return action;
    int index = action.kind == SH_PIPE_FORWARD           ? c->forwards
                : action.kind == SH_PIPE_BACKWARD_WEIGHT ? c->weights
                                                         : c->backwards;
    place(pipeline, index, &action.micro, &action.chunk);
    if (action.kind != SH_PIPE_FORWARD) action.chunk = pipeline->chunks - 1 - action.chunk;
    return action;
}

/* A whole backward counts as its data part and its weight part. */
static void count(sh_pipe_cursor *c) {
    if (c->now.kind == SH_PIPE_FORWARD) c->forwards++;
    if (c->now.kind == SH_PIPE_BACKWARD || c->now.kind == SH_PIPE_BACKWARD_DATA) c->backwards++;
    if (c->now.kind == SH_PIPE_BACKWARD || c->now.kind == SH_PIPE_BACKWARD_WEIGHT) c->weights++;
}

/* The rank that a message of this work goes to or comes from; -1: there is none, as the stage is
 * the first or last one, or its neighbour lies on the same rank. */
static int peer_of(const sh_pipeline *pipeline, int rank, const sh_pipe_action *action,
                   bool sends) {
    if (action->kind == SH_PIPE_BACKWARD_WEIGHT || action->kind == SH_PIPE_UPDATE) return -1;
    // Values go to the next stage, gradients to the one before.
    bool onwards = (action->kind == SH_PIPE_FORWARD) == sends;
    int stage = sh_pipeline_stage(pipeline, rank, action->chunk) + (onwards ? 1 : -1);
    if (stage < 0 || stage >= sh_pipeline_stages(pipeline)) return -1;
    int peer = stage % pipeline->ranks;  // stages are dealt to ranks in turn
    return peer == rank ? -1 : peer;
}

/* What a piece of work receives before it, or sends after it. */
static sh_pipe_action message(const sh_pipe_action *action, int peer, bool sends) {
    bool values = action->kind == SH_PIPE_FORWARD;
    sh_pipe_kind kind = sends    ? values ? SH_PIPE_SEND_VALUE : SH_PIPE_SEND_GRADIENT
                        : values ? SH_PIPE_RECEIVE_VALUE
                                 : SH_PIPE_RECEIVE_GRADIENT;
    return (sh_pipe_action){kind, action->micro, action->chunk, peer};
}

/* Three phases for each piece of work: receive, compute, send. Phases without a peer are passed
 * over in the same call.
 *
 *   phase 0: receive ──▶ 1: compute ──▶ 2: send ──▶ 0 ... until the update */
bool sh_pipeline_next(const sh_pipeline *pipeline, int rank, sh_pipe_cursor *cursor,
                      sh_pipe_action *action_out) {
    for (;;) switch (cursor->phase++) {
            case 0:
                // The step is over: begins anew at the next call.
                if (cursor->updated) return cursor->phase = 0, false;
                cursor->now = work(pipeline, rank, cursor);
                *action_out =
                    message(&cursor->now, peer_of(pipeline, rank, &cursor->now, false), false);
                if (action_out->peer >= 0) return true;
                break;
            case 1:
                *action_out = cursor->now;
                return true;
            default:
                cursor->phase = 0;
                count(cursor);
                cursor->updated = cursor->now.kind == SH_PIPE_UPDATE;
                *action_out =
                    message(&cursor->now, peer_of(pipeline, rank, &cursor->now, true), true);
                if (action_out->peer >= 0) return true;
        }
}

const char *sh_pipe_kind_name(sh_pipe_kind kind) {
    static const char *const names[SH_PIPE_KINDS] = {
        "forward",       "backward",      "backward data",    "backward weight", "send value",
        "receive value", "send gradient", "receive gradient", "update"};
    return names[kind];
}
