/* The promises of the schemes with parameter servers, with threads over shared memory and over many
 * seeds in the simulator. SEEDS=N in the environment runs more of them, SEED=N that one alone. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "harness.h"
#include "sync/servers.h"

/* Every gradient is in the weights once, on every server. */
static void check_conserved(const ps_world *world) {
    int64_t all = 0;
    for (int r = 0; r < world->workers; r++) {
        all += world->steps[r];
        for (int s = 0; s < world->servers; s++)
            assert_true(fabsf(world_last(world)[counter_at(world, s, r)] - (float)world->steps[r]) <
                        1e-3F);
    }
    assert_int_equal(all, world_goal(world));
    assert_int_equal(world->done, world_goal(world));
}

/* ---- async ---- */

static void check_async(const ps_world *world) {
    check_conserved(world);
    for (int s = 0; s < world->servers; s++)
        assert_int_equal(world->services[s].counts.staleness.updates, world_goal(world));
}

TEST(async, applies_each_gradient_once) {
    const ps_world world = {.scheme = "async", .lr = 1};
    world_with_threads(&world, check_async);
    world_over_seeds(&world, NULL, check_async);
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
    world_with_threads(&world, check_conserved);
    world_over_seeds(&world, NULL, check_conserved);
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
    world_with_threads(&world, check_conserved);
}

TEST(async, periods_lose_no_gradient) {
    const int64_t periods[][2] = {{3, 1}, {4, 4}, {5, 2}};
    for (size_t i = 0; i < SH_COUNT(periods); i++) {
        const ps_world world = {
            .scheme = "async", .lr = 1, .fetch_every = periods[i][0], .push_every = periods[i][1]};
        world_with_threads(&world, check_conserved);
        world_over_seeds(&world, NULL, check_conserved);
    }
}

/* With the staleness-aware rate P workers move at most as far as without. */
static void check_damped(const ps_world *world) {
    const sh_staleness *staleness = &world->services[0].counts.staleness;
    for (int r = 0; r < world->workers; r++)
        assert_true(world_last(world)[counter_at(world, 0, r)] <= (float)world->steps[r]);
    double moved = 0, expected = 0;
    for (int r = 0; r < world->workers; r++)
        moved += (double)world_last(world)[counter_at(world, 0, r)];
    for (uint64_t tau = 0; tau < SH_STALENESS_MOST; tau++)
        expected += (double)staleness->count[tau] / (tau > 1 ? (double)tau : 1);
    assert_true(fabs(moved - expected) < 1e-3 * expected);
}

TEST(async, divides_the_rate_by_the_staleness) {
    const ps_world world = {.scheme = "async", .lr = 1, .staleness = "auto"};
    world_over_seeds(&world, NULL, check_damped);
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

static int64_t ahead;  // of a worker that it sees, at most

static sh_status note_lead(ps_world *world, int rank, int64_t step, const float *weights,
                           float *gradients) {
    for (int r = 0; r < world->workers; r++) {
        int64_t seen = (int64_t)lroundf(weights[counter_at(world, 0, r)]);
        if (step - seen > ahead) ahead = step - seen;
    }
    return bounded(world, rank, step, weights, gradients);
}

/* Beside a slow worker the others use all of the slack: they wait no earlier. */
TEST(ssp, workers_go_as_far_ahead_as_the_slack_allows) {
    const char *const schemes[] = {"ssp:0", "ssp:1", "ssp:3"};
    sh_sim_slow slow = {.rank = 1, .factor = 20};
    const sh_sim_options sim = {
        .seed = 1,
        .compute = {.law = SH_LAW_CONSTANT, .mean_s = 1e-3, .slow = &slow, .slow_count = 1}};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        ps_world world = {.scheme = schemes[i],
                          .workers = 3,
                          .servers = 2,
                          .lr = 3,
                          .goals = {60},
                          .gradient = note_lead};
        ahead = 0;
        make_counters(&world);
        CHECK_OK(play_world(&world, &sim));
        assert_int_equal(ahead, slack_of(&world));
        end_world(&world);
    }
}

TEST(ssp, nobody_is_more_than_the_slack_ahead_and_all_see_their_own) {
    const char *const schemes[] = {"ssp:0", "ssp:1", "ssp:3"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        const ps_world world = {.scheme = schemes[i], .workers = 3, .lr = 3, .gradient = bounded};
        world_with_threads(&world, check_conserved);
        world_over_seeds(&world, rate_times_workers, check_conserved);
    }
}

/* ---- softsync ---- */

static void rate_times_group(ps_world *world) { world->lr = world_group(world); }

