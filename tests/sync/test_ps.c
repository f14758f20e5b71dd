/* The promises of the schemes with parameter servers, with threads over shared memory and over many
 * seeds in the simulator. SEEDS=N in the environment runs more of them, SEED=N that one alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "harness.h"
#include "sync/crowd.h"
#include "sync/servers.h"

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

typedef void (*world_check)(const ps_world *world);

static void check_meetings(const ps_world *world) {
    for (int m = 0; m < MEETINGS_MOST && world->goals[m] > 0; m++)
        for (int r = 1; r < world->workers; r++)
            assert_memory_equal(world->met[m][r], world->met[m][0],
                                world->params.total * sizeof(float));
}

/* `like` gives scheme and options; `prepare` the rate at which the weights count. */
static void over_seeds(const ps_world *like, void (*prepare)(ps_world *), world_check check) {
    for (int seed = -1; crowd_seed(100, &seed);) {
        ps_world world = *like;
        sh_sim_options sim;
        sh_sim_slow slow;
        vary(&world, (uint64_t)seed, &sim, &slow);
        if (prepare != NULL) prepare(&world);
        make_counters(&world);
        CHECK_OK(play_world(&world, &sim));
        check_meetings(&world);
        check(&world);
        end_world(&world);
    }
}

static void with_threads(const ps_world *like, world_check check) {
    ps_world world = *like;
    if (world.workers == 0) world.workers = 3;
    if (world.servers == 0) world.servers = 2;
    if (world.goals[0] == 0) world.goals[0] = 60 * world.workers;
    make_counters(&world);
    CHECK_OK(play_world(&world, NULL));
    check_meetings(&world);
    check(&world);
    end_world(&world);
}

static const float *last_of(const ps_world *world) {
    int m = 0;
    while (m + 1 < MEETINGS_MOST && world->goals[m + 1] > 0) m++;
    return world->met[m][0];
}

static int64_t goal_of(const ps_world *world) {
    int64_t goal = 0;
    for (int m = 0; m < MEETINGS_MOST; m++)
        if (world->goals[m] > goal) goal = world->goals[m];
    return goal;
}

/* Every gradient is in the weights once, on every server. */
static void check_conserved(const ps_world *world) {
    int64_t all = 0;
    for (int r = 0; r < world->workers; r++) {
        all += world->steps[r];
        for (int s = 0; s < world->servers; s++)
            assert_true(fabsf(last_of(world)[counter_at(world, s, r)] - (float)world->steps[r]) <
                        1e-3F);
    }
    assert_int_equal(all, goal_of(world));
    assert_int_equal(world->done, goal_of(world));
}

/* ---- async ---- */

static void check_async(const ps_world *world) {
    check_conserved(world);
    for (int s = 0; s < world->servers; s++)
        assert_int_equal(world->services[s].counts.staleness.updates, goal_of(world));
}

TEST(async, applies_each_gradient_once) {
    const ps_world world = {.scheme = "async", .lr = 1};
    with_threads(&world, check_async);
    over_seeds(&world, NULL, check_async);
}

static sh_status own_is_there(ps_world *world, int rank, int64_t step, const float *weights,
                              float *gradients) {
    for (size_t i = 0; i < world->params.total; i++) gradients[i] = 0;
    for (int s = 0; s < world->servers; s++) {
        gradients[counter_at(world, s, rank)] = -1;
        if (weights[counter_at(world, s, rank)] != (float)step)
            return SH_FAIL(SH_E_NUMERIC, "worker %d at step %ld sees %g of its own on server %d",
                           rank, (long)step, (double)weights[counter_at(world, s, rank)], s);
    }
    return SH_OK;
}

TEST(async, a_worker_sees_all_of_its_own_updates) {
    const ps_world world = {.scheme = "async", .lr = 1, .gradient = own_is_there};
    with_threads(&world, check_conserved);
    over_seeds(&world, NULL, check_conserved);
}

/* Long messages are read where they lie, while the next request is already on its way. */
TEST(async, a_worker_sees_all_of_its_own_updates_in_long_messages_too) {
    const ps_world world = {.scheme = "async",
                            .workers = 3,
                            .servers = 2,
                            .idle = 20000,
                            .lr = 1,
                            .goals = {900, 1800},
                            .gradient = own_is_there};
    with_threads(&world, check_conserved);
}

