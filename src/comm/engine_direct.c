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
 * An announcement is written again SH_LANE pieces later; until then all peers must be done with it.
 * Only the rank itself writes its lane, so plain release stores and acquire loads suffice. */
#include <inttypes.h>
#include <string.h>

#include "comm/engine_internal.h"

static sh_announcement *announcement(sh_direct *direct, int id, int rank, uint64_t number) {
    return &direct->area[rank]->lane[id].announcement[number % SH_LANE];
}

static sh_piece *piece_at(sh_direct *direct, uint64_t number) {
    return &direct->piece[number % SH_LANE];
}

static bool reduces(sh_collective what) {
    return what == SH_ALLREDUCE || what == SH_REDUCE_SCATTER;
}

static uint64_t kind_of(const sh_call *call, sh_way way) {
    uint64_t op = reduces(call->what) ? (uint64_t)call->op : 0;
    uint64_t root = call->what == SH_BROADCAST ? (uint64_t)call->root : 0;
    return (uint64_t)call->what | (uint64_t)call->dtype << 8 | op << 16 | (uint64_t)way << 24 |
           root << 32;
}

static sh_way way_of(const sh_call *call, size_t bytes) {
    size_t small = call->shared != NULL ? SH_SMALL_MAPPED_BYTES : SH_SMALL_BYTES;
    if (bytes <= small) return SH_WAY_SMALL;
    return call->shared != NULL ? SH_WAY_MAPPED : SH_WAY_CHUNKS;
}

bool sh_direct_serves(const sh_engine *engine, const sh_call *call) {
    const sh_group *group = sh_call_group(engine, call);
    if (group->direct.area == NULL) return false;
    switch (way_of(call, call->count * sh_dtype_bytes(call->dtype))) {
        case SH_WAY_SMALL:
            return true;
        case SH_WAY_MAPPED:
            return call->what != SH_ALLTOALL;
        case SH_WAY_CHUNKS:
            return call->what == SH_ALLREDUCE;
    }
    return false;
}

sh_status sh_direct_join(sh_engine *engine, sh_group *group) {
    group->direct.area = NULL;
    if (engine->area == NULL || group->ranks < 2) return SH_OK;
    for (int i = 0; i < group->ranks; i++)
        if (engine->shared.base[group->member[i]] == NULL) return SH_OK;
    sh_area **area = sh_alloc((size_t)group->ranks, sizeof *area);
    if (area == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a group");
    for (int i = 0; i < group->ranks; i++)
        area[i] = (sh_area *)(void *)engine->shared.base[group->member[i]];
    group->direct.area = area;
    return SH_OK;
}

/* ---- Announcing ------------------------------------------------------------------------------ */

/* All peers are done with the announcement that `number` will overwrite. */
static bool lane_is_free(sh_direct *direct, const sh_group *group, uint64_t number) {
    if (number <= direct->all_done + SH_LANE) return true;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < group->ranks; i++) {
        // Acquire: what the peer read and wrote before it was done has happened.
        uint64_t done =
            atomic_load_explicit(&direct->area[i]->lane[group->id].done, memory_order_acquire);
        if (i != group->rank && done < least) least = done;
    }
    direct->all_done = least;
    return number <= least + SH_LANE;
}

static int take_chunk(sh_engine *engine) {
    for (int i = 0; i < SH_CHUNKS; i++) {
        if (engine->chunks >> i & 1) continue;
        engine->chunks |= 1u << i;
        return i;
    }
    return -1;
}

static void publish(sh_engine *engine, sh_group *group, uint64_t number, const sh_piece *piece,
                    uint64_t offset) {
    sh_announcement *mine = announcement(&group->direct, group->id, group->rank, number);
    mine->offset = offset;
    mine->count = piece->count;
    mine->kind = piece->kind;
    // Release: whoever sees the number sees the line and the data that it speaks of.
    atomic_store_explicit(&mine->number, number, memory_order_release);
    sh_engine_wake(engine, group);
}

static void announce_small(sh_engine *engine, sh_group *group, uint64_t number, sh_piece *piece) {
    const sh_call *call = piece->call;
    sh_announcement *mine = announcement(&group->direct, group->id, group->rank, number);
    const void *from = call->what == SH_ALLTOALL ? call->source : call->data;
    engine->combine->copy(mine->data, from, call->count * sh_dtype_bytes(call->dtype));
    publish(engine, group, number, piece, 0);
}

