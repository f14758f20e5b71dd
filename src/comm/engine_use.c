/* What a rank does with a piece once all have announced it: sums its slice straight from its peers'
 * memory and writes it, or what was made of it, to all of them; or moves what the collective moves.
 */
#include <string.h>

#include "comm/engine_direct.h"

sh_range sh_direct_slice(size_t count, size_t element, int ranks, int rank) {
    size_t line = 64 / element, lines = (count + line - 1) / line;
    size_t first = lines * (size_t)rank / (size_t)ranks * line;
    size_t end = lines * (size_t)(rank + 1) / (size_t)ranks * line;
    if (end > count) end = count;
    return (sh_range){first, end > first ? end - first : 0};
}

/* Where a peer's data of the piece lies in this rank's address space. */
static char *data_of(const sh_group *group, const sh_piece *piece, uint64_t number, int peer) {
    sh_direct *direct = (sh_direct *)(uintptr_t)&group->direct;
    sh_announcement *theirs = sh_announcement_at(direct, group->id, peer, number);
    if (piece->way == SH_WAY_SMALL) return theirs->data;
    if (piece->way == SH_WAY_CHUNKS) return (char *)direct->area[peer] + theirs->offset;
    return piece->call->shared->base[sh_group_member(group, peer)] + theirs->offset;
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

static _Atomic uint32_t *taken_of(sh_group *group, uint64_t number) {
    return &sh_announcement_at(&group->direct, group->id, 0, number)->taken;
}

static size_t part_elements(const sh_call *call) {
    return PART_BYTES / sh_dtype_bytes(call->dtype);
}

bool sh_parts_taken(sh_group *group, const sh_piece *piece, uint64_t number) {
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

static void allreduce_mapped(const sh_engine *engine, const sh_group *group, const sh_piece *piece,
                             uint64_t number) {
    const sh_call *call = piece->call;
    size_t element = sh_dtype_bytes(call->dtype);
    sh_range slice = sh_direct_slice(piece->count, element, group->ranks, group->rank);
    if (group->ranks != 2 || call->op == SH_MEAN) {
        reduce_slice(engine, group, piece, number, slice, false);
        return;
    }
    char *a = data_of(group, piece, number, 0) + slice.first * element;
    char *b = data_of(group, piece, number, 1) + slice.first * element;
    sum_between_two(engine, call, slice, a, b);
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

void sh_direct_use(const sh_engine *engine, sh_group *group, const sh_piece *piece,
                   uint64_t number) {
    if (piece->way == SH_WAY_SMALL)
        use_small(engine, group, piece, number);
    else if (piece->way == SH_WAY_PARTS)
        work_on_parts(engine, group, piece, number);
    else
        use_mapped(engine, group, piece, number);
}
