/* Calls that go by messages. The buffer is cut into segments; each is a small collective of its own
 * that walks through the algorithm's steps, and SH_WINDOW of them are under way, so that one is
 * summed while others travel. A step posts its receive, then its send, and ends when both are done.
 *
 * Between two ranks the messages of one segment carry one tag but for the step's low bits, and
 * both sides take the steps in order, so a tag never means two messages at once. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "comm/engine_internal.h"

static bool is_pending(const sh_message *message) { return message->state == SH_MESSAGE_PENDING; }

/* tag: group 8, call 20, segment 12, step 8 bits. */
static uint64_t tag_of(const sh_trip *run, const sh_segment *segment) {
    return run->tag | (uint64_t)segment->index << 8 | ((uint64_t)segment->step & 0xFF);
}

static size_t scratch_needed(const sh_trip *run) {
    // A stretch of blocks may be the whole segment.
    size_t each = sh_round_up(run->segment_elements * run->element_bytes, SH_ALIGN);
    size_t segments = run->segments < SH_WINDOW ? (size_t)run->segments : SH_WINDOW;
    return each * segments;
}

/* A spare run whose scratch is large enough, else any with new scratch. */
static sh_status take_run(sh_engine *engine, size_t scratch_bytes, sh_trip **run_out) {
    sh_trip **best = NULL;
    for (sh_trip **at = &engine->spare; *at != NULL; at = &(*at)->next) {
        bool fits = (*at)->scratch_bytes >= scratch_bytes;
        if (best == NULL || (fits && ((*best)->scratch_bytes < scratch_bytes ||
                                      (*at)->scratch_bytes < (*best)->scratch_bytes)))
            best = at;
    }
    sh_trip *run = best != NULL ? *best : sh_alloc(1, sizeof *run);
    if (run == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a collective");
    if (best != NULL) *best = run->next;
    if (run->scratch_bytes < scratch_bytes) {
        sh_free(run->scratch);
        run->scratch = sh_alloc(scratch_bytes, 1);
        run->scratch_bytes = run->scratch != NULL ? scratch_bytes : 0;
    }
    run->next = NULL;
    if (run->scratch == NULL && scratch_bytes > 0) {
        run->next = engine->spare;
        engine->spare = run;
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu bytes of scratch of a collective",
                       scratch_bytes);
    }
    *run_out = run;
    return SH_OK;
}

/* Blocks of all-reduce and broadcast are cut within a segment. Elsewhere a block belongs to a rank,
 * so the buffer is one segment. */
static void cut_segments(const sh_engine *engine, const sh_call *call, sh_trip *run) {
    bool cuts = call->what == SH_ALLREDUCE || call->what == SH_BROADCAST;
    size_t elements = engine->options.segment_bytes / run->element_bytes;
    size_t least = (call->count + SH_SEGMENTS_MAX - 1) / SH_SEGMENTS_MAX;
    if (elements < least) elements = least;
    elements = sh_round_up(elements > 0 ? elements : 1, 16 * (size_t)run->blocks);
    if (!cuts || elements > call->count) elements = call->count;
    run->segment_elements = elements;
    run->segments = elements > 0 ? (int)((call->count + elements - 1) / elements) : 1;
}

static char *segment_data(const sh_trip *run, const sh_segment *segment) {
    return (char *)run->call->data + segment->first * run->element_bytes;
}

static bool overlap(sh_range a, sh_range b) {
    return a.first < b.first + b.count && b.first < a.first + a.count;
}

static sh_status post_receive(sh_engine *engine, sh_trip *run, sh_segment *segment, int peer) {
    char *in_place = segment_data(run, segment) + segment->into.first * run->element_bytes;
    segment->receive = (sh_message){
        .peer = run->group->member[peer],
        .tag = tag_of(run, segment),
        .data = segment->in_scratch ? segment->scratch : in_place,
        .bytes = segment->into.count * run->element_bytes,
    };
    return sh_receive(engine->transport, &segment->receive);
}

