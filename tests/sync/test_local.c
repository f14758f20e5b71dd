#include <math.h>
#include <string.h>

#include "harness.h"
#include "sync/crowd.h"

/* Bulk-synchronous training with momentum, by one worker that sees all losses: the reference. */
static void reference(const crowd *c, size_t index, double *weight_out) {
    double weight = (double)crowd_begin(c, 0, index), velocity = 0, goal = 0;
    for (int worker = 0; worker < c->workers; worker++) goal += (double)crowd_goal(worker, index);
    goal /= c->workers;
    for (int64_t step = 0; step < c->steps; step++) {
        velocity = c->momentum * velocity + (weight - goal);
        weight -= c->lr * velocity;
    }
    *weight_out = weight;
}

static void check_reference(crowd *c) {
    CHECK_OK(crowd_run(c));
    for (size_t i = 0; i < c->count; i++) {
        double wanted;
        reference(c, i, &wanted);
        for (int worker = 0; worker < c->workers; worker++)
            assert_true(fabs((double)c->end[(size_t)worker * c->count + i] - wanted) < 1e-5);
    }
    crowd_fini(c);
}

TEST(local, every_step_averaged_is_bulk_synchronous) {
    for (int workers = 2; workers <= 5; workers++)
        check_reference(&(crowd){
            .scheme = "local:1", .workers = workers, .steps = 20, .lr = 0.2, .same = true});
}

TEST(local, averaged_momentum_is_that_of_the_mean_gradient) {
    check_reference(&(crowd){.scheme = "local:1",
                             .workers = 3,
                             .steps = 20,
                             .lr = 0.1,
                             .momentum = 0.9,
                             .policy = "average",
                             .same = true});
}

/* Losses with equal curvature: the mean of the models does not care when it is taken. */
TEST(local, on_equal_curvature_any_period_gives_the_same_mean) {
    check_reference(
        &(crowd){.scheme = "local:7", .workers = 4, .steps = 21, .lr = 0.2, .same = true});
}

/* Are the models equal after the step? */
static bool agree(const crowd *c, int64_t step) { return crowd_disagreement(c, step) < 1e-6; }

TEST(local, models_agree_after_every_hth_step_only) {
    crowd c = {.scheme = "local:3", .workers = 3, .steps = 12, .lr = 0.2, .same = true};
    CHECK_OK(crowd_run(&c));
    for (int64_t step = 1; step < 12; step++) assert_int_equal(agree(&c, step), step % 3 == 0);
    crowd_fini(&c);
}

TEST(post_local, averages_every_step_until_the_switch) {
    crowd c = {.scheme = "post-local:4",
               .workers = 3,
               .steps = 16,
               .lr = 0.2,
               .switch_at = 0.5,
               .same = true};
    CHECK_OK(crowd_run(&c));
    for (int64_t step = 1; step < 16; step++)
        assert_int_equal(agree(&c, step), step <= 8 || step % 4 == 0);
    crowd_fini(&c);
}

TEST(post_local, the_switch_may_be_a_step) {
    crowd c = {.scheme = "post-local:8",
               .workers = 2,
               .steps = 12,
               .lr = 0.2,
               .switch_at = 3,
               .same = true};
    CHECK_OK(crowd_run(&c));
    for (int64_t step = 1; step < 11; step++) assert_int_equal(agree(&c, step), step <= 3);
    crowd_fini(&c);
}

/* The gaps between averages never grow, begin with H and end with 1. */
TEST(adacomm, the_period_falls_as_the_loss_falls) {
    crowd c = {.scheme = "adacomm:8", .workers = 3, .steps = 120, .lr = 0.05, .same = true};
    CHECK_OK(crowd_run(&c));
    int64_t last = 0, gap = 8;
    for (int64_t step = 1; step < 120; step++) {
        if (!agree(&c, step)) continue;
        assert_true(step - last <= gap);
        if (last == 0) assert_int_equal(step, 8);
        gap = step - last;
        last = step;
    }
    assert_int_equal(gap, 1);
    crowd_fini(&c);
}

