#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "harness.h"
#include "sync/crowd.h"
#include "sync/graph.h"
#include "sync/sgp.h"

static const char *const graphs[] = {"ring", "torus", "exponential", "complete"};

static double first_mean(const crowd *c, size_t index) {
    double sum = 0;
    for (int worker = 0; worker < c->workers; worker++)
        sum += (double)crowd_begin(c, worker, index);
    return sum / c->workers;
}

/* ---- D-PSGD ---- */

/* Without gradients: the mean stays, and disagreement falls by the second eigenvalue or faster. */
static void check_mixing(const char *name, int workers, const sh_sim_options *sim) {
    crowd c = {.scheme = "gossip", .graph = name, .workers = workers, .steps = 12, .sim = sim};
    CHECK_OK(crowd_run(&c));
    sh_graph graph;
    CHECK_OK(sh_graph_find(name, workers, &graph));
    for (int64_t step = 1; step <= 12; step++) {
        for (size_t i = 0; i < c.count; i++)
            assert_true(fabs(crowd_mean(&c, step, i) - first_mean(&c, i)) < 1e-5);
        double before = crowd_disagreement(&c, step - 1), after = crowd_disagreement(&c, step);
        assert_true(after <= sh_graph_second(&graph) * before + 1e-5);
    }
    crowd_fini(&c);
}

TEST(gossip, mixing_keeps_the_mean_and_shrinks_disagreement) {
    for (size_t g = 0; g < SH_COUNT(graphs); g++)
        for (int workers = 2; workers <= 6; workers++) check_mixing(graphs[g], workers, NULL);
}

/* One round is one product with the matrix that is explained. */
TEST(gossip, a_round_is_a_product_with_the_mixing_matrix) {
    for (size_t g = 0; g < SH_COUNT(graphs); g++) {
        crowd c = {.scheme = "gossip", .graph = graphs[g], .workers = 6, .steps = 1};
        CHECK_OK(crowd_run(&c));
        sh_graph graph;
        CHECK_OK(sh_graph_find(graphs[g], 6, &graph));
        for (int row = 0; row < 6; row++)
            for (size_t i = 0; i < c.count; i++) {
                double wanted = 0;
                for (int column = 0; column < 6; column++)
                    wanted +=
                        sh_graph_mixing(&graph, row, column) * (double)crowd_begin(&c, column, i);
                assert_true(fabs((double)crowd_at(&c, 1, row, i) - wanted) < 1e-6);
            }
        crowd_fini(&c);
    }
}

/* Bulk-synchronous gradient descent on the mean of the losses. */
static double reference(const crowd *c, size_t index) {
    double weight = (double)crowd_begin(c, 0, index), goal = 0;
    for (int worker = 0; worker < c->workers; worker++) goal += (double)crowd_goal(worker, index);
    for (int64_t step = 0; step < c->steps; step++) weight -= c->lr * (weight - goal / c->workers);
    return weight;
}

/* The mean of the models follows the mean gradient, here the gradient at the mean. */
static void check_reference(crowd *c) {
    CHECK_OK(crowd_run(c));
    for (size_t i = 0; i < c->count; i++)
        for (int worker = 0; worker < c->workers; worker++)
            assert_true(fabs((double)c->end[(size_t)worker * c->count + i] - reference(c, i)) <
                        1e-5);
    crowd_fini(c);
}

TEST(gossip, with_plain_sgd_the_mean_is_that_of_bulk_synchronous_training) {
    for (size_t g = 0; g < SH_COUNT(graphs); g++)
        check_reference(&(crowd){.scheme = "gossip",
                                 .graph = graphs[g],
                                 .workers = 5,
                                 .steps = 15,
                                 .lr = 0.2,
                                 .same = true});
}

/* Step, then mix with everyone: the models are equal after every step, as bulk-synchronous ones. */
TEST(gossip, on_a_complete_graph_without_overlap_it_is_bulk_synchronous) {
    crowd c = {.scheme = "gossip",
               .graph = "complete",
               .workers = 4,
               .steps = 10,
               .lr = 0.2,
               .steps_first = true,
               .same = true};
    CHECK_OK(crowd_run(&c));
    for (int64_t step = 1; step <= 10; step++) assert_true(crowd_disagreement(&c, step) < 1e-6);
    for (size_t i = 0; i < c.count; i++)
        assert_true(fabs((double)c.end[i] - reference(&c, i)) < 1e-5);
    crowd_fini(&c);
}

