/* Real training in rounds: what federated averaging is equal to, and that every rule learns. */
#include "harness.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "fed/local.h"
#include "shoal/tools.h"

static shoal_config *config_of(const char *out) {
    static const char *const settings[][2] = {{"model", "{name: mlp, hidden: [16]}"},
                                              {"data", "digits"},
                                              {"optimizer", "sgd"},
                                              {"optimizer.lr", "0.1"},
                                              {"data.batch", "32"},
                                              {"threads", "1"},
                                              {"kernels", "default"},
                                              {"overwrite", "true"}};
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    for (size_t i = 0; i < SH_COUNT(settings); i++)
        CHECK_OK((sh_status)shoal_config_set(config, settings[i][0], settings[i][1]));
    CHECK_OK((sh_status)shoal_config_set(config, "out", sh_test_folder(out)));
    return config;
}

static void weights_of(const shoal_config *config, const char *folder, float **weights_out,
                       size_t *count_out) {
    static float memory[2][1 << 14];
    static int next;
    shoal_run *run = NULL;
    CHECK_OK((sh_status)shoal_run_open(config, NULL, &run));
    CHECK_OK((sh_status)shoal_run_load(run, folder));
    *count_out = run->model.net->params.total;
    *weights_out = memory[next++ % 2];
    assert_true(*count_out <= SH_COUNT(memory[0]));
    memcpy(*weights_out, run->model.blocks.weights, *count_out * sizeof(float));
    shoal_run_close(run);
}

/* "Do one step of gradient descent and average": the mean over clients, weighted by samples, of
 * gradients over all their samples is the gradient over the union. */
TEST(federated, averaging_of_one_full_local_step_is_a_step_on_the_union_of_the_data) {
    shoal_fed_options options = {.clients = 7, .rounds = 3, .partition = "dirichlet:0.5"};
    shoal_fed_result result;
    char *together = NULL, *alone = NULL;
    float *a, *b;
    size_t count;
    shoal_config *config = config_of("fed-union");
    CHECK_OK((sh_status)shoal_config_set(config, "data.batch", "1500"));
    CHECK_OK((sh_status)shoal_fed_simulate(config, NULL, &options, &together, &result));
    assert_int_equal(result.updates, 21);
    assert_int_equal(result.restarted, 0);
    weights_of(config, together, &a, &count);
    CHECK_OK((sh_status)shoal_config_set(config, "out", sh_test_folder("fed-union-alone")));
    CHECK_OK((sh_status)shoal_config_set(config, "epochs", "3"));
    CHECK_OK((sh_status)shoal_train(config, NULL, &alone));
    weights_of(config, alone, &b, &count);
    CHECK_CLOSE(a, b, count, 2e-6);
    shoal_free(together);
    shoal_free(alone);
    shoal_config_destroy(config);
}

/* The same with secure aggregation, to the quantisation step: 2 of them a round and value, of which
 * a mean of clients that count alike has no more. */