/* The losses of all workers in the step after `step`, summed. */
static double losses_at(const crowd *c, int64_t step) {
    double sum = 0;
    for (int worker = 0; worker < c->workers; worker++)
        for (size_t i = 0; i < c->count; i++) {
            double off = (double)crowd_at(c, step, worker, i) - (double)crowd_goal(worker, i);
            sum += off * off / 2;
        }
    return sum;
}

/* When all average, by the formula of the paper from the losses on the way: looks at least a
 * twentieth of the run apart, F_0 of the first round. Returns how often the root was what decided.
 */
static int adacomm_rounds(const crowd *c, int64_t longest, bool *averages_out) {
    double first = 0, sum = 0, rounds_sum = 0;
    int64_t period = longest, since = 0, count = 0, steps = 0;
    int decided = 0;
    for (int64_t step = 1; step <= c->steps; step++) {
        sum += losses_at(c, step - 1);
        averages_out[step] = ++since >= period;
        if (!averages_out[step]) continue;
        steps += since;
        if (first == 0) {
            first = sum / (double)(since * c->workers);
        } else {
            rounds_sum += sum;
            count += since * c->workers;
        }
        sum = 0;
        since = 0;
        if (steps < c->steps / 20 || count == 0) continue;
        double root = ceil((double)longest * sqrt(rounds_sum / (double)count / first));
        bool falls = root < (double)period;
        decided += falls && root != floor((double)period / 2);
        period = falls ? (int64_t)root : period / 2;
        if (period < 1) period = 1;
        rounds_sum = 0;
        count = steps = 0;
    }
    return decided;
}

TEST(adacomm, the_period_is_that_of_the_root_of_the_loss) {
    enum { STEPS = 600 };
    crowd c = {.scheme = "adacomm:30", .workers = 3, .steps = STEPS, .lr = 0.004, .same = true};
    bool averages[STEPS + 1] = {false};
    CHECK_OK(crowd_run(&c));
    assert_true(adacomm_rounds(&c, 30, averages) >= 5);
    for (int64_t step = 1; step < STEPS; step++) assert_int_equal(agree(&c, step), averages[step]);
    crowd_fini(&c);
}

/* Two rounds of DiLoCo worked out by hand, in double. */
static double diloco_reference(const crowd *c, size_t index, int64_t period) {
    double anchor = (double)crowd_begin(c, 0, index), velocity = 0;
    for (int64_t round = 0; round < c->steps / period; round++) {
        double mean = 0;
        for (int worker = 0; worker < c->workers; worker++) {
            double weight = anchor;
            for (int64_t step = 0; step < period; step++)
                weight -= c->lr * (weight - (double)crowd_goal(worker, index));
            mean += weight / c->workers;
        }
        double change = anchor - mean;
        velocity = 0.9 * velocity + change;
        anchor -= 0.7 * (change + 0.9 * velocity);
    }
    return anchor;
}

TEST(diloco, takes_nesterov_steps_with_the_mean_change) {
    crowd c = {.scheme = "diloco:4", .workers = 3, .steps = 24, .lr = 0.05, .same = true};
    CHECK_OK(crowd_run(&c));
    for (size_t i = 0; i < c.count; i++)
        for (int worker = 0; worker < 3; worker++)
            assert_true(fabs((double)c.end[(size_t)worker * c.count + i] -
                             diloco_reference(&c, i, 4)) < 1e-5);
    crowd_fini(&c);
}

