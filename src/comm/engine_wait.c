/* What the driver does while nothing moves: it spins, yields, then sleeps; and the watchdog, which
 * knows for whom every rank waits and ends all calls when the wait exceeds its limit. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/task.h"
#include "comm/engine_internal.h"

enum {
    SPINS = 2000,       // each a pause of some 20 ns, where every rank has a core
    SHARED_SPINS = 20,  // where ranks share cores
    SHARED_YIELDS = 400,
    YIELDS = 1 << 30,  // where every rank has a core: as many as fit into the time below
    RECHECKS = 100,
};

/* A rank with a core of its own hardly ever sleeps within a step: a virtual machine gives a core
 * that sleeps to others, and may wait tens of milliseconds until it gets it back. */
static const int64_t yields_most_ns = 30000000, shared_yields_most_ns = 1000000;
static const int64_t health_every_ns = 2000000;

/* The flag is raised, then announcements are looked at for a while longer than any store takes to
 * become visible; only then the rank sleeps. An announcer that did not see the flag has thus been
 * seen. (And the transport's sleep ends by itself after some milliseconds.) */
static bool sleep_politely(sh_engine *engine) {
    bool moved = false;
    if (engine->area != NULL) {
        atomic_store_explicit(&engine->area->sleeps, 1, memory_order_seq_cst);
        for (int i = 0; i < RECHECKS && !moved; i++) {
            moved = sh_direct_progress_all(engine);
            sh_pause();
        }
    }
    if (!moved) moved = sh_transport_progress(engine->transport);
    if (!moved && engine->mismatch.group == NULL) sh_transport_idle(engine->transport);
    if (engine->area != NULL) atomic_store_explicit(&engine->area->sleeps, 0, memory_order_relaxed);
    return moved;
}

/* ---- The watchdog ---------------------------------------------------------------------------- */

/* For whom this rank waits, over all calls. */
static uint64_t waited_for(const sh_engine *engine) {
    uint64_t waits = 0;
    bool arrived, sends;
    int segment, step;
    for (const sh_group *group = engine->groups; group != NULL; group = group->next)
        sh_direct_waits(group, &waits, &arrived);
    for (const sh_message_collective *collective = engine->messages.first; collective != NULL;
         collective = collective->next) {
        int peer = sh_message_collective_waits(collective, &segment, &step, &sends);
        if (peer >= 0 && peer < SH_BOARD_WAITS) waits |= UINT64_C(1) << peer;
    }
    return waits;
}

static sh_status fail_message(const sh_engine *engine, const sh_message_collective *collective,
                              double seconds) {
    const sh_call *call = collective->call;
    int segment = 0, step = 0;
    bool sends = false;
    char place[SH_PLACE_TEXT];
    int peer = sh_message_collective_waits(collective, &segment, &step, &sends);
    return SH_FAIL(
        SH_E_PEER,
        "rank %d waited %.1f s for rank %d in %s %s (%s): move %d of %d of segment %d of "
        "%d, %s",
        engine->transport->rank, seconds, peer, sh_collective_name(call->what),
        collective->algorithm->name, sh_call_place(call, place), step + 1, collective->steps,
        segment + 1, collective->segments,
        sends ? "whose data it does not take" : "whose data has not come");
}

static sh_status fail_late(const sh_engine *engine, double seconds) {
    char ranks[SH_RANKS_TEXT], place[SH_PLACE_TEXT];
    for (const sh_group *group = engine->groups; group != NULL; group = group->next) {
        uint64_t waits = 0;
        bool arrived = false;
        const sh_call *call = sh_direct_waits(group, &waits, &arrived);
        if (call == NULL || waits == 0) continue;
        return SH_FAIL(SH_E_PEER, "rank %d waited %.1f s for %s in %s direct (%s), who %s",
                       engine->transport->rank, seconds, sh_ranks_text(waits, ranks),
                       sh_collective_name(call->what), sh_call_place(call, place),
                       arrived ? "arrived but did not finish" : "did not arrive");
    }
    if (engine->messages.first != NULL)
        return fail_message(engine, engine->messages.first, seconds);
    return SH_FAIL(SH_E_PEER, "rank %d waited %.1f s in vain", engine->transport->rank, seconds);
}

