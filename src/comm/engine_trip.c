/* Calls that go by messages. The buffer is cut into segments; each is a small collective of its own
 * that walks through the algorithm's steps, and SH_WINDOW of them are under way, so that one is
 * summed while others travel. A step posts its receive, then its send, and ends when both are done.
 *
 * Between two ranks the messages of one segment carry one tag but for the step's low bits, and
 * both sides take the steps in order, so a tag never means two messages at once. */
#include <stdio.h>
#include <string.h>

#include "comm/engine_internal.h"

static bool is_pending(const sh_message *message) { return message->state == SH_MESSAGE_PENDING; }

/* tag: group 8, call 20, segment 12, step 8 bits. */
static uint64_t tag_of(const sh_trip *trip, const sh_segment *segment) {
    return trip->tag | (uint64_t)segment->index << 8 | ((uint64_t)segment->step & 0xFF);
}

enum { SCRATCH_EXACT_BYTES = 64 << 10 };

/* Elements of the longest stretch that this rank receives into scratch; a small segment's scratch
 * is not worth the walk. */
static size_t longest_stretch(const sh_trip *trip) {
    if (trip->segment_elements * trip->element_bytes <= SCRATCH_EXACT_BYTES)
        return trip->segment_elements;
    size_t longest = 0;
    for (int step = 0; step < trip->steps; step++) {
        sh_moves moves = trip->algorithm->step(&trip->topology, trip->group->rank, step);
        if (moves.receive.peer < 0) continue;
        bool apart =
            moves.then == SH_THEN_COPY &&
            (moves.send.peer < 0 || moves.send.first + moves.send.count <= moves.receive.first ||
             moves.receive.first + moves.receive.count <= moves.send.first);
        sh_range range = sh_stretch_range(trip->segment_elements, trip->blocks, moves.receive.first,
                                          moves.receive.count);
        if (!apart && range.count > longest) longest = range.count;
    }
    // The last segment is shorter and cut anew: its blocks are not longer, but for rounding.
    return longest + 64 < trip->segment_elements ? longest + 64 : trip->segment_elements;
}

/* A spare trip whose scratch is large enough, else any with new scratch. */
static sh_status take_trip(sh_engine *engine, size_t scratch_bytes, sh_trip **trip_out) {
    sh_trip **best = NULL;
    for (sh_trip **at = &engine->spare; *at != NULL; at = &(*at)->next) {
        bool fits = (*at)->scratch_bytes >= scratch_bytes;
        if (best == NULL || (fits && ((*best)->scratch_bytes < scratch_bytes ||
                                      (*at)->scratch_bytes < (*best)->scratch_bytes)))
            best = at;
    }
    sh_trip *trip = best != NULL ? *best : sh_alloc(1, sizeof *trip);
    if (trip == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a collective");
    if (best != NULL) *best = trip->next;
    if (trip->scratch_bytes < scratch_bytes) {
        sh_free(trip->scratch);
        trip->scratch = sh_alloc(scratch_bytes, 1);
        trip->scratch_bytes = trip->scratch != NULL ? scratch_bytes : 0;
    }
    trip->next = NULL;
    if (trip->scratch == NULL && scratch_bytes > 0) {
        trip->next = engine->spare;
        engine->spare = trip;
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu bytes of scratch of a collective",
                       scratch_bytes);
    }
    *trip_out = trip;
    return SH_OK;
}

/* Blocks of all-reduce and broadcast are cut within a segment. Elsewhere a block belongs to a rank,
 * so the buffer is one segment. */
static void cut_segments(const sh_engine *engine, const sh_call *call, sh_trip *trip) {
    bool cuts = call->what == SH_ALLREDUCE || call->what == SH_BROADCAST;
    size_t elements = engine->options.segment_bytes / trip->element_bytes;
    size_t least = (call->count + SH_SEGMENTS_MAX - 1) / SH_SEGMENTS_MAX;
    if (elements < least) elements = least;
    elements = sh_round_up(elements > 0 ? elements : 1, 16 * (size_t)trip->blocks);
    if (!cuts || elements > call->count) elements = call->count;
    trip->segment_elements = elements;
    trip->segments = elements > 0 ? (int)((call->count + elements - 1) / elements) : 1;
}

/* Where the segment begins; NULL: only sizes move. */
static char *segment_data(const sh_trip *trip, const sh_segment *segment) {
    char *data = trip->call->data;
    return data != NULL ? data + segment->first * trip->element_bytes : NULL;
}

static bool overlap(sh_range a, sh_range b) {
    return a.first < b.first + b.count && b.first < a.first + a.count;
}

