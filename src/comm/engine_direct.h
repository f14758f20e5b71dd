/* What the long and the quick way through mapped memory share: the protocol of a piece. */
#ifndef SH_COMM_ENGINE_DIRECT_H
#define SH_COMM_ENGINE_DIRECT_H

#include "comm/engine_internal.h"

static inline sh_announcement *sh_announcement_at(sh_direct *direct, int id, int rank,
                                                  uint64_t number) {
    return &direct->area[rank]->flags[id].announcement[number % SH_PIECES];
}

static inline sh_piece *sh_piece_at(sh_direct *direct, uint64_t number) {
    return &direct->piece[number % SH_PIECES];
}

static inline sh_way sh_way_of(const sh_call *call, size_t bytes) {
    size_t small = call->shared != NULL ? SH_SMALL_MAPPED_BYTES : SH_SMALL_BYTES;
    if (call->fused.work != NULL) return SH_WAY_PARTS;
    if (bytes <= small) return SH_WAY_SMALL;
    return call->shared != NULL ? SH_WAY_MAPPED : SH_WAY_CHUNKS;
}

/* All peers are done with the announcement that `number` will overwrite. */
static inline bool sh_announcement_is_free(sh_direct *direct, const sh_group *group,
                                           uint64_t number) {
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

static inline void sh_publish(sh_engine *engine, sh_group *group, uint64_t number, sh_stamp stamp,
                              uint64_t offset) {
    sh_announcement *mine = sh_announcement_at(&group->direct, group->id, group->rank, number);
    mine->offset = offset;
    mine->stamp = stamp;
    atomic_store_explicit(&mine->taken, 0, memory_order_relaxed);
    // Release: whoever sees the number sees the line and the data that it speaks of.
    atomic_store_explicit(&mine->number, number, memory_order_release);
    sh_engine_wake(engine, group);
}

static inline void sh_announce_small(sh_engine *engine, sh_group *group, uint64_t number,
                                     sh_stamp stamp, const sh_call *call) {
    sh_announcement *mine = sh_announcement_at(&group->direct, group->id, group->rank, number);
    const void *from = call->what == SH_ALLTOALL ? call->source : call->data;
    engine->combine->copy(mine->data, from, call->count * sh_dtype_bytes(call->dtype));
    sh_publish(engine, group, number, stamp, 0);
}

/* All peers have announced piece `number`; -1 on a peer that announced something else. */
static inline int sh_all_arrived(sh_group *group, uint64_t number) {
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

static inline void sh_tell_done(sh_engine *engine, sh_group *group, uint64_t number) {
    // Release: this rank's reads and writes of the piece come before.
    atomic_store_explicit(&engine->area->flags[group->id].done, number, memory_order_release);
}

static inline bool sh_all_done(sh_group *group, uint64_t number) {
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

/* Of a piece whose parts ranks take: nobody will find another. */
bool sh_parts_taken(sh_group *group, const sh_piece *piece, uint64_t number);
/* The slice of one rank: whole cache lines, so that no two ranks write to one line. */
sh_range sh_direct_slice(size_t count, size_t element, int ranks, int rank);
/* This rank's work on a piece that all have announced. */
void sh_direct_use(const sh_engine *engine, sh_group *group, const sh_piece *piece,
                   uint64_t number);
/* Adds what crossed between the ranks to the call's figures. */
void sh_count_traffic(sh_call *call, const sh_group *group, const sh_piece *piece);

#endif
