/* DiLoCo: local steps with any optimizer, and an outer Nesterov step with what they changed
 * (Douillard et al. 2023; with plain averages, lr 1 and no momentum, it is local SGD).
 *
 *   d <- a - (1/P) sum_j w_j                   a: the model of the last round
 *   v <- mu v + d
 *   a <- a - lr (d + mu v)                     outer lr 0.7, mu 0.9
 *   w_i <- a
 *
 * Every worker takes the outer step itself, with the same sums, so all have the same bits. Each
 * keeps its inner optimizer's state, as in the paper, unless the options say otherwise. The anchor
 * a is the model at every meeting; v belongs to checkpoints. Through a codec the outer gradient d
 * is the mean of what it lets through of a - w_j (sync/delta.h). */
#include "base/memory.h"
#include "sync/cost.h"
#include "sync/list.h"
#include "sync/local.h"
#include "tensor/kernels/vector.h"

typedef struct diloco_options {
    double outer_lr, outer_momentum;
} diloco_options;

static const sh_option options[] = {
    SH_REAL_ROW(diloco_options, outer_lr, "sync.outer_lr", "0.7", 0, 100,
                "diloco: rate of the outer step", .flag = "outer-lr"),
    SH_REAL_ROW(diloco_options, outer_momentum, "sync.outer_momentum", "0.9", 0, 1,
                "diloco: Nesterov momentum of the outer step", .flag = "outer-momentum"),
};

typedef struct diloco {
    int64_t since;    // steps since the last round
    float *anchor;    // (params->total); NULL: timing only
    sh_delta *delta;  // NULL: models travel as they are
} diloco;

static sh_status diloco_create(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    size_t total = replica->params->total;
    diloco *d = sync->own = sh_alloc(1, sizeof *d);
    if (d != NULL && replica->weights != NULL) d->anchor = sh_alloc(total, sizeof *d->anchor);
    if (d == NULL || (replica->weights != NULL && d->anchor == NULL))
        return SH_FAIL(SH_E_MEMORY, "out of memory for DiLoCo's anchor of %zu floats", total);
    if (d->anchor != NULL) sh_vector()->copy(replica->weights, d->anchor, total);
    return sh_delta_create(replica, replica->state[1], &d->delta);
}

static void diloco_destroy(sh_sync *sync) {
    diloco *d = sync->own;
    if (d == NULL) return;
    sh_delta_destroy(d->delta, sync->failed);
    sh_free(d->anchor);
    sh_free(d);
}

static sh_momentum policy_of(const sh_sync *sync) {
    return sh_sync_momentum(sync->options, SH_MOMENTUM_KEEP);
}

static void outer_step(const sh_sync *sync, float *weights, float *anchor, float *velocity) {
    const diloco_options *own = sh_sync_own(sync->options, sync->scheme.kind);
    const float lr = (float)own->outer_lr, mu = (float)own->outer_momentum;
    const size_t total = sync->replica->params->total;
    for (size_t i = 0; i < total; i++) {
        float change = anchor[i] - weights[i];
        velocity[i] = mu * velocity[i] + change;
        anchor[i] -= lr * (change + mu * velocity[i]);
        weights[i] = anchor[i];
    }
}

static sh_status round_of(sh_sync *sync) {
    diloco *d = sync->own;
    sh_replica *replica = sync->replica;
    SH_TRY(sh_delta_average_model(d->delta, replica));
    if (d->anchor != NULL) outer_step(sync, replica->weights, d->anchor, replica->state[0]);
    sh_delta_rebase(d->delta);
    return sh_replica_average_optim(replica, policy_of(sync));
}

static sh_status diloco_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    (void)meets_out;
    diloco *d = sync->own;
    SH_TRY(sh_local_step(sync, result_out));
    if (++d->since < (int64_t)sync->scheme.amount) return SH_OK;
    d->since = 0;
    return round_of(sync);
}

static sh_status diloco_meet(sh_sync *sync) {
    diloco *d = sync->own;
    return sh_local_meet(sync, &d->since, policy_of(sync), d->delta, round_of);
}

static sh_status diloco_check(sh_scheme scheme, const sh_sync_options *common,
                              const sh_sync_terms *terms) {
    (void)common;
    return sh_delta_check(scheme, terms);
}

static sh_sync_cost diloco_cost(const sh_sync_load *load) {
    return sh_cost_model_mean(load, load->scheme.amount, SH_MOMENTUM_KEEP);
}

static const sh_sync_family diloco_family = {
    .create = diloco_create,
    .destroy = diloco_destroy,
    .step = diloco_step,
    .meet = diloco_meet,
    .cost = diloco_cost,
};

const sh_sync_kind sh_sync_diloco = {
    .name = "diloco",
    .help = "H steps alone, then an outer Nesterov step with the mean change of the models",
    .amount = "H",
    .amount_least = 1,
    .amount_most = 1e6,
    .amount_initial = 50,
    .periodic = true,
    .survives = true,
    .reads = "momentum",
    .own = {{options, SH_COUNT(options)}, sizeof(diloco_options)},
    .states = {{.name = "outer_momentum"}, {.name = "residual", .feedback = true}},
    .family = &diloco_family,
    .check = diloco_check,
};
