/* The residual of error feedback on the workers of parameter servers: what the codec left out of
 * the gradients that a worker has pushed. Servers average gradients, so what is still to come is
 * the mean of the residuals; at a meeting every worker goes on with that mean, which checkpoints
 * hold. It serves any number of workers, and a resumed run goes on with the bits of one that was
 * not stopped. */
#include "sync/ps_worker.h"

/* Elastic averaging has no residual (ps_elastic.h). */
static bool feeds_back(const sh_sync *sync, const ps_worker *w) {
    return w->policy.elastic == 0 && sh_codec_states(sync->replica->codec) > 0;
}

void ps_residual_take(const sh_sync *sync, ps_worker *w) {
    const float *residual = sync->replica->state[0];
    for (int i = 0; residual != NULL && i < w->count; i++)
        sh_ps_shard_take(&w->links[i].shard, residual, w->links[i].push.state);
}

void ps_residual_give(const sh_sync *sync, const ps_worker *w) {
    float *residual = sync->replica->state[0];
    for (int i = 0; residual != NULL && i < w->count; i++)
        sh_ps_shard_give(&w->links[i].shard, w->links[i].push.state, residual);
}

sh_status ps_residual_settle(const sh_sync *sync, ps_worker *w) {
    sh_replica *replica = sync->replica;
    if (!feeds_back(sync, w)) return SH_OK;
    ps_residual_give(sync, w);
    SH_TRY(sh_replica_average(replica, replica->state[0], replica->params->total));
    ps_residual_take(sync, w);
    return SH_OK;
}