static void check_groups(const ps_world *world) {
    check_conserved(world);
    assert_int_equal(world->services[0].counts.staleness.updates, world_goal(world));
}

TEST(softsync, averages_groups_and_loses_nothing) {
    ps_world world = {.scheme = "softsync:1", .workers = 3, .lr = 3};
    world_with_threads(&world, check_groups);
    // Goals are multiples of the workers, and so of the group: no group is cut by a meeting.
    world_over_seeds(&world, rate_times_group, check_groups);
}

/* Then only where the goals are multiples of the group, too. */
static void whole_groups(ps_world *world) {
    rate_times_group(world);
    for (int m = 0; m < 2; m++) world->goals[m] *= world_group(world);
}

TEST(softsync, smaller_groups_lose_nothing_either) {
    const char *const schemes[] = {"softsync:2", "softsync:3", "softsync:5"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        const ps_world world = {.scheme = schemes[i]};
        world_over_seeds(&world, whole_groups, check_groups);
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
    int64_t all = 0, rounds = world_goal(world) / world->workers;
    for (int r = 0; r < world->workers; r++) all += world->steps[r];
    for (int s = 0; s < world->servers; s++) {
        double counted = 0;
        for (int r = 0; r < world->workers; r++)
            counted += (double)world_last(world)[counter_at(world, s, r)];
        assert_true(fabs(counted - (double)(rounds * taken_of(world))) < 1e-2);
        assert_int_equal(world->services[s].counts.dropped, all - rounds * taken_of(world));
    }
    assert_int_equal(world->done, world_goal(world));
}

TEST(ksync, the_first_k_count_and_the_rest_are_dropped) {
    const char *const schemes[] = {"ksync:1", "ksync:2", "backup:1"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        ps_world world = {.scheme = schemes[i], .workers = 3};
        rate_times_taken(&world);
        world_with_threads(&world, check_rounds);
        world_over_seeds(&world, rate_times_taken, check_rounds);
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
    world_check_meetings(&world);
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
    world_with_threads(&world, check_rounds);
    world_over_seeds(&world, rate_times_taken, check_rounds);
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
                          .schedule = "cosine",
                          .lr = 0.01,
                          .goals = {60},
                          .gradient = world_valley};
        bool whole = k / 4 >= 3;  // norms of whole tensors
        if (whole && k / 2 % 2 == 0) world.servers = 1;
        make_layers(&world);
        CHECK_OK(play_world(&world, NULL));
        world_check_meetings(&world);
        sh_optim optim;
        const sh_optim_options options = world_optim(&world);
        CHECK_OK(sh_optim_init(&optim, &options, world.params.total));
        world_check_serial(&world, &optim);
        sh_optim_fini(&optim);
        end_world(&world);
    }
}

/* ---- What a codec leaves out ---- */

enum { LEFT_STEPS = 6, LEFT_COUNT = 10 };

static float left_gradient(size_t index) { return 1.0F + 0.3F * (float)index; }

static sh_status leave_team(ps_world *world, int rank, int64_t step, const float *weights,
                            float *gradients) {
    (void)weights;
    for (size_t i = 0; i < world->params.total; i++) gradients[i] = left_gradient(i);
    if (step < LEFT_STEPS) return SH_OK;
    return SH_FAIL(SH_E_NUMERIC, "worker %d has done its steps", rank);
}

/* The largest element is sent and leaves the residual, which goes on from what was kept. */
static void residual_by_hand(float *residual) {
    for (int step = 0; step < LEFT_STEPS; step++) {
        size_t most = 0;
        for (size_t i = 0; i < LEFT_COUNT; i++) {
            residual[i] += left_gradient(i);
            if (residual[i] > residual[most]) most = i;
        }
        residual[most] = 0;
    }
}

TEST(residual, goes_with_a_worker_that_leaves_its_team_between_two_meetings) {
    float kept[LEFT_COUNT] = {[3] = 7, [8] = 0.5F}, expected[LEFT_COUNT];
    memcpy(expected, kept, sizeof kept);
    residual_by_hand(expected);
    ps_world world = {.scheme = "async",
                      .workers = 1,
                      .servers = 1,
                      .idle = LEFT_COUNT - 1,
                      .codec = "topk:10%",
                      .kept = kept,
                      .lr = 0.1,
                      .goals = {100},
                      .gradient = leave_team};
    make_counters(&world);
    assert_int_equal(world.params.total, LEFT_COUNT);
    CHECK_FAILS(SH_E_NUMERIC, "has done its steps", play_world(&world, NULL));
    CHECK_CLOSE(kept, expected, LEFT_COUNT, 1e-5);
    end_world(&world);
}
