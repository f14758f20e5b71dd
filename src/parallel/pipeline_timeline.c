/* A pipeline's timeline, by walking all ranks through their schedules: each goes on until it waits
 * for a message or for room, and the walk ends in a deadlock if none can. No event queue is needed,
 * as a rank's order is fixed and times only depend on messages. */
#include "parallel/pipeline_timeline.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

enum { VALUES, GRADIENTS, DIRECTIONS };  // of a message: onwards, or back

typedef struct walker {
    sh_pipe_cursor cursor;
    sh_pipe_action action;
    bool waits;  // `action` could not be done yet
    int step;    // setting->steps: done
    double now_s;
    int live, late;  // now: outstanding backwards, weight parts
} walker;

typedef struct timeline {
    const sh_pipe_setting *setting;
    sh_pipe_on_event on_event;
    void *self;
    sh_pipe_rank_result *results;
    walker *walkers;
    size_t columns;  // micro-batches of all steps
    // (stages, columns), by the stage that receives: when a message arrives and is taken; NAN: not
    // yet.
    double *arrives[DIRECTIONS], *taken[DIRECTIONS];
    double *free_s[DIRECTIONS];  // (stages): when the edge has sent its last message
} timeline;

/* The cell of a stage and a micro-batch; steps follow one another. */
static size_t at(const timeline *t, int stage, int step, int micro) {
    return (size_t)stage * t->columns + (size_t)step * (size_t)t->setting->pipeline->micros +
           (size_t)micro;
}

static int stage_of(const timeline *t, int rank, const sh_pipe_action *action) {
    return sh_pipeline_stage(t->setting->pipeline, rank, action->chunk);
}

static void report(const timeline *t, int rank, double start_s) {
    const walker *w = &t->walkers[rank];
    if (t->on_event == NULL) return;
    t->on_event(t->self, &(sh_pipe_event){rank, w->step, w->action, start_s, w->now_s});
}

/* ---- Actions: false where the rank has to wait ------------------------------------------------
 */

/* Time waits for the arrival. False: it is not known yet when that is. */
static bool receive(timeline *t, int rank) {
    walker *w = &t->walkers[rank];
    int direction = w->action.kind == SH_PIPE_RECEIVE_VALUE ? VALUES : GRADIENTS;
    size_t index = at(t, stage_of(t, rank, &w->action), w->step, w->action.micro);
    double start_s = w->now_s, arrives_s = t->arrives[direction][index];
    if (isnan(arrives_s)) return false;  // the sender has not come that far
    w->now_s = fmax(start_s, arrives_s);
    t->taken[direction][index] = w->now_s;  // frees room on the edge
    report(t, rank, start_s);
    return true;
}

/* Alpha-beta model: the edge sends one message after the other at beta seconds a byte, and each
 * arrives alpha later. Computing goes on meanwhile, unless the edge has no room. */
static bool send(timeline *t, int rank) {
    walker *w = &t->walkers[rank];
    const sh_pipe_setting *s = t->setting;
    int direction = w->action.kind == SH_PIPE_SEND_VALUE ? VALUES : GRADIENTS;
    int stage = stage_of(t, rank, &w->action);
    int to = stage + (direction == VALUES ? 1 : -1);
    // How many messages crossed this edge before.
    size_t index = at(t, to, w->step, w->action.micro), number = index - at(t, to, 0, 0);
    double start_s = w->now_s;
    // Bounded edge: that many messages may be under way.
    if (s->buffered > 0 && number >= (size_t)s->buffered) {
        double taken_s = t->taken[direction][index - (size_t)s->buffered];
        if (isnan(taken_s)) return false;
        w->now_s = fmax(start_s, taken_s);
    }
    // The gradient of a stage's input is as large as the output of the stage before it.
    double bytes = s->stages[direction == VALUES ? stage : to].value_bytes;
    double *free_s = &t->free_s[direction][to];  // when the edge becomes free
    *free_s = fmax(*free_s, w->now_s) + s->beta_s * bytes;
    t->arrives[direction][index] = *free_s + s->alpha_s;
    t->results[rank].messages++;
    t->results[rank].sent_bytes += bytes;
    report(t, rank, start_s);
    return true;
}

/* From the figures of the stage; one update for the whole rank. */
static double seconds_of(const timeline *t, int rank, const sh_pipe_action *action) {
    if (action->kind == SH_PIPE_UPDATE) return t->setting->update_s;
    const sh_pipe_stage *stage = &t->setting->stages[stage_of(t, rank, action)];
    switch (action->kind) {
        case SH_PIPE_FORWARD:
            return stage->forward_s;
        case SH_PIPE_BACKWARD:
            return stage->data_s + stage->weight_s;
        case SH_PIPE_BACKWARD_DATA:
            return stage->data_s;
        default:
            return stage->weight_s;
    }
}

