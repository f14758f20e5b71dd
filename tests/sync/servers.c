#include "sync/servers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "harness.h"
#include "optim/schedule.h"
#include "sync/crowd.h"

typedef struct ps_player {
    ps_world *world;
    sh_replica replica;
} ps_player;

static sh_sync_options options_of(const ps_world *world) {
    return (sh_sync_options){
        .name = (char *)(uintptr_t)world->scheme,
        .servers = world->servers,
        .placement = world->placement != NULL ? (char *)(uintptr_t)world->placement
                                              : (char *)(uintptr_t) "range",
        .staleness = world->staleness != NULL ? (char *)(uintptr_t)world->staleness
                                              : (char *)(uintptr_t) "off",
        .compensation = world->compensation,
        .fetch_every = world->fetch_every,
        .push_every = world->push_every};
}

sh_optim_options world_optim(const ps_world *world) {
    return (sh_optim_options){.name = (char *)(uintptr_t)world->optim,
                              .lr = world->lr,
                              .momentum = world->momentum > 0 ? world->momentum : NAN,
                              .beta1 = NAN,
                              .beta2 = NAN,
                              .epsilon = NAN,
                              .weight_decay = NAN,
                              .dampening = NAN,
                              .trust = NAN,
                              .rho = NAN};
}

int64_t world_goal(const ps_world *world) {
    int64_t goal = 0;
    for (int m = 0; m < MEETINGS_MOST; m++)
        if (world->goals[m] > goal) goal = world->goals[m];
    return goal;
}

sh_schedule world_schedule(const ps_world *world) {
    const char *name = world->schedule != NULL ? world->schedule : "constant";
    const sh_schedule_options options = {
        .name = (char *)(uintptr_t)name, .warmup = NAN, .last = NAN, .gamma = NAN};
    int64_t steps = world_goal(world) / world->workers;
    sh_schedule schedule;
    sh_status status =
        sh_schedule_init(&schedule, &options, world->lr, 1, steps > 0 ? steps : 1, 1000000);
    SH_ASSERT(status == SH_OK);
    return schedule;
}

static sh_status pass_time(sh_replica *replica) {
    int64_t ns = sh_sim_compute_ns(simulated(), replica->rank, replica->step);
    if (replica->hooks.unwanted == NULL) return sh_sim_spend(simulated(), ns);
    return sh_sim_spend_unless(simulated(), ns, replica->mail.transport, replica->hooks.unwanted,
                               replica->hooks.who);
}

static sh_status compute(void *self, sh_mean mean, sh_loss_result *result_out) {
    ps_player *player = self;
    ps_world *world = player->world;
    sh_replica *replica = &player->replica;
    SH_ASSERT(mean == SH_MEAN_OWN);
    SH_TRY(
        world->gradient(world, replica->rank, replica->step, replica->weights, replica->gradients));
    if (world->simulated) SH_TRY(pass_time(replica));
    replica->batch.broke_off =
        replica->hooks.unwanted != NULL && replica->hooks.unwanted(replica->hooks.who);
    if (replica->batch.broke_off) {
        world->broken_off[replica->rank]++;
        for (size_t i = 0; i < world->params.total; i++) replica->gradients[i] = NAN;
    }
    *result_out = (sh_loss_result){.counted = 1};
    return SH_OK;
}

static float *copy_of(const float *x, size_t count) {
    float *y = sh_alloc(count + 1, sizeof *y);
    SH_ASSERT(y != NULL);
    for (size_t i = 0; x != NULL && i < count; i++) y[i] = x[i];
    return y;
}

static sh_status walk(ps_world *world, sh_sync *sync) {
    sh_replica *replica = sync->replica;
    for (int m = 0; m < MEETINGS_MOST && world->goals[m] > 0; m++) {
        replica->all.goal = world->goals[m];
        for (bool meets = false; !meets;) {
            sh_loss_result result;
            SH_TRY(sync->scheme.kind->family->step(sync, &result, &meets));
            if (!meets) replica->step++;
        }
        SH_TRY(sync->scheme.kind->family->meet(sync));
        world->met[m][replica->rank] = copy_of(replica->weights, world->params.total);
    }
    world->steps[replica->rank] = replica->step;
    if (replica->rank == 0) world->done = replica->all.done;
    return SH_OK;
}