static sh_status post_receive(sh_engine *engine, sh_trip *trip, sh_segment *segment, int peer) {
    SH_ASSERT(!segment->in_scratch || trip->call->data == NULL ||
              segment->into.count * trip->element_bytes <= trip->scratch_each);
    char *data = segment_data(trip, segment);
    if (data != NULL)
        data = segment->in_scratch ? segment->scratch
                                   : data + segment->into.first * trip->element_bytes;
    segment->receive = (sh_message){
        .peer = sh_group_member(trip->group, peer),
        .tag = tag_of(trip, segment),
        .data = data,
        .bytes = segment->into.count * trip->element_bytes,
    };
    return sh_receive(engine->transport, &segment->receive);
}

static sh_status post_send(sh_engine *engine, sh_trip *trip, sh_segment *segment, int peer,
                           sh_range range) {
    sh_call *call = trip->call;
    const char *from = call->what == SH_ALLTOALL
                           ? (const char *)call->source + segment->first * trip->element_bytes
                           : segment_data(trip, segment);
    if (call->data != NULL) from += range.first * trip->element_bytes;
    segment->send = (sh_message){
        .peer = sh_group_member(trip->group, peer),
        .tag = tag_of(trip, segment),
        .data = call->data != NULL ? (void *)(uintptr_t)from : NULL,
        .bytes = range.count * trip->element_bytes,
        .stamp = trip->started.stamp,
    };
    call->messages++;
    call->sent_bytes += segment->send.bytes;
    return sh_send(engine->transport, &segment->send);
}

/* Goes to the next step in which this rank has something to do; none left: the segment ends. */
static sh_status begin_step(sh_engine *engine, sh_trip *trip, sh_segment *segment) {
    bool empty_travels = trip->call->what == SH_BARRIER;
    for (; segment->step < trip->steps; segment->step++) {
        sh_moves moves = trip->algorithm->step(&trip->topology, trip->group->rank, segment->step);
        sh_range out = {0}, in = {0};
        if (moves.send.peer >= 0)
            out =
                sh_stretch_range(segment->count, trip->blocks, moves.send.first, moves.send.count);
        if (moves.receive.peer >= 0)
            in = sh_stretch_range(segment->count, trip->blocks, moves.receive.first,
                                  moves.receive.count);
        bool sends = moves.send.peer >= 0 && (out.count > 0 || empty_travels);
        bool receives = moves.receive.peer >= 0 && (in.count > 0 || empty_travels);
        if (!sends && !receives) continue;
        bool same = sends && receives && trip->call->what != SH_ALLTOALL && overlap(out, in);
        segment->active = true;
        segment->into = in;
        segment->then = moves.then;
        segment->after_send = same;
        segment->in_scratch = same || moves.then == SH_THEN_REDUCE;
        segment->received = !receives;
        segment->send.state = segment->receive.state = SH_MESSAGE_NEW;
        if (receives) SH_TRY(post_receive(engine, trip, segment, moves.receive.peer));
        if (sends) SH_TRY(post_send(engine, trip, segment, moves.send.peer, out));
        return SH_OK;
    }
    segment->active = false;
    return SH_OK;
}

/* Takes up the next segment in which this rank has something to do. */
static sh_status begin_segment(sh_engine *engine, sh_trip *trip, sh_segment *segment) {
    segment->active = false;
    while (!segment->active && trip->begun < trip->segments) {
        segment->index = trip->begun++;
        segment->first = (size_t)segment->index * trip->segment_elements;
        segment->count = trip->call->count - segment->first;
        if (segment->count > trip->segment_elements) segment->count = trip->segment_elements;
        segment->step = 0;
        SH_TRY(begin_step(engine, trip, segment));
        if (!segment->active) trip->ended++;
    }
    return SH_OK;
}

static void use_received(const sh_engine *engine, const sh_trip *trip, sh_segment *segment) {
    const sh_call *call = trip->call;
    segment->received = true;
    if (call->data == NULL) return;
    char *to = segment_data(trip, segment) + segment->into.first * trip->element_bytes;
    if (segment->then == SH_THEN_REDUCE)
        engine->combine->join[call->op][call->dtype](to, to, segment->scratch, segment->into.count);
    else if (segment->in_scratch)
        memcpy(to, segment->scratch, segment->into.count * trip->element_bytes);
}

/* Every rank divides the same bits by the same number. */
static void divide_mean(const sh_engine *engine, const sh_trip *trip, const sh_segment *segment) {
    const sh_call *call = trip->call;
    if (call->op != SH_MEAN || call->data == NULL) return;
    sh_range range = {0, segment->count};
    if (call->what == SH_REDUCE_SCATTER)
        range = sh_block_range(segment->count, trip->group->ranks, trip->group->rank);
    else if (call->what != SH_ALLREDUCE)
        return;
    engine->combine->divide[call->dtype](
        segment_data(trip, segment) + range.first * trip->element_bytes, trip->group->ranks,
        range.count);
}