static sh_status post_send(sh_engine *engine, sh_trip *run, sh_segment *segment, int peer,
                           sh_range range) {
    sh_call *call = run->call;
    const char *from = call->what == SH_ALLTOALL
                           ? (const char *)call->source + segment->first * run->element_bytes
                           : segment_data(run, segment);
    segment->send = (sh_message){
        .peer = run->group->member[peer],
        .tag = tag_of(run, segment),
        .data = (void *)(uintptr_t)(from + range.first * run->element_bytes),
        .bytes = range.count * run->element_bytes,
    };
    call->messages++;
    call->sent_bytes += segment->send.bytes;
    return sh_send(engine->transport, &segment->send);
}

/* Goes to the next step in which this rank has something to do; none left: the segment ends. */
static sh_status begin_step(sh_engine *engine, sh_trip *run, sh_segment *segment) {
    bool empty_travels = run->call->what == SH_BARRIER;
    for (; segment->step < run->steps; segment->step++) {
        sh_moves moves = run->algorithm->step(&run->topology, run->group->rank, segment->step);
        sh_range out = {0}, in = {0};
        if (moves.send.peer >= 0)
            out = sh_stretch_range(segment->count, run->blocks, moves.send.first, moves.send.count);
        if (moves.receive.peer >= 0)
            in = sh_stretch_range(segment->count, run->blocks, moves.receive.first,
                                  moves.receive.count);
        bool sends = moves.send.peer >= 0 && (out.count > 0 || empty_travels);
        bool receives = moves.receive.peer >= 0 && (in.count > 0 || empty_travels);
        if (!sends && !receives) continue;
        bool same = sends && receives && run->call->what != SH_ALLTOALL && overlap(out, in);
        segment->active = true;
        segment->into = in;
        segment->then = moves.then;
        segment->after_send = same;
        segment->in_scratch = same || moves.then == SH_THEN_REDUCE;
        segment->received = !receives;
        segment->send.state = segment->receive.state = SH_MESSAGE_NEW;
        if (receives) SH_TRY(post_receive(engine, run, segment, moves.receive.peer));
        if (sends) SH_TRY(post_send(engine, run, segment, moves.send.peer, out));
        return SH_OK;
    }
    segment->active = false;
    return SH_OK;
}

/* Takes up the next segment in which this rank has something to do. */
static sh_status begin_segment(sh_engine *engine, sh_trip *run, sh_segment *segment) {
    segment->active = false;
    while (!segment->active && run->begun < run->segments) {
        segment->index = run->begun++;
        segment->first = (size_t)segment->index * run->segment_elements;
        segment->count = run->call->count - segment->first;
        if (segment->count > run->segment_elements) segment->count = run->segment_elements;
        segment->step = 0;
        SH_TRY(begin_step(engine, run, segment));
        if (!segment->active) run->ended++;
    }
    return SH_OK;
}

static void use_received(const sh_engine *engine, const sh_trip *run, sh_segment *segment) {
    const sh_call *call = run->call;
    char *to = segment_data(run, segment) + segment->into.first * run->element_bytes;
    if (segment->then == SH_THEN_REDUCE)
        engine->combine->join[call->op][call->dtype](to, to, segment->scratch, segment->into.count);
    else if (segment->in_scratch)
        memcpy(to, segment->scratch, segment->into.count * run->element_bytes);
    segment->received = true;
}

/* Every rank divides the same bits by the same number. */
static void divide_mean(const sh_engine *engine, const sh_trip *run, const sh_segment *segment) {
    const sh_call *call = run->call;
    if (call->op != SH_MEAN) return;
    sh_range range = {0, segment->count};
    if (call->what == SH_REDUCE_SCATTER)
        range = sh_block_range(segment->count, run->group->ranks, run->group->rank);
    else if (call->what != SH_ALLREDUCE)
        return;
    engine->combine->divide[call->dtype](
        segment_data(run, segment) + range.first * run->element_bytes, run->group->ranks,
        range.count);
}

