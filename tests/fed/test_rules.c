/* Aggregation rules against their published formulas, worked out by hand for small vectors; and
 * what the server refuses. */
#include "harness.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "fed/server.h"

enum { COUNT = 3 };

typedef struct client_update {
    float values[2 * COUNT];
    uint64_t samples;
    double steps;
} client_update;

static sh_status accept(void *self, const sh_fed_server *server, const sh_fed_report *report) {
    (void)server;
    *(sh_fed_report *)self = *report;
    return SH_OK;
}

static sh_fed_report last;

static sh_fed_options options_for(const char *rule, int64_t clients, int64_t rounds) {
    sh_fed_options options = {.rounds = rounds,
                              .fraction = 1,
                              .clients_min = clients,
                              .over = 1,
                              .quorum = 0.5,
                              .deadline_ms = 1000,
                              .presence_ms = 100000,
                              .poll_ms = 100};
    CHECK_OK(sh_fed_rule_parse(rule, &options.rule));
    return options;
}

static sh_fed_server *start(const sh_fed_options *options, size_t clients) {
    sh_fed_server *server = NULL;
    CHECK_OK(sh_fed_server_create(options, COUNT, COUNT, accept, &last, &server));
    for (size_t i = 0; i < clients; i++) assert_int_equal(sh_fed_server_add(server), i);
    sh_fed_server_begin(server);
    return server;
}

static sh_fed_receipt give(sh_fed_server *server, int64_t now, size_t client,
                           const client_update *given, size_t count) {
    sh_fed_task task;
    CHECK_OK(sh_fed_server_ask(server, now, client, &task));
    sh_fed_update update = {.round = task.round,
                            .attempt = task.attempt,
                            .samples = given->samples,
                            .steps = given->steps,
                            .accuracy = NAN,
                            .vectors = task.vectors,
                            .count = count,
                            .values = given->values};
    memcpy(update.model, task.model, SH_FED_HASH);
    sh_fed_receipt receipt;
    CHECK_OK(sh_fed_server_take(server, now, client, &update, &receipt));
    return receipt;
}

/* Rounds in which every client gives its update; the model afterwards. */
static void rounds_of(const char *rule, const client_update *updates, size_t clients,
                      int64_t rounds, float model_out[2 * COUNT]) {
    sh_fed_options options = options_for(rule, (int64_t)clients, rounds);
    sh_fed_server *server = start(&options, clients);
    for (int64_t r = 0; r < rounds; r++) {
        sh_fed_task task;
        for (size_t c = 0; c < clients; c++) CHECK_OK(sh_fed_server_ask(server, r, c, &task));
        for (size_t c = 0; c < clients; c++)
            assert_int_equal(give(server, r, c, &updates[c], COUNT).verdict, SH_FED_COUNTED);
    }
    assert_int_equal(sh_fed_server_view(server, rounds).closed, rounds);
    memcpy(model_out, sh_fed_server_model(server), sh_fed_server_values(server) * sizeof(float));
    sh_fed_server_destroy(server);
}

static const client_update two[] = {{{1, 2, 4}, 1, 2}, {{5, -2, 0}, 3, 4}};

TEST(rule, fedavg_weighs_updates_by_samples) {
    float model[2 * COUNT];
    const float expected[] = {4, -1, 1};
    rounds_of("fedavg", two, 2, 1, model);
    CHECK_CLOSE(model, expected, COUNT, 1e-6);
    rounds_of("fedprox:0.5", two, 2, 1, model);
    CHECK_CLOSE(model, expected, COUNT, 1e-6);
}

/* mean step count (1*2 + 3*4)/4 = 3.5; mean of d/steps = (1*d0/2 + 3*d1/4)/4 */
TEST(rule, fednova_normalises_by_local_steps) {
    float model[2 * COUNT];
    const float expected[] = {3.5f * (0.5f + 3.75f) / 4, 3.5f * (1 - 1.5f) / 4, 3.5f * 2 / 4};
    rounds_of("fednova", two, 2, 1, model);
    CHECK_CLOSE(model, expected, COUNT, 1e-6);
}

TEST(rule, scaffold_moves_the_control_variates_by_the_mean_change) {
    static const client_update updates[] = {{{2, 0, 0, 1, 1, 1}, 9, 1},
                                            {{4, 0, 2, 3, 1, -1}, 1, 1}};
    float model[2 * COUNT];
    const float expected[] = {3, 0, 1, 2, 1, 0};
    rounds_of("scaffold", updates, 2, 1, model);
    CHECK_CLOSE(model, expected, 2 * COUNT, 1e-6);
}

