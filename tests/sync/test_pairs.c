/* Gossip in pairs: AD-PSGD, and gossiping SGD, which pulls or pushes. */
#include <math.h>
#include <string.h>

#include "harness.h"
#include "sync/crowd.h"

/* ---- all of them, worked out by hand ---- */

static const struct one_sided {
    const char *scheme;
    bool asks[2], asker_takes, partner_takes;
} kinds[] = {
    {"adpsgd", {true, false}, true, true},
    {"gossip-pull", {true, true}, true, false},
    {"gossip-push", {true, true}, false, true},
};

enum { HAND_STEPS = 4, FAST_STEPS = 2 * HAND_STEPS - 2 };  // the slow one has leave for two

/* One parameter of two workers: all steps of the fast one fall into the first of the slow one, and
 * the slow one's ask into the first of the fast one. In double. */
static void by_hand(const crowd *c, const struct one_sided *kind, int slow, size_t index,
                    double fast_out[FAST_STEPS + 1], double *slow_out) {
    const int fast = 1 - slow;
    const double goal = (double)crowd_goal(fast, index);
    const double begin[2] = {(double)crowd_begin(c, 0, index), (double)crowd_begin(c, 1, index)};
    double shared = begin[fast], other = begin[slow];
    if (kind->asks[slow] && kind->partner_takes) shared = (shared + begin[slow]) / 2;
    fast_out[0] = begin[fast];
    for (int k = 0; k < FAST_STEPS; k++) {
        double next = shared, sent = fast_out[k];
        if (kind->asks[fast] && kind->asker_takes) next = (next + other) / 2;
        if (kind->asks[fast] && kind->partner_takes) other = (other + sent) / 2;
        shared = fast_out[k + 1] = next - c->lr * (sent - goal);
    }
    *slow_out = other;
    if (kind->asks[slow] && kind->asker_takes) *slow_out = (other + begin[fast]) / 2;
    *slow_out -= c->lr * (begin[slow] - (double)crowd_goal(slow, index));
}

static void check_by_hand(const struct one_sided *kind, int slow) {
    const sh_sim_slow slowness = {.rank = slow, .factor = 1000};
    sh_sim_options sim = {
        .links = {.rank = {.alpha_s = 1e-5, .beta_s = 1e-9}},
        .compute = {.mean_s = 0.01, .slow = &slowness, .slow_count = 1},
    };
    crowd c = {.scheme = kind->scheme, .workers = 2, .steps = HAND_STEPS, .lr = 0.1, .sim = &sim};
    CHECK_OK(crowd_run(&c));
    assert_int_equal(c.done[1 - slow], FAST_STEPS);
    for (size_t i = 0; i < c.count; i++) {
        double fast[FAST_STEPS + 1], first;
        by_hand(&c, kind, slow, i, fast, &first);
        for (int step = 1; step <= HAND_STEPS; step++)
            assert_true(fabs((double)crowd_at(&c, step, 1 - slow, i) - fast[step]) < 1e-5);
        assert_true(fabs((double)crowd_at(&c, 1, slow, i) - first) < 1e-5);
    }
    crowd_fini(&c);
}

TEST(pairs, steps_and_means_are_those_worked_out_by_hand) {
    for (size_t k = 0; k < SH_COUNT(kinds); k++)
        for (int slow = 0; slow < 2; slow++) check_by_hand(&kinds[k], slow);
}

/* ---- AD-PSGD ---- */

static void check_pairs(crowd *c) {
    CHECK_OK(crowd_run(c));
    int64_t sum = 0;
    for (int worker = 0; worker < c->workers; worker++) sum += c->done[worker];
    assert_int_equal(sum, c->all);
    if (c->stop_at == 0) assert_int_equal(sum, c->steps * c->workers);
    for (size_t i = 0; !c->timing && c->lr == 0 && i < c->count; i++)
        for (int worker = 0; worker < c->workers; worker++)
            assert_true(fabs((double)c->end[(size_t)worker * c->count + i] - crowd_mean(c, 0, i)) <
                        1e-5);
    crowd_fini(c);
}

TEST(adpsgd, pairwise_averages_keep_the_mean_with_any_number_of_workers) {
    for (int workers = 2; workers <= 7; workers++) {
        check_pairs(&(crowd){.scheme = "adpsgd", .workers = workers, .steps = 40});
        check_pairs(&(crowd){.scheme = "adpsgd",
                             .graph = workers % 2 == 0 ? "ring" : "torus",
                             .workers = workers,
                             .steps = 40,
                             .meet_every = 7});
    }
}

TEST(adpsgd, large_models_pass_each_other) {
    check_pairs(&(crowd){.scheme = "adpsgd", .workers = 5, .steps = 6, .count = 300001});
}