/* A meeting ends a round early; nobody is left behind, whatever the policy. */
TEST(local, replicas_are_equal_bit_for_bit_at_meetings) {
    const char *const schemes[] = {"local:5", "post-local:5", "adacomm:5", "diloco:5"};
    const char *const policies[] = {"auto", "average", "keep", "reset"};
    for (size_t s = 0; s < SH_COUNT(schemes); s++)
        for (size_t p = 0; p < SH_COUNT(policies); p++) {
            crowd c = {.scheme = schemes[s],
                       .workers = 3,
                       .steps = 17,
                       .meet_every = 7,
                       .lr = 0.1,
                       .momentum = 0.9,
                       .policy = policies[p],
                       .same = true};
            CHECK_OK(crowd_run(&c));
            for (int worker = 1; worker < 3; worker++)
                assert_memory_equal(c.end, c.end + (size_t)worker * c.count,
                                    c.count * sizeof *c.end);
            crowd_fini(&c);
        }
}

TEST(local, runs_in_the_simulator_with_and_without_numbers) {
    const char *const schemes[] = {"local:3", "post-local:3", "adacomm:4", "diloco:4"};
    for (size_t s = 0; s < SH_COUNT(schemes); s++)
        for (int timing = 0; timing < 2; timing++) {
            sh_sim_options sim = {.seed = s, .compute = {SH_LAW_EXPONENTIAL, .mean_s = 0.01}};
            sim.links.rank = (sh_link){.alpha_s = 1e-4, .beta_s = 1e-8};
            crowd c = {.scheme = schemes[s],
                       .workers = 6,
                       .steps = 12,
                       .lr = 0.1,
                       .same = true,
                       .timing = timing == 1,
                       .sim = &sim};
            CHECK_OK(crowd_run(&c));
            assert_true(c.seconds > 0.12);
            crowd_fini(&c);
        }
}

/* With equal curvature the mean of the models does not care when it is taken, however slow who is;
 * DiLoCo's rounds do, and are known. */
TEST(local, keeps_its_promises_at_any_speed) {
    const char *const schemes[] = {"local:3", "post-local:3", "adacomm:4", "diloco:4"};
    for (int seed = -1; crowd_seed(40, &seed);) {
        sh_sim_slow slow;
        int workers;
        sh_sim_options sim = crowd_world(seed, &slow, &workers);
        bool outer = seed % 4 == 3;
        crowd c = {.scheme = schemes[seed % 4],
                   .workers = workers,
                   .steps = 20,
                   .meet_every = outer || seed % 8 < 4 ? 0 : 7,
                   .switch_at = 0.5,
                   .lr = outer ? 0.05 : 0.2,
                   .same = true,
                   .sim = &sim};
        CHECK_OK(crowd_run(&c));
        for (size_t i = 0; i < c.count * (size_t)workers; i++) {
            double wanted = diloco_reference(&c, i % c.count, 4);
            if (!outer) reference(&c, i % c.count, &wanted);
            assert_true(fabs((double)c.end[i] - wanted) < 1e-5);
        }
        crowd_fini(&c);
    }
}

/* ---- Through a codec ---- */

enum { CODED_COUNT = 1500 };  // smaller tensors travel as they are

static double goal_mean(const crowd *c, size_t index) {
    double goal = 0;
    for (int worker = 0; worker < c->workers; worker++) goal += (double)crowd_goal(worker, index);
    return goal / c->workers;
}

/* The largest distance of an element from where the losses, taken together, are least. */
static double farthest(const crowd *c) {
    double most = 0;
    for (size_t i = 0; i < c->count; i++)
        most = fmax(most, fabs((double)c->end[i] - goal_mean(c, i)));
    return most;
}

static bool ends_equal(const crowd *c) {
    for (int worker = 1; worker < c->workers; worker++)
        if (memcmp(c->end, c->end + (size_t)worker * c->count, c->count * sizeof(float)) != 0)
            return false;
    return true;
}

/* What is left out of one average is in a later one, meetings in between or not; all workers have
 * the same bits. With 30 % of the elements in a message, losing the rest would leave them where
 * they began. */
