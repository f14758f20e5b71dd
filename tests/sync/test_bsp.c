/* Bulk-synchronous steps: all ranks take the step of the summed gradients. Ranks are threads over
 * shared memory. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "comm/engines.h"
#include "harness.h"
#include "sync/sync.h"

static const int64_t counts[] = {40, 3, 200, 1};
enum { PARAMS = sizeof counts / sizeof *counts, STEPS = 4 };

typedef struct world {
    int ranks;
    bool overlap;
    /* Whether a rank has samples in a step; the others' batches were too short for them. */
    bool (*has_samples)(int rank, int64_t step);
} world;

static bool always(int rank, int64_t step) {
    (void)rank, (void)step;
    return true;
}

static bool rank_0_alone_in_odd_steps(int rank, int64_t step) { return rank == 0 || step % 2 == 0; }

static float gradient_of(int rank, int64_t step, size_t index) {
    return (float)((rank * 7 + step * 5 + (int64_t)index * 3) % 13) - 6;
}

/* One rank, and what its scheme is given. */
typedef struct member {
    const world *world;
    sh_param_list params;
    sh_optim optim;
    sh_schedule schedule;
    sh_codec codec;
    sh_step_options steps;
    sh_replica replica;
    sh_sync sync;
} member;

/* A rank without samples computes nothing and calls no hook, as a run's does. */
static sh_status compute(void *self, sh_mean mean, sh_loss_result *result_out) {
    member *m = self;
    sh_replica *replica = &m->replica;
    SH_ASSERT(mean == SH_MEAN_GLOBAL);
    if (!m->world->has_samples(replica->rank, replica->step)) return SH_OK;
    *result_out = (sh_loss_result){.sum = 1, .counted = 1};
    SH_TRY(replica->hooks.begins(replica->hooks.who, result_out));
    for (size_t k = PARAMS; k-- > 0;) {
        const sh_param *param = &m->params.items[k];
        for (size_t i = param->offset; i < param->offset + param->count; i++)
            replica->gradients[i] = gradient_of(replica->rank, replica->step, i);
        replica->hooks.ready(replica->hooks.who, k);
    }
    return SH_OK;
}

static sh_status make(member *m, sh_engine *engine) {
    for (size_t i = 0; i < PARAMS; i++)
        SH_TRY(sh_param_list_add(&m->params, (char[]){(char)('a' + i), '\0'}, SH_SHAPE(counts[i]),
                                 true, NULL));
    SH_TRY(sh_scheme_parse("bsp", &m->sync.scheme));
    const sh_optim_options sgd = {.name = (char *)(uintptr_t) "sgd",
                                  .lr = 1,
                                  .dampening = NAN,
                                  .beta1 = NAN,
                                  .beta2 = NAN,
                                  .epsilon = NAN,
                                  .weight_decay = NAN,
                                  .trust = NAN,
                                  .rho = NAN};
    SH_TRY(sh_optim_init(&m->optim, &sgd, m->params.total));
    const sh_schedule_options constant = {.name = (char *)(uintptr_t) "constant", .gamma = 0.1};
    SH_TRY(sh_schedule_init(&m->schedule, &constant, 1, 1, STEPS, STEPS));
    m->steps = (sh_step_options){.bucket_bytes = 256};
    m->replica = (sh_replica){.rank = sh_engine_rank(engine),
                              .ranks = m->world->ranks,
                              .group = sh_engine_world(engine),
                              .clock = &sh_clock_real,
                              .params = &m->params,
                              .weights = sh_alloc(m->params.total, sizeof(float)),
                              .gradients = sh_alloc(m->params.total, sizeof(float)),
                              .optim = &m->optim,
                              .schedule = &m->schedule,
                              .codec = &m->codec,
                              .steps = &m->steps,
                              .overlap = m->world->overlap,
                              .ops = {.compute = compute, .self = m}};
    m->sync.replica = &m->replica;
    SH_ASSERT(m->replica.weights != NULL && m->replica.gradients != NULL);
    return SH_OK;
}

static void end(member *m) {
    sh_free(m->replica.weights);
    sh_free(m->replica.gradients);
    sh_optim_fini(&m->optim);
    sh_param_list_fini(&m->params);
}

/* Weights begin as zeros, and the rate is 1: they are what was summed so far, taken off. */
static sh_status check_weights(const member *m) {
    const world *w = m->world;
    for (size_t i = 0; i < m->params.total; i++) {
        float wanted = 0;
        for (int64_t step = 0; step <= m->replica.step; step++)
            for (int rank = 0; rank < w->ranks; rank++)
                if (w->has_samples(rank, step)) wanted -= gradient_of(rank, step, i);
        if (m->replica.weights[i] != wanted)
            return SH_FAIL(SH_E_NUMERIC, "rank %d, step %ld: weight %zu is %g, not %g",
                           m->replica.rank, (long)m->replica.step, i, (double)m->replica.weights[i],
                           (double)wanted);
    }
    return SH_OK;
}

static sh_status one_step(member *m) {
    const world *w = m->world;
    sh_loss_result total = {0};
    bool meets = false;
    int64_t counted = 0;
    SH_TRY(m->sync.scheme.kind->family->step(&m->sync, &total, &meets));
    for (int rank = 0; rank < w->ranks; rank++) counted += w->has_samples(rank, m->replica.step);
    if (total.counted != counted)
        return SH_FAIL(SH_E_NUMERIC, "the loss counts %ld samples, not %ld", (long)total.counted,
                       (long)counted);
    return check_weights(m);
}

static sh_status run_rank(sh_engine *engine, void *argument) {
    member m = {.world = argument};
    SH_TRY(make(&m, engine));
    SH_TRY(m.sync.scheme.kind->family->create(&m.sync));
    sh_status status = SH_OK;
    for (; m.replica.step < STEPS && status == SH_OK; m.replica.step++) status = one_step(&m);
    if (status != SH_OK) return status;
    m.sync.scheme.kind->family->destroy(&m.sync);
    end(&m);
    return SH_OK;
}

static void check(world w) {
    for (w.ranks = 2; w.ranks <= 4; w.ranks++)
        for (int overlap = 0; overlap < 2; overlap++) {
            w.overlap = overlap;
            CHECK_OK(run_engines(w.ranks, NULL, run_rank, &w));
        }
}

TEST(bsp, every_rank_takes_the_step_of_the_summed_gradients) {
    check((world){.has_samples = always});
}

TEST(bsp, a_rank_without_samples_adds_nothing) {
    check((world){.has_samples = rank_0_alone_in_odd_steps});
}
