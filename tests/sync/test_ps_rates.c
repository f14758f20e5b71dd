/* The rate and the weight of every update of parameter servers: schedules, staleness, compensation
 * of delay, groups, and periods between pulls and pushes. */
#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "harness.h"
#include "sync/servers.h"

/* ---- By hand ---- */

static sh_status slopes(ps_world *world, int rank, int64_t step, const float *weights,
                        float *gradients) {
    (void)step;
    for (size_t i = 0; i < world->params.total; i++)
        gradients[i] = 0.5F * weights[i] + (float)(rank + 1);
    return SH_OK;
}

/* An asynchronous server by hand, in double. */
typedef struct hand {
    int group;
    bool staleness;
    double w, sum, then[WORKERS_MOST], ready[WORKERS_MOST];
    int members;
    int64_t first, granted, pushed, version, versions[WORKERS_MOST];
} hand;

/* w <- w - lr (1/c) sum of c gradients, at the rate of the first of them. */
static void hand_update(hand *h, const ps_world *world) {
    if (h->members == 0) return;
    h->w -= world_rate(world, h->first) * h->sum / h->members;
    h->version++;
    h->members = 0;
    h->sum = 0;
}

static void hand_pull(hand *h, int rank, int64_t goal, double now_s, const double *step_s) {
    bool goes = h->granted < goal;
    h->granted += goes;
    h->then[rank] = h->w;
    h->versions[rank] = h->version;
    h->ready[rank] = goes ? now_s + step_s[rank] : INFINITY;
}

/* A gradient of slopes(), compensated and divided by its staleness. */
static void hand_push(hand *h, const ps_world *world, int rank) {
    double g = 0.5 * h->then[rank] + rank + 1, tau = (double)(h->version - h->versions[rank]);
    g += world->compensation * g * g * (h->w - h->then[rank]);
    if (h->members++ == 0) h->first = h->pushed;
    h->sum += h->staleness && tau > 1 ? g / tau : g;
    h->pushed++;
    if (h->members == h->group) hand_update(h, world);
}

/* The weight at the last of so many meetings. Links are free, so a worker pushes when it has
 * computed, in the order of time, and has the new weights at once. */
static double by_hand(const ps_world *world, const double *step_s, int meetings, hand h) {
    double now_s = 0;
    for (int m = 0; m < meetings; m++) {
        int64_t goal = world->goals[m];
        for (int r = 0; r < world->workers; r++) hand_pull(&h, r, goal, now_s, step_s);
        while (h.pushed < goal) {
            int r = 0;
            for (int i = 1; i < world->workers; i++)
                if (h.ready[i] < h.ready[r]) r = i;
            now_s = h.ready[r];
            hand_push(&h, world, r);
            hand_pull(&h, r, goal, now_s, step_s);
        }
        hand_update(&h, world);
    }
    return h.w;
}

/* Over meetings, at which workers do not compute with the weights that they were sent last. The
 * slowest worker's gradients are several updates late. */
static void check_by_hand(const ps_world *like, hand h) {
    enum { WORKERS = 5 };
    sh_sim_slow slow[] = {{.rank = 1, .factor = 1.37},
                          {.rank = 2, .factor = 4.1},
                          {.rank = 3, .factor = 1.73},
                          {.rank = 4, .factor = 2.9}};
    const sh_sim_options sim = {
        .seed = 1,
        .compute = {.law = SH_LAW_CONSTANT, .mean_s = 1e-3, .slow = slow, .slow_count = 4}};
    const double step_s[] = {1e-3, 1.37e-3, 4.1e-3, 1.73e-3, 2.9e-3};
    for (int servers = 1; servers <= 3; servers++) {
        ps_world world = *like;
        world.workers = WORKERS;
        world.servers = servers;
        world.schedule = "linear";
        world.lr = 0.05;
        world.gradient = slopes;
        const int64_t goals[] = {9, 16, 17, 60};
        memcpy(world.goals, goals, sizeof goals);
        make_counters(&world);
        CHECK_OK(play_world(&world, &sim));
        world_check_meetings(&world);
        for (int m = 0; m < MEETINGS_MOST; m++)
            for (size_t i = 0; i < world.params.total; i++)
                assert_true(fabs((double)world.met[m][0][i] - by_hand(&world, step_s, m + 1, h)) <
                            1e-5);
        end_world(&world);
    }
}

TEST(compensation, adds_lambda_g_g_times_what_the_weights_have_moved) {
    const ps_world world = {.scheme = "async", .compensation = 0.4};
    check_by_hand(&world, (hand){.group = 1});
}