static sh_status watch(sh_engine *engine) {
    int64_t now = sh_engine_now(engine);
    SH_TRY(sh_agree_settle(engine));
    for (sh_message_collective *at = engine->messages.first; at != NULL; at = at->next)
        sh_message_collective_notify(engine, at);
    engine->watch.waits = waited_for(engine);
    atomic_store_explicit(&engine->transport->board->waits_for, engine->watch.waits,
                          memory_order_relaxed);
    if (now - engine->watch.health_ns > health_every_ns) {
        engine->watch.health_ns = now;
        sh_status status = sh_engine_health(engine);
        if (status != SH_OK) return sh_engine_fail(engine, status);
    }
    if (engine->watch.looked_ns < engine->watch.moved_ns)
        engine->watch.looked_ns = engine->watch.moved_ns;
    bool stopped = !engine->transport->virtual_time && sh_was_stopped(engine->watch.looked_ns, now);
    if (stopped) engine->watch.moved_ns = now;
    engine->watch.looked_ns = now;
    int64_t timeout = engine->options.timeout_ns, waited = now - engine->watch.moved_ns;
    if (timeout <= 0 || waited < timeout) return SH_OK;
    return sh_engine_fail(engine, fail_late(engine, (double)waited * 1e-9));
}

/* On a virtual clock nothing changes until this rank idles; it was woken in vain once some time has
 * passed. */
static sh_status rest_virtually(sh_engine *engine, int turn) {
    if (turn == 0)
        engine->watch.moved_ns = sh_engine_now(engine);
    else
        SH_TRY(watch(engine));
    sh_transport_idle(engine->transport);
    return SH_OK;
}

static sh_status back_off(sh_engine *engine, int *turn_inout) {
    if (engine->transport->virtual_time) return rest_virtually(engine, *turn_inout);
    // A comm task shares its core with what computes; its transport knows how to wait.
    bool polite = engine->driver != NULL || engine->transport->ranks_per_core > 1;
    int spins = polite ? SHARED_SPINS : SPINS, yields = polite ? SHARED_YIELDS : YIELDS;
    if (engine->driver != NULL) yields = 1;
    int64_t most_ns = polite ? shared_yields_most_ns : yields_most_ns;
    int late = *turn_inout - spins;
    if (late < 0) {
        sh_pause();
    } else if (late < yields) {
        if (late == 0) engine->watch.moved_ns = sh_engine_now(engine);
        sh_task_yield();
        // On a busy machine one yield can take milliseconds, and the watchdog must not starve.
        if (late % 8 == 7 && sh_engine_now(engine) - engine->watch.moved_ns > most_ns)
            *turn_inout = spins + yields;
    } else {
        SH_TRY(watch(engine));
        *turn_inout = sleep_politely(engine) ? 0 : spins + yields;
    }
    return SH_OK;
}

void sh_engine_end_failed(sh_engine *engine) {
    if (engine->status == SH_OK || engine->under_way == 0) return;
    while (engine->messages.first != NULL)
        sh_message_collective_end(engine, engine->messages.first, engine->status);
    for (sh_group *group = engine->groups; group != NULL; group = group->next)
        if (group->direct.area != NULL) sh_direct_abandon(engine, group, engine->status);
    sh_error_adopt(&engine->error);
}

sh_status sh_engine_back_off(sh_engine *engine, int *turn_inout) {
    sh_status status = back_off(engine, turn_inout);
    sh_engine_end_failed(engine);
    return status;
}

sh_status sh_engine_await_message(sh_engine *engine, sh_message *message) {
    for (int turn = 0; message->state == SH_MESSAGE_PENDING; turn++) {
        if (sh_transport_progress(engine->transport)) turn = 0;
        if (message->state != SH_MESSAGE_PENDING) break;
        sh_status status = sh_engine_back_off(engine, &turn);
        if (status != SH_OK) {
            sh_cancel(engine->transport, message);
            return status;
        }
    }
    if (message->state == SH_MESSAGE_DONE) return SH_OK;
    SH_TRY(sh_engine_health(engine));
    return SH_FAIL(SH_E_PEER, "rank %d: a message with rank %d failed", engine->transport->rank,
                   message->peer);
}
