/* Rounds in a simulated federation: whatever the network, the clients and the server do, no update
 * is counted twice and every closed round is the mean of those that were counted (world.c checks
 * both against an oracle at every commit). */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

static const world_options calm = {.rule = "fedavg",
                                   .clients = 8,
                                   .clients_min = 8,
                                   .rounds = 5,
                                   .fraction = 1,
                                   .over = 1,
                                   .quorum = 0.5,
                                   .delay_ms_most = 100,
                                   .train_ms_most = 2000,
                                   .seed = 1};

static uint64_t first_seed(void) {
    const char *text = getenv("SEED");
    return text != NULL ? strtoull(text, NULL, 10) : 1;
}

static void check(const world_options *options, const world_result *result) {
    if (result->fault[0] != '\0')
        fail_msg("seed %llu, %s: %s", (unsigned long long)options->seed, options->rule,
                 result->fault);
}

/* Runs `count` seeds; what varies in them beside the draws is set here. */
static void storm(world_options options, int count, world_result *total_out) {
    uint64_t first = first_seed();
    memset(total_out, 0, sizeof *total_out);
    for (uint64_t seed = first; seed < first + (uint64_t)count; seed++) {
        options.seed = seed;
        options.clients_min = 2;
        options.clients = 4 + (int)(seed % 13);
        options.fraction = seed % 3 == 0 ? 0.5 : 1;
        options.over = seed % 2 == 0 && options.privacy == NULL ? 1.3 : 1;
        world_result result = world_run(&options);
        check(&options, &result);
        total_out->restarted += result.restarted;
        total_out->crashes += result.crashes;
        total_out->charged += result.charged;
        total_out->closed += result.closed;
        total_out->served += result.served;
    }
}

TEST(rounds, close_with_every_client_where_nothing_fails) {
    world_result result = world_run(&calm);
    check(&calm, &result);
    assert_int_equal(result.closed, 5);
    assert_int_equal(result.served, 8 * 5);
    assert_int_equal(result.restarted, 0);
}

TEST(rounds, have_the_same_bits_in_any_order_of_arrival) {
    world_options other = calm;
    other.seed = 2;  // other delays, other training times: another order
    other.train_ms_most = 30000;
    world_result a = world_run(&calm), b = world_run(&other);
    check(&other, &b);
    assert_memory_equal(a.model, b.model, sizeof a.model);
}

static world_options rough(const char *rule) {
    world_options options = calm;
    options.rule = rule;
    options.lost = 0.15;
    options.doubled = 0.2;
    options.dies = 0.01;
    options.crashes = 0.004;
    options.delay_ms_most = 8000;
    options.train_ms_most = 40000;
    return options;
}

TEST(rounds, survive_loss_doubles_deaths_and_crashes_over_hundreds_of_seeds) {
    world_result total;
    storm(rough("fedavg"), 300, &total);
    assert_true(total.crashes > 30 && total.restarted > 30 && total.served > 1000);
}

TEST(rounds, take_late_updates_once_where_they_are_taken) {
    world_options options = rough("fedavg");
    options.late_rounds = 3;
    world_result total;
    storm(options, 200, &total);
    assert_true(total.crashes > 10);
}

TEST(rounds, of_a_buffer_count_updates_of_any_age_once) {
    world_result total;
    storm(rough("fedbuff:3"), 200, &total);
    assert_true(total.crashes > 10);
}

TEST(rounds, of_a_privacy_budget_never_overspend_it_whatever_dies) {
    world_options options = rough("fedavg");
    options.privacy = "epsilon=8,delta=1e-5,noise=2";
    world_result total;
    storm(options, 20, &total);
    assert_true(total.charged > total.closed && total.closed > 50);
}

TEST(rounds, of_every_rule_end) {
    const char *name;
    for (size_t i = 0; (name = sh_fed_rule_name_at(i)) != NULL; i++) {
        world_result total;
        storm(rough(strcmp(name, "fedbuff") == 0 ? "fedbuff:2"
                    : strcmp(name, "krum") == 0  ? "krum:0"
                                                 : name),
              20, &total);
    }
}
