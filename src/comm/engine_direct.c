/* Direct: collectives through memory that all ranks of a group map.
 *
 * A piece goes through three stages, in the order of the numbers on every rank:
 *
 *   announced   "my data lies there": one cache line, which its peers watch
 *   reduced     once all have announced: this rank sums its slice straight from its peers' memory
 *               and writes it to all of them, in one pass over the cache; then "done"
 *   ended       once all are done, the data is the caller's again
 *
 * Traffic per rank: n(P-1)/P read and n(P-1)/P written, two flags. Small data travels inside the
 * announcement and every rank sums all of it in the order of the ranks: one flag, and equal bits.
 * Private data goes through chunks of shared scratch, several under way.
 *
 * An announcement is written again SH_PIECES pieces later; until then all peers must be done with
 * it. Only the rank itself writes its flags, so plain release stores and acquire loads suffice.
 *
 * Sums that are worked on on their way (sh_fused_work) have no slices: whoever waits takes the next
 * part, by a counter beside the first rank's announcement, and so a rank that is late finds less to
 * do. A rank is done when all parts are taken and its own are finished. */

#include "comm/engine_direct.h"

#include "base/task.h"

bool sh_direct_serves(const sh_engine *engine, const sh_call *call) {
    return sh_call_group(engine, call)->direct.area != NULL &&
           sh_way_of(call)->serves(engine, call);
}

sh_status sh_direct_join(sh_engine *engine, sh_group *group) {
    group->direct.area = NULL;
    if (engine->area == NULL || group->ranks < 2) return SH_OK;
    for (int i = 0; i < group->ranks; i++)
        if (engine->shared.base[sh_group_member(group, i)] == NULL) return SH_OK;
    sh_area **area = sh_alloc((size_t)group->ranks, sizeof *area);
    if (area == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a group");
    for (int i = 0; i < group->ranks; i++)
        area[i] = (sh_area *)(void *)engine->shared.base[sh_group_member(group, i)];
    group->direct.area = area;
    return SH_OK;
}

/* ---- Flags -------------------------------------------------------------------------------------
 */

/* Wakes peers that sleep, after something was announced. */
static void wake_sleepers(sh_engine *engine, const sh_group *group) {
    for (int i = 0; i < group->ranks; i++) {
        // Relaxed, and no fence between the announcement and this look: a rank that falls asleep
        // looks again long after its flag was visible (see sleep_politely in engine_wait.c).
        if (i != group->rank &&
            atomic_load_explicit(&group->direct.area[i]->sleeps, memory_order_relaxed) != 0)
            sh_wake(engine->transport, sh_group_member(group, i));
    }
}

/* All peers are done with the announcement that `number` will overwrite. */
static bool is_free(sh_direct *direct, const sh_group *group, uint64_t number) {
    if (number <= direct->all_done + SH_PIECES) return true;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < group->ranks; i++) {
        // Acquire: what the peer read and wrote before it was done has happened.
        uint64_t done =
            atomic_load_explicit(&direct->area[i]->flags[group->id].done, memory_order_acquire);
        if (i != group->rank && done < least) least = done;
    }
    direct->all_done = least;
    return number <= least + SH_PIECES;
}

static void publish(sh_engine *engine, sh_group *group, uint64_t number, sh_stamp stamp,
                    uint64_t offset) {
    sh_announcement *mine = sh_announcement_at(&group->direct, group->id, group->rank, number);
    mine->offset = offset;
    mine->stamp = stamp;
    atomic_store_explicit(&mine->taken, 0, memory_order_relaxed);
    // Release: whoever sees the number sees the line and the data that it speaks of.
    atomic_store_explicit(&mine->number, number, memory_order_release);
    wake_sleepers(engine, group);
}