TEST(async, periods_lose_no_gradient) {
    const int64_t periods[][2] = {{3, 1}, {4, 4}, {5, 2}};
    for (size_t i = 0; i < SH_COUNT(periods); i++) {
        const ps_world world = {
            .scheme = "async", .lr = 1, .fetch_every = periods[i][0], .push_every = periods[i][1]};
        with_threads(&world, check_conserved);
        over_seeds(&world, NULL, check_conserved);
    }
}

/* With the staleness-aware rate P workers move at most as far as without. */
static void check_damped(const ps_world *world) {
    const sh_staleness *staleness = &world->services[0].counts.staleness;
    for (int r = 0; r < world->workers; r++)
        assert_true(last_of(world)[counter_at(world, 0, r)] <= (float)world->steps[r]);
    double moved = 0, expected = 0;
    for (int r = 0; r < world->workers; r++)
        moved += (double)last_of(world)[counter_at(world, 0, r)];
    for (uint64_t tau = 0; tau < SH_STALENESS_MOST; tau++)
        expected += (double)staleness->count[tau] / (tau > 1 ? (double)tau : 1);
    assert_true(fabs(moved - expected) < 1e-3 * expected);
}

TEST(async, divides_the_rate_by_the_staleness) {
    const ps_world world = {.scheme = "async", .lr = 1, .staleness = "auto"};
    over_seeds(&world, NULL, check_damped);
}

/* ---- Delay compensation ---- */

static sh_status slopes(ps_world *world, int rank, int64_t step, const float *weights,
                        float *gradients) {
    (void)step;
    for (size_t i = 0; i < world->params.total; i++)
        gradients[i] = 0.5F * weights[i] + (float)(rank + 1);
    return SH_OK;
}

/* DC-ASGD by hand, in double: links are free, so a worker pushes when it has computed, in the order
 * of time, and has the new weights at once: w <- w - lr (g + lambda g g (w - w_then)). */
static double compensated(const ps_world *world, const double *step_s, int meetings) {
    double w = 0, now = 0, then[WORKERS_MOST], ready[WORKERS_MOST];
    int64_t granted = 0, pushed = 0;
    for (int m = 0; m < meetings; m++) {
        for (int r = 0; r < world->workers; r++) {
            bool goes = granted < world->goals[m];
            granted += goes;
            then[r] = w;
            ready[r] = goes ? now + step_s[r] : INFINITY;
        }
        while (pushed < world->goals[m]) {
            int r = 0;
            for (int i = 1; i < world->workers; i++)
                if (ready[i] < ready[r]) r = i;
            double g = 0.5 * then[r] + r + 1;
            w -= world->lr * (g + world->compensation * g * g * (w - then[r]));
            pushed++;
            now = ready[r];
            then[r] = w;
            ready[r] = granted < world->goals[m] ? now + step_s[r] : INFINITY;
            granted += granted < world->goals[m];
        }
    }
    return w;
}

/* Over meetings, at which workers do not compute with the weights that they were sent last. */
TEST(compensation, adds_lambda_g_g_times_what_the_weights_have_moved) {
    sh_sim_slow slow = {.rank = 1, .factor = 1.37};
    const sh_sim_options sim = {
        .seed = 1,
        .compute = {.law = SH_LAW_CONSTANT, .mean_s = 1e-3, .slow = &slow, .slow_count = 1}};
    const double step_s[] = {1e-3, 1.37e-3};
    for (int servers = 1; servers <= 3; servers++) {
        ps_world world = {.scheme = "async",
                          .workers = 2,
                          .servers = servers,
                          .lr = 0.05,
                          .compensation = 0.4,
                          .goals = {9, 16, 17, 40},
                          .gradient = slopes};
        make_counters(&world);
        CHECK_OK(play_world(&world, &sim));
        check_meetings(&world);
        for (int m = 0; m < MEETINGS_MOST; m++)
            for (size_t i = 0; i < world.params.total; i++)
                assert_true(fabs((double)world.met[m][0][i] - compensated(&world, step_s, m + 1)) <
                            1e-4);
        end_world(&world);
    }
}

/* ---- ssp ---- */

static int64_t slack_of(const ps_world *world) { return atoi(strchr(world->scheme, ':') + 1); }