/* As published: the rate is not divided by the staleness as well, unless the user asks for it. */
TEST(compensation, stands_in_for_the_division_by_the_staleness) {
    ps_world world = {.scheme = "async", .compensation = 0.4, .staleness = "auto"};
    check_by_hand(&world, (hand){.group = 1});
    world.scheme = "softsync:2";
    check_by_hand(&world, (hand){.group = 2});
    world.staleness = "on";
    check_by_hand(&world, (hand){.group = 2, .staleness = true});
}

TEST(async, counts_as_stale_what_came_between_pull_and_push_alone) {
    const ps_world world = {.scheme = "async", .staleness = "auto"};
    check_by_hand(&world, (hand){.group = 1, .staleness = true});
}

TEST(softsync, averages_groups_whose_gradients_are_divided_by_their_staleness) {
    const ps_world one = {.scheme = "softsync:1", .staleness = "auto"},
                   two = {.scheme = "softsync:2", .staleness = "auto"};
    check_by_hand(&one, (hand){.group = 5, .staleness = true});
    check_by_hand(&two, (hand){.group = 2, .staleness = true});
}

/* ---- Rates ---- */

static double sum_of(const ps_world *world, int server) {
    double sum = 0;
    for (int r = 0; r < world->workers; r++)
        sum += (double)world_last(world)[counter_at(world, server, r)];
    return sum;
}

/* What all counters of a server are where its updates, of so many gradients each, have the rates of
 * their first ones. A group does not outlast a meeting. */
static double sum_of_rates(const ps_world *world, int64_t group) {
    double sum = 0;
    int64_t from = 0;
    for (int m = 0; m < MEETINGS_MOST && world->goals[m] > 0; from = world->goals[m++])
        for (int64_t index = from; index < world->goals[m]; index += group)
            sum += world_rate(world, index);
    return sum;
}

static void check_rates(const ps_world *world, double expected) {
    for (int s = 0; s < world->servers; s++)
        assert_true(fabs(sum_of(world, s) - expected) < 1e-4 * expected);
}

static void check_rates_of_steps(const ps_world *world) {
    check_rates(world, sum_of_rates(world, world->workers));
}

static void check_rates_of_gradients(const ps_world *world) {
    check_rates(world, sum_of_rates(world, 1));
}

static void check_rates_of_parts(const ps_world *world) {
    check_rates(world, sum_of_rates(world, 1) / world->workers);
}

static void check_rates_of_groups(const ps_world *world) {
    check_rates(world, sum_of_rates(world, world_group(world)));
}

/* From the rate of the first step to that of the last, as one worker with the whole batch has them:
 * none is left out, none comes early, and none is that of the run's end. */
TEST(schedule, gives_every_update_the_rate_of_its_step) {
    static const struct {
        const char *scheme;
        int64_t fetch_every;
        world_check check;
    } cases[] = {
        {"ps", 0, check_rates_of_steps},          {"ssp:0", 0, check_rates_of_steps},
        {"ksync:2", 0, check_rates_of_steps},     {"backup:1", 0, check_rates_of_steps},
        {"ssp:1", 0, check_rates_of_parts},       {"ssp:4", 0, check_rates_of_parts},
        {"async", 0, check_rates_of_gradients},   {"async", 3, check_rates_of_gradients},
        {"softsync:1", 0, check_rates_of_groups}, {"softsync:2", 0, check_rates_of_groups},
    };
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        const ps_world world = {.scheme = cases[i].scheme,
                                .fetch_every = cases[i].fetch_every,
                                .schedule = "linear",
                                .lr = 1};
        world_with_threads(&world, cases[i].check);
        world_over_seeds(&world, NULL, cases[i].check);
    }
}

/* ---- Periods ---- */

/* Alone a worker is never late, and its copy is the servers' weights. */
TEST(periods, of_one_worker_are_plain_training) {
    ps_world world = {.scheme = "async",
                      .workers = 1,
                      .servers = 2,
                      .staleness = "auto",
                      .fetch_every = 7,
                      .schedule = "linear",
                      .lr = 0.1,
                      .goals = {40},
                      .gradient = world_valley};
    make_layers(&world);
    CHECK_OK(play_world(&world, NULL));
    sh_optim optim;
    const sh_optim_options options = world_optim(&world);
    CHECK_OK(sh_optim_init(&optim, &options, world.params.total));
    world_check_serial(&world, &optim);
    for (int s = 0; s < world.servers; s++)
        assert_int_equal(world.services[s].counts.staleness.most, 0);
    sh_optim_fini(&optim);
    end_world(&world);
}

