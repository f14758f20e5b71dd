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

bool sh_direct_serves(const sh_engine *engine, const sh_call *call) {
    const sh_group *group = sh_call_group(engine, call);
    if (group->direct.area == NULL) return false;
    switch (sh_way_of(call, call->count * sh_dtype_bytes(call->dtype))) {
        case SH_WAY_SMALL:
            return true;
        case SH_WAY_MAPPED:
            return call->what != SH_ALLTOALL;
        case SH_WAY_CHUNKS:
            return call->what == SH_ALLREDUCE;
        case SH_WAY_PARTS:
            return call->what == SH_ALLREDUCE && call->shared != NULL && sh_engine_maps(engine);
    }
    return false;
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

/* ---- Announcing ------------------------------------------------------------------------------ */

static int take_chunk(sh_engine *engine) {
    for (int i = 0; i < SH_CHUNKS; i++) {
        if (engine->chunks >> i & 1) continue;
        engine->chunks |= 1u << i;
        return i;
    }
    return -1;
}

/* Announces the next piece of the oldest call; false if it has to wait. */
static bool announce_next(sh_engine *engine, sh_group *group) {
    sh_direct *direct = &group->direct;
    sh_call *call = direct->first;
    uint64_t number = direct->announced + 1;
    if (number > direct->ended + SH_PIECES || !sh_announcement_is_free(direct, group, number))
        return false;
    size_t element = sh_dtype_bytes(call->dtype), left = call->count - direct->cursor;
    sh_way way = sh_way_of(call, call->count * element);
    sh_piece *piece = sh_piece_at(direct, number);
    *piece = (sh_piece){.call = call, .stamp = sh_stamp_of(call, way), .chunk = -1, .way = way};
    piece->first = direct->cursor;
    piece->count = left;
    if (way == SH_WAY_CHUNKS) {
        if (left > SH_CHUNK_BYTES / element) piece->count = SH_CHUNK_BYTES / element;
        piece->chunk = take_chunk(engine);
        if (piece->chunk < 0) return false;
        char *chunk = engine->area->chunk[piece->chunk];
        engine->combine->copy(chunk, (char *)call->data + piece->first * element,
                              piece->count * element);
        sh_publish(engine, group, number, piece->stamp, (uint64_t)(chunk - (char *)engine->area));
    } else if (way != SH_WAY_SMALL) {
        char *base = call->shared->base[engine->transport->rank];
        sh_publish(engine, group, number, piece->stamp, (uint64_t)((char *)call->data - base));
    } else {
        sh_announce_small(engine, group, number, piece->stamp, call);
    }
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

/* ---- Reducing -------------------------------------------------------------------------------- */

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
    int arrived = sh_all_arrived(group, number);
    if (arrived == 0) return false;
    sh_piece *piece = sh_piece_at(direct, number);
    if (arrived < 0) {
        disagree(engine, group, number);
        return true;
    }
    // Who has something else to do leaves parts to others.
    bool leaves = piece->way == SH_WAY_PARTS && !engine->waiting;
    if (leaves && !sh_parts_taken(group, piece, number)) return false;
    sh_direct_use(engine, group, piece, number);
    direct->reduced = number;
    direct->arrived_at = 0;
    sh_tell_done(engine, group, number);
    if (piece->way != SH_WAY_SMALL) sh_engine_wake(engine, group);
    return true;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

/* What crossed between the ranks: what peers read here and what was written to them. */
static size_t traffic_of(const sh_call *call, const sh_group *group, const sh_piece *piece) {
    size_t element = sh_dtype_bytes(call->dtype), bytes = piece->count * element;
    size_t peers = (size_t)group->ranks - 1;
    size_t block = sh_block_range(piece->count, group->ranks, group->rank).count * element;
    size_t slice =
        sh_direct_slice(piece->count, element, group->ranks, group->rank).count * element;
    switch (call->what) {
        case SH_ALLGATHER:
            return peers * block;
        case SH_REDUCE_SCATTER:
        case SH_ALLTOALL:
            return bytes - block;
        case SH_BROADCAST:
            return group->rank == call->root ? peers * bytes : 0;
        default:
            return piece->way == SH_WAY_SMALL ? peers * bytes : bytes - slice + peers * slice;
    }
}

void sh_count_traffic(sh_call *call, const sh_group *group, const sh_piece *piece) {
    size_t peers = (size_t)group->ranks - 1;
    bool twice = piece->way != SH_WAY_SMALL && call->what == SH_ALLREDUCE;
    call->messages += twice ? 2 * peers : peers;
    call->sent_bytes += traffic_of(call, group, piece);
}

static bool end_next(sh_engine *engine, sh_group *group) {
    sh_direct *direct = &group->direct;
    uint64_t number = direct->ended + 1;
    if (number > direct->reduced) return false;
    sh_piece *piece = sh_piece_at(direct, number);
    if (piece->way != SH_WAY_SMALL && !sh_all_done(group, number)) return false;
    sh_call *call = piece->call;
    if (piece->chunk >= 0) {
        size_t element = sh_dtype_bytes(call->dtype);
        engine->combine->copy((char *)call->data + piece->first * element,
                              engine->area->chunk[piece->chunk], piece->count * element);
        engine->chunks &= ~(1u << piece->chunk);
    }
    direct->ended = number;
    sh_count_traffic(call, group, piece);
    if (piece->last) sh_call_finish(engine, call, SH_OK);
    return true;
}

/* ---- What the engine calls --------------------------------------------------------------------
 */

/* `bytes` from `data` on lie in this rank's part of the memory. */
static bool lies_in(const sh_engine *engine, const sh_shared *shared, const char *data,
                    size_t bytes) {
    const char *base = shared->base[engine->transport->rank];
    return data >= base && bytes <= shared->bytes && (size_t)(data - base) <= shared->bytes - bytes;
}

static sh_status check_mapped(const sh_engine *engine, const sh_call *call) {
    size_t bytes = call->count * sh_dtype_bytes(call->dtype);
    const sh_fused_work *fused = &call->fused;
    bool inside = call->shared == NULL || lies_in(engine, call->shared, call->data, bytes);
    if (fused->work != NULL)
        inside = inside && lies_in(engine, fused->shared, fused->result, bytes);
    if (inside) return SH_OK;
    return SH_FAIL(SH_E_SHAPE, "the data of %s of bucket %d does not lie in the shared memory",
                   sh_collective_name(call->what), call->bucket);
}

sh_status sh_direct_begin(sh_engine *engine, sh_call *call) {
    SH_TRY(check_mapped(engine, call));
    sh_group *group = sh_call_group(engine, call);
    sh_direct *direct = &group->direct;
    size_t bytes = call->count * sh_dtype_bytes(call->dtype);
    sh_agree_begin(engine, group, sh_stamp_of(call, sh_way_of(call, bytes)));
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
