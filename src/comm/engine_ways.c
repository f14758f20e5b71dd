/* The four ways that the data of a direct collective takes through mapped memory, and what a rank
 * does with a piece once all have announced it: it sums its slice straight from its peers' memory
 * and writes it to all of them, or moves what the collective moves.
 *
 *   small    data travels inside the announcement; every rank sums all of it, in the order of ranks
 *   mapped   data lies in shared memory: read and written where it is
 *   chunks   private data is copied through chunks of shared scratch, several under way
 *   parts    mapped, and fused work is done on each part while it is in the cache */
#include <string.h>

#include "comm/engine_direct.h"

static size_t call_bytes(const sh_call *call) { return call->count * sh_dtype_bytes(call->dtype); }

/* Where a rank's data of the piece lies in this rank's address space. */
static char *data_of(const sh_group *group, const sh_piece *piece, uint64_t number, int rank) {
    return piece->way->data(group, piece, number, rank);
}

/* ---- Sums --------------------------------------------------------------------------------------
 */

/* The slice of one rank: whole cache lines, so that no two ranks write to one line. */
static sh_range slice_of(size_t count, size_t element, int ranks, int rank) {
    size_t line = 64 / element, lines = (count + line - 1) / line;
    size_t first = lines * (size_t)rank / (size_t)ranks * line;
    size_t end = lines * (size_t)(rank + 1) / (size_t)ranks * line;
    if (end > count) end = count;
    return (sh_range){first, end > first ? end - first : 0};
}

enum {
    DOWN_BYTES = 1024,       // slices up to here can be walked downwards
    BLOCK_BYTES = 4096,      // summed at a time
    PART_BYTES = 64 * 1024,  // worked on at a time: with what the work reads, it stays in L2
};

/* Sums `count` elements from `from` on, in the order of the ranks, into z, which may be the first
 * rank's or the second's. */
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
    if (own_only && group->ranks == 2) {
        char *own = data_of(group, piece, number, group->rank) + slice.first * element;
        join_all(engine, group, piece, number, slice.first, own, slice.count);
        return;
    }
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

/* Two ranks: a line is written to both as it is summed. What a core reads ahead is its
 * neighbour's half where the slices meet, and costs them two transfers of those lines: in short
 * slices the first rank goes down, away from its peer, who goes up. */
static void sum_between_two(const sh_engine *engine, const sh_call *call, sh_range slice, char *a,
                            char *b) {
    sh_join_both both = engine->combine->both[call->op][call->dtype];
    size_t element = sh_dtype_bytes(call->dtype), line = 64 / element, left = slice.count;
    bool down = slice.first == 0 && slice.count * element <= DOWN_BYTES;
    for (; down && left >= line; left -= line)
        both(a + (left - line) * element, b + (left - line) * element, line);
    both(a, b, left);
}

/* ---- Small: data travels inside the announcement --------------------------------------------- */

static bool serves_any(const sh_engine *engine, const sh_call *call) {
    (void)engine;
    (void)call;
    return true;
}

static bool prepare_small(sh_engine *engine, sh_group *group, sh_piece *piece, uint64_t number,
                          uint64_t *offset_out) {
    const sh_call *call = piece->call;
    const void *from = call->what == SH_ALLTOALL ? call->source : call->data;
    char *to = sh_announcement_at(&group->direct, group->id, group->rank, number)->data;
    engine->combine->copy(to, from, call_bytes(call));
    *offset_out = 0;
    return true;
}

static char *small_data(const sh_group *group, const sh_piece *piece, uint64_t number, int rank) {
    (void)piece;
    return sh_announcement_at(&group->direct, group->id, rank, number)->data;
}