TEST(federated, secure_sums_give_the_model_of_plain_ones_to_the_quantisation_step) {
    shoal_fed_options options = {.clients = 8, .rounds = 1, .equal_weights = true};
    char *plain = NULL, *secure = NULL;
    float *a, *b;
    size_t count;
    shoal_config *config = config_of("fed-plain");
    CHECK_OK((sh_status)shoal_fed_simulate(config, NULL, &options, &plain, NULL));
    weights_of(config, plain, &a, &count);
    options.secure = true;
    CHECK_OK((sh_status)shoal_config_set(config, "out", sh_test_folder("fed-secure")));
    CHECK_OK((sh_status)shoal_fed_simulate(config, NULL, &options, &secure, NULL));
    weights_of(config, secure, &b, &count);
    double most = 0;
    for (size_t i = 0; i < count; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
    assert_true(most > 0 && most < 1.0 / ((1 << 19) - 1) + 1e-7);
    shoal_free(plain);
    shoal_free(secure);
    shoal_config_destroy(config);
}

static shoal_fed_result simulate(const shoal_fed_options *options) {
    shoal_fed_result result;
    char *folder = NULL;
    shoal_config *config = config_of("fed-rules");
    CHECK_OK((sh_status)shoal_fed_simulate(config, NULL, options, &folder, &result));
    shoal_free(folder);
    shoal_config_destroy(config);
    return result;
}

TEST(federated, rules_learn_on_unevenly_dealt_digits) {
    static const char *const rules[] = {"fedavg",  "fedprox:0.1", "fednova",  "scaffold",
                                        "fedavgm", "fedadam",     "fedyogi",  "fedadagrad",
                                        "median",  "trimmed:0.2", "fedbuff:4"};
    for (size_t i = 0; i < SH_COUNT(rules); i++) {
        shoal_fed_options options = {.clients = 8,
                                     .rounds = 25,
                                     .rule = rules[i],
                                     .partition = "dirichlet:1",
                                     .local_epochs = 2};
        if (strcmp(rules[i], "fedavgm") == 0) options.server_lr = 0.3;
        if (strcmp(rules[i], "fedadagrad") == 0) options.server_lr = 0.1;
        if (strcmp(rules[i], "fedadam") == 0 || strcmp(rules[i], "fedyogi") == 0)
            options.server_lr = 0.03;
        shoal_fed_result result = simulate(&options);
        if (!(result.test_accuracy > 0.85))
            fail_msg("%s reaches %g", rules[i], result.test_accuracy);
    }
}

TEST(federated, the_same_seed_gives_the_same_bits_and_dropouts_leave_rounds_with_fewer) {
    shoal_fed_options options = {
        .clients = 10, .rounds = 8, .dropout = 0.4, .fraction = 0.6, .over = 1.5, .held_out = 0.2};
    shoal_fed_result a = simulate(&options), b = simulate(&options);
    assert_true(a.test_loss == b.test_loss && a.updates == b.updates);
    assert_int_equal(a.rounds, 8);
    assert_true(a.updates < 8 * 6);
}

TEST(federated, secure_rounds_go_on_where_clients_drop_out_at_any_step) {
    shoal_fed_options options = {.clients = 12, .rounds = 15, .secure = true, .dropout = 0.3};
    shoal_fed_result result = simulate(&options);
    assert_int_equal(result.rounds, 15);
    assert_true(result.updates < 15 * 12 && result.updates > 15 * 6);
    assert_true(result.test_accuracy > 0.8);
}

/* Two classes a client: who trains the shared model on its own few classes knows these better. */
TEST(federated, personal_models_know_their_own_data_better) {
    static const char *const ways[] = {"finetune", "head"};
    for (int i = 0; i < 2; i++) {
        shoal_fed_options options = {.clients = 10,
                                     .rounds = 6,
                                     .partition = "shards:2",
                                     .held_out = 0.3,
                                     .local_epochs = 2,
                                     .personalise = ways[i]};
        shoal_fed_result result = simulate(&options);
        assert_true(result.shared_accuracy > 0.1);
        assert_true(result.personal_accuracy > result.shared_accuracy + 0.05);
    }
}

TEST(federated, options_that_cannot_be_are_refused_by_name) {
    shoal_config *config = config_of("fed-refused");
    shoal_fed_options many = {.clients = 3, .clients_min = 4}, rule = {.rule = "fedavgx"},
                      part = {.fraction = 2}, robust = {.rule = "median", .secure = true};
    CHECK_FAILS(SH_E_USAGE, "every update by itself",
                (sh_status)shoal_fed_simulate(config, NULL, &robust, NULL, NULL));
    CHECK_FAILS(SH_E_USAGE, "at least 4",
                (sh_status)shoal_fed_simulate(config, NULL, &many, NULL, NULL));
    CHECK_FAILS(SH_E_USAGE, "fedavgx",
                (sh_status)shoal_fed_simulate(config, NULL, &rule, NULL, NULL));
    CHECK_FAILS(SH_E_USAGE, "fraction is 2",
                (sh_status)shoal_fed_simulate(config, NULL, &part, NULL, NULL));
    CHECK_OK((sh_status)shoal_config_set(config, "workers", "2"));
    CHECK_FAILS(SH_E_USAGE, "several workers",
                (sh_status)shoal_fed_simulate(config, NULL, &(shoal_fed_options){0}, NULL, NULL));
    shoal_config_destroy(config);
}