static sh_status bounded(ps_world *world, int rank, int64_t step, const float *weights,
                         float *gradients) {
    SH_TRY(own_is_there(world, rank, step, weights, gradients));
    for (int s = 0; s < world->servers; s++)
        for (int r = 0; r < world->workers; r++)
            if (weights[counter_at(world, s, r)] + 0.01F < (float)(step - slack_of(world)))
                return SH_FAIL(SH_E_NUMERIC,
                               "worker %d at step %ld sees only %g of worker %d on server %d", rank,
                               (long)step, (double)weights[counter_at(world, s, r)], r, s);
    return SH_OK;
}

static void rate_times_workers(ps_world *world) { world->lr = world->workers; }

TEST(ssp, nobody_is_more_than_the_slack_ahead_and_all_see_their_own) {
    const char *const schemes[] = {"ssp:0", "ssp:1", "ssp:3"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        const ps_world world = {.scheme = schemes[i], .workers = 3, .lr = 3, .gradient = bounded};
        with_threads(&world, check_conserved);
        over_seeds(&world, rate_times_workers, check_conserved);
    }
}

/* ---- softsync ---- */

static int group_of(const ps_world *world) {
    int groups = atoi(strchr(world->scheme, ':') + 1);
    return (world->workers + groups - 1) / groups;
}

static void rate_times_group(ps_world *world) { world->lr = group_of(world); }

static void check_groups(const ps_world *world) {
    check_conserved(world);
    assert_int_equal(world->services[0].counts.staleness.updates, goal_of(world));
}

TEST(softsync, averages_groups_and_loses_nothing) {
    ps_world world = {.scheme = "softsync:1", .workers = 3, .lr = 3};
    with_threads(&world, check_groups);
    // Goals are multiples of the workers, and so of the group: no group is cut by a meeting.
    over_seeds(&world, rate_times_group, check_groups);
}

/* Then only where the goals are multiples of the group, too. */
static void whole_groups(ps_world *world) {
    rate_times_group(world);
    for (int m = 0; m < 2; m++) world->goals[m] *= group_of(world);
}

TEST(softsync, smaller_groups_lose_nothing_either) {
    const char *const schemes[] = {"softsync:2", "softsync:3", "softsync:5"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        const ps_world world = {.scheme = schemes[i]};
        over_seeds(&world, whole_groups, check_groups);
    }
}

/* ---- ps, ksync, backup ---- */

static int taken_of(const ps_world *world) {
    int amount = strchr(world->scheme, ':') != NULL ? atoi(strchr(world->scheme, ':') + 1) : 0;
    if (strncmp(world->scheme, "ksync", 5) == 0) return amount;
    return world->workers - amount;
}

static void rate_times_taken(ps_world *world) { world->lr = taken_of(world); }

static void check_rounds(const ps_world *world) {
    int64_t all = 0, rounds = goal_of(world) / world->workers;
    for (int r = 0; r < world->workers; r++) all += world->steps[r];
    for (int s = 0; s < world->servers; s++) {
        double counted = 0;
        for (int r = 0; r < world->workers; r++)
            counted += (double)last_of(world)[counter_at(world, s, r)];
        assert_true(fabs(counted - (double)(rounds * taken_of(world))) < 1e-2);
        assert_int_equal(world->services[s].counts.dropped, all - rounds * taken_of(world));
    }
    assert_int_equal(world->done, goal_of(world));
}

TEST(ksync, the_first_k_count_and_the_rest_are_dropped) {
    const char *const schemes[] = {"ksync:1", "ksync:2", "backup:1"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        ps_world world = {.scheme = schemes[i], .workers = 3};
        rate_times_taken(&world);
        with_threads(&world, check_rounds);
        over_seeds(&world, rate_times_taken, check_rounds);
    }
}

/* Nobody finishes a gradient that nobody wants: with free links none is late, however slow a worker
 * is, and what is dropped was broken off. */
