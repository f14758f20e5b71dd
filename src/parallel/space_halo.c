/* The exchange of halos: rows that a neighbour needs travel to it, exactly those.
 *
 *   own     |------ a ------|------ b ------|------ c ------|
 *   b wants             |===|---------------|=====|
 *
 * Each boundary is a group of two, and each direction a broadcast in it. */
#include <string.h>

#include "parallel/space.h"

const sh_peers *sh_space_peers(const sh_op *op) {
    const sh_peers *peers = sh_op_step(op).peers;
    return peers != NULL && peers->engine != NULL ? peers : NULL;
}

sh_halo_exchange sh_space_exchange(const sh_op *op, const sh_space_cut *cut, const sh_value *value,
                                   int64_t total, float *message) {
    const int64_t *d = value->shape.dim;
    size_t lanes = (size_t)value->block;
    return (sh_halo_exchange){.peers = sh_space_peers(op),
                              .parts = cut->parts,
                              .rank = cut->rank,
                              .total = total,
                              .planes = (size_t)(d[0] * d[1]) / lanes,
                              .row = (size_t)d[3] * lanes,
                              .message = message,
                              .step = sh_op_step(op).step + 1};
}

/* Images are planes of rows, so the same rows are copied in each plane. */
void sh_rows_copy(const sh_row_block *from, const sh_row_block *to, size_t planes, size_t row) {
    sh_rows both = sh_rows_meet(from->rows, to->rows);
    size_t count = (size_t)sh_rows_count(both) * row;
    size_t from_plane = (size_t)sh_rows_count(from->rows) * row;
    size_t to_plane = (size_t)sh_rows_count(to->rows) * row;
    bool whole = sh_rows_count(both) == sh_rows_count(to->rows);
    for (size_t p = 0; p < planes; p++) {
        float *target = to->data + p * to_plane;
        if (!whole) memset(target, 0, to_plane * sizeof *target);
        if (count == 0) continue;
        memcpy(target + (size_t)(both.first - to->rows.first) * row,
               from->data + p * from_plane + (size_t)(both.first - from->rows.first) * row,
               count * sizeof *target);
    }
}

/* Only the rows that both hold, the others stay. */
static void put_rows(const sh_row_block *from, const sh_row_block *to, size_t planes, size_t row) {
    sh_rows both = sh_rows_meet(from->rows, to->rows);
    size_t count = (size_t)sh_rows_count(both) * row;
    for (size_t p = 0; p < planes && count > 0; p++)
        memcpy(
            to->data +
                (p * (size_t)sh_rows_count(to->rows) + (size_t)(both.first - to->rows.first)) * row,
            from->data +
                (p * (size_t)sh_rows_count(from->rows) + (size_t)(both.first - from->rows.first)) *
                    row,
            count * sizeof(float));
}

/* Rows of `from` that `to` wants. */
static sh_rows travelling(const sh_halo_exchange *x, const sh_space_cut *cut, sh_wanted wanted,
                          int from, int to) {
    if (from < 0 || to < 0 || from >= x->parts || to >= x->parts) return (sh_rows){0, 0};
    return sh_rows_meet(sh_rows_owned(x->total, x->parts, from), wanted(cut, to));
}

static size_t floats_of(const sh_halo_exchange *x, sh_rows rows) {
    return x->planes * (size_t)sh_rows_count(rows) * x->row;
}

/* Across one boundary, between workers `upper` and `upper` + 1. */
typedef struct crossing {
    sh_row_block block[2];  // what goes down, and what goes up
    sh_call call[2];
} crossing;

static float *prepare(const sh_halo_exchange *x, const sh_space_cut *cut, sh_wanted wanted,
                      int upper, const sh_row_block *own, float *message, crossing *c) {
    for (int up = 0; up < 2; up++) {
        sh_rows rows = travelling(x, cut, wanted, upper + up, upper + 1 - up);
        c->block[up] = (sh_row_block){message, rows};
        message += floats_of(x, rows);
        c->call[up] = (sh_call){.what = SH_BROADCAST,
                                .group = upper == x->rank ? x->peers->below : x->peers->above,
                                .data = c->block[up].data,
                                .count = floats_of(x, rows),
                                .dtype = SH_DTYPE_F32,
                                .root = up,
                                .step = x->step,
                                .bucket = -1};
        bool sends = (upper == x->rank) == (up == 0);
        if (sends && c->call[up].count > 0) sh_rows_copy(own, &c->block[up], x->planes, x->row);
    }
    return message;
}

static sh_status start(const sh_halo_exchange *x, crossing *c) {
    for (int up = 0; up < 2; up++)
        if (c->call[up].count > 0) SH_TRY(sh_engine_start(x->peers->engine, &c->call[up]));
    return SH_OK;
}

