/* Local SGD: H steps alone, then the models are averaged (Zinkevich et al. 2010; Stich, ICLR 2019).
 *
 *   w_i <- w_i - lr g_i                       in every step, with the worker's own samples
 *   w_i <- (1/P) sum_j w_j                    after every H-th
 *
 * With plain SGD and H = 1 this is bulk-synchronous training: the mean of the models after one step
 * is the model after a step with the mean gradient. Bytes and latency fall by H.
 *
 * Post-local SGD (Lin et al., ICLR 2020) averages every step in the first part of the run, where
 * models move fast, and every H-th step afterwards.
 *
 * What becomes of the optimizer's state at an average is a policy: it is averaged like the model
 * (`average`, the default: the state then belongs to the averaged model, at twice or three times
 * the bytes), each worker keeps its own (`keep`, the default where a codec saves bytes), or all
 * start anew (`reset`). */
#include "sync/cost.h"
#include "sync/local.h"

#include "base/memory.h"
#include "sync/list.h"

typedef struct local {
    int64_t since;    // steps since the last average
    int64_t alone;    // see alone_from
    sh_delta *delta;  // NULL: models travel as they are
} local;

sh_status sh_local_step(sh_sync *sync, sh_loss_result *result_out) {
    sh_replica *replica = sync->replica;
    SH_TRY(replica->ops.compute(replica->ops.self, SH_MEAN_OWN, result_out));
    sh_replica_update(replica);
    return SH_OK;
}

sh_momentum sh_local_momentum(const sh_sync *sync) {
    bool coded = sync->replica->codec->kind != NULL;
    return sh_sync_momentum(sync->options, coded ? SH_MOMENTUM_KEEP : SH_MOMENTUM_AVERAGE);
}

sh_status sh_local_meet(sh_sync *sync, int64_t *since, sh_momentum policy, sh_delta *delta,
                        sh_status (*round)(sh_sync *sync)) {
    if (*since > 0) SH_TRY(round(sync));
    *since = 0;
    SH_TRY(sh_delta_settle(delta));
    if (policy != SH_MOMENTUM_KEEP) return SH_OK;
    return sh_replica_average_optim(sync->replica, SH_MOMENTUM_AVERAGE);
}

typedef struct post_local_options {
    double switch_at;  // steps when >= 1, a part of the run when < 1
} post_local_options;

static const sh_option post_local_rows[] = {
    SH_REAL_ROW(post_local_options, switch_at, "sync.switch", "0.5", 0, 1e12,
                "post-local: steps until workers go alone, or below 1 a part of the run",
                .flag = "sync-switch"),
};

/* The step, of this run, from which workers go alone. */
static int64_t alone_from(const sh_sync *sync) {
    if (sync->scheme.kind != &sh_sync_post_local) return 0;
    const post_local_options *own = sh_sync_own(sync->options, sync->scheme.kind);
    const double at = own->switch_at;
    int64_t steps = sync->replica->all.total / sync->replica->ranks;
    return (int64_t)(at < 1 ? at * (double)steps : at);
}

static sh_status local_create(sh_sync *sync) {
    local *l = sync->own = sh_alloc(1, sizeof *l);
    if (l == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for local SGD");
    l->alone = alone_from(sync);
    return sh_delta_create(sync->replica, sync->replica->state[0], &l->delta);
}

static void local_destroy(sh_sync *sync) {
    local *l = sync->own;
    if (l != NULL) sh_delta_destroy(l->delta, sync->failed);
    sh_free(l);
}

static sh_status average(sh_sync *sync) {
    const local *l = sync->own;
    SH_TRY(sh_delta_average_model(l->delta, sync->replica));
    sh_delta_rebase(l->delta);
    return sh_replica_average_optim(sync->replica, sh_local_momentum(sync));
}

static sh_status local_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    (void)meets_out;
    local *l = sync->own;
    SH_TRY(sh_local_step(sync, result_out));
    bool alone = sync->replica->step >= l->alone;
    if (++l->since < (alone ? (int64_t)sync->scheme.amount : 1)) return SH_OK;
    l->since = 0;
    return average(sync);
}

static sh_status local_meet(sh_sync *sync) {
    local *l = sync->own;
    return sh_local_meet(sync, &l->since, sh_local_momentum(sync), l->delta, average);
}

static sh_status local_check(sh_scheme scheme, const sh_sync_options *options,
                             const sh_sync_terms *terms) {
    (void)options;
    return sh_delta_check(scheme, terms);
}

/* Post-local's first part, where models are averaged every step, is left out. */
static sh_sync_cost local_cost(const sh_sync_load *load) {
    return sh_cost_model_mean(load, load->scheme.amount, SH_MOMENTUM_AVERAGE);
}

static const sh_sync_family local_family = {
    .create = local_create,
    .destroy = local_destroy,
    .step = local_step,
    .meet = local_meet,
    .cost = local_cost,
};

const sh_sync_kind sh_sync_local = {
    .name = "local",
    .help = "local SGD: H steps alone, then the models are averaged; local:1 with SGD is bsp",
    .amount = "H",
    .amount_least = 1,
    .amount_most = 1e6,
    .amount_initial = 8,
    .periodic = true,
    .survives = true,
    .reads = "momentum",
    .states = {{.name = "residual", .feedback = true}},
    .family = &local_family,
    .check = local_check,
};

const sh_sync_kind sh_sync_post_local = {
    .name = "post-local",
    .help = "averages every step until --sync-switch (half of the run), then every H-th",
    .amount = "H",
    .amount_least = 1,
    .amount_most = 1e6,
    .amount_initial = 8,
    .periodic = true,
    .survives = true,
    .reads = "momentum",
    .own = {{post_local_rows, SH_COUNT(post_local_rows)}, sizeof(post_local_options)},
    .states = {{.name = "residual", .feedback = true}},
    .family = &local_family,
    .check = local_check,
};
