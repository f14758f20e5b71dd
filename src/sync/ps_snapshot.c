/* Snapshots: a server's shard as it was at some update, in memory that outlives the server. When it
 * dies, the others go on from there, and know what is lost: the updates since.
 *
 * There are two copies, written in turn, and a word that says which one is whole; a death while one
 * is written leaves the other. */
#include <stdatomic.h>

#include "sync/ps_server.h"
#include "tensor/kernels/vector.h"

typedef struct ps_saved {
    _Alignas(64) atomic_int_fast64_t version;  // of the shard now, whether saved or not
    atomic_int_fast64_t saves;  // so far: copy saves mod 2 is whole; 0: none is. Release: it is
    atomic_bool ended;          // nothing came after the last
    int64_t versions[2];
    sh_service_counts counts;     // once it has ended
    _Alignas(64) float values[];  // (2, 1 + slots, shard)
} ps_saved;

static float *block_of(const ps_saved *saved, size_t count, int slots, int64_t copy, int block) {
    size_t index = (size_t)(copy % 2) * (size_t)(1 + slots) + (size_t)block;
    return (float *)(uintptr_t)saved->values + index * count;
}

/* With elastic averaging workers have the optimizer. */
static int slots_of(const sh_service *service) {
    sh_ps_policy policy =
        service->scheme.kind->policy(service->scheme, service->options, service->workers);
    return policy.elastic > 0 ? 0 : service->optim->slot_count;
}

/* ---- The server's side ---- */

void ps_snapshot_save(ps_server *server) {
    ps_saved *saved = server->service->snapshot;
    if (saved == NULL || !server->computes) return;
    size_t count = server->shard.params.total;
    int slots = slots_of(server->service);
    int64_t copy = atomic_load_explicit(&saved->saves, memory_order_relaxed) + 1;
    sh_vector()->copy(server->blocks.current->data, block_of(saved, count, slots, copy, 0), count);
    for (int i = 0; i < slots && server->has_optim; i++)
        sh_vector()->copy(server->optim.slots[i], block_of(saved, count, slots, copy, 1 + i),
                          count);
    saved->versions[copy % 2] = server->saved = server->version;
    atomic_store_explicit(&saved->version, server->version, memory_order_relaxed);
    atomic_store_explicit(&saved->saves, copy, memory_order_release);
}

void ps_snapshot_note(ps_server *server) {
    ps_saved *saved = server->service->snapshot;
    if (saved == NULL || !server->computes) return;
    // Relaxed: it is read when this process has ended.
    atomic_store_explicit(&saved->version, server->version, memory_order_relaxed);
    if (server->version - server->saved >= server->service->options->snapshot_every)
        ps_snapshot_save(server);
}

void ps_snapshot_end(ps_server *server) {
    ps_saved *saved = server->service->snapshot;
    if (saved == NULL || !server->computes || ps_settle(server) != SH_OK) return;
    ps_snapshot_save(server);
    saved->counts = server->service->counts;
    atomic_store_explicit(&saved->ended, true, memory_order_release);
}

/* ---- Of those who live on ---- */

sh_status sh_ps_snapshot_bytes(const sh_service *like, int index, size_t *bytes_out) {
    sh_ps_shard shard;
    SH_TRY(sh_ps_shard_init(&shard, like->params, like->options->placement, index, like->count));
    *bytes_out = sizeof(ps_saved) + 2 * (size_t)(1 + slots_of(like)) * sh_ps_shard_bytes(&shard);
    sh_ps_shard_fini(&shard);
    return SH_OK;
}

/* A server that never began to serve had what the workers still have. */
sh_status sh_ps_restore(const sh_service *like, int index, const void *snapshot, float *weights,
                        sh_optim *optim, sh_recovered *recovered_out) {
    const ps_saved *saved = snapshot;
    int64_t copy = atomic_load_explicit(&saved->saves, memory_order_acquire);
    *recovered_out = (sh_recovered){.ended = atomic_load(&saved->ended)};
    if (recovered_out->ended) recovered_out->counts = saved->counts;
    if (copy == 0) return SH_OK;
    recovered_out->updates = saved->versions[copy % 2];
    recovered_out->lost = atomic_load(&saved->version) - recovered_out->updates;
    sh_ps_shard shard;
    SH_TRY(sh_ps_shard_init(&shard, like->params, like->options->placement, index, like->count));
    size_t count = shard.params.total;
    int slots = slots_of(like);
    sh_ps_shard_give(&shard, block_of(saved, count, slots, copy, 0), weights);
    for (int i = 0; i < slots; i++)
        sh_ps_shard_give(&shard, block_of(saved, count, slots, copy, 1 + i), optim->slots[i]);
    sh_ps_shard_fini(&shard);
    return SH_OK;
}