/* Announces the next piece of the oldest call; false if it has to wait. */
static bool announce_next(sh_engine *engine, sh_group *group) {
    sh_direct *direct = &group->direct;
    sh_call *call = direct->first;
    uint64_t number = direct->announced + 1;
    if (number > direct->ended + SH_LANE || !lane_is_free(direct, group, number)) return false;
    size_t element = sh_dtype_bytes(call->dtype), left = call->count - direct->cursor;
    sh_way way = way_of(call, call->count * element);
    sh_piece *piece = piece_at(direct, number);
    *piece = (sh_piece){.call = call, .kind = kind_of(call, way), .chunk = -1, .way = way};
    piece->first = direct->cursor;
    piece->count = left;
    if (way == SH_WAY_CHUNKS) {
        if (left > SH_CHUNK_BYTES / element) piece->count = SH_CHUNK_BYTES / element;
        piece->chunk = take_chunk(engine);
        if (piece->chunk < 0) return false;
        char *chunk = engine->area->chunk[piece->chunk];
        engine->combine->copy(chunk, (char *)call->data + piece->first * element,
                              piece->count * element);
        publish(engine, group, number, piece, (uint64_t)(chunk - (char *)engine->area));
    } else if (way == SH_WAY_MAPPED) {
        char *base = call->shared->base[engine->transport->rank];
        publish(engine, group, number, piece, (uint64_t)((char *)call->data - base));
    } else {
        announce_small(engine, group, number, piece);
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

static sh_status disagree(const sh_group *group, const sh_piece *piece, int peer,
                          const sh_announcement *theirs) {
    const sh_call *call = piece->call;
    sh_collective what = (sh_collective)(theirs->kind & 0xFF);
    SH_FAIL(SH_E_PEER,
            "rank %d calls %s of %zu elements (type %d, operator %d; bucket %d, step %" PRId64
            ") where rank %d calls %s of %" PRIu64 " (type %d, operator %d)",
            group->member[group->rank], sh_collective_name(call->what), piece->count,
            (int)call->dtype, (int)call->op, call->bucket, call->step, group->member[peer],
            (int)what < SH_COLLECTIVES ? sh_collective_name(what) : "?", theirs->count,
            (int)(theirs->kind >> 8 & 0xFF), (int)(theirs->kind >> 16 & 0xFF));
    return sh_error_hint("all ranks of a group must start the same calls in the same order");
}

/* All peers have announced piece `number`; -1 on a peer that announced something else. */
static int all_arrived(sh_group *group, uint64_t number) {
    sh_direct *direct = &group->direct;
    for (int i = direct->arrived_at; i < group->ranks; i++) {
        const sh_announcement *theirs = announcement(direct, group->id, i, number);
        // Acquire: pairs with the release in publish.
        if (atomic_load_explicit(&theirs->number, memory_order_acquire) != number) {
            direct->arrived_at = i;
            return 0;
        }
        const sh_piece *piece = piece_at(direct, number);
        if (theirs->kind != piece->kind || theirs->count != piece->count) return -1;
    }
    direct->arrived_at = group->ranks;
    return 1;
}

/* The slice of one rank: whole cache lines, so that no two ranks write to one line. */
static sh_range slice_of(size_t count, size_t element, int ranks, int rank) {
    size_t line = 64 / element, lines = (count + line - 1) / line;
    size_t first = lines * (size_t)rank / (size_t)ranks * line;
    size_t end = lines * (size_t)(rank + 1) / (size_t)ranks * line;
    if (end > count) end = count;
    return (sh_range){first, end > first ? end - first : 0};
}

/* Where a peer's data of the piece lies in this rank's address space. */
static char *data_of(const sh_group *group, const sh_piece *piece, uint64_t number, int peer) {
    sh_direct *direct = (sh_direct *)(uintptr_t)&group->direct;
    sh_announcement *theirs = announcement(direct, group->id, peer, number);
    if (piece->way == SH_WAY_SMALL) return theirs->data;
    if (piece->way == SH_WAY_CHUNKS) return (char *)direct->area[peer] + theirs->offset;
    return piece->call->shared->base[group->member[peer]] + theirs->offset;
}

enum { BLOCK_BYTES = 4096, RANKS_AT_ONCE = 64 };

/* Sums `count` elements from `from` on, in the order of the ranks, into z (which may be the first
 * rank's). */
static void join_all(const sh_engine *engine, const sh_group *group, const sh_piece *piece,
                     uint64_t number, size_t from, char *z, size_t count) {
    const sh_call *call = piece->call;
    size_t at = from * sh_dtype_bytes(call->dtype);
    sh_join join = engine->combine->join[call->op][call->dtype];
    join(z, data_of(group, piece, number, 0) + at, data_of(group, piece, number, 1) + at, count);
    for (int i = 2; i < group->ranks; i++) join(z, z, data_of(group, piece, number, i) + at, count);
    if (call->op == SH_MEAN) engine->combine->divide[call->dtype](z, group->ranks, count);
}

/* The slice, block by block: summed in a buffer that stays in the first cache, then written to all
 * (`own_only`: to this rank). */
static void reduce_slice(const sh_engine *engine, const sh_group *group, const sh_piece *piece,
                         uint64_t number, sh_range slice, bool own_only) {
    _Alignas(64) char sum[BLOCK_BYTES];
    size_t element = sh_dtype_bytes(piece->call->dtype), most = BLOCK_BYTES / element;
    for (size_t at = slice.first; at < slice.first + slice.count; at += most) {
        size_t count = slice.first + slice.count - at;
        if (count > most) count = most;
        join_all(engine, group, piece, number, at, sum, count);
        for (int i = 0; i < group->ranks; i++)
            if (!own_only || i == group->rank)
                engine->combine->copy(data_of(group, piece, number, i) + at * element, sum,
                                      count * element);
    }
}

static void allreduce_mapped(const sh_engine *engine, const sh_group *group, const sh_piece *piece,
                             uint64_t number) {
    const sh_call *call = piece->call;
    size_t element = sh_dtype_bytes(call->dtype);
    sh_range slice = slice_of(piece->count, element, group->ranks, group->rank);
    if (group->ranks != 2 || call->op == SH_MEAN) {
        reduce_slice(engine, group, piece, number, slice, false);
        return;
    }
    char *a = data_of(group, piece, number, 0) + slice.first * element;
    char *b = data_of(group, piece, number, 1) + slice.first * element;
    engine->combine->both[call->op][call->dtype](a, b, slice.count);
}

static void use_mapped(const sh_engine *engine, const sh_group *group, const sh_piece *piece,
                       uint64_t number) {
    const sh_call *call = piece->call;
    size_t element = sh_dtype_bytes(call->dtype);
    char *own = data_of(group, piece, number, group->rank);
    if (call->what == SH_ALLREDUCE) {
        allreduce_mapped(engine, group, piece, number);
    } else if (call->what == SH_REDUCE_SCATTER) {
        sh_range block = sh_block_range(piece->count, group->ranks, group->rank);
        reduce_slice(engine, group, piece, number, block, true);
    } else if (call->what == SH_ALLGATHER) {
        // Each rank starts with its neighbour, so that they do not all read from one.
        for (int k = 1; k < group->ranks; k++) {
            int peer = (group->rank + k) % group->ranks;
            sh_range block = sh_block_range(piece->count, group->ranks, peer);
            engine->combine->copy(own + block.first * element,
                                  data_of(group, piece, number, peer) + block.first * element,
                                  block.count * element);
        }
    } else if (call->what == SH_BROADCAST && group->rank != call->root) {
        engine->combine->copy(own, data_of(group, piece, number, call->root),
                              piece->count * element);
    }
}

/* Everything arrived with the announcements; the result goes to the call's own memory. */
static void use_small(const sh_engine *engine, const sh_group *group, const sh_piece *piece,
                      uint64_t number) {
    const sh_call *call = piece->call;
    size_t element = sh_dtype_bytes(call->dtype);
    char *data = call->data;
    if (call->what == SH_ALLREDUCE) {
        join_all(engine, group, piece, number, 0, data, call->count);
    } else if (call->what == SH_REDUCE_SCATTER) {
        sh_range block = sh_block_range(call->count, group->ranks, group->rank);
        join_all(engine, group, piece, number, block.first, data + block.first * element,
                 block.count);
    } else if (call->what == SH_BROADCAST) {
        if (group->rank != call->root)
            memcpy(data, data_of(group, piece, number, call->root), call->count * element);
    } else if (call->what == SH_ALLGATHER || call->what == SH_ALLTOALL) {
        for (int i = 0; i < group->ranks; i++) {
            int sent = call->what == SH_ALLTOALL ? group->rank : i;
            sh_range from = sh_block_range(call->count, group->ranks, sent);
            sh_range to = sh_block_range(call->count, group->ranks, i);
            memcpy(data + to.first * element,
                   data_of(group, piece, number, i) + from.first * element, to.count * element);
        }
    }
}

static void tell_done(sh_engine *engine, sh_group *group, uint64_t number) {
    // Release: this rank's reads and writes of the piece come before.
    atomic_store_explicit(&engine->area->lane[group->id].done, number, memory_order_release);
}

static bool reduce_next(sh_engine *engine, sh_group *group) {
    sh_direct *direct = &group->direct;
    uint64_t number = direct->reduced + 1;
    if (number > direct->announced) return false;
    int arrived = all_arrived(group, number);
    if (arrived == 0) return false;
    sh_piece *piece = piece_at(direct, number);
    if (arrived < 0) {
        int peer = direct->arrived_at;
        while (peer < group->ranks - 1 &&
               announcement(direct, group->id, peer, number)->kind == piece->kind &&
               announcement(direct, group->id, peer, number)->count == piece->count)
            peer++;
        sh_engine_fail(engine,
                       disagree(group, piece, peer, announcement(direct, group->id, peer, number)));
        return true;
    }
    if (piece->way == SH_WAY_SMALL)
        use_small(engine, group, piece, number);
    else
        use_mapped(engine, group, piece, number);
    direct->reduced = number;
    direct->arrived_at = 0;
    tell_done(engine, group, number);
    if (piece->way != SH_WAY_SMALL) sh_engine_wake(engine, group);
    return true;
}

/* ---- Ending ---------------------------------------------------------------------------------- */

static bool all_done(sh_group *group, uint64_t number) {
    sh_direct *direct = &group->direct;
    for (int i = direct->done_at; i < group->ranks; i++) {
        // Acquire: the peer's writes to this rank's data have happened.
        if (atomic_load_explicit(&direct->area[i]->lane[group->id].done, memory_order_acquire) <
            number) {
            direct->done_at = i;
            return false;
        }
    }
    direct->done_at = 0;
    return true;
}

/* What crossed between the ranks: what peers read here and what was written to them. */
static size_t traffic_of(const sh_call *call, const sh_group *group, const sh_piece *piece) {
    size_t element = sh_dtype_bytes(call->dtype), bytes = piece->count * element;
    size_t peers = (size_t)group->ranks - 1;
    size_t block = sh_block_range(piece->count, group->ranks, group->rank).count * element;
    size_t slice = slice_of(piece->count, element, group->ranks, group->rank).count * element;
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

static void count_traffic(sh_call *call, const sh_group *group, const sh_piece *piece) {
    size_t peers = (size_t)group->ranks - 1;
    bool twice = piece->way != SH_WAY_SMALL && call->what == SH_ALLREDUCE;
    call->messages += twice ? 2 * peers : peers;
    call->sent_bytes += traffic_of(call, group, piece);
}

static bool end_next(sh_engine *engine, sh_group *group) {
    sh_direct *direct = &group->direct;
    uint64_t number = direct->ended + 1;
    if (number > direct->reduced) return false;
    sh_piece *piece = piece_at(direct, number);
    if (piece->way != SH_WAY_SMALL && !all_done(group, number)) return false;
    sh_call *call = piece->call;
    if (piece->chunk >= 0) {
        size_t element = sh_dtype_bytes(call->dtype);
        engine->combine->copy((char *)call->data + piece->first * element,
                              engine->area->chunk[piece->chunk], piece->count * element);
        engine->chunks &= ~(1u << piece->chunk);
    }
    direct->ended = number;
    count_traffic(call, group, piece);
    if (piece->last) sh_call_finish(engine, call, SH_OK);
    return true;
}

/* ---- What the engine calls --------------------------------------------------------------------
 */

static sh_status check_mapped(const sh_engine *engine, const sh_call *call) {
    if (call->shared == NULL) return SH_OK;
    const char *base = call->shared->base[engine->transport->rank];
    size_t bytes = call->count * sh_dtype_bytes(call->dtype);
    const char *data = call->data;
    bool inside = data >= base && bytes <= call->shared->bytes &&
                  (size_t)(data - base) <= call->shared->bytes - bytes;
    if (inside) return SH_OK;
    return SH_FAIL(SH_E_SHAPE, "the data of %s of bucket %d does not lie in the shared memory",
                   sh_collective_name(call->what), call->bucket);
}

sh_status sh_direct_begin(sh_engine *engine, sh_call *call) {
    SH_TRY(check_mapped(engine, call));
    sh_group *group = sh_call_group(engine, call);
    sh_direct *direct = &group->direct;
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
        if (piece_at(direct, number)->call == call) continue;
        call = piece_at(direct, number)->call;
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
        const sh_lane *lane = &direct->area[i]->lane[group->id];
        uint64_t at = *arrived_out
                          ? atomic_load_explicit(&lane->done, memory_order_relaxed)
                          : atomic_load_explicit(&lane->announcement[number % SH_LANE].number,
                                                 memory_order_relaxed);
        if (at < number && group->member[i] < SH_BOARD_WAITS)
            *waits_out |= UINT64_C(1) << group->member[i];
    }
    return direct->piece[number % SH_LANE].call;
}

/* ---- The quick way ----------------------------------------------------------------------------
 */

static bool is_quick(const sh_engine *engine, const sh_group *group, const sh_call *call,
                     size_t bytes) {
    const sh_direct *direct = &group->direct;
    bool plain = call->algorithm == NULL && engine->forced == NULL && engine->status == SH_OK &&
                 (call->what == SH_ALLREDUCE || call->what == SH_BARRIER) &&
                 bytes <= SH_QUICK_BYTES && (call->shared != NULL || bytes <= SH_SMALL_BYTES);
    return plain && direct->area != NULL && direct->first == NULL &&
           direct->ended == direct->announced && call->dtype != SH_DTYPE_BYTE;
}

/* Spins a while for `reached`; most peers of a small call are there at once. */
#define SPIN_FOR(engine, reached)                                         \
    ({                                                                    \
        int spins_ = (engine)->transport->crowd > 1 ? 0 : SH_QUICK_SPINS; \
        bool reached_ = (reached);                                        \
        for (; !reached_ && spins_ > 0; spins_--) {                       \
            sh_pause();                                                   \
            reached_ = (reached);                                         \
        }                                                                 \
        reached_;                                                         \
    })

/* Both stages of a piece as far as peers are there; true: it has ended. */
static bool pass_quickly(sh_engine *engine, sh_group *group, sh_piece *piece, uint64_t number) {
    sh_direct *direct = &group->direct;
    if (!SPIN_FOR(engine, all_arrived(group, number) > 0)) return false;
    direct->arrived_at = 0;
    if (piece->way == SH_WAY_SMALL)
        use_small(engine, group, piece, number);
    else
        use_mapped(engine, group, piece, number);
    direct->reduced = number;
    tell_done(engine, group, number);
    if (piece->way == SH_WAY_SMALL) return true;
    sh_engine_wake(engine, group);
    return SPIN_FOR(engine, all_done(group, number));
}

bool sh_direct_quick(sh_engine *engine, sh_call *call) {
    sh_group *group = sh_call_group(engine, call);
    sh_direct *direct = &group->direct;
    size_t bytes = call->count * sh_dtype_bytes(call->dtype);
    if (!is_quick(engine, group, call, bytes)) return false;
    uint64_t number = direct->announced + 1, offset = 0;
    if (!lane_is_free(direct, group, number)) return false;
    sh_way way = way_of(call, bytes);
    if (way == SH_WAY_MAPPED) {
        offset = (uint64_t)((char *)call->data - call->shared->base[engine->transport->rank]);
        if (offset > call->shared->bytes || bytes > call->shared->bytes - offset) return false;
    }
    sh_piece *piece = piece_at(direct, number);
    *piece = (sh_piece){.call = call,
                        .count = call->count,
                        .kind = kind_of(call, way),
                        .chunk = -1,
                        .way = way,
                        .last = true};
    direct->announced = number;
    if (way == SH_WAY_SMALL)
        announce_small(engine, group, number, piece);
    else
        publish(engine, group, number, piece, offset);
    call->sent_bytes = call->messages = 0;
    call->status = SH_OK;
    call->start_ns = engine->now_ns;
    engine->under_way++;
    bool ended = pass_quickly(engine, group, piece, number);
    sh_call_record(engine, call, NULL);
    call->done = false;
    if (!ended) return true;
    direct->ended = number;
    count_traffic(call, group, piece);
    sh_call_finish(engine, call, SH_OK);
    return true;
}