/* From above comes what went down, and the other way round. */
static sh_status receive(const sh_halo_exchange *x, crossing *c, bool from_above,
                         const sh_row_block *want) {
    for (int up = 0; up < 2; up++)
        if (c->call[up].count > 0) SH_TRY(sh_engine_wait(x->peers->engine, &c->call[up]));
    put_rows(&c->block[from_above ? 0 : 1], want, x->planes, x->row);
    return SH_OK;
}

/* Both boundaries are started before either is waited for, so that no order of workers can block.
 */
sh_status sh_halo_run(const sh_halo_exchange *exchange, const sh_space_cut *cut, sh_wanted wanted,
                      const sh_row_block *own, const sh_row_block *want) {
    sh_rows_copy(own, want, exchange->planes, exchange->row);
    if (exchange->peers == NULL) return SH_OK;
    bool has_above = exchange->rank > 0, has_below = exchange->rank + 1 < exchange->parts;
    crossing above, below;
    float *message = exchange->message;
    if (has_above)
        message = prepare(exchange, cut, wanted, exchange->rank - 1, own, message, &above);
    if (has_below) prepare(exchange, cut, wanted, exchange->rank, own, message, &below);
    if (has_above) SH_TRY(start(exchange, &above));
    if (has_below) SH_TRY(start(exchange, &below));
    if (has_above) SH_TRY(receive(exchange, &above, true, want));
    if (has_below) SH_TRY(receive(exchange, &below, false, want));
    return SH_OK;
}

/* Both directions of both boundaries, as all four are under way at once. */
size_t sh_halo_floats(const sh_halo_exchange *exchange, const sh_space_cut *cut, sh_wanted wanted) {
    size_t floats = 0;
    for (int other = exchange->rank - 1; other <= exchange->rank + 1; other += 2)
        floats += floats_of(exchange, travelling(exchange, cut, wanted, other, exchange->rank)) +
                  floats_of(exchange, travelling(exchange, cut, wanted, exchange->rank, other));
    return floats;
}

bool sh_halo_reaches_neighbours_only(const sh_space_cut *cut, int64_t total, sh_wanted wanted) {
    for (int rank = 0; rank < cut->parts; rank++) {
        sh_rows want = wanted(cut, rank), near = sh_rows_owned(total, cut->parts, rank);
        if (rank > 0) near.first = sh_rows_owned(total, cut->parts, rank - 1).first;
        if (rank + 1 < cut->parts) near.last = sh_rows_owned(total, cut->parts, rank + 1).last;
        if (sh_rows_count(want) > 0 && (want.first < near.first || want.last > near.last))
            return false;
    }
    return true;
}

sh_status sh_space_sum_start(const sh_op *op, sh_peer_call *call, float *values, size_t count) {
    const sh_peers *peers = sh_space_peers(op);
    if (peers == NULL) return SH_OK;
    return sh_peer_call_start(call, peers,
                              &(sh_call){.what = SH_ALLREDUCE,
                                         .group = peers->along[SH_AXIS_SPACE],
                                         .data = values,
                                         .count = count,
                                         .dtype = SH_DTYPE_F32,
                                         .op = SH_SUM,
                                         .step = sh_op_step(op).step + 1});
}

/* The group of two workers that differ by one along space. */
static sh_status pair(sh_engine *engine, const sh_mesh_shape *shape, sh_mesh_place upper,
                      sh_group **group_out) {
    sh_mesh_place lower = upper;
    lower.at[SH_AXIS_SPACE]++;
    const int ranks[] = {sh_mesh_rank_at(shape, &upper), sh_mesh_rank_at(shape, &lower)};
    return sh_group_create(engine, ranks, 2, group_out);
}

sh_status sh_space_open(const sh_mesh_shape *shape, sh_peers *peers) {
    sh_mesh_place place = sh_mesh_place_of(shape, sh_engine_rank(peers->engine)), above = place;
    above.at[SH_AXIS_SPACE]--;
    if (place.at[SH_AXIS_SPACE] > 0) SH_TRY(pair(peers->engine, shape, above, &peers->above));
    if (place.at[SH_AXIS_SPACE] + 1 < shape->size[SH_AXIS_SPACE])
        SH_TRY(pair(peers->engine, shape, place, &peers->below));
    return SH_OK;
}

void sh_space_close(sh_peers *peers) {
    if (peers->above != NULL) sh_group_destroy(peers->above);
    if (peers->below != NULL) sh_group_destroy(peers->below);
    peers->above = peers->below = NULL;
}
