/* A worker of a pipeline: walks its schedule and computes, sends and receives as it says. A live
 * micro-batch has a slot, with memory for its activations and received inputs; micro-batch m uses
 * slot m mod slots, which is free again once its backward and its messages are done. */
#include "parallel/pipeline_run.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

enum {
    SIZES_MOST = 4,
    PORTS_MOST = 16
};  // a batch has two sizes of micro-batches, so has a short one

enum { VALUE, GRADIENT };  // what a message holds

/* What one live micro-batch needs. */
typedef struct slot {
    sh_arena memory;                     // of its executors, which take turns
    sh_executor *executors[SIZES_MOST];  // by size of micro-batch, one arena for all
    sh_executor *now;                    // of the micro-batch that is in the slot
    char *received;                      // inputs
    size_t received_bytes;
    sh_message sent[2][PORTS_MOST];  // (VALUE or GRADIENT, port): pending sends
} slot;

typedef struct chunk {
    int stage, first, last;  // layers [first, last)
    slot *slots;             // micro-batch m in slot m mod slot_count
    int slot_count;
} chunk;

struct sh_pipe_worker {
    sh_pipe_worker_options options;
    int *cut;
    chunk *chunks;
    // A batch has two sizes of micro-batches at most, a short last batch two more.
    int64_t sizes[SIZES_MOST];  // samples of micro-batches met so far
    int size_count;
    bool *unused;              // (parameters): no micro-batch of the step used it
    bool shares;               // a parameter is in several of the worker's chunks
    const sh_pipe_step *step;  // in progress
    sh_loss_result result;
};

/* Of the whole pipeline, all ranks and chunks. */
static int stage_count(const sh_pipe_worker *w) { return sh_pipeline_stages(&w->options.pipeline); }
static bool is_first(const chunk *c) { return c->stage == 0; }
static bool is_last(const sh_pipe_worker *w, const chunk *c) {
    return c->stage == stage_count(w) - 1;
}
/* Micro-batches of a chunk are live in order, so that the remainder is a free slot. */
static slot *slot_of(const chunk *c, int micro) { return &c->slots[micro % c->slot_count]; }

/* ---- Memory ---------------------------------------------------------------------------------- */

/* The most micro-batches of each chunk that are live at once. Walks a step without computing, so
 * that it is exact for every schedule that can be run. */
static void count_live(const sh_pipeline *pipeline, int rank, int *most) {
    sh_pipe_cursor cursor = {0};
    sh_pipe_action action;
    int live[SH_PIPE_CHUNKS_MOST] = {0};
    while (sh_pipeline_next(pipeline, rank, &cursor, &action)) {
        if (action.kind == SH_PIPE_FORWARD && ++live[action.chunk] > most[action.chunk])
            most[action.chunk] = live[action.chunk];
        live[action.chunk] -= action.kind == SH_PIPE_BACKWARD;
    }
}

static size_t aligned(size_t bytes) { return sh_round_up(bytes, SH_ALIGN); }

/* Aligned, as kernels read whole vectors. */
static size_t port_bytes(const sh_value *value) { return aligned(value->count * sizeof(float)); }

static size_t received_bytes_of(const sh_executor *executor) {
    size_t bytes = 0;
    for (size_t i = 0; i < executor->inputs.count; i++)
        bytes += port_bytes(executor->inputs.items[i].value);
    return bytes;
}

/* The last stage evaluates the loss, the first one has no gradient of its input. */
static sh_status make_executor(sh_pipe_worker *w, const chunk *c, int64_t size,
                               sh_executor **executor_out) {
    sh_executor_options options = {
        .batch = size,
        .training = true,
        .loss = is_last(w, c) ? w->options.loss : NULL,
        .tuner = w->options.tuner,
        .trace = w->options.trace,
        .first = c->first,
        .last = c->last,
        .input_gradients = !is_first(c),
    };
    SH_TRY(sh_executor_create(w->options.net, &options, executor_out));
    const sh_executor *e = *executor_out;
    if (e->inputs.count <= PORTS_MOST && e->outputs.count <= PORTS_MOST) return SH_OK;
    sh_executor_destroy(*executor_out);
    *executor_out = NULL;
    SH_FAIL(SH_E_UNSUPPORTED, "more than %d values cross the border of stage %d", PORTS_MOST,
            c->stage);
    return sh_error_hint("cut where fewer connections pass");
}