TEST(delta, what_a_codec_leaves_out_arrives_later) {
    const char *const schemes[] = {"local:3", "post-local:3", "adacomm:3", "diloco:3"};
    const char *const codecs[] = {"fp16", "topk:30%", "onebit", "qsgd:4", "powersgd:1"};
    for (size_t s = 0; s < SH_COUNT(schemes); s++)
        for (size_t k = 0; k < SH_COUNT(codecs); k++) {
            crowd c = {.scheme = schemes[s],
                       .codec = codecs[k],
                       .workers = 3,
                       .steps = 240,
                       .meet_every = 31,
                       .switch_at = 9,
                       .count = CODED_COUNT,
                       .lr = schemes[s][0] == 'd' ? 0.01 : 0.05,  // the outer step is 7 times it
                       .same = true};
            CHECK_OK(crowd_run(&c));
            assert_true(ends_equal(&c));
            double away = farthest(&c);
            if (away > 0.4) print_error("%s with %s ends %g away\n", c.scheme, c.codec, away);
            assert_true(away <= 0.4);
            crowd_fini(&c);
        }
}

/* After the first step the models are what the goals are: far apart. */
static sh_status scatter(crowd *c, sh_sync *sync, bool met) {
    const sh_replica *replica = sync->replica;
    for (size_t i = 0; !met && replica->step == 1 && i < c->count; i++)
        replica->weights[i] = crowd_goal(replica->rank, i);
    if (!met || replica->rank != 0) return SH_OK;
    // The last state of the rows is the residual, summed over the workers.
    const float *residual = replica->state[replica->state[1] != NULL];
    memcpy(c->user, residual, c->count * sizeof *residual);
    return SH_OK;
}

/* Without gradients: what has arrived and what is kept back are together the mean of the models, to
 * rounding, at any meeting; and more and more of it arrives. */
static void check_conserves(const char *scheme, const char *codec, int64_t steps, double left) {
    float residual[CODED_COUNT];
    crowd c = {.scheme = scheme,
               .codec = codec,
               .workers = 3,
               .steps = steps,
               .meet_every = 7,
               .switch_at = 4,
               .count = CODED_COUNT,
               .same = true,
               .look = scatter,
               .user = residual};
    CHECK_OK(crowd_run(&c));
    for (size_t i = 0; i < c.count; i++)
        assert_true(fabs((double)c.end[i] + (double)residual[i] - goal_mean(&c, i)) < 1e-5);
    if (!(farthest(&c) <= left))
        print_error("%s with %s: %g is left\n", scheme, codec, farthest(&c));
    assert_true(farthest(&c) <= left);
    crowd_fini(&c);
}

TEST(delta, arrived_and_kept_back_are_the_mean_of_the_models) {
    const char *const schemes[] = {"local:3", "post-local:3", "adacomm:3"};
    for (size_t s = 0; s < SH_COUNT(schemes); s++) {
        check_conserves(schemes[s], "topk:10%", 10, 10);
        check_conserves(schemes[s], "topk:10%", 60, 1e-5);
        check_conserves(schemes[s], "randk:10%", 31, 10);
        check_conserves(schemes[s], "onebit", 10, 10);
        check_conserves(schemes[s], "onebit", 120, 0.1);
        check_conserves(schemes[s], "int8", 10, 1e-2);
        check_conserves(schemes[s], "powersgd:1", 10, 1e-5);
    }
}

/* Alone until the only meeting, worker i takes step k at the rate of step k:
 * w <- w - lr (1 - k / steps) (w - c_i). */
TEST(local, every_step_has_its_own_rate) {
    enum { STEPS = 12 };
    crowd c = {
        .scheme = "local:1000", .workers = 3, .steps = STEPS, .lr = 0.5, .schedule = "linear"};
    CHECK_OK(crowd_run(&c));
    for (int worker = 0; worker < c.workers; worker++)
        for (size_t i = 0; i < c.count; i++) {
            double w = (double)crowd_begin(&c, worker, i);
            for (int k = 0; k < STEPS - 1; k++) {
                w -= c.lr * (1 - (double)k / STEPS) * (w - (double)crowd_goal(worker, i));
                assert_true(fabs((double)crowd_at(&c, k + 1, worker, i) - w) < 1e-5);
            }
        }
    crowd_fini(&c);
}
