#include "sync/ps_exact.h"

#include <string.h>

#include "tensor/kernels/fixed.h"

/* ---- A worker's side ---- */

/* Pieces of a shard are in the order of the parameters that they belong to. */
static size_t param_of(const sh_param_list *params, size_t from, size_t origin) {
    while (origin >= params->items[from].offset + params->items[from].count) from++;
    return from;
}

void ps_exact_pack(const sh_ps_shard *shard, const sh_param_list *params,
                   const sh_fixed_gradient *gradient, int64_t *push_out) {
    size_t pieces = shard->params.count;
    int64_t *values = push_out + pieces + 1;
    for (size_t i = 0, param = 0; i < pieces; i++) {
        const sh_param *item = &shard->params.items[i];
        param = param_of(params, param, shard->origin[i]);
        push_out[i] = gradient->notes[param];
        memcpy(values + item->offset, gradient->sums + shard->origin[i],
               item->count * sizeof *values);
    }
    push_out[pieces] = gradient->counted;
}

static sh_status ask(sh_sync *sync, ps_worker *w, sh_reduce_op op, int64_t *values, size_t count) {
    sh_replica *replica = sync->replica;
    ps_link *link = &w->links[0];
    size_t bytes = count * sizeof *values;
    link->request = (sh_ps_request){.magic = SH_PS_MAGIC,
                                    .what = op == SH_MAX ? SH_PS_MOST : SH_PS_SUM,
                                    .step = replica->step,
                                    .version = link->version,
                                    .round = w->round,
                                    .goal = replica->all.goal,
                                    .sum = (int64_t)count};
    SH_TRY(ps_expect_head(replica, link, 0));
    SH_TRY(ps_start(replica, &link->ask, true, 0, SH_PS_ASK, &link->request, sizeof link->request));
    SH_TRY(ps_start(replica, &link->pushed, true, 0, SH_PS_PUSHED, values, bytes));
    replica->counts.sent_bytes += sizeof link->request + bytes;
    replica->counts.dense_bytes += bytes;
    return sh_mail_wait(&replica->mail, &link->pushed, "combine");
}

/* The numbers come back to where they were sent from. */
static sh_status combine(sh_sync *sync, ps_worker *w, sh_reduce_op op, int64_t *values,
                         size_t count, bool *over_out) {
    sh_replica *replica = sync->replica;
    ps_link *link = &w->links[0];
    size_t bytes = count * sizeof *values;
    SH_TRY(ask(sync, w, op, values, count));
    SH_TRY(ps_start(replica, &link->values, false, 0, SH_PS_VALUES, values, bytes));
    SH_TRY(ps_read_head(sync, link, 0));
    SH_TRY(sh_mail_wait(&replica->mail, &link->values, "combine"));
    if (link->values.bytes != bytes)
        return SH_FAIL(SH_E_FORMAT, "server 0 combined %zu bytes to %zu", bytes,
                       link->values.bytes);
    *over_out = link->reply.granted == 0;
    return SH_OK;
}

sh_status ps_exact_combine(void *who, sh_reduce_op op, int64_t *values, size_t count,
                           bool *over_out) {
    sh_sync *sync = who;
    sh_replica *replica = sync->replica;
    int64_t begin = sh_clock_now_ns(replica->clock);
    sh_status status = combine(sync, sync->own, op, values, count, over_out);
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    return status;
}

/* ---- A server's side ---- */

static sh_status refuse(const ps_server *server, int rank, const char *what) {
    return SH_FAIL(SH_E_FORMAT, "server %d: worker %d %s", server->service->index, rank, what);
}

/* Nothing that came in a message is trusted: no sum of its integers is undefined. */
static void add(int64_t *sum, const int64_t *x, size_t count) {
    for (size_t i = 0; i < count; i++) sum[i] = (int64_t)((uint64_t)sum[i] + (uint64_t)x[i]);
}

static void take_most(int64_t *most, const int64_t *x, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (x[i] > most[i]) most[i] = x[i];
}

static const int64_t *push_of(const ps_server *server, int rank) {
    return (const int64_t *)(const void *)server->clients[rank].pushed.packet;
}

/* Workers that do not agree on a scale have integers that mean different things. */
static sh_status check_scales(const ps_server *server) {
    size_t pieces = server->shard.params.count;
    const int64_t *first = push_of(server, 0);
    for (size_t i = 0; i < pieces; i++)
        if (first[i] < -1 || first[i] >= SH_FIXED_NOT_FINITE)
            return refuse(server, 0, "pushes integers of no scale");
    if (first[pieces] < 0) return refuse(server, 0, "pushes a mean over less than nothing");
    for (int r = 1; r < server->service->workers; r++)
        if (memcmp(push_of(server, r), first, (pieces + 1) * sizeof *first) != 0)
            return refuse(server, r, "pushes integers of another scale than worker 0");
    return SH_OK;
}

/* As an exact run without servers does it: run/exact_sum.c. */
sh_status ps_exact_sum(ps_server *server) {
    const sh_param_list *params = &server->shard.params;
    SH_TRY(check_scales(server));
    const int64_t *notes = push_of(server, 0);
    int64_t *sum = (int64_t *)(void *)server->clients[0].pushed.packet + params->count + 1;
    for (int r = 1; r < server->service->workers; r++)
        add(sum, push_of(server, r) + params->count + 1, params->total);
    double per_row = notes[params->count] > 0 ? 1.0 / (double)notes[params->count] : 0.0;
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *item = &params->items[i];
        server->exact.unused[i] = notes[i] < 0;
        if (server->exact.unused[i]) continue;
        double factor = per_row / sh_fixed_scale((int)notes[i]);
        sh_fixed()->to_float(server->group.sum + item->offset, sum + item->offset, item->count,
                             factor);
    }
    return SH_OK;
}

sh_status ps_exact_answer(ps_server *server) {
    const sh_ps_request *first = &server->clients[0].request;
    size_t count = (size_t)first->sum;
    memcpy(server->exact.combined, push_of(server, 0), count * sizeof *server->exact.combined);
    for (int r = 1; r < server->service->workers; r++) {
        const sh_ps_request *other = &server->clients[r].request;
        if (other->what != first->what || other->sum != first->sum)
            return refuse(server, r, "combines something else than worker 0");
        (first->what == SH_PS_MOST ? take_most : add)(server->exact.combined, push_of(server, r),
                                                      count);
    }
    return SH_OK;
}
