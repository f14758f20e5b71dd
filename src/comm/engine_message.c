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
static uint64_t tag_of(const sh_message_collective *collective, const sh_segment *segment) {
    return collective->tag | (uint64_t)segment->index << 8 | ((uint64_t)segment->step & 0xFF);
}

enum { SCRATCH_EXACT_BYTES = 64 << 10 };

/* Elements of the longest stretch that this rank receives into scratch; a small segment's scratch
 * is not worth the walk. */
static size_t longest_stretch(const sh_message_collective *collective) {
    if (collective->segment_elements * collective->element_bytes <= SCRATCH_EXACT_BYTES)
        return collective->segment_elements;
    size_t longest = 0;
    for (int step = 0; step < collective->steps; step++) {
        sh_moves moves =
            collective->algorithm->step(&collective->topology, collective->group->rank, step);
        if (moves.receive.peer < 0) continue;
        bool apart =
            moves.then == SH_THEN_COPY &&
            (moves.send.peer < 0 || moves.send.first + moves.send.count <= moves.receive.first ||
             moves.receive.first + moves.receive.count <= moves.send.first);
        sh_range range = sh_stretch_range(collective->segment_elements, collective->blocks,
                                          moves.receive.first, moves.receive.count);
        if (!apart && range.count > longest) longest = range.count;
    }
    // The last segment is shorter and cut anew: its blocks are not longer, but for rounding.
    return longest + 64 < collective->segment_elements ? longest + 64
                                                       : collective->segment_elements;
}

/* A spare message collective whose scratch is large enough, else any with new scratch. */
static sh_status acquire_collective(sh_engine *engine, size_t scratch_bytes,
                                    sh_message_collective **collective_out) {
    sh_message_collective **best = NULL;
    for (sh_message_collective **at = &engine->messages.spare; *at != NULL; at = &(*at)->next) {
        bool fits = (*at)->scratch_bytes >= scratch_bytes;
        if (best == NULL || (fits && ((*best)->scratch_bytes < scratch_bytes ||
                                      (*at)->scratch_bytes < (*best)->scratch_bytes)))
            best = at;
    }
    sh_message_collective *collective = best != NULL ? *best : sh_alloc(1, sizeof *collective);
    if (collective == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a collective");
    if (best != NULL) *best = collective->next;
    if (collective->scratch_bytes < scratch_bytes) {
        sh_free(collective->scratch);
        collective->scratch = sh_alloc(scratch_bytes, 1);
        collective->scratch_bytes = collective->scratch != NULL ? scratch_bytes : 0;
    }
    collective->next = NULL;
    if (collective->scratch == NULL && scratch_bytes > 0) {
        collective->next = engine->messages.spare;
        engine->messages.spare = collective;
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu bytes of scratch of a collective",
                       scratch_bytes);
    }
    *collective_out = collective;
    return SH_OK;
}

/* Blocks of all-reduce and broadcast are cut within a segment. Elsewhere a block belongs to a rank,
 * so the buffer is one segment. */
static void cut_segments(const sh_engine *engine, const sh_call *call,
                         sh_message_collective *collective) {
    bool cuts = call->what == SH_ALLREDUCE || call->what == SH_BROADCAST;
    size_t elements = engine->options.segment_bytes / collective->element_bytes;
    size_t least = (call->count + SH_SEGMENTS_MAX - 1) / SH_SEGMENTS_MAX;
    if (elements < least) elements = least;
    elements = sh_round_up(elements > 0 ? elements : 1, 16 * (size_t)collective->blocks);
    if (!cuts || elements > call->count) elements = call->count;
    collective->segment_elements = elements;
    collective->segments = elements > 0 ? (int)((call->count + elements - 1) / elements) : 1;
}

/* Where the segment begins; NULL: only sizes move. */
static char *segment_data(const sh_message_collective *collective, const sh_segment *segment) {
    char *data = collective->call->data;
    return data != NULL ? data + segment->first * collective->element_bytes : NULL;
}

static bool overlap(sh_range a, sh_range b) {
    return a.first < b.first + b.count && b.first < a.first + a.count;
}

static sh_status post_receive(sh_engine *engine, sh_message_collective *collective,
                              sh_segment *segment, int peer) {
    SH_ASSERT(!segment->in_scratch || collective->call->data == NULL ||
              segment->into.count * collective->element_bytes <= collective->scratch_each);
    char *data = segment_data(collective, segment);
    if (data != NULL)
        data = segment->in_scratch ? segment->scratch
                                   : data + segment->into.first * collective->element_bytes;
    segment->receive = (sh_message){
        .peer = sh_group_member(collective->group, peer),
        .tag = tag_of(collective, segment),
        .data = data,
        .bytes = segment->into.count * collective->element_bytes,
    };
    return sh_receive(engine->transport, &segment->receive);
}