/* All peers have announced piece `number`; -1 on a peer that announced something else. */
static int all_arrived(sh_group *group, uint64_t number) {
    sh_direct *direct = &group->direct;
    for (int i = direct->arrived_at; i < group->ranks; i++) {
        const sh_announcement *theirs = sh_announcement_at(direct, group->id, i, number);
        // Acquire: pairs with the release in publish.
        if (atomic_load_explicit(&theirs->number, memory_order_acquire) != number) {
            direct->arrived_at = i;
            return 0;
        }
        const sh_piece *piece = sh_piece_at(direct, number);
        if (!sh_stamp_equal(theirs->stamp, piece->stamp)) return -1;
    }
    direct->arrived_at = group->ranks;
    return 1;
}

static void tell_done(sh_engine *engine, sh_group *group, uint64_t number) {
    // Release: this rank's reads and writes of the piece come before.
    atomic_store_explicit(&engine->area->flags[group->id].done, number, memory_order_release);
}

static bool all_done(sh_group *group, uint64_t number) {
    sh_direct *direct = &group->direct;
    for (int i = direct->done_at; i < group->ranks; i++) {
        // Acquire: the peer's writes to this rank's data have happened.
        if (atomic_load_explicit(&direct->area[i]->flags[group->id].done, memory_order_acquire) <
            number) {
            direct->done_at = i;
            return false;
        }
    }
    direct->done_at = 0;
    return true;
}

/* ---- Stages ------------------------------------------------------------------------------------
 */

/* Announces the next piece of the oldest call; false if it has to wait. */
static bool announce_next(sh_engine *engine, sh_group *group) {
    sh_direct *direct = &group->direct;
    sh_call *call = direct->first;
    uint64_t number = direct->announced + 1, offset;
    if (number > direct->ended + SH_PIECES || !is_free(direct, group, number)) return false;
    const sh_way *way = sh_way_of(call);
    sh_piece *piece = sh_piece_at(direct, number);
    *piece = (sh_piece){.call = call,
                        .first = direct->cursor,
                        .count = call->count - direct->cursor,
                        .stamp = sh_stamp_of(call, way->number),
                        .way = way};
    if (!way->prepare(engine, group, piece, number, &offset)) return false;
    publish(engine, group, number, piece->stamp, offset);
    direct->announced = number;
    direct->cursor += piece->count;
    piece->last = direct->cursor == call->count;
    if (piece->last) {
        direct->first = call->next;
        if (direct->first == NULL) direct->last = NULL;
        direct->cursor = 0;
    }
    return true;
}

/* The first peer whose announcement of a piece is another. */
static void disagree(sh_engine *engine, sh_group *group, uint64_t number) {
    const sh_piece *piece = sh_piece_at(&group->direct, number);
    int peer = group->direct.arrived_at;
    sh_stamp theirs;
    do {
        theirs = sh_announcement_at(&group->direct, group->id, peer, number)->stamp;
    } while (sh_stamp_equal(theirs, piece->stamp) && ++peer < group->ranks);
    sh_started ours = {SH_NO_CALL, engine->transport->rank, piece->stamp};
    sh_agree_differ(engine, group, (sh_started){SH_NO_CALL, sh_group_member(group, peer), theirs},
                    ours);
    (void)sh_agree_settle(engine);
}

static bool reduce_next(sh_engine *engine, sh_group *group) {
    sh_direct *direct = &group->direct;
    uint64_t number = direct->reduced + 1;
    if (number > direct->announced) return false;
    int arrived = all_arrived(group, number);
    if (arrived == 0) return false;
    const sh_piece *piece = sh_piece_at(direct, number);
    if (arrived < 0) {
        disagree(engine, group, number);
        return true;
    }
    // Who has something else to do leaves parts to others.
    bool leaves = piece->way->shares_work && !engine->waiting;
    if (leaves && !sh_parts_taken(group, piece, number)) return false;
    piece->way->work(engine, group, piece, number);
    direct->reduced = number;
    direct->arrived_at = 0;
    tell_done(engine, group, number);
    if (!piece->way->one_flag) wake_sleepers(engine, group);
    return true;
}