/* A round by its formula: models and gradients are those before the round.
 *
 *   overlap     w_i <- sum_j W_ij w_j - lr g_i         without     w_i <- sum_j W_ij (w_j - lr g_j)
 */
static double after_round(const crowd *c, const sh_graph *graph, int row, size_t index) {
    double weight = 0;
    for (int column = 0; column < c->workers; column++) {
        double model = (double)crowd_begin(c, column, index);
        double step = c->lr * (model - (double)crowd_goal(column, index));
        double share = sh_graph_mixing(graph, row, column);
        weight += share * (c->steps_first ? model - step : model);
        if (!c->steps_first && column == row) weight -= step;
    }
    return weight;
}

TEST(gossip, with_overlap_mixes_models_as_they_were_before_the_step) {
    for (size_t k = 0; k < 2 * SH_COUNT(graphs); k++) {
        crowd c = {.scheme = "gossip",
                   .graph = graphs[k / 2],
                   .workers = 6,
                   .steps = 1,
                   .lr = 0.2,
                   .steps_first = k % 2};
        CHECK_OK(crowd_run(&c));
        sh_graph graph;
        CHECK_OK(sh_graph_find(graphs[k / 2], 6, &graph));
        for (int row = 0; row < 6; row++)
            for (size_t i = 0; i < c.count; i++)
                assert_true(
                    fabs((double)crowd_at(&c, 1, row, i) - after_round(&c, &graph, row, i)) < 1e-5);
        crowd_fini(&c);
    }
}

/* A step of 10 ms and messages of 4 ms, in virtual time. */
static double seconds_of(bool steps_first) {
    const sh_sim_options sim = {.links = {.rank = {.alpha_s = 4e-3, .beta_s = 1e-12}},
                                .compute = {.law = SH_LAW_CONSTANT, .mean_s = 10e-3}};
    crowd c = {.scheme = "gossip",
               .workers = 4,
               .steps = 20,
               .timing = true,
               .steps_first = steps_first,
               .sim = &sim};
    CHECK_OK(crowd_run(&c));
    crowd_fini(&c);
    return c.seconds;
}

TEST(gossip, with_overlap_models_travel_while_the_gradient_is_computed) {
    double hidden_s = seconds_of(true) - seconds_of(false);
    assert_true(fabs(hidden_s - 20 * 4e-3) < 1e-4);
}

TEST(gossip, large_models_pass_each_other) {
    // Far more than a ring of shared memory holds.
    check_reference(&(crowd){.scheme = "gossip",
                             .graph = "complete",
                             .workers = 3,
                             .steps = 3,
                             .count = 700001,
                             .lr = 0.1,
                             .same = true});
}

/* ---- Through a codec ---- */

enum { CODED_COUNT = 1500 };  // smaller tensors travel as they are

/* After the first step the models are what the goals are: far apart. */
static sh_status scatter(crowd *c, sh_sync *sync, bool met) {
    for (size_t i = 0; !met && sync->replica->step == 1 && i < c->count; i++)
        sync->replica->weights[i] = crowd_goal(sync->replica->rank, i);
    return SH_OK;
}

static double goal_mean(const crowd *c, size_t index) {
    double sum = 0;
    for (int worker = 0; worker < c->workers; worker++) sum += (double)crowd_goal(worker, index);
    return sum / c->workers;
}

/* Without gradients: the mean stays, and the models come together. */
static void check_consensus(const char *graph, const char *codec, int workers, int64_t steps) {
    const sh_sim_options sim = {.seed = 3};
    crowd c = {.scheme = "gossip",
               .sim = &sim,
               .graph = graph,
               .codec = codec,
               .workers = workers,
               .steps = steps,
               .count = CODED_COUNT,
               .same = true,
               .look = scatter};
    CHECK_OK(crowd_run(&c));
    for (size_t i = 0; i < c.count; i += 97)
        assert_true(fabs(crowd_mean(&c, steps, i) - goal_mean(&c, i)) < 1e-3);
    double square = 0, after = crowd_disagreement(&c, steps);
    for (size_t i = 0; i < c.count; i++)
        for (int worker = 0; worker < workers; worker++)
            square += pow((double)crowd_goal(worker, i) - goal_mean(&c, i), 2);
    double before = sqrt(square);
    if (!(after < 1e-2 * before))
        print_error("%s on %s of %d: %.3g of the disagreement is left\n", codec, graph, workers,
                    after / before);
    assert_true(after < 1e-2 * before);
    crowd_fini(&c);
}