TEST(ksync, a_worker_whose_gradient_is_unwanted_breaks_off) {
    ps_world world = {
        .scheme = "ksync:2", .workers = 4, .servers = 3, .lr = 2, .goals = {200, 400}};
    sh_sim_slow slow = {.rank = 3, .factor = 50};
    const sh_sim_options sim = {
        .seed = 11,
        .compute = {.law = SH_LAW_EXPONENTIAL, .mean_s = 1e-3, .slow = &slow, .slow_count = 1}};
    make_counters(&world);
    CHECK_OK(play_world(&world, &sim));
    check_meetings(&world);
    check_rounds(&world);
    int64_t broken_off = 0;
    for (int r = 0; r < world.workers; r++) broken_off += world.broken_off[r];
    assert_int_equal(world.services[0].counts.dropped, broken_off);
    // The slow one starts anew with every round, instead of once in many.
    assert_true(world.broken_off[3] >= 90);
    end_world(&world);
}

TEST(ps, all_of_a_step_count) {
    ps_world world = {.scheme = "ps", .workers = 3, .lr = 3};
    with_threads(&world, check_rounds);
    over_seeds(&world, rate_times_taken, check_rounds);
}

/* A valley of its own for every worker and element, so that gradients depend on the weights. */
static float slope(int rank, size_t index, float weight) {
    return (0.5F + 0.1F * (float)rank) * weight - 0.01F * (float)((index * 7 + (size_t)rank) % 11);
}

static sh_status valley(ps_world *world, int rank, int64_t step, const float *weights,
                        float *gradients) {
    (void)step;
    for (size_t i = 0; i < world->params.total; i++) gradients[i] = slope(rank, i, weights[i]);
    return SH_OK;
}

/* What one worker with all gradients does. */
static void check_serial(const ps_world *world, sh_optim *optim) {
    size_t total = world->params.total;
    float *w = sh_alloc(total, sizeof *w), *g = sh_alloc(total, sizeof *g);
    memcpy(w, world->start, total * sizeof *w);
    for (int64_t step = 0; step < world->goals[0] / world->workers; step++) {
        for (size_t i = 0; i < total; i++) {
            g[i] = 0;
            for (int r = 0; r < world->workers; r++) g[i] += slope(r, i, w[i]);
            g[i] /= (float)world->workers;
        }
        sh_optim_step one = {.params = &world->params,
                             .count = world->params.count,
                             .high = total,
                             .weights = w,
                             .gradients = g,
                             .gradient_scale = 1,
                             .lr = world->lr,
                             .step = step + 1};
        sh_optim_apply(optim, &one);
    }
    CHECK_CLOSE(world->met[0][0], w, total, 1e-5);
    for (int i = 0; i < optim->slot_count; i++)
        CHECK_CLOSE(world->optims[0].slots[i], optim->slots[i], total, 1e-5);
    sh_free(w);
    sh_free(g);
}

TEST(ps, equals_one_worker_with_every_optimizer_and_placement) {
    const char *const schemes[] = {"ps", "ssp:0"}, *const placements[] = {"range", "variable"},
                      *const optims[] = {"momentum", "adam", "adamw", "lars", "lamb"};
    for (size_t k = 0; k < SH_COUNT(schemes) * SH_COUNT(placements) * SH_COUNT(optims); k++) {
        ps_world world = {.scheme = schemes[k % 2],
                          .workers = 3,
                          .servers = 3,
                          .placement = placements[k / 2 % 2],
                          .optim = optims[k / 4],
                          .lr = 0.01,
                          .goals = {60},
                          .gradient = valley};
        bool whole = k / 4 >= 3;  // norms of whole tensors
        if (whole && k / 2 % 2 == 0) world.servers = 1;
        make_layers(&world);
        CHECK_OK(play_world(&world, NULL));
        check_meetings(&world);
        sh_optim optim;
        const sh_optim_options options = world_optim(&world);
        CHECK_OK(sh_optim_init(&optim, &options, world.params.total));
        check_serial(&world, &optim);
        sh_optim_fini(&optim);
        end_world(&world);
    }
}

/* ---- easgd ---- */

enum { EASGD_STEPS = 24 };

enum { EASGD_NOTED = 4 * (64 + WORKERS_MOST) };  // servers of a seed, and elements of each

static float own_weight[WORKERS_MOST][EASGD_NOTED];

/* Different from element to element, so that codecs have something to leave out. */
static float push_of(size_t index) { return 1.0F + 0.25F * (float)(index % 5); }