static sh_status post_send(sh_engine *engine, sh_message_collective *collective,
                           sh_segment *segment, int peer, sh_range range) {
    sh_call *call = collective->call;
    const char *from = call->what == SH_ALLTOALL
                           ? (const char *)call->source + segment->first * collective->element_bytes
                           : segment_data(collective, segment);
    if (call->data != NULL) from += range.first * collective->element_bytes;
    segment->send = (sh_message){
        .peer = sh_group_member(collective->group, peer),
        .tag = tag_of(collective, segment),
        .data = call->data != NULL ? (void *)(uintptr_t)from : NULL,
        .bytes = range.count * collective->element_bytes,
        .stamp = collective->started.stamp,
    };
    call->messages++;
    call->sent_bytes += segment->send.bytes;
    return sh_send(engine->transport, &segment->send);
}

/* Goes to the next step in which this rank has something to do; none left: the segment ends. */
static sh_status begin_step(sh_engine *engine, sh_message_collective *collective,
                            sh_segment *segment) {
    bool empty_travels = collective->call->what == SH_BARRIER;
    for (; segment->step < collective->steps; segment->step++) {
        sh_moves moves = collective->algorithm->step(&collective->topology, collective->group->rank,
                                                     segment->step);
        sh_range out = {0}, in = {0};
        if (moves.send.peer >= 0)
            out = sh_stretch_range(segment->count, collective->blocks, moves.send.first,
                                   moves.send.count);
        if (moves.receive.peer >= 0)
            in = sh_stretch_range(segment->count, collective->blocks, moves.receive.first,
                                  moves.receive.count);
        bool sends = moves.send.peer >= 0 && (out.count > 0 || empty_travels);
        bool receives = moves.receive.peer >= 0 && (in.count > 0 || empty_travels);
        if (!sends && !receives) continue;
        bool same = sends && receives && collective->call->what != SH_ALLTOALL && overlap(out, in);
        segment->active = true;
        segment->into = in;
        segment->then = moves.then;
        segment->after_send = same;
        segment->in_scratch = same || moves.then == SH_THEN_REDUCE;
        segment->received = !receives;
        segment->send.state = segment->receive.state = SH_MESSAGE_NEW;
        if (receives) SH_TRY(post_receive(engine, collective, segment, moves.receive.peer));
        if (sends) SH_TRY(post_send(engine, collective, segment, moves.send.peer, out));
        return SH_OK;
    }
    segment->active = false;
    return SH_OK;
}

/* Takes up the next segment in which this rank has something to do. */
static sh_status begin_segment(sh_engine *engine, sh_message_collective *collective,
                               sh_segment *segment) {
    segment->active = false;
    while (!segment->active && collective->begun < collective->segments) {
        segment->index = collective->begun++;
        segment->first = (size_t)segment->index * collective->segment_elements;
        segment->count = collective->call->count - segment->first;
        if (segment->count > collective->segment_elements)
            segment->count = collective->segment_elements;
        segment->step = 0;
        SH_TRY(begin_step(engine, collective, segment));
        if (!segment->active) collective->ended++;
    }
    return SH_OK;
}

static void use_received(const sh_engine *engine, const sh_message_collective *collective,
                         sh_segment *segment) {
    const sh_call *call = collective->call;
    segment->received = true;
    if (call->data == NULL) return;
    char *to = segment_data(collective, segment) + segment->into.first * collective->element_bytes;
    if (segment->then == SH_THEN_REDUCE)
        engine->combine->join[call->op][call->dtype](to, to, segment->scratch, segment->into.count);
    else if (segment->in_scratch)
        memcpy(to, segment->scratch, segment->into.count * collective->element_bytes);
}

/* Every rank divides the same bits by the same number. */
static void divide_mean(const sh_engine *engine, const sh_message_collective *collective,
                        const sh_segment *segment) {
    const sh_call *call = collective->call;
    if (call->op != SH_MEAN || call->data == NULL) return;
    sh_range range = {0, segment->count};
    if (call->what == SH_REDUCE_SCATTER)
        range = sh_block_range(segment->count, collective->group->ranks, collective->group->rank);
    else if (call->what != SH_ALLREDUCE)
        return;
    engine->combine->divide[call->dtype](
        segment_data(collective, segment) + range.first * collective->element_bytes,
        collective->group->ranks, range.count);
}