TEST(choco, models_come_together_whatever_the_codec_leaves_out) {
    const struct {
        const char *codec;
        int64_t steps;
    } cases[] = {{"fp16", 40},      {"int8", 40},    {"qsgd:4", 60},    {"qsgd:2", 200},
                 {"terngrad", 200}, {"onebit", 200}, {"topk:20%", 120}, {"randk:20%", 150}};
    for (size_t k = 0; k < SH_COUNT(cases); k++)
        for (size_t g = 0; g < SH_COUNT(graphs); g++)
            for (int workers = 2; workers <= 6; workers += 2)
                check_consensus(graphs[g], cases[k].codec, workers, cases[k].steps);
}

/* With a lossless first message and gamma 1 it is D-PSGD: a product with the mixing matrix. */
TEST(choco, without_loss_it_is_plain_gossip) {
    crowd plain = {.scheme = "gossip", .workers = 5, .steps = 8, .lr = 0.2, .same = true};
    crowd coded = plain;
    coded.codec = "fp16";  // so few elements travel as they are
    CHECK_OK(crowd_run(&plain));
    CHECK_OK(crowd_run(&coded));
    for (int64_t step = 0; step <= 8; step++)
        for (int worker = 0; worker < 5; worker++)
            for (size_t i = 0; i < plain.count; i++)
                assert_true(fabs((double)(crowd_at(&plain, step, worker, i) -
                                          crowd_at(&coded, step, worker, i))) < 2e-3);
    crowd_fini(&plain);
    crowd_fini(&coded);
}

/* The copies are the memory, so codecs come nearer with every message, also where gradients would
 * have no feedback: no random rounding, no values multiplied by the lengths of their stretches. */
TEST(choco, codecs_have_the_form_with_feedback_also_without_it) {
    const char *const codecs[] = {"int8", "randk:30%", "topk:20%", "onebit"};
    for (size_t k = 0; k < SH_COUNT(codecs); k++) {
        crowd usual = {.scheme = "gossip",
                       .codec = codecs[k],
                       .workers = 3,
                       .steps = 6,
                       .count = CODED_COUNT,
                       .lr = 0.1,
                       .same = true};
        crowd without = usual;
        without.no_feedback = true;
        CHECK_OK(crowd_run(&usual));
        CHECK_OK(crowd_run(&without));
        assert_memory_equal(without.history, usual.history,
                            7 * 3 * usual.count * sizeof *usual.history);
        crowd_fini(&usual);
        crowd_fini(&without);
    }
}

/* The mean of the models follows the mean gradient: mixing, however lossy, leaves it alone. */
TEST(choco, with_plain_sgd_the_mean_is_that_of_bulk_synchronous_training) {
    const char *const codecs[] = {"topk:10%", "qsgd:4", "onebit"};
    for (size_t k = 0; k < SH_COUNT(codecs); k++) {
        crowd c = {.scheme = "gossip",
                   .codec = codecs[k],
                   .workers = 5,
                   .steps = 40,
                   .meet_every = 13,
                   .count = CODED_COUNT,
                   .lr = 0.1,
                   .same = true};
        CHECK_OK(crowd_run(&c));
        for (size_t i = 0; i < c.count; i++)
            assert_true(fabs((double)c.end[i] - reference(&c, i)) < 1e-3);
        crowd_fini(&c);
    }
}

TEST(gossip, replicas_are_equal_bit_for_bit_at_meetings) {
    const char *const schemes[] = {"gossip", "sgp",         "sgp:2",
                                   "adpsgd", "gossip-pull", "gossip-push:2"};
    const char *const policies[] = {"auto", "keep", "reset"};
    for (size_t s = 0; s < SH_COUNT(schemes); s++)
        for (size_t p = 0; p < SH_COUNT(policies); p++) {
            crowd c = {.scheme = schemes[s],
                       .workers = 4,
                       .steps = 13,
                       .meet_every = 5,
                       .lr = 0.1,
                       .momentum = 0.9,
                       .policy = policies[p],
                       .same = true};
            CHECK_OK(crowd_run(&c));
            for (int worker = 1; worker < 4; worker++)
                assert_memory_equal(c.end, c.end + (size_t)worker * c.count,
                                    c.count * sizeof *c.end);
            crowd_fini(&c);
        }
}

/* ---- SGP ---- */

/* The mass of all workers, step by step: each adds its own. */
static sh_status weigh(crowd *c, sh_sync *sync, bool met) {
    double(*masses)[8] = c->user;
    if (!met) masses[sync->replica->step][sync->replica->rank] = sh_sgp_mass(sync);
    if (met && sh_sgp_weight(sync) != 1) return SH_FAIL(SH_E_NUMERIC, "a weight after a meeting");
    return SH_OK;
}