TEST(adpsgd, ends_when_the_user_wants) {
    crowd c = {.scheme = "adpsgd", .workers = 3, .steps = 100000, .stop_at = 20, .count = 1};
    CHECK_OK(crowd_run(&c));
    assert_true(c.all < 3 * 100000);
    assert_true(c.done[0] >= 20);
    assert_int_equal(c.done[0] + c.done[1] + c.done[2], c.all);
    crowd_fini(&c);
}

TEST(adpsgd, does_not_deadlock_and_keeps_the_mean_at_any_speed) {
    const char *const some[] = {"complete", "ring", "torus"};
    for (int seed = -1; crowd_seed(200, &seed);) {
        sh_sim_slow slow;
        int workers;
        sh_sim_options sim = crowd_world(seed, &slow, &workers);
        check_pairs(&(crowd){.scheme = "adpsgd",
                             .graph = some[seed % 3],
                             .workers = workers,
                             .steps = 20,
                             .meet_every = seed % 2 == 0 ? 0 : 7,
                             .count = seed % 7 == 0 ? 20000 : 3,  // beyond what is sent eagerly
                             .timing = seed % 5 == 4,
                             .sim = &sim});
    }
}

TEST(adpsgd, nobody_waits_for_a_straggler) {
    const sh_sim_slow slow = {.rank = 1, .factor = 10};
    sh_sim_options sim = {
        .links = {.rank = {.alpha_s = 1e-5, .beta_s = 1e-9}},
        .compute = {.mean_s = 0.01, .slow = &slow, .slow_count = 1},
    };
    crowd free = {.scheme = "adpsgd", .workers = 8, .steps = 50, .sim = &sim};
    crowd lockstep = {.scheme = "gossip", .workers = 8, .steps = 50, .sim = &sim};
    CHECK_OK(crowd_run(&free));
    CHECK_OK(crowd_run(&lockstep));
    assert_true(lockstep.seconds > 50 * 0.1);
    // Seven workers do the work, and the straggler finishes what it was granted.
    assert_true(free.seconds < 0.01 * 50 * 8 / 7 + 0.3);
    assert_true(free.done[1] < free.done[0] / 5);
    crowd_fini(&free);
    crowd_fini(&lockstep);
}

/* ---- gossiping SGD ---- */

static const char *const one_sided[] = {"gossip-pull", "gossip-push", "gossip-pull:3",
                                        "gossip-push:3"};

/* Without gradients: models are means of those at the beginning, and all steps are done. */
static void check_hull(crowd *c) {
    CHECK_OK(crowd_run(c));
    int64_t sum = 0;
    for (int worker = 0; worker < c->workers; worker++) sum += c->done[worker];
    assert_int_equal(sum, c->all);
    assert_int_equal(sum, c->steps * c->workers);
    for (size_t i = 0; !c->timing && i < c->count; i++) {
        float low = crowd_begin(c, 0, i), high = low;
        for (int worker = 1; worker < c->workers; worker++) {
            low = fminf(low, crowd_begin(c, worker, i));
            high = fmaxf(high, crowd_begin(c, worker, i));
        }
        for (int worker = 0; worker < c->workers; worker++) {
            float end = c->end[(size_t)worker * c->count + i];
            assert_true(end >= low - 1e-5F && end <= high + 1e-5F);
            assert_true(end == c->end[i]);
        }
    }
    crowd_fini(c);
}

TEST(gossiping, models_stay_among_those_at_the_beginning_with_any_number_of_workers) {
    const char *const graphs[] = {"complete", "ring", "exponential", "torus"};
    for (int workers = 2; workers <= 7; workers++)
        for (size_t s = 0; s < SH_COUNT(one_sided); s++)
            check_hull(&(crowd){.scheme = one_sided[s],
                                .graph = graphs[(size_t)workers % SH_COUNT(graphs)],
                                .workers = workers,
                                .steps = 30,
                                .meet_every = workers % 2 == 0 ? 0 : 7});
}

TEST(gossiping, does_not_deadlock_at_any_speed) {
    for (int seed = -1; crowd_seed(200, &seed);) {
        sh_sim_slow slow;
        int workers;
        sh_sim_options sim = crowd_world(seed, &slow, &workers);
        check_hull(&(crowd){.scheme = one_sided[seed % 4],
                            .workers = workers,
                            .steps = 20,
                            .meet_every = seed % 2 == 0 ? 0 : 7,
                            .count = seed % 7 == 0 ? 20000 : 3,  // beyond what is sent eagerly
                            .timing = seed % 5 == 4,
                            .sim = &sim});
    }
}