/* Workers of one speed are all at the same step. */
static sh_status own_have_the_rates(ps_world *world, int rank, int64_t step, const float *weights,
                                    float *gradients) {
    double expected = 0;
    for (int64_t i = 0; i < step; i++) expected += world_rate(world, i * world->workers);
    for (size_t i = 0; i < world->params.total; i++) gradients[i] = 0;
    for (int s = 0; s < world->servers; s++) {
        size_t at = counter_at(world, s, rank);
        gradients[at] = -1;
        if (fabs((double)weights[at] - expected) > 1e-4)
            return SH_FAIL(SH_E_NUMERIC, "worker %d at step %ld has moved by %g instead of %g",
                           rank, (long)step, (double)weights[at], expected);
    }
    return SH_OK;
}

TEST(periods, move_a_worker_by_the_rates_of_the_schedule) {
    ps_world world = {.scheme = "async",
                      .workers = 3,
                      .servers = 2,
                      .fetch_every = 4,
                      .schedule = "linear",
                      .lr = 1,
                      .goals = {3 * 9, 3 * 20},
                      .gradient = own_have_the_rates};
    const sh_sim_options sim = {.seed = 1, .compute = {.law = SH_LAW_CONSTANT, .mean_s = 1e-3}};
    make_counters(&world);
    CHECK_OK(play_world(&world, &sim));
    world_check_meetings(&world);
    end_world(&world);
}

/* Fetches every 5 steps and pushes every 2: the copy takes plain steps, the server one with the
 * mean of 2, 2 and 1 gradients at as many times the rate. The meeting ends the last period early.
 */
TEST(periods, push_means_at_as_many_times_the_rate_also_with_momentum) {
    enum { FETCH = 5, PUSH = 2, STEPS = 23 };
    const double momentum = 0.9;
    ps_world world = {.scheme = "async",
                      .workers = 1,
                      .servers = 2,
                      .optim = "momentum",
                      .momentum = momentum,
                      .fetch_every = FETCH,
                      .push_every = PUSH,
                      .schedule = "linear",
                      .lr = 0.05,
                      .goals = {STEPS},
                      .gradient = world_valley};
    make_layers(&world);
    CHECK_OK(play_world(&world, NULL));
    for (size_t i = 0; i < world.params.total; i++) {
        double copy = (double)world.start[i], w = copy, v = 0, sum = 0;
        for (int step = 0, summed = 0; step < STEPS; step++) {
            double g = (double)world_slope(0, i, (float)copy), rate = world_rate(&world, step);
            bool fetches = step % FETCH == FETCH - 1;
            copy -= rate * g;
            sum += g;
            summed++;
            if (summed < PUSH && !fetches && step < STEPS - 1) continue;
            v = momentum * v + sum / summed;
            w -= world_rate(&world, step + 1 - summed) * summed * v;
            sum = summed = 0;
            if (fetches) copy = w;
        }
        assert_true(fabs((double)world.met[0][0][i] - w) < 1e-5);
    }
    end_world(&world);
}

static void check_equal_shares(const char *scheme, int64_t period, int64_t exchanges) {
    enum { WORKERS = 4, STEPS = 10 };
    ps_world world = {.scheme = scheme,
                      .workers = WORKERS,
                      .servers = 2,
                      .fetch_every = period,
                      .push_every = period,
                      .lr = 1,
                      .goals = {WORKERS * STEPS, 2 * WORKERS * STEPS}};
    const sh_sim_options sim = {.seed = 1, .compute = {.law = SH_LAW_CONSTANT, .mean_s = 1e-3}};
    make_counters(&world);
    CHECK_OK(play_world(&world, &sim));
    for (int r = 0; r < WORKERS; r++) assert_int_equal(world.steps[r], 2 * STEPS);
    for (int s = 0; s < world.servers; s++)
        assert_int_equal(world.services[s].counts.staleness.updates, 2 * WORKERS * exchanges);
    end_world(&world);
}

/* Workers of one speed share the steps, however long a period is; a meeting ends it. */
TEST(periods, leave_no_worker_without_steps) {
    check_equal_shares("easgd:1", 0, 10);
    check_equal_shares("easgd:4", 0, 3);
    check_equal_shares("easgd:1000", 0, 1);
    check_equal_shares("async", 4, 3);
    check_equal_shares("async", 1000, 1);
}