TEST(rule, fedavgm_keeps_a_velocity) {
    float model[2 * COUNT];
    const float expected[] = {4 + 4 * 1.9f, -1 - 1.9f, 1 + 1.9f};
    rounds_of("fedavgm", two, 2, 2, model);
    CHECK_CLOSE(model, expected, COUNT, 1e-6);
}

/* Two rounds of the same mean d: m1 = 0.1 d, m2 = 0.19 d; v by each rule's own recursion. */
TEST(rule, adaptive_rules_follow_their_second_moments) {
    const double d[] = {4, -1, 1};
    static const struct {
        const char *rule;
        double v1, v2;  // in d^2
    } cases[] = {{"fedadagrad", 1, 2}, {"fedadam", 0.01, 0.0199}, {"fedyogi", 0.01, 0.02}};
    for (size_t k = 0; k < SH_COUNT(cases); k++) {
        float model[2 * COUNT], expected[COUNT];
        for (int i = 0; i < COUNT; i++) {
            double first = 0.1 * d[i] / (sqrt(cases[k].v1) * fabs(d[i]) + 1e-3);
            double second = 0.19 * d[i] / (sqrt(cases[k].v2) * fabs(d[i]) + 1e-3);
            expected[i] = (float)(0.01 * (first + second));
        }
        rounds_of(cases[k].rule, two, 2, 2, model);
        CHECK_CLOSE(model, expected, COUNT, 1e-5);
    }
}

static const client_update five[] = {{{1, 0, 0}, 1, 1},
                                     {{2, 1, 0}, 1, 1},
                                     {{3, 2, 0.5f}, 1, 1},
                                     {{4, 3, 0}, 1, 1},
                                     {{1000, -5000, 9}, 100000, 1}};

TEST(rule, robust_rules_are_not_moved_by_one_liar) {
    float model[2 * COUNT];
    const float median[] = {3, 1, 0}, trimmed[] = {3, 1, 0.5f / 3};
    rounds_of("median", five, 5, 1, model);
    CHECK_CLOSE(model, median, COUNT, 1e-6);
    rounds_of("trimmed:0.2", five, 5, 1, model);
    CHECK_CLOSE(model, trimmed, COUNT, 1e-6);
    const float nearest[] = {2, 1, 0};  // distances: update 1 has 2 + 2.25, the least of all
    rounds_of("krum:1", five, 5, 1, model);
    CHECK_CLOSE(model, nearest, COUNT, 1e-6);
}

TEST(rule, krum_with_too_few_updates_begins_the_round_again) {
    sh_fed_options options = options_for("krum:1", 4, 1);
    sh_fed_server *server = start(&options, 4);
    sh_fed_task task;
    for (size_t c = 0; c < 4; c++) CHECK_OK(sh_fed_server_ask(server, 0, c, &task));
    for (size_t c = 0; c < 4; c++) give(server, 0, c, &five[c], COUNT);
    assert_int_equal(sh_fed_server_view(server, 0).closed, 0);
    assert_int_equal(sh_fed_server_view(server, 0).restarted, 1);
    sh_fed_server_destroy(server);
}

TEST(rule, names_are_checked_with_their_numbers) {
    sh_fed_rule_options options;
    CHECK_OK(sh_fed_rule_parse("fedbuff:25", &options));
    assert_true(options.amount == 25 && options.rule->buffered);
    CHECK_FAILS(SH_E_USAGE, "no aggregation rule 'fedavgg'",
                sh_fed_rule_parse("fedavgg", &options));
    CHECK_FAILS(SH_E_USAGE, "takes no number", sh_fed_rule_parse("median:2", &options));
    CHECK_FAILS(SH_E_USAGE, "from 0 to 0.49", sh_fed_rule_parse("trimmed:0.5", &options));
    CHECK_FAILS(SH_E_USAGE, "fedprox:x", sh_fed_rule_parse("fedprox:x", &options));
}

