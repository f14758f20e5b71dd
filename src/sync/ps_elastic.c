#include "sync/ps_elastic.h"

#include "base/memory.h"
#include "tensor/kernels/vector.h"

/* ---- The worker ---- */

sh_status ps_elastic_init(const sh_sync *sync, ps_worker *w) {
    const sh_replica *replica = sync->replica;
    if (w->policy.elastic == 0 || replica->weights == NULL) return SH_OK;
    size_t total = replica->params->total;
    bool coded = replica->codec->kind != NULL;
    w->centre = sh_alloc(total + 1, sizeof *w->centre);
    w->own = sh_alloc(total + 1, sizeof *w->own);
    if (coded) w->seen = sh_alloc(total + 1, sizeof *w->seen);
    if (w->centre == NULL || w->own == NULL || (coded && w->seen == NULL))
        return SH_FAIL(SH_E_MEMORY, "out of memory for elastic averaging");
    sh_vector()->copy(replica->weights, w->centre, total);  // the centre begins there, too
    return SH_OK;
}

void ps_elastic_fini(ps_worker *w) {
    sh_free(w->centre);
    sh_free(w->own);
    sh_free(w->seen);
}

sh_status ps_elastic_write(const sh_sync *sync, ps_worker *w, ps_link *link) {
    const sh_replica *replica = sync->replica;
    const sh_param_list *params = &link->shard.params;
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *item = &params->items[i];
        const size_t from = link->shard.origin[i];
        const float *x = replica->weights + from, *k = w->centre + from;
        for (size_t e = 0; e < item->count; e++) link->lag[item->offset + e] = x[e] - k[e];
    }
    sh_ps_encode_alone(&link->push, replica->rank, replica->step, link->lag);
    SH_TRY(sh_ps_decode(&link->push, replica->rank, replica->step, link->push.message, link->lag));
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *item = &params->items[i];
        const size_t from = link->shard.origin[i];
        const float *k = w->centre + from;
        for (size_t e = 0; e < item->count; e++)
            w->seen[from + e] = link->lag[item->offset + e] + k[e];
    }
    return SH_OK;
}

void ps_elastic_move(const sh_sync *sync, const ps_worker *w) {
    if (w->centre == NULL) return;
    float *x = sync->replica->weights, alpha = (float)w->policy.elastic;
    const float *seen = w->seen != NULL ? w->seen : x;
    for (size_t i = 0; i < sync->replica->params->total; i++)
        x[i] -= alpha * (seen[i] - w->centre[i]);
}

void ps_elastic_save_own(const sh_sync *sync, ps_worker *w) {
    if (w->own == NULL) return;
    if (w->links[0].request.what & SH_PS_PUSH) ps_elastic_move(sync, w);
    sh_vector()->copy(sync->replica->weights, w->own, sync->replica->params->total);
}

/* The meeting sent the centre whole, so the server knows that the worker has it. */
void ps_elastic_restore_own(const sh_sync *sync, const ps_worker *w) {
    if (w->own == NULL) return;
    size_t total = sync->replica->params->total;
    sh_vector()->copy(sync->replica->weights, w->centre, total);
    sh_vector()->copy(w->own, sync->replica->weights, total);
}

/* ---- The server ---- */

/* The reply has the centre as it was before it moved. */
static sh_status prepare_reply(ps_server *server, ps_client *client) {
    if (server->pull.codec.kind == NULL) {
        client->reads = ps_acquire(server);
        return SH_OK;
    }
    client->copy.packed = true;
    return ps_write_lag(server, client);
}

sh_status ps_elastic_push(ps_server *server, ps_client *client, const float *pushed) {
    server->version++;
    if (!server->computes) return SH_OK;
    size_t total = server->shard.params.total;
    if (server->push.codec.kind != NULL)
        sh_vector()->add_to(client->pushed.gradient, client->copy.weights, total);
    SH_TRY(prepare_reply(server, client));
    const float *centre = server->blocks.current->data;
    const float *told = server->pull.codec.kind != NULL ? client->copy.weights : centre;
    ps_block *next = NULL;
    SH_TRY(ps_next_block(server, &next));
    float alpha = (float)server->policy->elastic;
    for (size_t i = 0; i < total; i++) next->data[i] = centre[i] + alpha * (pushed[i] - told[i]);
    server->blocks.current = next;
    return SH_OK;
}