static sh_status check_message(sh_engine *engine, const sh_message_collective *collective,
                               const sh_message *message) {
    bool failed = message->state == SH_MESSAGE_FAILED || message->state == SH_MESSAGE_CANCELLED;
    if (!failed) return SH_OK;
    SH_TRY(sh_engine_health(engine));
    const sh_call *call = collective->call;
    char place[SH_PLACE_TEXT];
    SH_FAIL(SH_E_PEER, "rank %d: a message of %s %s (%s, %zu elements) %s rank %d failed",
            engine->transport->rank, sh_collective_name(call->what), collective->algorithm->name,
            sh_call_place(call, place), call->count, message->sends ? "to" : "from", message->peer);
    return sh_error_hint("all ranks of a group must start the same calls in the same order");
}

/* One step of one segment; true if anything changed. */
static sh_status advance(sh_engine *engine, sh_message_collective *collective, sh_segment *segment,
                         bool *moved_out) {
    SH_TRY(check_message(engine, collective, &segment->receive));
    SH_TRY(check_message(engine, collective, &segment->send));
    bool sending = is_pending(&segment->send);
    if (!segment->received && !is_pending(&segment->receive) && !(sending && segment->after_send)) {
        if (segment->receive.bytes != segment->into.count * collective->element_bytes) {
            segment->receive.state = SH_MESSAGE_FAILED;
            return check_message(engine, collective, &segment->receive);
        }
        use_received(engine, collective, segment);
        *moved_out = true;
    }
    if (sending || !segment->received) return SH_OK;
    segment->step++;
    *moved_out = true;
    return begin_step(engine, collective, segment);
}

static sh_status advance_segments(sh_engine *engine, sh_message_collective *collective,
                                  bool *moved_out) {
    int slots = collective->segments < SH_WINDOW ? collective->segments : SH_WINDOW;
    for (int i = 0; i < slots; i++) {
        sh_segment *segment = &collective->window[i];
        while (segment->active) {
            bool moved = false;
            SH_TRY(advance(engine, collective, segment, &moved));
            *moved_out |= moved;
            if (!moved) break;
            if (segment->active) continue;
            divide_mean(engine, collective, segment);
            collective->ended++;
            SH_TRY(begin_segment(engine, collective, segment));
        }
    }
    return SH_OK;
}

/* ---- The transport's own all-reduce ------------------------------------------------------------
 *
 * Inside, nobody hears that a peer started something else, and what ranks with different sizes do
 * there is undefined. So each sends an empty message with the call's stamp to its right and enters
 * once it has its left neighbour's: a difference is seen by whoever stands right of it. */

static sh_status begin_native(sh_engine *engine, sh_message_collective *collective) {
    sh_segment *greeting = &collective->window[0];
    int rank = collective->group->rank, ranks = collective->group->ranks;
    greeting->active = true;
    SH_TRY(post_receive(engine, collective, greeting, (rank + ranks - 1) % ranks));
    return post_send(engine, collective, greeting, (rank + 1) % ranks, (sh_range){0});
}

/* It blocks, so every call started before must be over: a peer may wait for it before it comes
 * here. */
static bool is_oldest(const sh_engine *engine, const sh_message_collective *collective) {
    if (engine->messages.first != collective) return false;
    for (const sh_group *group = engine->groups; group != NULL; group = group->next)
        if (group->direct.ended != group->direct.announced || group->direct.first != NULL)
            return false;
    return true;
}

static sh_status run_native(sh_engine *engine, sh_message_collective *collective) {
    sh_call *call = collective->call;
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
    divide_mean(engine, collective, &(sh_segment){.count = call->count});
    call->messages = 1;
    call->sent_bytes = call->count * collective->element_bytes;
    collective->ended = collective->segments;
    return SH_OK;
}

static sh_status advance_native(sh_engine *engine, sh_message_collective *collective) {
    sh_segment *greeting = &collective->window[0];
    SH_TRY(check_message(engine, collective, &greeting->receive));
    SH_TRY(check_message(engine, collective, &greeting->send));
    if (is_pending(&greeting->receive) || is_pending(&greeting->send)) return SH_OK;
    greeting->active = false;
    return is_oldest(engine, collective) ? run_native(engine, collective) : SH_OK;
}

bool sh_message_collective_progress(sh_engine *engine, sh_message_collective *collective) {
    bool moved = false;
    sh_status status = SH_OK;
    if (collective->algorithm->native)
        status = advance_native(engine, collective);
    else
        status = advance_segments(engine, collective, &moved);
    if (status != SH_OK) {
        sh_engine_fail(engine, status);
        return true;
    }
    if (collective->ended < collective->segments) return moved;
    sh_message_collective_end(engine, collective, SH_OK);
    return true;
}

/* All-to-all: what a rank keeps. */
static void copy_own_block(const sh_message_collective *collective) {
    const sh_call *call = collective->call;
    sh_range own = sh_block_range(call->count, collective->group->ranks, collective->group->rank);
    size_t at = own.first * collective->element_bytes;
    if (own.count > 0 && call->data != NULL)
        memcpy((char *)call->data + at, (const char *)call->source + at,
               own.count * collective->element_bytes);
}