static sh_status check_message(const sh_engine *engine, const sh_trip *run,
                               const sh_message *message) {
    bool failed = message->state == SH_MESSAGE_FAILED || message->state == SH_MESSAGE_CANCELLED;
    if (!failed) return SH_OK;
    SH_TRY(sh_transport_health(engine->transport));
    const sh_call *call = run->call;
    SH_FAIL(SH_E_PEER,
            "rank %d: a message of %s %s (bucket %d, step %" PRId64
            ", %zu elements) %s rank %d "
            "failed",
            engine->transport->rank, sh_collective_name(call->what), run->algorithm->name,
            call->bucket, call->step, call->count, message->sends ? "to" : "from", message->peer);
    return sh_error_hint("all ranks of a group must start the same calls in the same order");
}

/* One step of one segment; true if anything changed. */
static sh_status advance(sh_engine *engine, sh_trip *run, sh_segment *segment, bool *moved_out) {
    SH_TRY(check_message(engine, run, &segment->receive));
    SH_TRY(check_message(engine, run, &segment->send));
    bool sending = is_pending(&segment->send);
    if (!segment->received && !is_pending(&segment->receive) && !(sending && segment->after_send)) {
        if (segment->receive.bytes != segment->into.count * run->element_bytes) {
            segment->receive.state = SH_MESSAGE_FAILED;
            return check_message(engine, run, &segment->receive);
        }
        use_received(engine, run, segment);
        *moved_out = true;
    }
    if (sending || !segment->received) return SH_OK;
    segment->step++;
    *moved_out = true;
    return begin_step(engine, run, segment);
}

static sh_status advance_run(sh_engine *engine, sh_trip *run, bool *moved_out) {
    int slots = run->segments < SH_WINDOW ? run->segments : SH_WINDOW;
    for (int i = 0; i < slots; i++) {
        sh_segment *segment = &run->window[i];
        while (segment->active) {
            bool moved = false;
            SH_TRY(advance(engine, run, segment, &moved));
            *moved_out |= moved;
            if (!moved) break;
            if (segment->active) continue;
            divide_mean(engine, run, segment);
            run->ended++;
            SH_TRY(begin_segment(engine, run, segment));
        }
    }
    return SH_OK;
}

/* The transport's own all-reduce blocks, so every call started before must be over: a peer may wait
 * for it before it comes here. */
static bool is_oldest(const sh_engine *engine, const sh_trip *run) {
    if (engine->first != run) return false;
    for (const sh_group *group = engine->groups; group != NULL; group = group->next)
        if (group->direct.ended != group->direct.announced || group->direct.first != NULL)
            return false;
    return true;
}

static sh_status run_native(sh_engine *engine, sh_trip *run) {
    sh_call *call = run->call;
    sh_reduce_op op = call->op == SH_MEAN ? SH_SUM : call->op;
    // Nobody knows whom it waits for inside.
    uint64_t others = ~(UINT64_C(1) << (engine->transport->rank & 63));
    if (engine->transport->ranks < SH_BOARD_WAITS)
        others &= (UINT64_C(1) << engine->transport->ranks) - 1;
    _Atomic uint64_t *waits = &engine->transport->board->waits_for;
    atomic_store_explicit(waits, others, memory_order_relaxed);
    atomic_store_explicit(&engine->away_ns, sh_engine_now(engine), memory_order_relaxed);
    sh_status status = engine->transport->ops->allreduce(engine->transport, call->data, call->count,
                                                         (int)call->dtype, (int)op);
    atomic_store_explicit(&engine->away_ns, 0, memory_order_relaxed);
    atomic_store_explicit(waits, 0, memory_order_relaxed);
    SH_TRY(status);
    divide_mean(engine, run, &(sh_segment){.count = call->count});
    call->messages = 1;
    call->sent_bytes = call->count * run->element_bytes;
    run->ended = run->segments;
    return SH_OK;
}

bool sh_trip_progress(sh_engine *engine, sh_trip *run) {
    bool moved = false;
    sh_status status = SH_OK;
    if (!run->algorithm->native)
        status = advance_run(engine, run, &moved);
    else if (is_oldest(engine, run))
        status = run_native(engine, run);
    if (status != SH_OK) {
        sh_engine_fail(engine, status);
        return true;
    }
    if (run->ended < run->segments) return moved;
    sh_trip_end(engine, run, SH_OK);
    return true;
}