static bool end_next(sh_engine *engine, sh_group *group) {
    sh_direct *direct = &group->direct;
    uint64_t number = direct->ended + 1;
    if (number > direct->reduced) return false;
    const sh_piece *piece = sh_piece_at(direct, number);
    if (!piece->way->one_flag && !all_done(group, number)) return false;
    sh_call *call = piece->call;
    if (piece->way->finish != NULL) piece->way->finish(engine, piece);
    direct->ended = number;
    sh_count_traffic(call, group, piece);
    if (piece->last) sh_call_finish(engine, call, SH_OK);
    return true;
}

/* ---- What the engine calls --------------------------------------------------------------------
 */

static sh_status check_mapped(const sh_engine *engine, const sh_call *call) {
    size_t bytes = call->count * sh_dtype_bytes(call->dtype);
    const sh_fused_work *fused = &call->fused;
    bool inside = call->shared == NULL || sh_shared_holds(engine, call->shared, call->data, bytes);
    if (fused->work != NULL)
        inside = inside && sh_shared_holds(engine, fused->shared, fused->result, bytes);
    if (inside) return SH_OK;
    return SH_FAIL(SH_E_SHAPE, "the data of %s of bucket %d does not lie in the shared memory",
                   sh_collective_name(call->what), call->bucket);
}

sh_status sh_direct_begin(sh_engine *engine, sh_call *call) {
    SH_TRY(check_mapped(engine, call));
    sh_group *group = sh_call_group(engine, call);
    sh_direct *direct = &group->direct;
    sh_agree_begin(engine, group, sh_stamp_of(call, sh_way_of(call)->number));
    call->next = NULL;
    if (direct->last != NULL)
        direct->last->next = call;
    else
        direct->first = call;
    direct->last = call;
    sh_direct_progress(engine, group);
    return SH_OK;
}

bool sh_direct_progress(sh_engine *engine, sh_group *group) {
    sh_direct *direct = &group->direct;
    bool moved = false;
    // Peers wait for announcements most, then for slices.
    while (direct->first != NULL && announce_next(engine, group)) moved = true;
    while (engine->status == SH_OK && reduce_next(engine, group)) {
        moved = true;
        if (direct->first != NULL) announce_next(engine, group);
    }
    while (engine->status == SH_OK && end_next(engine, group)) moved = true;
    return moved;
}

void sh_direct_abandon(sh_engine *engine, sh_group *group, sh_status status) {
    sh_direct *direct = &group->direct;
    sh_call *call = NULL;
    for (uint64_t number = direct->ended + 1; number <= direct->announced; number++) {
        if (sh_piece_at(direct, number)->call == call) continue;
        call = sh_piece_at(direct, number)->call;
        if (call != direct->first) sh_call_finish(engine, call, status);
    }
    while (direct->first != NULL) {
        call = direct->first;
        direct->first = call->next;
        sh_call_finish(engine, call, status);
    }
    direct->last = NULL;
    direct->ended = direct->reduced = direct->announced;
}

const sh_call *sh_direct_waits(const sh_group *group, uint64_t *waits_out, bool *arrived_out) {
    const sh_direct *direct = &group->direct;
    if (direct->area == NULL || direct->ended == direct->announced) return NULL;
    *arrived_out = direct->reduced > direct->ended;
    uint64_t number = direct->ended + 1;
    for (int i = 0; i < group->ranks && i < SH_BOARD_WAITS; i++) {
        const sh_group_flags *flags = &direct->area[i]->flags[group->id];
        uint64_t at = *arrived_out
                          ? atomic_load_explicit(&flags->done, memory_order_relaxed)
                          : atomic_load_explicit(&flags->announcement[number % SH_PIECES].number,
                                                 memory_order_relaxed);
        if (at < number && sh_group_member(group, i) < SH_BOARD_WAITS)
            *waits_out |= UINT64_C(1) << sh_group_member(group, i);
    }
    return direct->piece[number % SH_PIECES].call;
}