static void set_up(sh_engine *engine, sh_call *call, const sh_algorithm *algorithm,
                   sh_message_collective *collective) {
    collective->call = call;
    collective->group = sh_call_group(engine, call);
    collective->algorithm = algorithm;
    collective->topology = (sh_topology){
        .ranks = collective->group->ranks, .root = call->root, .places = collective->group->places};
    collective->blocks = algorithm->native ? 1 : algorithm->blocks(&collective->topology);
    collective->steps = algorithm->native ? 1 : algorithm->steps(&collective->topology);
    collective->element_bytes = sh_dtype_bytes(call->dtype);
    collective->begun = collective->ended = 0;
    collective->started =
        sh_agree_begin(engine, collective->group, sh_stamp_of(call, sh_stamp_how(algorithm)));
    collective->tag = sh_call_tag(collective->group, collective->started.number);
    if (algorithm->native) {
        collective->segments = 1;
        collective->segment_elements = call->count;
        return;
    }
    cut_segments(engine, call, collective);
}

static sh_status begin_segments(sh_engine *engine, sh_message_collective *collective) {
    for (int i = 0; i < SH_WINDOW; i++) {
        sh_segment *segment = &collective->window[i];
        size_t at = i < collective->segments ? (size_t)i * collective->scratch_each : 0;
        segment->scratch = collective->scratch != NULL ? collective->scratch + at : NULL;
        SH_TRY(begin_segment(engine, collective, segment));
    }
    return SH_OK;
}

sh_status sh_message_collective_begin(sh_engine *engine, sh_call *call,
                                      const sh_algorithm *algorithm) {
    sh_message_collective made = {0}, *collective = NULL;
    set_up(engine, call, algorithm, &made);
    size_t slots = (size_t)(made.segments < SH_WINDOW ? made.segments : SH_WINDOW);
    if (call->data != NULL && !algorithm->native)
        made.scratch_each = sh_round_up(longest_stretch(&made) * made.element_bytes, SH_ALIGN);
    SH_TRY(acquire_collective(engine, slots * made.scratch_each, &collective));
    made.scratch = collective->scratch;
    made.scratch_bytes = collective->scratch_bytes;
    *collective = made;
    if (engine->messages.last != NULL)
        engine->messages.last->next = collective;
    else
        engine->messages.first = collective;
    engine->messages.last = collective;
    if (call->what == SH_ALLTOALL) copy_own_block(collective);
    sh_status status =
        algorithm->native ? begin_native(engine, collective) : begin_segments(engine, collective);
    return status == SH_OK ? SH_OK : sh_engine_fail(engine, status);
}

void sh_message_collective_end(sh_engine *engine, sh_message_collective *collective,
                               sh_status status) {
    sh_message_collective **at = &engine->messages.first, *before = NULL;
    for (; *at != collective; at = &(*at)->next) before = *at;
    *at = collective->next;
    if (engine->messages.last == collective) engine->messages.last = before;
    for (int i = 0; status != SH_OK && i < SH_WINDOW; i++) {
        sh_segment *segment = &collective->window[i];
        if (!segment->active) continue;
        if (is_pending(&segment->receive)) sh_cancel(engine->transport, &segment->receive);
        if (is_pending(&segment->send)) sh_cancel(engine->transport, &segment->send);
    }
    collective->next = engine->messages.spare;
    engine->messages.spare = collective;
    sh_call_finish(engine, collective->call, status);
}

void sh_message_collectives_destroy(sh_message_collective *collective) {
    while (collective != NULL) {
        sh_message_collective *next = collective->next;
        sh_free(collective->scratch);
        sh_free(collective);
        collective = next;
    }
}

/* The first message that a message collective waits for. */
int sh_message_collective_waits(const sh_message_collective *collective, int *segment_out,
                                int *step_out, bool *sends_out) {
    for (int i = 0; i < SH_WINDOW; i++) {
        const sh_segment *segment = &collective->window[i];
        if (!segment->active) continue;
        *segment_out = segment->index;
        *step_out = segment->step;
        *sends_out = !is_pending(&segment->receive);
        return *sends_out ? segment->send.peer : segment->receive.peer;
    }
    return -1;
}

/* Two ranks may wait for each other without any message between them, so a rank that has waited
 * for some time tells the peer that it waits for which call it is in. */
void sh_message_collective_notify(sh_engine *engine, sh_message_collective *collective) {
    int segment, step;
    bool sends;
    int peer =
        collective->told ? -1 : sh_message_collective_waits(collective, &segment, &step, &sends);
    if (peer < 0 || engine->notice.state == SH_MESSAGE_PENDING) return;
    sh_agree_tell(engine, collective->group, peer, &collective->started, &engine->notice);
    collective->told = true;
}
