/* Closed forms of what schemes, codecs and optimizers cost, against what the simulator counts. */
#include "sync/cost.h"

#include <math.h>
#include <string.h>

#include "harness.h"
#include "run/run.h"
#include "shoal/shoal.h"

enum { WORKERS = 4, STEPS = 24 };
static const double COMPUTE_S = 0.01;

/* A run of which only time passes; key, value, ..., NULL. */
static shoal_simulation_result simulate(const shoal_config *config) {
    const shoal_simulation world = {
        .size = sizeof world, .compute = "10ms", .link = "1Gbit,100us", .timing_only = true};
    shoal_simulation_result result = {.size = sizeof result};
    if (shoal_simulate(config, NULL, &world, NULL, &result) != SHOAL_OK)
        fail_msg("%s", shoal_error_text());
    return result;
}

static shoal_config *config_of(const char *const *settings) {
    static const char *const usual[] = {"model",     "{name: mlp, hidden: [512]}",
                                        "data",      "digits",
                                        "workers",   "4",
                                        "steps",     "24",
                                        "allreduce", "ring",
                                        "overlap",   "false",
                                        NULL};
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    for (const char *const *at = usual; *at != NULL; at += 2)
        if (shoal_config_set(config, at[0], at[1]) != SHOAL_OK) fail_msg("%s", shoal_error_text());
    for (; *settings != NULL; settings += 2)
        if (shoal_config_set(config, settings[0], settings[1]) != SHOAL_OK)
            fail_msg("%s", shoal_error_text());
    return config;
}

/* The parameters of that model: dense (512, 64) and (10, 512). */
static void add_params(sh_param_list *params) {
    CHECK_OK(sh_param_list_add(params, "fc1.weight", SH_SHAPE(512, 64), true, NULL));
    CHECK_OK(sh_param_list_add(params, "fc1.bias", SH_SHAPE(512), false, NULL));
    CHECK_OK(sh_param_list_add(params, "fc2.weight", SH_SHAPE(10, 512), true, NULL));
    CHECK_OK(sh_param_list_add(params, "fc2.bias", SH_SHAPE(10), false, NULL));
}

static sh_sync_cost cost_of(const shoal_config *config) {
    const sh_config *own = &config->config;
    sh_param_list params = {0};
    sh_codec codec;
    add_params(&params);
    CHECK_OK(sh_codec_make(&own->codec, &codec));
    codec.ranks = WORKERS;
    sh_sync_load load = {.options = &own->scheme,
                         .workers = WORKERS,
                         .params = &params,
                         .codec = &codec,
                         .link = {.alpha_s = 100e-6, .beta_s = 8e-9}};
    sh_sync_cost cost;
    CHECK_OK(sh_scheme_parse(own->scheme.name, &load.scheme));
    CHECK_OK(sh_sync_cost_of(&load, &cost));
    sh_param_list_fini(&params);
    return cost;
}

/* Bytes within `bytes_off`, seconds of communication within `seconds_off` (0: not compared), both
 * as parts: control messages come on top. */
static void check(double bytes_off, double seconds_off, const char *const *settings) {
    shoal_config *config = config_of(settings);
    shoal_simulation_result seen = simulate(config);
    sh_sync_cost cost = cost_of(config);
    double bytes = (double)seen.bytes / STEPS, seconds = seen.seconds / STEPS - COMPUTE_S;
    if (!(fabs(bytes / cost.sent_bytes - 1) < bytes_off))
        fail_msg("%s: %.0f bytes a step are counted, the form says %.0f", settings[1], bytes,
                 cost.sent_bytes);
    if (seconds_off > 0 && !(fabs(seconds / cost.seconds - 1) < seconds_off))
        fail_msg("%s: %.6f s a step are simulated, the form says %.6f", settings[1], seconds,
                 cost.seconds);
    shoal_config_destroy(config);
}
#define CHECK_COST(bytes, seconds, ...) \
    check(bytes, seconds, (const char *const[]){__VA_ARGS__, NULL})

TEST(cost, sums_of_gradients_are_as_simulated) {
    CHECK_COST(0.02, 0.2, "sync", "bsp");
    CHECK_COST(0.02, 0, "sync", "bsp", "compress", "fp16");
    CHECK_COST(0.05, 0, "sync", "bsp", "compress", "topk:1%");
    CHECK_COST(0.05, 0, "sync", "bsp", "compress", "qsgd:4");
    CHECK_COST(0.05, 0, "sync", "bsp", "compress", "powersgd:2");
}

TEST(cost, means_of_models_are_as_simulated) {
    CHECK_COST(0.02, 0.2, "sync", "local:4");
    CHECK_COST(0.02, 0.2, "sync", "local:8");
    CHECK_COST(0.02, 0.2, "sync", "diloco:6");
}

TEST(cost, gossip_is_as_simulated) {
    CHECK_COST(0.1, 0.2, "sync", "gossip");
    CHECK_COST(0.1, 0.2, "sync", "gossip", "sync.graph", "complete");
}

TEST(cost, parameter_servers_are_as_simulated) {
    // Where all meet at the end models travel once more: in 24 steps a 48th, with easgd a 6th.
    CHECK_COST(0.06, 0, "sync", "ps");
    CHECK_COST(0.06, 0, "sync", "async");
    CHECK_COST(0.06, 0, "sync", "ps", "sync.server_ranks", "own");
    CHECK_COST(0.2, 0, "sync", "easgd:4");
}

TEST(cost, one_worker_sends_nothing_and_some_schemes_have_no_form) {
    sh_param_list params = {0};
    sh_codec none;
    sh_sync_options options = {.momentum = (char *)(uintptr_t) "auto"};
    add_params(&params);
    CHECK_OK(sh_codec_parse("none", &none));
    sh_sync_load load = {.options = &options, .workers = 1, .params = &params, .codec = &none};
    sh_sync_cost cost;
    CHECK_OK(sh_scheme_parse("bsp", &load.scheme));
    CHECK_OK(sh_sync_cost_of(&load, &cost));
    assert_true(cost.sent_bytes == 0 && cost.seconds == 0);
    load.workers = 4;
    CHECK_OK(sh_scheme_parse("adacomm", &load.scheme));
    CHECK_FAILS(SH_E_UNSUPPORTED, "adacomm", sh_sync_cost_of(&load, &cost));
    sh_param_list_fini(&params);
}

TEST(cost, updates_read_and_write_weights_slots_and_gradients) {
    sh_optim optim;
    sh_optim_options options = {.name = (char *)(uintptr_t) "adam",
                                .lr = NAN,
                                .momentum = NAN,
                                .beta1 = NAN,
                                .beta2 = NAN,
                                .epsilon = NAN,
                                .weight_decay = NAN,
                                .dampening = NAN,
                                .trust = NAN,
                                .rho = NAN};
    CHECK_OK(sh_optim_init(&optim, &options, 100));
    assert_true(sh_optim_traffic_bytes(&optim, 100) == 7 * 400);
    sh_optim_fini(&optim);
}