/* The slot's memory serves its executors in turn: the largest decides. */
static sh_status grow_slot(sh_pipe_worker *w, slot *s, const sh_executor *executor) {
    size_t received = received_bytes_of(executor);
    if (received > s->received_bytes) {
        sh_free(s->received);
        s->received = sh_alloc(received + SH_ALIGN, 1);  // room to align the first port
        s->received_bytes = s->received != NULL ? received : 0;
        if (s->received == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a stage's inputs");
    }
    if (executor->memory_bytes > s->memory.size_bytes || s->memory.base == NULL) {
        sh_arena_fini(&s->memory);
        SH_TRY(sh_arena_init(&s->memory, "micro-batch", executor->memory_bytes + SH_ALIGN));
    }
    for (int i = 0; i < SIZES_MOST; i++)  // memory may have moved: all executors are bound anew
        if (s->executors[i] != NULL)
            sh_executor_bind(s->executors[i], &w->options.blocks, s->memory.base);
    return SH_OK;
}

/* Executors for all sizes known so far; those made before stay. */
static sh_status fill_slot(sh_pipe_worker *w, const chunk *c, slot *s) {
    for (int i = 0; i < w->size_count; i++) {
        if (s->executors[i] != NULL) continue;
        SH_TRY(make_executor(w, c, w->sizes[i], &s->executors[i]));
        SH_TRY(grow_slot(w, s, s->executors[i]));
    }
    return SH_OK;
}

static sh_status add_slots(chunk *c, int count) {
    if (count <= c->slot_count) return SH_OK;
    // Pointers into slots do not outlive this: none is kept between steps.
    slot *slots = sh_realloc(c->slots, (size_t)count, sizeof *slots);
    if (slots == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for micro-batches");
    memset(slots + c->slot_count, 0, (size_t)(count - c->slot_count) * sizeof *slots);
    c->slots = slots;
    c->slot_count = count;
    return SH_OK;
}

/* Batches whose size is no multiple make micro-batches of two sizes; a short last batch two more.
 */
static sh_status know_size(sh_pipe_worker *w, int64_t size) {
    for (int i = 0; i < w->size_count; i++)
        if (w->sizes[i] == size) return SH_OK;
    if (w->size_count == SIZES_MOST)
        return SH_FAIL(SH_E_UNSUPPORTED, "micro-batches have more than %d sizes", SIZES_MOST);
    w->sizes[w->size_count++] = size;
    return SH_OK;
}

static sh_pipeline pipeline_of(const sh_pipe_worker *w, const sh_pipe_parts *parts) {
    sh_pipeline pipeline = w->options.pipeline;
    pipeline.micros = parts->count;  // a short batch may have fewer micro-batches
    return pipeline;
}

/* Before the first step: then steps allocate nothing. A new size of batch takes memory once. */
sh_status sh_pipe_worker_prepare(sh_pipe_worker *w, const sh_pipe_parts *parts) {
    SH_ASSERT(parts->count >= 1);
    int most[SH_PIPE_CHUNKS_MOST] = {0};
    sh_pipeline pipeline = pipeline_of(w, parts);
    for (int i = 0; i < parts->count; i++)
        SH_TRY(know_size(w, parts->begin[i + 1] - parts->begin[i]));
    count_live(&pipeline, w->options.rank, most);
    for (int k = 0; k < pipeline.chunks; k++) {
        chunk *c = &w->chunks[k];
        SH_TRY(add_slots(c, most[k]));
        for (int i = 0; i < c->slot_count; i++) SH_TRY(fill_slot(w, c, &c->slots[i]));
    }
    return SH_OK;
}

/* Arenas and received inputs, as allocated; parameters are the caller's. */
size_t sh_pipe_worker_bytes(const sh_pipe_worker *w) {
    size_t bytes = 0;
    for (int k = 0; k < w->options.pipeline.chunks; k++)
        for (int i = 0; i < w->chunks[k].slot_count; i++)
            bytes += w->chunks[k].slots[i].memory.size_bytes + w->chunks[k].slots[i].received_bytes;
    return bytes;
}

/* ---- Messages -------------------------------------------------------------------------------- */

/* Of the stage that receives it. 17 bits of micro-batch, 12 of stage, 4 of port: below 2^39. */
static uint64_t tag_of(int holds, int stage, int micro, size_t port) {
    uint64_t tag = (uint64_t)micro << 12 | (uint64_t)(stage & 0xfff);
    return (tag << 4 | port) << 1 | (uint64_t)holds;
}

static const char *name_of(int holds, bool sends, int micro, char text_out[24]) {
    snprintf(text_out, 24, "%s %s %d", sends ? "send" : "micro", holds == VALUE ? "fwd" : "bwd",
             micro);
    return text_out;
}

/* The messages of this kind that were sent from the slot's memory have left it. */
static sh_status settle(sh_pipe_worker *w, slot *s, int holds, int micro) {
    char name[24];
    for (int i = 0; i < PORTS_MOST; i++) {
        sh_message *message = &s->sent[holds][i];
        if (message->state == SH_MESSAGE_NEW) continue;  // nothing was sent through this port
        SH_TRY(
            w->options.wire.wait(w->options.wire.self, message, name_of(holds, true, micro, name)));
        *message = (sh_message){0};
    }
    return SH_OK;
}

/* The message borrows the data until it is settled: no copy is made. */
static sh_status send_port(sh_pipe_worker *w, slot *s, int holds, const sh_pipe_action *action,
                           int stage, size_t port, void *data, size_t count) {
    sh_message *message = &s->sent[holds][port];
    *message = (sh_message){.peer = action->peer,
                            // Equal on both sides, so that messages need no order.
                            .tag = tag_of(holds, stage, action->micro, port),
                            .data = data,
                            .bytes = count * sizeof(float)};
    return w->options.wire.send(w->options.wire.self, message);
}

/* A size other than expected means that the workers run different models. */
static sh_status receive_port(sh_pipe_worker *w, int holds, const sh_pipe_action *action, int stage,
                              size_t port, void *data, size_t count) {
    sh_message message = {.peer = action->peer,
                          .tag = tag_of(holds, stage, action->micro, port),
                          .data = data,
                          .bytes = count * sizeof(float)};
    char name[24];
    SH_TRY(w->options.wire.receive(w->options.wire.self, &message));
    SH_TRY(w->options.wire.wait(w->options.wire.self, &message,
                                name_of(holds, false, action->micro, name)));
    // Checked, as the bytes come from another worker.
    if (message.bytes == count * sizeof(float)) return SH_OK;
    return SH_FAIL(SH_E_PEER, "stage %d got %zu bytes of micro-batch %d, expected %zu", stage,
                   message.bytes, action->micro, count * sizeof(float));
}

/* ---- Ports ----------------------------------------------------------------------------------- */

/* Where input `port` of the executor lies in the slot. */
static char *input_at(const slot *s, const sh_executor *executor, size_t port) {
    size_t offset = 0;
    for (size_t i = 0; i < port; i++) offset += port_bytes(executor->inputs.items[i].value);
    char *base = (char *)(((uintptr_t)s->received + SH_ALIGN - 1) / SH_ALIGN * SH_ALIGN);
    return base + offset;
}

/* Both sides of a border agree on which values have a gradient: those with a parameter before them.
 */
static bool comes_back(const sh_port *port) { return port->value->grad != NULL; }

/* By the size of the micro-batch; all executors of a slot share its memory. */
static sh_status take_executor(sh_pipe_worker *w, const chunk *c, int micro) {
    slot *s = slot_of(c, micro);
    const int64_t *begin = w->step->parts.begin;
    for (int i = 0; i < w->size_count; i++)  // sizes differ: the executor made for this one
        if (w->sizes[i] == begin[micro + 1] - begin[micro]) s->now = s->executors[i];
    // Gradients of the micro-batch that was here before may still be on their way.
    return settle(w, s, GRADIENT, micro);
}

/* ---- Actions --------------------------------------------------------------------------------- */

/* Values of all ports; each is waited for before the next, in port order. */
static sh_status receive_value(sh_pipe_worker *w, const chunk *c, const sh_pipe_action *action) {
    SH_TRY(take_executor(w, c, action->micro));
    slot *s = slot_of(c, action->micro);
    for (size_t i = 0; i < s->now->inputs.count; i++)
        SH_TRY(receive_port(w, VALUE, action, c->stage, i, input_at(s, s->now, i),
                            s->now->inputs.items[i].value->count));
    return SH_OK;
}

/* The stage before is on this rank, too: a pipeline of one rank. */
static void copy_value(sh_pipe_worker *w, const chunk *c, int micro) {
    slot *s = slot_of(c, micro);
    const chunk *before = c - 1;  // with one rank, chunks are neighbouring stages
    const sh_executor *from = slot_of(before, micro)->now;
    (void)w;
    for (size_t i = 0; i < s->now->inputs.count; i++) {
        const sh_value *value = from->outputs.items[i].value;
        memcpy(input_at(s, s->now, i), value->data, value->count * sizeof(float));
    }
}

static void copy_gradient(const chunk *c, int micro) {
    const sh_executor *to = slot_of(c, micro)->now, *from = slot_of(c + 1, micro)->now;
    for (size_t i = 0; i < to->outputs.count; i++) {
        const sh_value *value = to->outputs.items[i].value;
        // Gradients exist only where a parameter lies before the border.
        if (comes_back(&to->outputs.items[i]))
            memcpy(value->grad, from->inputs.items[i].value->grad, value->count * sizeof(float));
    }
}

/* The first micro-batch overwrites the gradients, the others add, unless chunks share a parameter.
 */
static sh_step_context context_of(const sh_pipe_worker *w, int micro) {
    sh_step_context context = w->step->context;
    // Position in the batch: random draws do not depend on the cut.
    context.position += (uint64_t)w->step->parts.begin[micro];
    // Where several chunks add to one gradient, none may overwrite it: it begins with zeros.
    context.accumulate = micro > 0 || w->shares;
    return context;
}

/* Inputs are the data, what was received, or (one rank alone) the outputs of the chunk before. */
static sh_status forward(sh_pipe_worker *w, const chunk *c, const sh_pipe_action *action) {
    int micro = action->micro;
    bool alone = w->options.pipeline.ranks == 1;
    // Other stages took it when values arrived.
    if (is_first(c) || alone) SH_TRY(take_executor(w, c, micro));
    slot *s = slot_of(c, micro);
    const void *inputs[PORTS_MOST];
    size_t at = (size_t)w->step->parts.begin[micro];
    for (size_t i = 0; i < s->now->inputs.count; i++) inputs[i] = input_at(s, s->now, i);
    if (is_first(c))
        // The data's own memory: no copy.
        inputs[0] = (const char *)w->step->x + at * w->step->x_bytes;
    else if (alone)
        copy_value(w, c, micro);
    sh_step_context context = context_of(w, micro);
    return sh_executor_forward_range(s->now, &context, inputs);
}

/* Sent from activations in place; backward waits until they have left (settle). */
static sh_status send_value(sh_pipe_worker *w, const chunk *c, const sh_pipe_action *action) {
    slot *s = slot_of(c, action->micro);
    for (size_t i = 0; i < s->now->outputs.count; i++) {
        const sh_value *value = s->now->outputs.items[i].value;
        SH_TRY(send_port(w, s, VALUE, action, c->stage + 1, i, value->data, value->count));
    }
    return SH_OK;
}

/* Received straight into the gradient of the output, one port after the other. */
static sh_status receive_gradient(sh_pipe_worker *w, const chunk *c, const sh_pipe_action *action) {
    slot *s = slot_of(c, action->micro);
    for (size_t i = 0; i < s->now->outputs.count; i++) {
        const sh_port *port = &s->now->outputs.items[i];
        if (!comes_back(port)) continue;
        SH_TRY(
            receive_port(w, GRADIENT, action, c->stage, i, port->value->grad, port->value->count));
    }
    return SH_OK;
}

/* Sums over micro-batches; the scale makes gradients those of the whole batch. */
static void take_loss(sh_pipe_worker *w, sh_executor *executor, int micro) {
    const sh_pipe_step *step = w->step;
    const char *y = (const char *)step->y + (size_t)step->parts.begin[micro] * step->y_bytes;
    // `scale` makes a mean of the batch, not of the micro-batch.
    sh_loss_result result = sh_executor_loss(executor, y, step->scale);
    w->result.sum += result.sum;
    w->result.counted += result.counted;
    w->result.correct += result.correct;
}

/* A parameter is unused in the step only if no micro-batch used it. */
static sh_status backward(sh_pipe_worker *w, const chunk *c, const sh_pipe_action *action) {
    int micro = action->micro;
    slot *s = slot_of(c, micro);
    // The gradient of what the stage computed may take its place.
    SH_TRY(settle(w, s, VALUE, micro));
    if (is_last(w, c))
        take_loss(w, s->now, micro);
    else if (w->options.pipeline.ranks == 1)
        copy_gradient(c, micro);
    SH_TRY(sh_executor_backward(s->now, NULL, NULL));
    for (size_t i = 0; i < w->options.net->params.count; i++)
        w->unused[i] = w->unused[i] && s->now->param_unused[i];  // unused only if unused in all
    return SH_OK;
}

/* Gradients are sent from the memory of the slot, whose next micro-batch waits until they left. */
static sh_status send_gradient(sh_pipe_worker *w, const chunk *c, const sh_pipe_action *action) {
    slot *s = slot_of(c, action->micro);
    for (size_t i = 0; i < s->now->inputs.count; i++) {
        const sh_port *port = &s->now->inputs.items[i];
        if (!comes_back(port)) continue;
        SH_TRY(send_port(w, s, GRADIENT, action, c->stage - 1, i, port->value->grad,
                         port->value->count));
    }
    return SH_OK;
}

/* Runs one action of the schedule; errors leave messages pending, for cancel_all. */
static sh_status act(sh_pipe_worker *w, const sh_pipe_action *action) {
    const chunk *c = &w->chunks[action->chunk];
    switch (action->kind) {
        case SH_PIPE_RECEIVE_VALUE:
            return receive_value(w, c, action);
        case SH_PIPE_FORWARD:
            return forward(w, c, action);
        case SH_PIPE_SEND_VALUE:
            return send_value(w, c, action);
        case SH_PIPE_RECEIVE_GRADIENT:
            return receive_gradient(w, c, action);
        case SH_PIPE_BACKWARD:
            return backward(w, c, action);
        case SH_PIPE_SEND_GRADIENT:
            return send_gradient(w, c, action);
        case SH_PIPE_UPDATE:
            return SH_OK;  // the caller's
        default:
            return SH_FAIL(SH_E_UNSUPPORTED, "backward in two parts cannot be run");
    }
}

/* The worker's memory must not be read by messages once the step is over. */
static sh_status settle_all(sh_pipe_worker *w) {
    for (int k = 0; k < w->options.pipeline.chunks; k++)
        for (int i = 0; i < w->chunks[k].slot_count; i++)
            for (int holds = VALUE; holds <= GRADIENT; holds++)
                // The number in traces is that of the slot, not of a micro-batch.
                SH_TRY(settle(w, &w->chunks[k].slots[i], holds, i));
    return SH_OK;
}

/* After a failure: pending messages borrow memory that is about to be freed. */
static void cancel_all(sh_pipe_worker *w) {
    for (int k = 0; k < w->options.pipeline.chunks; k++)
        for (int i = 0; i < w->chunks[k].slot_count; i++)
            for (int port = 0; port < 2 * PORTS_MOST; port++) {
                sh_message *message =
                    &w->chunks[k].slots[i].sent[port / PORTS_MOST][port % PORTS_MOST];
                if (message->state == SH_MESSAGE_PENDING)
                    w->options.wire.cancel(w->options.wire.self, message);
                *message = (sh_message){0};
            }
}

/* The step as the schedule orders it. Blocks in receives, and until sends have left a slot. */
static sh_status walk(sh_pipe_worker *w) {
    sh_pipeline pipeline = pipeline_of(w, &w->step->parts);
    sh_pipe_cursor cursor = {0};
    sh_pipe_action action;
    while (sh_pipeline_next(&pipeline, w->options.rank, &cursor, &action)) SH_TRY(act(w, &action));
    return settle_all(w);
}

/* Gradients are complete when it returns; the optimizer is the caller's. */
sh_status sh_pipe_worker_step(sh_pipe_worker *w, const sh_pipe_step *step,
                              sh_loss_result *result_out) {
    SH_TRY(sh_pipe_worker_prepare(w, &step->parts));  // allocates only for sizes that are new
    w->step = step;
    w->result = (sh_loss_result){0};
    const sh_param_list *params = &w->options.net->params;
    for (size_t i = 0; i < params->count; i++) w->unused[i] = true;
    // Chunks that share a parameter only add to its gradient, from zero on.
    if (w->shares) memset(w->options.blocks.gradients, 0, params->total * sizeof(float));
    sh_status status = walk(w);
    if (status != SH_OK) cancel_all(w);  // messages borrow memory of slots
    SH_TRY(status);
    *result_out = w->result;
    return SH_OK;
}

const bool *sh_pipe_worker_unused(const sh_pipe_worker *worker) { return worker->unused; }

/* ---- Making ---------------------------------------------------------------------------------- */

/* Refuses schedules that executors cannot run. */
static sh_status check(const sh_pipe_worker_options *o) {
    const sh_pipe_schedule *schedule = o->pipeline.schedule;
    int stages = sh_pipeline_stages(&o->pipeline);
    if (schedule->needs_rollback) {
        SH_FAIL(SH_E_USAGE, "schedule '%s' cannot be run: its steps overlap", schedule->name);
        return sh_error_hint("zb-h1 takes as long for one step");
    }
    if (schedule->splits) {
        SH_FAIL(SH_E_UNSUPPORTED, "schedule '%s' cannot be run: executors do backward in one",
                schedule->name);
        return sh_error_hint("--schedule 1f1b");
    }
    if (stages > (int)o->net->layer_count)
        return SH_FAIL(SH_E_USAGE, "%d stages for %zu layers", stages, o->net->layer_count);
    SH_ASSERT(o->cut[0] == 0);
    SH_ASSERT(o->cut[stages] == (int)o->net->layer_count);
    for (int s = 0; s < stages; s++)
        if (o->cut[s] >= o->cut[s + 1]) return SH_FAIL(SH_E_USAGE, "stage %d has no layers", s);
    return SH_OK;
}

static bool has_param(const sh_net *net, const chunk *c, size_t param) {
    for (int i = c->first; i < c->last; i++)
        for (int k = 0; k < net->layers[i]->param_count; k++)
            if (net->layers[i]->params[k] == param) return true;
    return false;
}

/* Tied weights (embedding and head) may lie in two chunks of one worker. */
static bool shares_params(const sh_pipe_worker *w) {
    const sh_net *net = w->options.net;
    for (size_t p = 0; p < net->params.count; p++) {
        int holders = 0;
        for (int k = 0; k < w->options.pipeline.chunks; k++)
            holders += has_param(net, &w->chunks[k], p);
        if (holders > 1) return true;
    }
    return false;
}

/* Copies the cut: the caller's may go. */
static sh_status make_chunks(sh_pipe_worker *w) {
    const sh_pipeline *pipeline = &w->options.pipeline;
    size_t stages = (size_t)stage_count(w);
    w->cut = sh_alloc(stages + 1, sizeof *w->cut);
    w->chunks = sh_alloc((size_t)pipeline->chunks, sizeof *w->chunks);
    w->unused = sh_alloc(w->options.net->params.count + 1, sizeof *w->unused);
    if (w->cut == NULL || w->chunks == NULL || w->unused == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a pipeline");
    // First layers of all stages, and the end.
    memcpy(w->cut, w->options.cut, (stages + 1) * sizeof *w->cut);
    w->options.cut = w->cut;
    for (int k = 0; k < pipeline->chunks; k++) {
        int stage = sh_pipeline_stage(pipeline, w->options.rank, k);
        w->chunks[k] = (chunk){.stage = stage, .first = w->cut[stage], .last = w->cut[stage + 1]};
    }
    w->shares = shares_params(w);
    return SH_OK;
}

sh_status sh_pipe_worker_create(const sh_pipe_worker_options *options,
                                sh_pipe_worker **worker_out) {
    SH_TRY(check(options));
    sh_pipe_worker *w = sh_alloc(1, sizeof *w);
    if (w == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a pipeline");
    w->options = *options;
    sh_status status = make_chunks(w);
    if (status == SH_OK)
        *worker_out = w;
    else
        sh_pipe_worker_destroy(w);
    return status;
}

/* Slots of memory; pending messages were settled or cancelled before. */
static void destroy_chunk(chunk *c) {
    for (int i = 0; i < c->slot_count; i++) {
        for (int k = 0; k < SIZES_MOST; k++) sh_executor_destroy(c->slots[i].executors[k]);
        sh_arena_fini(&c->slots[i].memory);
        sh_free(c->slots[i].received);
    }
    sh_free(c->slots);
}

void sh_pipe_worker_destroy(sh_pipe_worker *w) {
    if (w == NULL) return;
    for (int k = 0; w->chunks != NULL && k < w->options.pipeline.chunks; k++)
        destroy_chunk(&w->chunks[k]);
    sh_free(w->chunks);
    sh_free(w->unused);
    sh_free(w->cut);
    sh_free(w);
}