bool sh_direct_progress_all(sh_engine *engine) {
    bool moved = false;
    for (sh_group *group = engine->groups; group != NULL; group = group->next) {
        const sh_direct *direct = &group->direct;
        if (direct->first != NULL || direct->ended != direct->announced)
            moved |= sh_direct_progress(engine, group);
    }
    return moved;
}

/* ---- The quick way -----------------------------------------------------------------------------
 *
 * A small all-reduce or barrier that is run, not started, and finds nothing else under way: the
 * same stages without queues, and the clock is not read. */

static bool is_quick(const sh_engine *engine, const sh_group *group, const sh_call *call) {
    size_t bytes = call->count * sh_dtype_bytes(call->dtype);
    const sh_direct *direct = &group->direct;
    bool plain = call->algorithm == NULL && engine->forced == NULL && engine->status == SH_OK &&
                 (call->what == SH_ALLREDUCE || call->what == SH_BARRIER) &&
                 bytes <= SH_QUICK_BYTES && sh_way_of(call)->quick;
    return plain && direct->area != NULL && direct->first == NULL &&
           direct->ended == direct->announced && call->dtype != SH_DTYPE_BYTE;
}

/* Spins a while for `reached`; most peers of a small call are there at once. With fewer cores than
 * ranks a peer may need this core, so it is offered instead. */
#define SPIN_FOR(engine, reached)                                      \
    ({                                                                 \
        bool shared_cores_ = (engine)->transport->ranks_per_core > 1;  \
        int tries_ = shared_cores_ ? SH_QUICK_YIELDS : SH_QUICK_SPINS; \
        bool reached_ = (reached);                                     \
        for (; !reached_ && tries_ > 0; tries_--) {                    \
            if (shared_cores_)                                         \
                sh_task_yield();                                       \
            else                                                       \
                sh_pause();                                            \
            reached_ = (reached);                                      \
        }                                                              \
        reached_;                                                      \
    })

/* Both stages of a piece as far as peers are there; true: it has ended. */
static bool pass_quickly(sh_engine *engine, sh_group *group, sh_piece *piece, uint64_t number) {
    sh_direct *direct = &group->direct;
    if (!SPIN_FOR(engine, all_arrived(group, number) > 0)) return false;
    direct->arrived_at = 0;
    piece->way->work(engine, group, piece, number);
    direct->reduced = number;
    tell_done(engine, group, number);
    if (piece->way->one_flag) return true;
    wake_sleepers(engine, group);
    return SPIN_FOR(engine, all_done(group, number));
}

bool sh_direct_quick(sh_engine *engine, sh_call *call) {
    sh_group *group = sh_call_group(engine, call);
    sh_direct *direct = &group->direct;
    if (!is_quick(engine, group, call)) return false;
    uint64_t number = direct->announced + 1, offset;
    if (!is_free(direct, group, number)) return false;
    const sh_way *way = sh_way_of(call);
    size_t bytes = call->count * sh_dtype_bytes(call->dtype);
    if (!way->one_flag && !sh_shared_holds(engine, call->shared, call->data, bytes)) return false;
    sh_piece *piece = sh_piece_at(direct, number);
    *piece = (sh_piece){.call = call,
                        .count = call->count,
                        .stamp = sh_stamp_of(call, way->number),
                        .way = way,
                        .last = true};
    way->prepare(engine, group, piece, number, &offset);
    publish(engine, group, number, piece->stamp, offset);
    // Peers see the announcement first: books are kept while it travels.
    sh_agree_begin(engine, group, piece->stamp);
    direct->announced = number;
    call->sent_bytes = call->messages = 0;
    call->status = SH_OK;
    call->start_ns = engine->now_ns;
    call->done = false;
    engine->under_way++;
    bool ended = pass_quickly(engine, group, piece, number);
    // Afterwards, as it waits for all stores to be visible.
    sh_call_record(engine, call, NULL);
    if (!ended) return true;
    direct->ended = number;
    sh_count_traffic(call, group, piece);
    sh_call_finish(engine, call, SH_OK);
    return true;
}
