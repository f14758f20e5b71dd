#include "sync/servers.h"

#include <math.h>
#include <stdio.h>

#include "base/memory.h"
#include "harness.h"
#include "optim/schedule.h"

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

static sh_status pass_time(sh_replica *replica) {
    int64_t ns = sh_sim_compute_ns(simulated(), replica->rank, replica->step);
    if (replica->unwanted == NULL) return sh_sim_spend(simulated(), ns);
    return sh_sim_spend_unless(simulated(), ns, replica->mail.transport, replica->unwanted,
                               replica->who);
}

static sh_status compute(void *self, sh_mean mean, sh_loss_result *result_out) {
    ps_player *player = self;
    ps_world *world = player->world;
    sh_replica *replica = &player->replica;
    SH_ASSERT(mean == SH_MEAN_OWN);
    SH_TRY(
        world->gradient(world, replica->rank, replica->step, replica->weights, replica->gradients));
    if (world->simulated) SH_TRY(pass_time(replica));
    replica->broke_off = replica->unwanted != NULL && replica->unwanted(replica->who);
    if (replica->broke_off) {
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
        replica->goal = world->goals[m];
        for (bool meets = false; !meets;) {
            sh_loss_result result;
            SH_TRY(sync->scheme.kind->family->step(sync, &result, &meets));
            if (!meets) replica->step++;
        }
        SH_TRY(sync->scheme.kind->family->meet(sync));
        world->met[m][replica->rank] = copy_of(replica->weights, world->params.total);
    }
    world->steps[replica->rank] = replica->step;
    if (replica->rank == 0) world->done = replica->done;
    return SH_OK;
}

static sh_status play_worker(sh_transport *mail, ps_world *world, sh_scheme scheme) {
    const sh_sync_options options = options_of(world);
    sh_codec codec;
    SH_TRY(sh_codec_parse(world->codec != NULL ? world->codec : "none", &codec));
    int rank = mail->rank;
    sh_schedule schedule;
    const sh_schedule_options plain = {
        .name = (char *)(uintptr_t) "constant", .warmup = NAN, .last = NAN, .gamma = NAN};
    SH_TRY(sh_schedule_init(&schedule, &plain, world->lr, 1, 1000000, 1000000));
    const sh_optim_options optim = world_optim(world);
    SH_TRY(sh_optim_init(&world->optims[rank], &optim, world->params.total));
    ps_player player = {.world = world};
    float *weights = copy_of(world->start, world->params.total);
    float *lent = sh_lend(mail, world->params.total * sizeof *lent);
    float *gradients = lent != NULL ? lent : copy_of(NULL, world->params.total);
    player.replica = (sh_replica){.rank = rank,
                                  .ranks = world->workers,
                                  .mail = {.transport = mail, .workers = world->workers},
                                  .clock = mail->clock,
                                  .params = &world->params,
                                  .weights = weights,
                                  .gradients = gradients,
                                  .optim = &world->optims[rank],
                                  .schedule = &schedule,
                                  .codec = &codec,
                                  .compute = compute,
                                  .self = &player};
    sh_sync sync = {.scheme = scheme, .options = &options, .replica = &player.replica};
    sh_status status = scheme.kind->family->create(&sync);
    if (status == SH_OK) status = walk(world, &sync);
    sh_error error = *sh_error_last();
    scheme.kind->family->destroy(&sync);
    sh_free(weights);
    if (lent != NULL)
        sh_unlend(mail, lent);
    else
        sh_free(gradients);
    return status == SH_OK ? SH_OK : sh_error_adopt(&error);
}

static sh_status play_server(sh_transport *mail, ps_world *world, sh_scheme scheme) {
    const sh_sync_options options = options_of(world);
    sh_codec codec;
    SH_TRY(sh_codec_parse(world->codec != NULL ? world->codec : "none", &codec));
    sh_schedule schedule;
    const sh_schedule_options plain = {
        .name = (char *)(uintptr_t) "constant", .warmup = NAN, .last = NAN, .gamma = NAN};
    SH_TRY(sh_schedule_init(&schedule, &plain, world->lr, 1, 1000000, 1000000));
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