/* Everything arrived with the announcements; the result goes to the call's own memory. */
static void use_small(const sh_engine *engine, sh_group *group, const sh_piece *piece,
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

static const sh_way small_way = {
    .number = 0,
    .one_flag = true,
    .quick = true,
    .serves = serves_any,
    .prepare = prepare_small,
    .data = small_data,
    .work = use_small,
};

/* ---- Mapped: data lies in shared memory -------------------------------------------------------
 */

static bool serves_mapped(const sh_engine *engine, const sh_call *call) {
    (void)engine;
    return call->what != SH_ALLTOALL;
}

static bool prepare_mapped(sh_engine *engine, sh_group *group, sh_piece *piece, uint64_t number,
                           uint64_t *offset_out) {
    (void)group;
    (void)number;
    const sh_call *call = piece->call;
    *offset_out = (uint64_t)((char *)call->data - call->shared->base[engine->transport->rank]);
    return true;
}

static char *mapped_data(const sh_group *group, const sh_piece *piece, uint64_t number, int rank) {
    uint64_t offset = sh_announcement_at(&group->direct, group->id, rank, number)->offset;
    return piece->call->shared->base[sh_group_member(group, rank)] + offset;
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
    sum_between_two(engine, call, slice, a, b);
}

static void use_mapped(const sh_engine *engine, sh_group *group, const sh_piece *piece,
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

static const sh_way mapped_way = {
    .number = 1,
    .quick = true,
    .serves = serves_mapped,
    .prepare = prepare_mapped,
    .data = mapped_data,
    .work = use_mapped,
};

/* ---- Chunks: private data, copied through shared scratch --------------------------------------
 */

static bool serves_chunks(const sh_engine *engine, const sh_call *call) {
    (void)engine;
    return call->what == SH_ALLREDUCE;
}

static int take_chunk(sh_engine *engine) {
    for (int i = 0; i < SH_CHUNKS; i++) {
        if (engine->chunks >> i & 1) continue;
        engine->chunks |= 1u << i;
        return i;
    }
    return -1;
}

static bool prepare_chunk(sh_engine *engine, sh_group *group, sh_piece *piece, uint64_t number,
                          uint64_t *offset_out) {
    (void)group;
    (void)number;
    size_t element = sh_dtype_bytes(piece->call->dtype);
    if (piece->count > SH_CHUNK_BYTES / element) piece->count = SH_CHUNK_BYTES / element;
    piece->chunk = take_chunk(engine);
    if (piece->chunk < 0) return false;
    char *chunk = engine->area->chunk[piece->chunk];
    engine->combine->copy(chunk, (char *)piece->call->data + piece->first * element,
                          piece->count * element);
    *offset_out = (uint64_t)(chunk - (char *)engine->area);
    return true;
}

static char *chunk_data(const sh_group *group, const sh_piece *piece, uint64_t number, int rank) {
    (void)piece;
    uint64_t offset = sh_announcement_at(&group->direct, group->id, rank, number)->offset;
    return (char *)group->direct.area[rank] + offset;
}

static void finish_chunk(sh_engine *engine, const sh_piece *piece) {
    size_t element = sh_dtype_bytes(piece->call->dtype);
    engine->combine->copy((char *)piece->call->data + piece->first * element,
                          engine->area->chunk[piece->chunk], piece->count * element);
    engine->chunks &= ~(1u << piece->chunk);
}

static const sh_way chunks_way = {
    .number = 2,
    .serves = serves_chunks,
    .prepare = prepare_chunk,
    .data = chunk_data,
    .work = use_mapped,
    .finish = finish_chunk,
};

/* ---- Parts: mapped, with fused work -----------------------------------------------------------
 */

bool sh_engine_maps(const sh_engine *engine) {
    bool forced = engine->forced != NULL && !engine->forced->maps;
    return engine->driver == NULL && engine->world->direct.area != NULL && !forced;
}

static bool serves_parts(const sh_engine *engine, const sh_call *call) {
    return call->what == SH_ALLREDUCE && call->shared != NULL && sh_engine_maps(engine);
}

static _Atomic uint32_t *taken_of(const sh_group *group, uint64_t number) {
    return &sh_announcement_at(&group->direct, group->id, 0, number)->taken;
}

static size_t part_elements(const sh_call *call) {
    return PART_BYTES / sh_dtype_bytes(call->dtype);
}

bool sh_parts_taken(const sh_group *group, const sh_piece *piece, uint64_t number) {
    uint32_t taken = atomic_load_explicit(taken_of(group, number), memory_order_relaxed);
    return taken * part_elements(piece->call) >= piece->count;
}

/* Takes parts as long as there are any: each is summed and worked on, and what came of it written
 * to all. */
static void work_on_parts(const sh_engine *engine, sh_group *group, const sh_piece *piece,
                          uint64_t number) {
    const sh_call *call = piece->call;
    const sh_fused_work *fused = &call->fused;
    _Atomic uint32_t *taken = taken_of(group, number);
    size_t element = sh_dtype_bytes(call->dtype), most = part_elements(call), at;
    char *own_base = fused->shared->base[engine->transport->rank];
    // Relaxed: what a part needs came with the announcements, what is made of it goes with `done`.
    while ((at = atomic_fetch_add_explicit(taken, 1, memory_order_relaxed) * most) < piece->count) {
        sh_range part = {at, piece->count - at < most ? piece->count - at : most};
        reduce_slice(engine, group, piece, number, part, true);
        fused->work(fused->self, call, part);
        char *made = (char *)fused->result + at * element;
        for (int i = 0; i < group->ranks; i++) {
            char *base = fused->shared->base[sh_group_member(group, i)];
            if (i != group->rank)
                engine->combine->copy(base + (made - own_base), made, part.count * element);
        }
    }
}

static const sh_way parts_way = {
    .number = 3,
    .shares_work = true,
    .serves = serves_parts,
    .prepare = prepare_mapped,
    .data = mapped_data,
    .work = work_on_parts,
};

const sh_way *sh_way_of(const sh_call *call) {
    size_t most = call->shared != NULL ? SH_SMALL_MAPPED_BYTES : SH_SMALL_BYTES;
    if (call->fused.work != NULL) return &parts_way;
    if (call_bytes(call) <= most) return &small_way;
    return call->shared != NULL ? &mapped_way : &chunks_way;
}

bool sh_shared_holds(const sh_engine *engine, const sh_shared *shared, const char *data,
                     size_t bytes) {
    const char *base = shared->base[engine->transport->rank];
    return data >= base && bytes <= shared->bytes && (size_t)(data - base) <= shared->bytes - bytes;
}

/* ---- Traffic -----------------------------------------------------------------------------------
 */

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
            return piece->way->one_flag ? peers * bytes : bytes - slice + peers * slice;
    }
}

void sh_count_traffic(sh_call *call, const sh_group *group, const sh_piece *piece) {
    size_t peers = (size_t)group->ranks - 1;
    bool twice = !piece->way->one_flag && call->what == SH_ALLREDUCE;
    call->messages += twice ? 2 * peers : peers;
    call->sent_bytes += traffic_of(call, group, piece);
}
