/* What is noted of a call, and how it ends: its entry in the flight recorder, its results, and the
 * engine's first failure. Both ways that a call can travel (engine_message.c, engine_direct.c) end
 * their calls here; nothing here knows them. */
#include <inttypes.h>
#include <stdio.h>

#include "comm/engine_internal.h"

static const char *const direct_names[SH_COLLECTIVES] = {
    [SH_ALLREDUCE] = "allreduce direct", [SH_REDUCE_SCATTER] = "reduce-scatter direct",
    [SH_ALLGATHER] = "allgather direct", [SH_BROADCAST] = "broadcast direct",
    [SH_ALLTOALL] = "alltoall direct",   [SH_BARRIER] = "barrier direct",
};

/* call->own keeps the number of the recorder's entry, which may be overwritten before the call
 * ends.
 */
void sh_call_record(sh_engine *engine, sh_call *call, const sh_algorithm *algorithm) {
    sh_rank_status *board = engine->transport->board;
    char text[2 * sizeof board->operations[0].what];
    const char *what = direct_names[call->what];
    if (algorithm != NULL) {
        snprintf(text, sizeof text, "%s %s", sh_collective_name(call->what), algorithm->name);
        what = text;
    }
    sh_operation *entry = sh_board_begin(board, engine->now_ns, what, call->step, call->bucket, -1,
                                         (int64_t)(call->count * sh_dtype_bytes(call->dtype)));
    call->own = (void *)(uintptr_t)entry->sequence;
}

static void record_end(sh_engine *engine, const sh_call *call) {
    sh_rank_status *board = engine->transport->board;
    uint64_t number = (uint64_t)(uintptr_t)call->own;
    sh_operation *entry = &board->operations[number % SH_BOARD_OPERATIONS];
    if (entry->sequence == number) sh_board_end(board, entry, engine->now_ns);
}

/* The call belongs to its caller again, and may be gone when this returns. */
void sh_call_return(sh_engine *engine, sh_call *call, sh_status status) {
    call->status = status;
    if (engine->ended != NULL)
        engine->ended(engine, call);
    else
        call->done = true;
}

void sh_call_finish(sh_engine *engine, sh_call *call, sh_status status) {
    engine->under_way--;
    // Small calls take less time than a look at the clock is worth.
    if (call->count * sh_dtype_bytes(call->dtype) > SH_SMALL_BYTES) sh_engine_now(engine);
    call->end_ns = engine->now_ns;
    if (engine->status == SH_OK) {  // after a failure the board keeps what this rank waited in
        record_end(engine, call);
        if (engine->watch.waits != 0) sh_engine_awake(engine);
    }
    sh_call_return(engine, call, status);
}

void sh_engine_awake(sh_engine *engine) {
    engine->watch.waits = 0;
    atomic_store_explicit(&engine->transport->board->waits_for, 0, memory_order_relaxed);
}

sh_status sh_engine_fail(sh_engine *engine, sh_status status) {
    if (engine->status != SH_OK) return status;
    engine->status = status;
    engine->error = *sh_error_last();
    return status;
}

const char *sh_call_place(const sh_call *call, char text_out[SH_PLACE_TEXT]) {
    char bucket[24] = "";
    if (call->bucket >= 0) snprintf(bucket, sizeof bucket, "bucket %d, ", call->bucket);
    snprintf(text_out, SH_PLACE_TEXT, "%sstep %" PRId64, bucket, call->step);
    return text_out;
}
