/* A scheme of this test's own: H steps alone, then a part of the way to the mean of the models,
 * with the mean of the last round kept as its state. */
#include "base/memory.h"
#include "rows/rows.h"
#include "sync/local.h"

typedef struct drift_options {
    double pull;  // part of the way
} drift_options;

static const sh_option rows[] = {
    SH_REAL_ROW(drift_options, pull, "sync.drift_pull", "0.5", 0, 1,
                "drift: part of the way to the mean model"),
};

static sh_status create(sh_sync *sync) {
    sync->own = sh_alloc(1, sizeof(int64_t));
    return sync->own != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for drift");
}

static void destroy(sh_sync *sync) { sh_free(sync->own); }

/* The state gets the mean of the models and of what it was: a run that resumes without it differs.
 */
static sh_status approach(sh_sync *sync) {
    const drift_options *own = sh_sync_own(sync->options, sync->scheme.kind);
    sh_replica *replica = sync->replica;
    float *w = replica->weights, *mean = replica->state[0];
    for (size_t i = 0; i < replica->params->total; i++) mean[i] = 0.9F * w[i] + 0.1F * mean[i];
    SH_TRY(sh_replica_average(replica, mean, replica->params->total));
    for (size_t i = 0; i < replica->params->total; i++) w[i] += (float)own->pull * (mean[i] - w[i]);
    return SH_OK;
}

static sh_status step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    (void)meets_out;
    int64_t *since = sync->own;
    SH_TRY(sh_local_step(sync, result_out));
    if (++*since < (int64_t)sync->scheme.amount) return SH_OK;
    *since = 0;
    return approach(sync);
}

static const sh_sync_family family = {
    .create = create, .destroy = destroy, .step = step, .meet = sh_sync_meet_mean};

const sh_sync_kind row_drift = {
    .name = "drift",
    .help = "a part of the way to the mean model, for this test",
    .amount = "H",
    .amount_least = 1,
    .amount_most = 100,
    .amount_initial = 2,
    .periodic = true,
    .own = {{rows, SH_COUNT(rows)}, sizeof(drift_options)},
    .states = {{.name = "drift_mean"}},
    .family = &family,
};