/* The first step after a meeting sees the worker's own weights again. */
static sh_status note_own(ps_world *world, int rank, int64_t step, const float *weights,
                          float *gradients) {
    (void)step;
    bool notes = world->met[0][rank] != NULL && isnan(own_weight[rank][0]);
    for (size_t i = 0; i < world->params.total; i++) {
        if (notes) own_weight[rank][i] = weights[i];
        gradients[i] = -push_of(i);
    }
    return SH_OK;
}

/* Long enough that everybody takes a step after the first meeting. */
static void notes_own(ps_world *world) {
    for (int r = 0; r < world->workers; r++) own_weight[r][0] = NAN;
    world->goals[1] = world->goals[0] + EASGD_STEPS * world->workers;
}

static void check_forces(const ps_world *world) {
    double centre = 0;
    for (size_t i = 0; i < world->params.total; i++) {
        double sum = (double)world->met[0][0][i];
        centre += fabs(sum);
        for (int r = 0; r < world->workers; r++) sum += (double)own_weight[r][i];
        assert_true(fabs(sum - (double)world->goals[0] * (double)push_of(i)) < 2e-3);
    }
    assert_true(centre > 0);
}

/* Elastic forces are equal and opposite: what the gradients added is in the workers and the centre,
 * no more and no less. */
TEST(easgd, moves_worker_and_centre_towards_each_other_by_as_much) {
    const char *const schemes[] = {"easgd:1", "easgd:4"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        const ps_world world = {.scheme = schemes[i], .lr = 1, .gradient = note_own};
        over_seeds(&world, notes_own, check_forces);
    }
}

static const char *const elastic_codecs[] = {"fp16",     "bf16",   "int8",     "qsgd:4",
                                             "terngrad", "onebit", "topk:10%", "randk:5%"};

/* Whatever a codec leaves out, it leaves out on both sides. */
TEST(easgd, loses_nothing_through_any_codec) {
    for (size_t i = 0; i < SH_COUNT(elastic_codecs); i++) {
        const ps_world world = {.scheme = "easgd:2",
                                .idle = 64,
                                .codec = elastic_codecs[i],
                                .lr = 1,
                                .gradient = note_own};
        over_seeds(&world, notes_own, check_forces);
    }
}

enum { ELASTIC_TOTAL = 7 * 9 + 7 + 5 * 7 + 5 };

static void play_elastic(const char *codec, const char *placement, float *met_out) {
    ps_world world = {.scheme = "easgd:3",
                      .workers = 3,
                      .servers = 2,
                      .placement = placement,
                      .codec = codec,
                      .lr = 0.1,
                      .goals = {900, 2400},
                      .gradient = valley};
    const sh_sim_options sim = {.seed = 5, .compute = {.law = SH_LAW_EXPONENTIAL, .mean_s = 1e-3}};
    make_layers(&world);
    assert_int_equal(world.params.total, ELASTIC_TOTAL);
    CHECK_OK(play_world(&world, &sim));
    check_meetings(&world);
    memcpy(met_out, last_of(&world), ELASTIC_TOTAL * sizeof *met_out);
    end_world(&world);
}

/* The links are free, so the order of all pushes is the same. */
TEST(easgd, a_codec_that_leaves_nothing_out_changes_nothing) {
    const char *const placements[] = {"range", "variable"};
    for (size_t i = 0; i < SH_COUNT(placements); i++) {
        float plain[ELASTIC_TOTAL], coded[ELASTIC_TOTAL];
        play_elastic(NULL, placements[i], plain);
        play_elastic("topk:100%", placements[i], coded);
        CHECK_CLOSE(coded, plain, ELASTIC_TOTAL, 1e-5);
    }
}

/* Where the workers' valleys have their bottom: the centre comes to it through every codec. */
TEST(easgd, the_centre_comes_to_the_bottom_through_any_codec) {
    float plain[ELASTIC_TOTAL], coded[ELASTIC_TOTAL];
    play_elastic(NULL, "range", plain);
    for (size_t i = 0; i < SH_COUNT(elastic_codecs); i++) {
        play_elastic(elastic_codecs[i], "range", coded);
        double off = 0;
        for (size_t k = 0; k < ELASTIC_TOTAL; k++) off += fabs((double)(coded[k] - plain[k]));
        if (off / ELASTIC_TOTAL > 0.02)
            fail_msg("%s: off by %g on average", elastic_codecs[i], off / ELASTIC_TOTAL);
    }
}