TEST(server, refuses_updates_that_are_not_finite_or_too_large_or_of_another_shape) {
    sh_fed_options options = options_for("fedavg", 2, 1);
    sh_fed_server *server = start(&options, 2);
    sh_fed_task task;
    for (size_t c = 0; c < 2; c++) CHECK_OK(sh_fed_server_ask(server, 0, c, &task));
    client_update bad = {{1, NAN, 1}, 5, 1};
    sh_fed_receipt receipt = give(server, 0, 0, &bad, COUNT);
    assert_int_equal(receipt.verdict, SH_FED_REFUSED);
    assert_non_null(strstr(receipt.reason, "value 1 of the update is nan"));
    bad.values[1] = 2e6f;
    assert_int_equal(give(server, 0, 0, &bad, COUNT).verdict, SH_FED_REFUSED);
    bad.values[1] = -INFINITY;
    assert_int_equal(give(server, 0, 0, &bad, COUNT).verdict, SH_FED_REFUSED);
    bad.values[1] = 1;
    assert_int_equal(give(server, 0, 0, &bad, COUNT - 1).verdict, SH_FED_REFUSED);
    bad.samples = 0;
    assert_int_equal(give(server, 0, 0, &bad, COUNT).verdict, SH_FED_REFUSED);
    bad.samples = 5;
    assert_int_equal(give(server, 0, 0, &bad, COUNT).verdict, SH_FED_COUNTED);
    assert_int_equal(give(server, 0, 0, &bad, COUNT).verdict, SH_FED_DUPLICATE);
    sh_fed_server_destroy(server);
}

TEST(server, takes_no_update_of_another_model_or_of_who_is_revoked) {
    sh_fed_options options = options_for("fedavg", 2, 1);
    sh_fed_server *server = start(&options, 2);
    sh_fed_task task;
    sh_fed_receipt receipt;
    for (size_t c = 0; c < 2; c++) CHECK_OK(sh_fed_server_ask(server, 0, c, &task));
    sh_fed_update update = {.round = 1,
                            .attempt = task.attempt,
                            .samples = 1,
                            .steps = 1,
                            .vectors = 1,
                            .count = COUNT,
                            .values = two[0].values};
    CHECK_OK(sh_fed_server_take(server, 0, 0, &update, &receipt));
    assert_int_equal(receipt.verdict, SH_FED_REFUSED);
    assert_non_null(strstr(receipt.reason, "another model"));
    memcpy(update.model, task.model, SH_FED_HASH);
    update.round = 2;
    CHECK_OK(sh_fed_server_take(server, 0, 0, &update, &receipt));
    assert_int_equal(receipt.verdict, SH_FED_REFUSED);
    update.round = 1;
    sh_fed_server_revoke(server, 0);
    CHECK_OK(sh_fed_server_take(server, 0, 0, &update, &receipt));
    assert_non_null(strstr(receipt.reason, "revoked"));
    sh_fed_server_destroy(server);
}

TEST(server, closes_at_the_deadline_with_a_quorum_and_begins_again_without) {
    sh_fed_options options = options_for("fedavg", 4, 2);
    sh_fed_server *server = start(&options, 4);
    sh_fed_task task;
    for (size_t c = 0; c < 4; c++) CHECK_OK(sh_fed_server_ask(server, 0, c, &task));
    give(server, 10, 0, &two[0], COUNT);
    CHECK_OK(sh_fed_server_tick(server, 1000));
    assert_int_equal(sh_fed_server_view(server, 1000).closed, 0);
    assert_int_equal(sh_fed_server_view(server, 1000).restarted, 1);
    for (size_t c = 0; c < 2; c++) give(server, 1100, c, &two[0], COUNT);
    CHECK_OK(sh_fed_server_tick(server, 1999));
    assert_int_equal(sh_fed_server_view(server, 1999).closed, 0);
    CHECK_OK(sh_fed_server_tick(server, 2000));
    assert_int_equal(sh_fed_server_view(server, 2000).closed, 1);
    assert_int_equal(last.counted, 2);
    sh_fed_server_destroy(server);
}

TEST(server, adds_exactly_in_any_order) {
    static const client_update odd[] = {
        {{1e-7f, 1e6f, 3}, 7, 1}, {{1e5f, -1e6f, 1e-9f}, 11, 1}, {{-1e5f, 0.1f, -3}, 13, 1}};
    const client_update turned[] = {odd[2], odd[0], odd[1]};
    float a[2 * COUNT], b[2 * COUNT];
    rounds_of("fedavg", odd, 3, 1, a);
    rounds_of("fedavg", turned, 3, 1, b);
    assert_memory_equal(a, b, COUNT * sizeof(float));
}
