/* Settings that do not go together are refused before anything is opened, with a way on. */
#include "run/config.h"

#include <math.h>
#include <string.h>

#include "harness.h"

static sh_config config;

/* A run that is fine, then key, value, ..., NULL. */
static void settings(const char *const *more) {
    static const char *const fine[] = {"model", "mlp",     "data", "digits", "data.batch",
                                       "64",    "workers", "4",    NULL};
    CHECK_OK(sh_config_init(&config));
    for (const char *const *at = fine; *at != NULL; at += 2)
        CHECK_OK(sh_options_set(sh_config_table(), at[0], at[1], &config));
    for (; more != NULL && *more != NULL; more += 2)
        CHECK_OK(sh_options_set(sh_config_table(), more[0], more[1], &config));
}
#define SETTINGS(...) settings((const char *const[]){__VA_ARGS__, NULL})

static void passes(void) {
    CHECK_OK(sh_config_check(&config));
    sh_config_fini(&config);
}

static void refused(const char *text, const char *hint) {
    CHECK_FAILS(SH_E_USAGE, text, sh_config_check(&config));
    if (strstr(sh_error_last()->hint, hint) == NULL)
        fail_msg("'%s': the hint '%s' has no '%s'", text, sh_error_last()->hint, hint);
    sh_config_fini(&config);
}

TEST(config, model_and_data_must_be_given) {
    settings(NULL);
    passes();
    CHECK_OK(sh_config_init(&config));
    refused("no model is given", "--model lenet");
    CHECK_OK(sh_config_init(&config));
    CHECK_OK(sh_options_set(sh_config_table(), "model", "mlp", &config));
    refused("no data is given", "--data mnist");
}

TEST(config, a_batch_has_a_sample_for_every_worker_and_part) {
    SETTINGS("workers", "64");
    passes();
    SETTINGS("workers", "65");
    refused("a batch of 64 has no work for 65 workers", "-n 64");
    SETTINGS("accumulate", "64");
    passes();
    SETTINGS("accumulate", "65");
    refused("a batch of 64 cannot be cut into 65 parts", "--accumulate 64");
}

TEST(config, what_is_misspelt_is_refused_by_name) {
    SETTINGS("sync", "bps");
    refused("there is no scheme 'bps'", "bsp");
    SETTINGS("compress", "topkk");
    refused("there is no codec 'topkk'", "topk");
    SETTINGS("compress", "topk:0%");
    refused("topk", "fraction or percentage");
}

TEST(config, ranks_of_their_own_are_for_schemes_with_servers) {
    SETTINGS("sync", "async", "sync.server_ranks", "own");
    passes();
    SETTINGS("sync", "gossip", "sync.server_ranks", "own");
    refused("has no parameter servers", "--sync ps");
}

TEST(config, exact_runs_go_with_what_does_not_tie_bits_to_workers) {
    SETTINGS("exact", "true");
    passes();
    SETTINGS("exact", "true", "sync", "ps");
    passes();
    static const char *const ties[][2] = {{"compress", "fp16"},
                                          {"shard_optimizer", "true"},
                                          {"balance", "true"},
                                          {"sync_batchnorm", "true"}};
    for (size_t i = 0; i < SH_COUNT(ties); i++) {
        SETTINGS("exact", "true", ties[i][0], ties[i][1]);
        if (sh_config_check(&config) != SH_E_USAGE)
            fail_msg("--exact goes with %s: %s", ties[i][0], ties[i][1]);
        sh_config_fini(&config);
    }
}

TEST(config, a_sharded_optimizer_and_a_codec_exclude_each_other) {
    SETTINGS("shard_optimizer", "true");
    passes();
    SETTINGS("shard_optimizer", "true", "compress", "topk");
    refused("a sharded optimizer sums only its part", "--compress");
}

TEST(config, elastic_runs_and_data_in_parts_exclude_each_other) {
    SETTINGS("elastic", "true");
    passes();
    SETTINGS("elastic", "true", "data", "part-%r.csv");
    refused("has a part for each", "leave elastic out");
    SETTINGS("elastic", "true", "data", "part-%r.csv", "workers", "1");
    passes();
}

TEST(config, synchronised_batchnorm_needs_the_whole_batch_at_once) {
    SETTINGS("sync_batchnorm", "true");
    passes();
    SETTINGS("sync_batchnorm", "true", "accumulate", "2");
    refused("needs a whole batch at once", "more workers");
}

TEST(config, an_empty_name_is_no_folder) {
    SETTINGS("out", "");
    refused("--out '' names no folder", "runs/NAME");
    SETTINGS("out", "somewhere");
    passes();
}

/* ---- Copies ---- */

TEST(config, a_copy_has_texts_and_trees_of_its_own) {
    SETTINGS("out", "here", "model", "{name: mlp, hidden: [7]}", "schedule.milestones", "[1, 2]");
    sh_config copy;
    CHECK_OK(sh_config_copy(&config, &copy));
    assert_string_equal(copy.out, "here");
    assert_ptr_not_equal(copy.out, config.out);
    assert_ptr_not_equal(copy.model, config.model);
    CHECK_OK(sh_options_set(sh_config_table(), "out", "there", &config));
    assert_string_equal(copy.out, "here");
    sh_config_fini(&config);
    assert_int_equal(copy.schedule.milestones.count, 2);
    assert_int_equal(copy.schedule.milestones.items[1], 2);
    CHECK_OK(sh_config_check(&copy));
    sh_config_fini(&copy);
}

TEST(config, every_option_has_a_help_and_a_group_and_takes_its_default) {
    CHECK_OK(sh_config_init(&config));
    for (size_t i = 0; i < sh_config_table().count; i++) {
        const sh_option *row = &sh_config_table().rows[i];
        if (row->help == NULL || row->help[0] == '\0' || row->group == NULL)
            fail_msg("'%s' is not described", row->key);
        for (size_t other = 0; other < i; other++)
            if (strcmp(row->key, sh_config_table().rows[other].key) == 0)
                fail_msg("'%s' twice", row->key);
        if (row->initial == NULL || strcmp(row->initial, "nan") == 0) continue;
        CHECK_OK(sh_options_set(sh_config_table(), row->key, row->initial, &config));
    }
    sh_config_fini(&config);
}
