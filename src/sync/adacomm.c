/* AdaComm: local SGD whose period falls with the loss (Wang & Joshi, MLSys 2019).
 *
 *   H_l = min(H_{l-1}, ceil(H_0 sqrt(F_l / F_0)))       and half of H_{l-1} where that is not less
 *
 * Far from the goal, rare averages cost little; near it, the workers' drift is what remains of the
 * error. F_0 is the loss of the first round and F_l that of the l-th interval, means over all
 * workers, which therefore agree on H. The paper looks after equal stretches of time; here a
 * stretch is a twentieth of the run's steps, so that a run repeats. H never falls below 1.
 *
 * The state is a block of a few floats, equal on all workers after every round. */
#include <math.h>

#include "base/memory.h"
#include "sync/list.h"
#include "sync/local.h"

enum { LOOKS = 20 };  // in a run

enum { PERIOD, FIRST, SUM, COUNT, STEPS, STATE_COUNT };  // the floats of the state

typedef struct adacomm {
    float *state;  // the replica's, or `none` where only time is simulated
    float none[STATE_COUNT];
    int64_t since;        // steps since the last average
    int64_t stretch;      // steps between two looks at the loss
    double sum, counted;  // of the losses since the last average, by this worker
    sh_delta *delta;      // NULL: models travel as they are
} adacomm;

static sh_status adacomm_create(sh_sync *sync) {
    sh_replica *replica = sync->replica;
    adacomm *a = sync->own = sh_alloc(1, sizeof *a);
    if (a == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for AdaComm");
    a->state = replica->state[0] != NULL ? replica->state[0] : a->none;
    if (a->state[PERIOD] == 0) a->state[PERIOD] = (float)sync->scheme.amount;
    int64_t steps = replica->all.total / replica->ranks;
    a->stretch = steps >= LOOKS ? steps / LOOKS : 1;
    return sh_delta_create(replica, replica->state[1], &a->delta);
}

static void adacomm_destroy(sh_sync *sync) {
    adacomm *a = sync->own;
    if (a != NULL) sh_delta_destroy(a->delta, sync->failed);
    sh_free(a);
}

/* A stretch is over: the period for the next one. */
static void decide(adacomm *a, double initial) {
    float *state = a->state;
    double loss = (double)state[SUM] / (double)state[COUNT];
    double wanted = ceil(initial * sqrt(loss / (double)state[FIRST]));
    double before = (double)state[PERIOD];
    if (!(wanted < before)) wanted = floor(before / 2);
    state[PERIOD] = wanted >= 1 ? (float)wanted : 1;
    state[SUM] = state[COUNT] = state[STEPS] = 0;
}

/* What was summed up since the last round, by all workers. */
static sh_status gather_loss(sh_sync *sync) {
    adacomm *a = sync->own;
    double all[] = {a->sum, a->counted};
    sh_call call = {.what = SH_ALLREDUCE,
                    .data = all,
                    .count = SH_COUNT(all),
                    .dtype = SH_DTYPE_F64,
                    .op = SH_SUM,
                    .step = sync->replica->step,
                    .bucket = -1};
    SH_TRY(sh_group_run(sync->replica->group, &call));
    a->sum = a->counted = 0;
    if (!(all[1] > 0)) return SH_OK;  // short batches may have no samples that count
    if (a->state[FIRST] == 0) {
        a->state[FIRST] = (float)(all[0] / all[1]);
        return SH_OK;
    }
    a->state[SUM] += (float)all[0];
    a->state[COUNT] += (float)all[1];
    return SH_OK;
}

static sh_status round_of(sh_sync *sync) {
    adacomm *a = sync->own;
    SH_TRY(sh_delta_average_model(a->delta, sync->replica));
    sh_delta_rebase(a->delta);
    SH_TRY(sh_replica_average_optim(sync->replica, sh_local_momentum(sync)));
    SH_TRY(gather_loss(sync));
    a->state[STEPS] += (float)a->since;
    a->since = 0;
    if ((int64_t)a->state[STEPS] >= a->stretch && a->state[COUNT] > 0)
        decide(a, sync->scheme.amount);
    return SH_OK;
}

static sh_status adacomm_step(sh_sync *sync, sh_loss_result *result_out, bool *meets_out) {
    (void)meets_out;
    adacomm *a = sync->own;
    SH_TRY(sh_local_step(sync, result_out));
    a->sum += result_out->sum;
    a->counted += (double)result_out->counted;
    return ++a->since >= (int64_t)a->state[PERIOD] ? round_of(sync) : SH_OK;
}

static sh_status adacomm_meet(sh_sync *sync) {
    adacomm *a = sync->own;
    return sh_local_meet(sync, &a->since, sh_local_momentum(sync), a->delta, round_of);
}

static sh_status adacomm_check(sh_scheme scheme, const sh_sync_options *options,
                               const sh_sync_terms *terms) {
    (void)options;
    return sh_delta_check(scheme, terms);
}

static const sh_sync_family adacomm_family = {
    .create = adacomm_create,
    .destroy = adacomm_destroy,
    .step = adacomm_step,
    .meet = adacomm_meet,
};

const sh_sync_kind sh_sync_adacomm = {
    .name = "adacomm",
    .help = "local SGD whose period falls from H to 1 as the loss falls",
    .amount = "H",
    .amount_least = 1,
    .amount_most = 1e6,
    .amount_initial = 16,
    .periodic = true,
    .survives = true,
    .reads = "momentum",
    .states = {{.name = "state", .count = STATE_COUNT}, {.name = "residual", .feedback = true}},
    .family = &adacomm_family,
    .check = adacomm_check,
};