static sh_status play_worker(sh_transport *mail, ps_world *world, sh_scheme scheme) {
    const sh_sync_options options = options_of(world);
    sh_codec codec;
    SH_TRY(sh_codec_parse(world->codec != NULL ? world->codec : "none", &codec));
    int rank = mail->rank;
    const sh_schedule schedule = world_schedule(world);
    const sh_optim_options optim = world_optim(world);
    SH_TRY(sh_optim_init(&world->optims[rank], &optim, world->params.total));
    ps_player player = {.world = world};
    float *weights = copy_of(world->start, world->params.total);
    float *lent = sh_export_acquire(mail, world->params.total * sizeof *lent);
    float *gradients = lent != NULL ? lent : copy_of(NULL, world->params.total);
    player.replica = (sh_replica){.rank = rank,
                                  .ranks = world->workers,
                                  .mail = {.transport = mail, .workers = world->workers},
                                  .clock = mail->clock,
                                  .params = &world->params,
                                  .weights = weights,
                                  .gradients = gradients,
                                  .state = {rank == 0 ? world->kept : NULL},
                                  .optim = &world->optims[rank],
                                  .schedule = &schedule,
                                  .codec = &codec,
                                  .ops = {.compute = compute, .self = &player}};
    sh_sync sync = {.scheme = scheme, .options = &options, .replica = &player.replica};
    sh_status status = scheme.kind->family->create(&sync);
    if (status == SH_OK) status = walk(world, &sync);
    sh_error error = *sh_error_last();
    scheme.kind->family->destroy(&sync);
    sh_free(weights);
    if (lent != NULL)
        sh_export_release(mail, lent);
    else
        sh_free(gradients);
    return status == SH_OK ? SH_OK : sh_error_adopt(&error);
}

static sh_status play_server(sh_transport *mail, ps_world *world, sh_scheme scheme) {
    const sh_sync_options options = options_of(world);
    sh_codec codec;
    SH_TRY(sh_codec_parse(world->codec != NULL ? world->codec : "none", &codec));
    const sh_schedule schedule = world_schedule(world);
    const sh_optim_options wanted = world_optim(world);
    sh_optim optim;
    SH_TRY(sh_optim_init(&optim, &wanted, world->params.total));
    int index = mail->rank - world->workers;
    world->services[index] = (sh_service){.index = index,
                                          .count = world->servers,
                                          .workers = world->workers,
                                          .mail = {.transport = mail, .workers = world->workers},
                                          .scheme = scheme,
                                          .options = &options,
                                          .params = &world->params,
                                          .weights = world->start,
                                          .optim = &optim,
                                          .schedule = &schedule,
                                          .codec = &codec};
    sh_status status = scheme.kind->family->serve(&world->services[index]);
    sh_optim_fini(&optim);
    return status;
}

sh_status play_endpoint(sh_transport *mail, void *argument) {
    ps_world *world = argument;
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(world->scheme, &scheme));
    return mail->rank < world->workers ? play_worker(mail, world, scheme)
                                       : play_server(mail, world, scheme);
}

sh_status play_world(ps_world *world, const sh_sim_options *sim) {
    if (world->optim == NULL) world->optim = "sgd";
    world->simulated = sim != NULL;
    if (sim == NULL) return run_ranks(world->workers + world->servers, play_endpoint, world);
    sh_sim_options options = *sim;
    int hosts[WORKERS_MOST + SERVERS_MOST];
    for (int i = 0; i < world->workers + world->servers; i++)
        hosts[i] = i < world->workers ? i : (i - world->workers) % world->workers;
    options.hosts = world->apart ? NULL : hosts;
    options.services = world->servers;
    return run_simulated(world->workers, &options, play_endpoint, world);
}

void end_world(ps_world *world) {
    for (int m = 0; m < MEETINGS_MOST; m++)
        for (int r = 0; r < world->workers; r++) sh_free(world->met[m][r]);
    for (int r = 0; r < world->workers; r++) sh_optim_fini(&world->optims[r]);
    sh_param_list_fini(&world->params);
    sh_free(world->start);
}

static sh_status count_up(ps_world *world, int rank, int64_t step, const float *weights,
                          float *gradients) {
    (void)step;
    (void)weights;
    for (size_t i = 0; i < world->params.total; i++) gradients[i] = 0;
    for (int s = 0; s < world->servers; s++) gradients[counter_at(world, s, rank)] = -1;
    return SH_OK;
}

void make_counters(ps_world *world) {
    for (int s = 0; s < world->servers; s++) {
        char name[32];
        snprintf(name, sizeof name, "counters%d", s);
        sh_status status = sh_param_list_add(&world->params, name,
                                             SH_SHAPE(world->workers + world->idle), false, NULL);
        SH_ASSERT(status == SH_OK);
    }
    world->start = copy_of(NULL, world->params.total);
    if (world->gradient == NULL) world->gradient = count_up;
}

static void add_param(ps_world *world, const char *name, sh_shape shape, bool decays) {
    sh_status status = sh_param_list_add(&world->params, name, shape, decays, NULL);
    SH_ASSERT(status == SH_OK);
}

void make_layers(ps_world *world) {
    add_param(world, "a.weight", SH_SHAPE(7, 9), true);
    add_param(world, "a.bias", SH_SHAPE(7), false);
    add_param(world, "b.weight", SH_SHAPE(5, 7), true);
    add_param(world, "b.bias", SH_SHAPE(5), false);
    world->start = copy_of(NULL, world->params.total);
    sh_test_fill(world->start, world->params.total, 3);
}

