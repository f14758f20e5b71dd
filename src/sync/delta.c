#include "sync/delta.h"

#include "base/memory.h"
#include "codec/exchange.h"
#include "tensor/kernels/vector.h"

struct sh_delta {
    sh_replica *replica;
    sh_exchange *exchange;
    float *anchor;        // a; NULL: timing only
    bool feeds_back;      // there is a residual
    float *residual;      // the exchange's; NULL: none, or timing only
    float *residual_sum;  // the sum of all workers' as the last meeting left it
};

static sh_status out_of_memory(void) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for the change of a model");
}

/* Does not depend on how many workers a checkpoint is from. */
static void take_residual_sum(sh_delta *delta) {
    if (delta->residual == NULL || delta->residual_sum == NULL) return;
    size_t total = delta->replica->params->total;
    sh_vector()->copy(delta->residual_sum, delta->residual, total);
    sh_vector()->scale(delta->residual, 1.0F / (float)delta->replica->ranks, total);
}

static sh_status make(sh_delta *delta) {
    sh_replica *replica = delta->replica;
    bool computes = replica->weights != NULL;
    if (computes) delta->anchor = sh_alloc(replica->params->total + 1, sizeof *delta->anchor);
    if (computes && delta->anchor == NULL) return out_of_memory();
    sh_delta_rebase(delta);
    const sh_exchange_bucket all = {.count = replica->params->count};
    const sh_exchange_options options = {.group = replica->group,
                                         .codec = replica->codec,
                                         .params = replica->params,
                                         .gradients = replica->gradients,
                                         .buckets = &all,
                                         .bucket_count = 1,
                                         .seed = replica->seed,
                                         .clock = replica->clock};
    SH_TRY(sh_exchange_create(&options, &delta->exchange));
    sh_exchange_state states[SH_EXCHANGE_STATES];
    delta->feeds_back = sh_codec_states(replica->codec) > 0;
    if (delta->feeds_back && sh_exchange_states(delta->exchange, states) > 0)
        delta->residual = states[0].block;
    take_residual_sum(delta);
    return SH_OK;
}

sh_status sh_delta_create(sh_replica *replica, float *residual_sum, sh_delta **delta_out) {
    *delta_out = NULL;
    if (replica->codec->kind == NULL || replica->ranks == 1) return SH_OK;
    sh_delta *delta = sh_alloc(1, sizeof *delta);
    if (delta == NULL) return out_of_memory();
    *delta = (sh_delta){.replica = replica, .residual_sum = residual_sum};
    sh_status status = make(delta);
    if (status == SH_OK)
        *delta_out = delta;
    else
        sh_delta_destroy(delta, true);
    return status;
}

/* After a failure the engine may still hold calls of the exchange: it stays. */
void sh_delta_destroy(sh_delta *delta, bool failed) {
    if (delta == NULL) return;
    if (!failed) sh_exchange_destroy(delta->exchange);
    sh_free(delta->anchor);
    sh_free(delta);
}

void sh_delta_rebase(sh_delta *delta) {
    if (delta == NULL || delta->anchor == NULL) return;
    sh_vector()->copy(delta->replica->weights, delta->anchor, delta->replica->params->total);
}

static sh_status exchange(sh_delta *delta) {
    sh_replica *replica = delta->replica;
    int64_t begin = sh_clock_now_ns(replica->clock);
    sh_exchange_begin(delta->exchange, replica->step);
    sh_exchange_start(delta->exchange, 0);
    SH_TRY(sh_exchange_wait(delta->exchange, 0));
    sh_exchange_stats stats = sh_exchange_take_stats(delta->exchange);
    replica->counts.sent_bytes += stats.sent_bytes;
    replica->counts.dense_bytes += stats.dense_bytes;
    replica->counts.waited_ns += sh_clock_now_ns(replica->clock) - begin;
    return SH_OK;
}

sh_status sh_delta_average(sh_delta *delta) {
    sh_replica *replica = delta->replica;
    float *change = replica->gradients, *weights = replica->weights;
    const float *anchor = delta->anchor, part = 1.0F / (float)replica->ranks;
    const size_t total = anchor != NULL ? replica->params->total : 0;
    for (size_t i = 0; i < total; i++) change[i] = (weights[i] - anchor[i]) * part;
    SH_TRY(exchange(delta));
    for (size_t i = 0; i < total; i++) weights[i] = anchor[i] + change[i];
    return SH_OK;
}

sh_status sh_delta_settle(sh_delta *delta) {
    if (delta == NULL || !delta->feeds_back) return SH_OK;
    SH_TRY(sh_exchange_settle(delta->exchange));
    if (delta->residual_sum == NULL || delta->residual == NULL) return SH_OK;
    size_t total = delta->replica->params->total;
    sh_vector()->copy(delta->residual, delta->residual_sum, total);
    sh_vector()->scale(delta->residual_sum, (float)delta->replica->ranks, total);
    take_residual_sum(delta);
    return SH_OK;
}

sh_status sh_delta_average_model(sh_delta *delta, sh_replica *replica) {
    if (delta != NULL) return sh_delta_average(delta);
    return sh_replica_average(replica, replica->weights, replica->params->total);
}

sh_status sh_delta_check(sh_scheme scheme, const sh_sync_terms *terms) {
    const sh_codec_kind *kind = terms->codec->kind;
    if (kind == NULL || !kind->owns_momentum) return SH_OK;
    return sh_refuse_codec(scheme, terms, "keeps the momentum of gradients, and models travel");
}