/* Checks in numbers what the limits of a schedule promise. */
static void count_live(walker *w, sh_pipe_rank_result *result) {
    sh_pipe_kind kind = w->action.kind;
    bool data = kind == SH_PIPE_BACKWARD || kind == SH_PIPE_BACKWARD_DATA;
    w->live += kind == SH_PIPE_FORWARD ? 1 : data ? -1 : 0;
    w->late += kind == SH_PIPE_BACKWARD_DATA ? 1 : kind == SH_PIPE_BACKWARD_WEIGHT ? -1 : 0;
    if (w->live > result->live_most) result->live_most = w->live;
    if (w->late > result->late_most) result->late_most = w->late;
}

/* The neighbouring stage on the same rank needs no message, but it must have been computed. */
static bool has_input(const timeline *t, int rank) {
    const walker *w = &t->walkers[rank];
    // With several ranks a receive came before.
    if (t->setting->pipeline->ranks > 1 || w->action.kind == SH_PIPE_UPDATE ||
        w->action.kind == SH_PIPE_BACKWARD_WEIGHT)
        return true;
    int stage = stage_of(t, rank, &w->action);
    bool forward = w->action.kind == SH_PIPE_FORWARD;
    int last = sh_pipeline_stages(t->setting->pipeline) - 1;
    if (stage == (forward ? 0 : last)) return true;
    size_t index = at(t, stage, w->step, w->action.micro);
    return !isnan(t->arrives[forward ? VALUES : GRADIENTS][index]);
}

/* With one rank no messages exist; a stage then tells the next one directly. */
static void hand_over(timeline *t, int rank) {
    const walker *w = &t->walkers[rank];
    sh_pipe_kind kind = w->action.kind;
    if (t->setting->pipeline->ranks > 1 || kind == SH_PIPE_UPDATE ||
        kind == SH_PIPE_BACKWARD_WEIGHT)
        return;
    int direction = kind == SH_PIPE_FORWARD ? VALUES : GRADIENTS;
    int to = stage_of(t, rank, &w->action) + (direction == VALUES ? 1 : -1);
    if (to < 0 || to >= sh_pipeline_stages(t->setting->pipeline)) return;
    t->arrives[direction][at(t, to, w->step, w->action.micro)] = w->now_s;
}

/* The rank is busy; everything else that its clock passes is waiting. */
static bool compute(timeline *t, int rank) {
    walker *w = &t->walkers[rank];
    if (!has_input(t, rank)) return false;
    double start_s = w->now_s, seconds = seconds_of(t, rank, &w->action);
    w->now_s += seconds;
    t->results[rank].busy_s += seconds;
    count_live(w, &t->results[rank]);
    hand_over(t, rank);
    report(t, rank, start_s);
    return true;
}

/* False: nothing changed, to be tried again later. */
static bool act(timeline *t, int rank) {
    switch (t->walkers[rank].action.kind) {
        case SH_PIPE_RECEIVE_VALUE:
        case SH_PIPE_RECEIVE_GRADIENT:
            return receive(t, rank);
        case SH_PIPE_SEND_VALUE:
        case SH_PIPE_SEND_GRADIENT:
            return send(t, rank);
        default:
            return compute(t, rank);
    }
}

/* ---- The walk -------------------------------------------------------------------------------- */

/* The rank goes as far as it can in its step; true if it got anywhere. */
static bool advance(timeline *t, int rank) {
    walker *w = &t->walkers[rank];
    const sh_pipeline *pipeline = t->setting->pipeline;
    bool moved = false;
    while (w->step < t->setting->steps) {
        if (!w->waits && !sh_pipeline_next(pipeline, rank, &w->cursor, &w->action)) {
            w->cursor = (sh_pipe_cursor){0};  // next step from its beginning
            w->step++;
            moved = true;
            if (t->setting->barrier) break;  // the others have to catch up
            continue;
        }
        w->waits = !act(t, rank);
        if (w->waits) break;
        moved = true;
    }
    return moved;
}

/* The clock of the slowest rank. */
static double latest(const timeline *t) {
    double latest_s = 0;
    for (int r = 0; r < t->setting->pipeline->ranks; r++)
        latest_s = fmax(latest_s, t->walkers[r].now_s);
    return latest_s;
}

/* With a barrier no rank is ahead of the slowest by a step. */
static bool may_go(const timeline *t, int rank, int step) {
    return !t->setting->barrier || t->walkers[rank].step == step;
}