double world_rate(const ps_world *world, int64_t index) {
    const sh_schedule schedule = world_schedule(world);
    return sh_schedule_lr(&schedule, index / world->workers);
}

int world_group(const ps_world *world) {
    int group = world->workers / atoi(strchr(world->scheme, ':') + 1);
    return group > 1 ? group : 1;
}

/* ---- A world for each seed ---- */

/* Different sizes, speeds and delays; messages that overtake each other; a straggler. */
static void vary(ps_world *world, uint64_t seed, sh_sim_options *sim, sh_sim_slow *slow) {
    sh_rng rng = sh_rng_stream(seed, SH_RNG_CODEC, 7, 7);
    world->workers = 2 + (int)sh_rng_below(&rng, 5);
    world->servers = 1 + (int)sh_rng_below(&rng, 4);
    int64_t per_worker = 4 + (int64_t)sh_rng_below(&rng, 8);
    world->goals[0] = per_worker * world->workers;
    world->goals[1] = (per_worker + 5) * world->workers;
    *slow = (sh_sim_slow){.rank = (int)sh_rng_below(&rng, (uint64_t)world->workers),
                          .factor = 1 + (double)sh_rng_below(&rng, 6)};
    *sim = (sh_sim_options){
        .seed = seed,
        .links = {.rank = {.alpha_s = 1e-5 * (double)sh_rng_below(&rng, 30), .beta_s = 1e-8}},
        .compute = {.law = SH_LAW_EXPONENTIAL, .mean_s = 1e-3, .slow = slow, .slow_count = 1},
        .faults = {.delay_s = 1e-4 * (double)sh_rng_below(&rng, 20), .hold = 0.2, .hold_s = 2e-3},
    };
}

void world_check_meetings(const ps_world *world) {
    for (int m = 0; m < MEETINGS_MOST && world->goals[m] > 0; m++)
        for (int r = 1; r < world->workers; r++)
            assert_memory_equal(world->met[m][r], world->met[m][0],
                                world->params.total * sizeof(float));
}

void world_over_seeds(const ps_world *like, void (*prepare)(ps_world *), world_check check) {
    for (int seed = -1; crowd_seed(100, &seed);) {
        ps_world world = *like;
        sh_sim_options sim;
        sh_sim_slow slow;
        vary(&world, (uint64_t)seed, &sim, &slow);
        if (prepare != NULL) prepare(&world);
        make_counters(&world);
        CHECK_OK(play_world(&world, &sim));
        world_check_meetings(&world);
        check(&world);
        end_world(&world);
    }
}

void world_with_threads(const ps_world *like, world_check check) {
    ps_world world = *like;
    if (world.workers == 0) world.workers = 3;
    if (world.servers == 0) world.servers = 2;
    if (world.goals[0] == 0) world.goals[0] = 60 * world.workers;
    make_counters(&world);
    CHECK_OK(play_world(&world, NULL));
    world_check_meetings(&world);
    check(&world);
    end_world(&world);
}

const float *world_last(const ps_world *world) {
    int m = 0;
    while (m + 1 < MEETINGS_MOST && world->goals[m + 1] > 0) m++;
    return world->met[m][0];
}

/* ---- Gradients that depend on the weights ---- */

float world_slope(int rank, size_t index, float weight) {
    return (0.5F + 0.1F * (float)rank) * weight - 0.01F * (float)((index * 7 + (size_t)rank) % 11);
}

sh_status world_valley(ps_world *world, int rank, int64_t step, const float *weights,
                       float *gradients) {
    (void)step;
    for (size_t i = 0; i < world->params.total; i++)
        gradients[i] = world_slope(rank, i, weights[i]);
    return SH_OK;
}

void world_check_serial(const ps_world *world, sh_optim *optim) {
    size_t total = world->params.total;
    float *w = sh_alloc(total, sizeof *w), *g = sh_alloc(total, sizeof *g);
    memcpy(w, world->start, total * sizeof *w);
    for (int64_t step = 0; step < world->goals[0] / world->workers; step++) {
        for (size_t i = 0; i < total; i++) {
            g[i] = 0;
            for (int r = 0; r < world->workers; r++) g[i] += world_slope(r, i, w[i]);
            g[i] /= (float)world->workers;
        }
        sh_optim_step one = {.params = &world->params,
                             .count = world->params.count,
                             .high = total,
                             .weights = w,
                             .gradients = g,
                             .gradient_scale = 1,
                             .lr = world_rate(world, step * world->workers),
                             .step = step + 1};
        sh_optim_apply(optim, &one);
    }
    CHECK_CLOSE(world->met[0][0], w, total, 1e-5);
    for (int i = 0; i < optim->slot_count; i++)
        CHECK_CLOSE(world->optims[0].slots[i], optim->slots[i], total, 1e-5);
    sh_free(w);
    sh_free(g);
}