TEST(gossiping, large_models_pass_each_other) {
    for (size_t s = 0; s < 2; s++)
        check_hull(&(crowd){.scheme = one_sided[s], .workers = 5, .steps = 6, .count = 300001});
}

TEST(gossiping, ends_when_the_user_wants) {
    for (size_t s = 0; s < SH_COUNT(one_sided); s++) {
        crowd c = {
            .scheme = one_sided[s], .workers = 3, .steps = 100000, .stop_at = 20, .count = 1};
        CHECK_OK(crowd_run(&c));
        assert_true(c.all < 3 * 100000);
        assert_true(c.done[0] >= 20);
        assert_int_equal(c.done[0] + c.done[1] + c.done[2], c.all);
        crowd_fini(&c);
    }
}

/* Without gradients, workers of one speed: what is left of the models' distance. */
TEST(gossiping, models_come_together) {
    const sh_sim_options sim = {.links = {.rank = {.alpha_s = 1e-4, .beta_s = 1e-9}},
                                .compute = {.mean_s = 0.01}};
    for (size_t s = 0; s < SH_COUNT(one_sided); s++) {
        crowd c = {.scheme = one_sided[s], .workers = 6, .steps = 90, .sim = &sim};
        CHECK_OK(crowd_run(&c));
        assert_true(crowd_disagreement(&c, 80) < 1e-2 * crowd_disagreement(&c, 0));
        crowd_fini(&c);
    }
}

/* One run moves the sum of all models. With workers of one kind, many runs together do not: their
 * mean is off by no more than chance, four standard errors. */
TEST(gossiping, keeps_the_mean_on_average_over_the_draws_only) {
    enum { RUNS = 100 };
    for (size_t s = 0; s < SH_COUNT(one_sided); s++) {
        double sum = 0, squares = 0;
        for (int seed = 0; seed < RUNS; seed++) {
            sh_sim_options sim = {
                .seed = (uint64_t)seed,
                .links = {.rank = {.alpha_s = 1e-4, .beta_s = 1e-9}},
                .compute = {.law = SH_LAW_EXPONENTIAL, .mean_s = 0.01},
            };
            crowd c = {.scheme = one_sided[s], .workers = 4, .steps = 15, .count = 1, .sim = &sim};
            CHECK_OK(crowd_run(&c));
            double off = (double)c.end[0] - crowd_mean(&c, 0, 0);
            sum += off;
            squares += off * off;
            crowd_fini(&c);
        }
        double deviation = sqrt(squares / RUNS);
        assert_true(deviation > 0.1);
        assert_true(fabs(sum / RUNS) < 4 * deviation / sqrt(RUNS));
    }
}

static sh_status count_bytes(crowd *c, sh_sync *sync, bool met) {
    uint64_t *sent = c->user;
    if (!met) sent[sync->replica->rank] = sync->replica->counts.sent_bytes;
    return SH_OK;
}

/* 500 steps, each with a chance of 1 / T: five standard deviations are 56 for T = 4. */
TEST(gossiping, asks_in_one_step_of_t_on_average) {
    const sh_sim_options sim = {.compute = {.mean_s = 0.01}};
    const struct {
        const char *scheme;
        double least, most;
    } cases[] = {
        {"gossip-pull", 500, 500},
        {"gossip-push", 500, 500},
        {"gossip-pull:4", 69, 181},
        {"gossip-push:4", 69, 181},
    };
    for (size_t k = 0; k < SH_COUNT(cases); k++) {
        uint64_t sent[5] = {0}, all = 0;
        crowd c = {.scheme = cases[k].scheme,
                   .workers = 5,
                   .steps = 100,
                   .sim = &sim,
                   .look = count_bytes,
                   .user = sent};
        CHECK_OK(crowd_run(&c));
        for (int worker = 0; worker < 5; worker++) all += sent[worker];
        double asked = (double)all / (double)(c.count * sizeof(float));
        assert_true(asked >= cases[k].least && asked <= cases[k].most);
        crowd_fini(&c);
    }
}

TEST(gossiping, nobody_waits_for_a_straggler) {
    const sh_sim_slow slow = {.rank = 1, .factor = 10};
    sh_sim_options sim = {
        .links = {.rank = {.alpha_s = 1e-5, .beta_s = 1e-9}},
        .compute = {.mean_s = 0.01, .slow = &slow, .slow_count = 1},
    };
    for (size_t s = 0; s < SH_COUNT(one_sided); s++) {
        crowd c = {.scheme = one_sided[s], .workers = 8, .steps = 50, .sim = &sim};
        CHECK_OK(crowd_run(&c));
        assert_true(c.seconds < 0.01 * 50 * 8 / 7 + 0.3);
        assert_true(c.done[1] < c.done[0] / 5);
        crowd_fini(&c);
    }
}