/* Names one rank that waits, and for what. */
static sh_status refuse_deadlock(const timeline *t) {
    for (int r = 0; r < t->setting->pipeline->ranks; r++) {
        const sh_pipe_action *action = &t->walkers[r].action;
        if (!t->walkers[r].waits) continue;
        return SH_FAIL(SH_E_PEER,
                       "deadlock: rank %d waits in step %d to %s micro-batch %d of chunk %d (peer "
                       "%d)",
                       r, t->walkers[r].step, sh_pipe_kind_name(action->kind), action->micro,
                       action->chunk, action->peer);
    }
    return SH_FAIL(SH_E_PEER, "deadlock: no rank waits for a message, and none goes on");
}

/* Passes over the ranks until all steps are done; with a barrier all clocks meet after each step.
 */
static sh_status walk(timeline *t) {
    int ranks = t->setting->pipeline->ranks;
    for (int step = 0; step < t->setting->steps;) {
        bool moved = false;
        for (int r = 0; r < ranks; r++)
            if (may_go(t, r, step)) moved = advance(t, r) || moved;
        if (!moved) return refuse_deadlock(t);
        int least = t->setting->steps;
        for (int r = 0; r < ranks; r++)
            if (t->walkers[r].step < least) least = t->walkers[r].step;
        if (least > step && t->setting->barrier) {
            double start_s = latest(t);  // the barrier costs nothing but waiting
            for (int r = 0; r < ranks; r++) t->walkers[r].now_s = start_s;
        }
        step = least;
    }
    return SH_OK;
}

/* One block for all numbers: two grids and an edge for each direction. */
static sh_status make(timeline *t, double **numbers_out) {
    const sh_pipeline *pipeline = t->setting->pipeline;
    size_t stages = (size_t)sh_pipeline_stages(pipeline);
    t->columns = (size_t)t->setting->steps * (size_t)pipeline->micros;
    if (stages * t->columns > SH_PIPE_CELLS_MOST) {  // bounds memory against huge settings
        SH_FAIL(SH_E_USAGE, "%zu stages with %zu micro-batches are too much for a timeline", stages,
                t->columns);
        return sh_error_hint("ask for fewer: stages x micro-batches up to %d",
                             SH_PIPE_CELLS_MOST / t->setting->steps);
    }
    size_t grid = stages * t->columns, count = DIRECTIONS * (2 * grid + stages);
    double *numbers = sh_alloc(count, sizeof *numbers);
    t->walkers = sh_alloc((size_t)pipeline->ranks, sizeof *t->walkers);
    *numbers_out = numbers;
    if (numbers == NULL || t->walkers == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a timeline");
    for (size_t i = 0; i < 2 * DIRECTIONS * grid; i++) numbers[i] = NAN;  // NAN: not known yet
    for (int d = 0; d < DIRECTIONS; d++) {
        t->arrives[d] = numbers + (size_t)(2 * d) * grid;
        t->taken[d] = numbers + (size_t)(2 * d + 1) * grid;
        // Zeros: edges are free at first.
        t->free_s[d] = numbers + 2 * DIRECTIONS * grid + (size_t)d * stages;
    }
    return SH_OK;
}

/* O(steps x micro-batches x stages) memory; pure, without threads or messages. */
sh_status sh_pipe_timeline(const sh_pipe_setting *setting, sh_pipe_on_event on_event, void *self,
                           sh_pipe_rank_result *ranks_out, double *makespan_out) {
    SH_ASSERT(setting->steps >= 1);
    timeline t = {.setting = setting, .on_event = on_event, .self = self, .results = ranks_out};
    double *numbers = NULL;
    sh_status status = make(&t, &numbers);
    if (status == SH_OK) {
        memset(ranks_out, 0, (size_t)setting->pipeline->ranks * sizeof *ranks_out);
        status = walk(&t);
    }
    if (status == SH_OK) {
        for (int r = 0; r < setting->pipeline->ranks; r++) ranks_out[r].end_s = t.walkers[r].now_s;
        *makespan_out = latest(&t);
    }
    sh_free(t.walkers);
    sh_free(numbers);
    return status;
}

/* The difference of two lengths cancels the filling and draining of the pipeline. */
sh_status sh_pipe_period(const sh_pipe_setting *setting, double *period_out) {
    enum { FIRST = 4, LAST = 8 };  // the first steps fill the pipeline
    sh_pipe_setting many = *setting;
    many.barrier = false;  // a barrier would drain the pipeline each step
    sh_pipe_rank_result *ranks = sh_alloc((size_t)setting->pipeline->ranks, sizeof *ranks);
    if (ranks == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a timeline");
    double ends_s[2];
    sh_status status = SH_OK;
    for (int i = 0; i < 2 && status == SH_OK; i++) {
        many.steps = i == 0 ? FIRST : LAST;
        status = sh_pipe_timeline(&many, NULL, NULL, ranks, &ends_s[i]);
    }
    if (status == SH_OK) *period_out = (ends_s[1] - ends_s[0]) / (LAST - FIRST);
    sh_free(ranks);
    return status;
}