/* All-to-all: what a rank keeps. */
static void copy_own_block(const sh_trip *run) {
    const sh_call *call = run->call;
    sh_range own = sh_block_range(call->count, run->group->ranks, run->group->rank);
    size_t at = own.first * run->element_bytes;
    if (own.count > 0)
        memcpy((char *)call->data + at, (const char *)call->source + at,
               own.count * run->element_bytes);
}

static void set_up(sh_engine *engine, sh_call *call, const sh_algorithm *algorithm, sh_trip *run) {
    run->call = call;
    run->group = sh_call_group(engine, call);
    run->algorithm = algorithm;
    run->topology =
        (sh_topology){.ranks = run->group->ranks, .root = call->root, .places = run->group->places};
    run->blocks = algorithm->native ? 1 : algorithm->blocks(&run->topology);
    run->steps = algorithm->native ? 0 : algorithm->steps(&run->topology);
    run->element_bytes = sh_dtype_bytes(call->dtype);
    run->begun = run->ended = 0;
    run->tag = (uint64_t)run->group->id << 40 | (uint64_t)(run->group->calls++ & 0xFFFFF) << 20;
    if (algorithm->native) {
        run->segments = 1;
        run->segment_elements = call->count;
        return;
    }
    cut_segments(engine, call, run);
}

static sh_status begin_segments(sh_engine *engine, sh_trip *run) {
    size_t each = sh_round_up(run->segment_elements * run->element_bytes, SH_ALIGN);
    for (int i = 0; i < SH_WINDOW; i++) {
        sh_segment *segment = &run->window[i];
        segment->scratch = run->scratch + (i < run->segments ? (size_t)i * each : 0);
        SH_TRY(begin_segment(engine, run, segment));
    }
    return SH_OK;
}

sh_status sh_trip_begin(sh_engine *engine, sh_call *call, const sh_algorithm *algorithm) {
    sh_trip plan = {0}, *run = NULL;
    set_up(engine, call, algorithm, &plan);
    SH_TRY(take_run(engine, algorithm->native ? 0 : scratch_needed(&plan), &run));
    plan.scratch = run->scratch;
    plan.scratch_bytes = run->scratch_bytes;
    *run = plan;
    if (engine->last != NULL)
        engine->last->next = run;
    else
        engine->first = run;
    engine->last = run;
    if (call->what == SH_ALLTOALL) copy_own_block(run);
    if (!algorithm->native) {
        sh_status status = begin_segments(engine, run);
        if (status != SH_OK) return sh_engine_fail(engine, status);
    }
    return SH_OK;
}

void sh_trip_end(sh_engine *engine, sh_trip *run, sh_status status) {
    sh_trip **at = &engine->first, *before = NULL;
    for (; *at != run; at = &(*at)->next) before = *at;
    *at = run->next;
    if (engine->last == run) engine->last = before;
    for (int i = 0; status != SH_OK && !run->algorithm->native && i < SH_WINDOW; i++) {
        sh_segment *segment = &run->window[i];
        if (!segment->active) continue;
        if (is_pending(&segment->receive)) sh_cancel(engine->transport, &segment->receive);
        if (is_pending(&segment->send)) sh_cancel(engine->transport, &segment->send);
    }
    run->next = engine->spare;
    engine->spare = run;
    sh_call_finish(engine, run->call, status);
}

void sh_trips_destroy(sh_trip *run) {
    while (run != NULL) {
        sh_trip *next = run->next;
        sh_free(run->scratch);
        sh_free(run);
        run = next;
    }
}

/* The first message that a run waits for. */
int sh_trip_waits(const sh_trip *run, int *segment_out, int *step_out, bool *sends_out) {
    for (int i = 0; !run->algorithm->native && i < SH_WINDOW; i++) {
        const sh_segment *segment = &run->window[i];
        if (!segment->active) continue;
        *segment_out = segment->index;
        *step_out = segment->step;
        *sends_out = !is_pending(&segment->receive);
        return *sends_out ? segment->send.peer : segment->receive.peer;
    }
    return -1;
}