static sh_status check_message(sh_engine *engine, const sh_trip *trip, const sh_message *message) {
    bool failed = message->state == SH_MESSAGE_FAILED || message->state == SH_MESSAGE_CANCELLED;
    if (!failed) return SH_OK;
    SH_TRY(sh_engine_health(engine));
    const sh_call *call = trip->call;
    char place[SH_PLACE_TEXT];
    SH_FAIL(SH_E_PEER, "rank %d: a message of %s %s (%s, %zu elements) %s rank %d failed",
            engine->transport->rank, sh_collective_name(call->what), trip->algorithm->name,
            sh_call_place(call, place), call->count, message->sends ? "to" : "from", message->peer);
    return sh_error_hint("all ranks of a group must start the same calls in the same order");
}

/* One step of one segment; true if anything changed. */
static sh_status advance(sh_engine *engine, sh_trip *trip, sh_segment *segment, bool *moved_out) {
    SH_TRY(check_message(engine, trip, &segment->receive));
    SH_TRY(check_message(engine, trip, &segment->send));
    bool sending = is_pending(&segment->send);
    if (!segment->received && !is_pending(&segment->receive) && !(sending && segment->after_send)) {
        if (segment->receive.bytes != segment->into.count * trip->element_bytes) {
            segment->receive.state = SH_MESSAGE_FAILED;
            return check_message(engine, trip, &segment->receive);
        }
        use_received(engine, trip, segment);
        *moved_out = true;
    }
    if (sending || !segment->received) return SH_OK;
    segment->step++;
    *moved_out = true;
    return begin_step(engine, trip, segment);
}

static sh_status advance_trip(sh_engine *engine, sh_trip *trip, bool *moved_out) {
    int slots = trip->segments < SH_WINDOW ? trip->segments : SH_WINDOW;
    for (int i = 0; i < slots; i++) {
        sh_segment *segment = &trip->window[i];
        while (segment->active) {
            bool moved = false;
            SH_TRY(advance(engine, trip, segment, &moved));
            *moved_out |= moved;
            if (!moved) break;
            if (segment->active) continue;
            divide_mean(engine, trip, segment);
            trip->ended++;
            SH_TRY(begin_segment(engine, trip, segment));
        }
    }
    return SH_OK;
}

/* ---- The transport's own all-reduce ------------------------------------------------------------
 *
 * Inside, nobody hears that a peer started something else, and what ranks with different sizes do
 * there is undefined. So each sends an empty message with the call's stamp to its right and enters
 * once it has its left neighbour's: a difference is seen by whoever stands right of it. */

static sh_status begin_native(sh_engine *engine, sh_trip *trip) {
    sh_segment *greeting = &trip->window[0];
    int rank = trip->group->rank, ranks = trip->group->ranks;
    greeting->active = true;
    SH_TRY(post_receive(engine, trip, greeting, (rank + ranks - 1) % ranks));
    return post_send(engine, trip, greeting, (rank + 1) % ranks, (sh_range){0});
}

/* It blocks, so every call started before must be over: a peer may wait for it before it comes
 * here. */
static bool is_oldest(const sh_engine *engine, const sh_trip *trip) {
    if (engine->first != trip) return false;
    for (const sh_group *group = engine->groups; group != NULL; group = group->next)
        if (group->direct.ended != group->direct.announced || group->direct.first != NULL)
            return false;
    return true;
}

static sh_status run_native(sh_engine *engine, sh_trip *trip) {
    sh_call *call = trip->call;
    SH_TRY(sh_agree_settle(engine));
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
    divide_mean(engine, trip, &(sh_segment){.count = call->count});
    call->messages = 1;
    call->sent_bytes = call->count * trip->element_bytes;
    trip->ended = trip->segments;
    return SH_OK;
}

static sh_status advance_native(sh_engine *engine, sh_trip *trip) {
    sh_segment *greeting = &trip->window[0];
    SH_TRY(check_message(engine, trip, &greeting->receive));
    SH_TRY(check_message(engine, trip, &greeting->send));
    if (is_pending(&greeting->receive) || is_pending(&greeting->send)) return SH_OK;
    greeting->active = false;
    return is_oldest(engine, trip) ? run_native(engine, trip) : SH_OK;
}

bool sh_trip_progress(sh_engine *engine, sh_trip *trip) {
    bool moved = false;
    sh_status status = SH_OK;
    if (trip->algorithm->native)
        status = advance_native(engine, trip);
    else
        status = advance_trip(engine, trip, &moved);
    if (status != SH_OK) {
        sh_engine_fail(engine, status);
        return true;
    }
    if (trip->ended < trip->segments) return moved;
    sh_trip_end(engine, trip, SH_OK);
    return true;
}