TEST(sgp, mass_is_conserved) {
    const char *const schemes[] = {"sgp", "sgp:1", "sgp:3"};
    for (size_t s = 0; s < SH_COUNT(schemes); s++)
        for (int workers = 2; workers <= 7; workers++) {
            double masses[21][8] = {{0}};
            crowd c = {.scheme = schemes[s],
                       .workers = workers,
                       .steps = 20,
                       .meet_every = 9,
                       .look = weigh,
                       .user = masses};
            CHECK_OK(crowd_run(&c));
            for (int step = 1; step <= 20; step++) {
                double sum = 0;
                for (int worker = 0; worker < workers; worker++) sum += masses[step][worker];
                assert_true(fabs(sum - workers) < 1e-12);
            }
            crowd_fini(&c);
        }
}

/* Late messages change the weights: without the correction models would shrink. */
static sh_status least_weight(crowd *c, sh_sync *sync, bool met) {
    double *least = c->user;
    if (!met && sync->replica->rank == 0) *least = fmin(*least, sh_sgp_weight(sync));
    return SH_OK;
}

TEST(sgp, models_in_agreement_stay_whatever_is_on_its_way) {
    const char *const schemes[] = {"sgp", "sgp:1", "sgp:4"};
    for (size_t s = 0; s < SH_COUNT(schemes); s++) {
        double least = 1;
        crowd c = {.scheme = schemes[s],
                   .workers = 6,
                   .steps = 15,
                   .same = true,
                   .look = least_weight,
                   .user = &least};
        CHECK_OK(crowd_run(&c));
        for (int64_t step = 1; step <= 15; step++)
            for (int worker = 0; worker < 6; worker++)
                for (size_t i = 0; i < c.count; i++)
                    assert_true(fabsf(crowd_at(&c, step, worker, i) - crowd_begin(&c, 0, i)) <
                                1e-5F);
        assert_int_equal(least<0.9, s> 0);
        crowd_fini(&c);
    }
}

TEST(sgp, models_come_together_at_the_first_mean) {
    crowd c = {.scheme = "sgp:1", .workers = 6, .steps = 60};
    CHECK_OK(crowd_run(&c));
    for (int worker = 0; worker < 6; worker++)
        for (size_t i = 0; i < c.count; i++)
            assert_true(fabs((double)crowd_at(&c, 60, worker, i) - first_mean(&c, i)) < 1e-4);
    crowd_fini(&c);
}

TEST(sgp, in_lockstep_with_plain_sgd_the_mean_is_that_of_bulk_synchronous_training) {
    check_reference(&(crowd){.scheme = "sgp", .workers = 4, .steps = 15, .lr = 0.2, .same = true});
}

TEST(sgp, large_models_pass_each_other) {
    check_reference(&(crowd){
        .scheme = "sgp", .workers = 4, .steps = 3, .count = 700001, .lr = 0.1, .same = true});
    crowd c = {.scheme = "sgp:2", .workers = 4, .steps = 9, .count = 300001, .same = true};
    CHECK_OK(crowd_run(&c));
    crowd_fini(&c);
}

/* ---- in the simulator, over many seeds: any speeds, links and numbers of workers ---- */

TEST(gossip, keeps_its_promises_at_any_speed) {
    for (int seed = -1; crowd_seed(100, &seed);) {
        sh_sim_slow slow;
        int workers;
        sh_sim_options sim = crowd_world(seed, &slow, &workers);
        check_mixing(graphs[seed % 4], workers, &sim);
    }
}

TEST(sgp, conserves_mass_at_any_speed) {
    const char *const schemes[] = {"sgp", "sgp:1", "sgp:2", "sgp:5"};
    for (int seed = -1; crowd_seed(100, &seed);) {
        sh_sim_slow slow;
        int workers;
        sh_sim_options sim = crowd_world(seed, &slow, &workers);
        crowd c = {.scheme = schemes[seed % 4],
                   .workers = workers,
                   .steps = 20,
                   .meet_every = 11,
                   .timing = seed % 5 == 4,
                   .sim = &sim};
        CHECK_OK(crowd_run(&c));
        for (size_t i = 0; !c.timing && i < c.count; i++)
            assert_true(fabs((double)c.end[i] - first_mean(&c, i)) < 1e-5);
        crowd_fini(&c);
    }
}