/* All-to-all: what a rank keeps. */
static void copy_own_block(const sh_trip *trip) {
    const sh_call *call = trip->call;
    sh_range own = sh_block_range(call->count, trip->group->ranks, trip->group->rank);
    size_t at = own.first * trip->element_bytes;
    if (own.count > 0 && call->data != NULL)
        memcpy((char *)call->data + at, (const char *)call->source + at,
               own.count * trip->element_bytes);
}

static void set_up(sh_engine *engine, sh_call *call, const sh_algorithm *algorithm, sh_trip *trip) {
    trip->call = call;
    trip->group = sh_call_group(engine, call);
    trip->algorithm = algorithm;
    trip->topology = (sh_topology){
        .ranks = trip->group->ranks, .root = call->root, .places = trip->group->places};
    trip->blocks = algorithm->native ? 1 : algorithm->blocks(&trip->topology);
    trip->steps = algorithm->native ? 1 : algorithm->steps(&trip->topology);
    trip->element_bytes = sh_dtype_bytes(call->dtype);
    trip->begun = trip->ended = 0;
    trip->started = sh_agree_begin(engine, trip->group, sh_stamp_of(call, sh_stamp_how(algorithm)));
    trip->tag = sh_call_tag(trip->group, trip->started.number);
    if (algorithm->native) {
        trip->segments = 1;
        trip->segment_elements = call->count;
        return;
    }
    cut_segments(engine, call, trip);
}

static sh_status begin_segments(sh_engine *engine, sh_trip *trip) {
    for (int i = 0; i < SH_WINDOW; i++) {
        sh_segment *segment = &trip->window[i];
        size_t at = i < trip->segments ? (size_t)i * trip->scratch_each : 0;
        segment->scratch = trip->scratch != NULL ? trip->scratch + at : NULL;
        SH_TRY(begin_segment(engine, trip, segment));
    }
    return SH_OK;
}

sh_status sh_trip_begin(sh_engine *engine, sh_call *call, const sh_algorithm *algorithm) {
    sh_trip plan = {0}, *trip = NULL;
    set_up(engine, call, algorithm, &plan);
    size_t slots = (size_t)(plan.segments < SH_WINDOW ? plan.segments : SH_WINDOW);
    if (call->data != NULL && !algorithm->native)
        plan.scratch_each = sh_round_up(longest_stretch(&plan) * plan.element_bytes, SH_ALIGN);
    SH_TRY(take_trip(engine, slots * plan.scratch_each, &trip));
    plan.scratch = trip->scratch;
    plan.scratch_bytes = trip->scratch_bytes;
    *trip = plan;
    if (engine->last != NULL)
        engine->last->next = trip;
    else
        engine->first = trip;
    engine->last = trip;
    if (call->what == SH_ALLTOALL) copy_own_block(trip);
    sh_status status =
        algorithm->native ? begin_native(engine, trip) : begin_segments(engine, trip);
    return status == SH_OK ? SH_OK : sh_engine_fail(engine, status);
}

void sh_trip_end(sh_engine *engine, sh_trip *trip, sh_status status) {
    sh_trip **at = &engine->first, *before = NULL;
    for (; *at != trip; at = &(*at)->next) before = *at;
    *at = trip->next;
    if (engine->last == trip) engine->last = before;
    for (int i = 0; status != SH_OK && i < SH_WINDOW; i++) {
        sh_segment *segment = &trip->window[i];
        if (!segment->active) continue;
        if (is_pending(&segment->receive)) sh_cancel(engine->transport, &segment->receive);
        if (is_pending(&segment->send)) sh_cancel(engine->transport, &segment->send);
    }
    trip->next = engine->spare;
    engine->spare = trip;
    sh_call_finish(engine, trip->call, status);
}

void sh_trips_destroy(sh_trip *trip) {
    while (trip != NULL) {
        sh_trip *next = trip->next;
        sh_free(trip->scratch);
        sh_free(trip);
        trip = next;
    }
}

/* The first message that a trip waits for. */
int sh_trip_waits(const sh_trip *trip, int *segment_out, int *step_out, bool *sends_out) {
    for (int i = 0; i < SH_WINDOW; i++) {
        const sh_segment *segment = &trip->window[i];
        if (!segment->active) continue;
        *segment_out = segment->index;
        *step_out = segment->step;
        *sends_out = !is_pending(&segment->receive);
        return *sends_out ? segment->send.peer : segment->receive.peer;
    }
    return -1;
}
