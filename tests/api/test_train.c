/* shoal_train, shoal_bench and shoal_simulate: a run as a whole, on workers of every kind. */
#include "rig.h"

#include <math.h>
#include <unistd.h>

typedef struct heard {
    pid_t pid;
    int64_t last;
    int folders, warnings;
    char text[2048];
} heard;

static heard ears;

static void hear_line(void *user, shoal_log_level level, const char *text) {
    heard *h = user;
    assert_int_equal(getpid(), h->pid);  // hooks are called in the caller's process
    if (level < 2) return;
    h->warnings++;
    snprintf(h->text, sizeof h->text, "%s", text);
}

static void hear_progress(void *user, const shoal_progress *progress) {
    heard *h = user;
    assert_int_equal(getpid(), h->pid);
    h->last = progress->step;
}

static void hear_folder(void *user, const char *folder) {
    (void)folder;
    ((heard *)user)->folders++;
}

static shoal_hooks listen(void) {
    ears = (heard){.pid = getpid()};
    return (shoal_hooks){.size = sizeof(shoal_hooks),
                         .user = &ears,
                         .line = hear_line,
                         .progress = hear_progress,
                         .folder = hear_folder};
}

static const char *place(const char *name) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/tests/tmp/api-train/%s", SHOAL_BINARY, name);
    return path;
}

static float first_weight(const char *folder, int step) {
    char path[8400];
    float value = NAN;
    snprintf(path, sizeof path, "%s/checkpoints/model-%08d.safetensors", folder, step);
    FILE *file = fopen(path, "rb");
    if (file == NULL) fail_msg("no %s", path);
    assert_int_equal(fseek(file, -4, SEEK_END), 0);
    assert_int_equal(fread(&value, sizeof value, 1, file), 1);
    fclose(file);
    return value;
}

static char *train(shoal_config *config) {
    char *folder = NULL;
    shoal_hooks hooks = listen();
    SUCCEEDS(shoal_train(config, &hooks, &folder));
    shoal_config_destroy(config);
    return folder;
}

TEST(train, several_workers_have_the_result_of_one) {
    sh_test_folder("api-train");
    char *one = train(RIG_CONFIG("steps", "20", "out", place("one")));
    assert_string_equal(one, place("one"));
    assert_int_equal(ears.last, 20);
    float alone = first_weight(one, 20);
    shoal_free(one);
    char *three = train(RIG_CONFIG("steps", "20", "workers", "3", "out", place("three")));
    assert_int_equal(ears.last, 20);
    assert_int_equal(ears.folders, 1);
    float together = first_weight(three, 20);
    shoal_free(three);
    assert_true(fabsf(alone - together) < 1e-4f);
}

TEST(train, exact_workers_have_its_bits) {
    sh_test_folder("api-train");
    shoal_free(train(RIG_CONFIG("steps", "20", "exact", "true", "out", place("one"))));
    float alone = first_weight(place("one"), 20);
    shoal_free(
        train(RIG_CONFIG("steps", "20", "exact", "true", "workers", "3", "out", place("three"))));
    assert_true(alone == first_weight(place("three"), 20));
}

TEST(train, a_failure_is_told_with_its_folder) {
    sh_test_folder("api-train");
    char *folder = NULL;
    shoal_config *config =
        RIG_CONFIG("workers", "2", "optimizer.lr", "1e6", "optimizer.weight_decay", "10", "steps",
                   "50", "out", place("wild"), "restarts", "0");
    shoal_hooks hooks = listen();
    REFUSED(SHOAL_E_NUMERIC, "the loss is", shoal_train(config, &hooks, &folder));
    assert_string_equal(folder, place("wild"));
    shoal_free(folder);
    shoal_config_destroy(config);
}

TEST(train, settings_that_do_not_go_together_are_refused_before_a_folder_is_made) {
    sh_test_folder("api-train");
    char *folder = place("x") != NULL ? (char *)1 : NULL;
    shoal_config *config = RIG_CONFIG("workers", "2", "compress", "topk", "shard_optimizer", "true",
                                      "out", place("no"));
    REFUSED(SHOAL_E_USAGE, "sharded", shoal_train(config, NULL, &folder));
    assert_null(folder);
    assert_int_equal(access(place("no"), F_OK), -1);
    shoal_config_destroy(config);
}

static const char *two_ranks(void *user, const char *name) {
    (void)user;
    return strcmp(name, "OMPI_COMM_WORLD_SIZE") == 0 ? "2" : NULL;
}

TEST(train, ranks_of_a_launcher_do_not_train_on_shared_memory) {
    shoal_hooks hooks = listen();
    hooks.environment = two_ranks;
    shoal_config *config = RIG_CONFIG("transport", "shm");
    REFUSED(SHOAL_E_USAGE, "--transport shm", shoal_train(config, &hooks, NULL));
    shoal_config_destroy(config);
}

TEST(train, a_benchmark_of_several_workers_has_the_figures_of_rank_0) {
    shoal_timing timing = {0};
    shoal_config *config = RIG_CONFIG("workers", "2");
    shoal_hooks hooks = listen();
    SUCCEEDS(shoal_bench(config, &hooks, 1, 12, 1000, &timing));
    assert_int_equal(timing.steps, 12);
    assert_int_equal(timing.workers, 2);
    assert_int_equal(timing.threads, 1);
    assert_true(timing.median_ms > 0 && timing.exposed_ms >= 0);
    shoal_config_destroy(config);
    config = RIG_CONFIG("workers", "2", "sync", "local:4");
    REFUSED(SHOAL_E_USAGE, "workers do not step together",
            shoal_bench(config, &hooks, 1, 3, 1, &timing));
    rig_hint("shoal compare");
    shoal_config_destroy(config);
}

/* ---- Simulated workers ---- */

static shoal_simulation_result simulate(shoal_config *config, shoal_simulation world) {
    shoal_simulation_result result = {.size = sizeof result};
    shoal_hooks hooks = listen();
    SUCCEEDS(shoal_simulate(config, &hooks, &world, NULL, &result));
    shoal_config_destroy(config);
    return result;
}

TEST(train, simulated_workers_repeat_and_count_what_they_send) {
    sh_test_folder("api-train");
    const shoal_simulation world = {
        .size = sizeof world, .compute = "exp:10ms", .link = "1Gbit,100us"};
    shoal_simulation_result a =
        simulate(RIG_CONFIG("workers", "4", "steps", "12", "out", place("a")), world);
    shoal_simulation_result b =
        simulate(RIG_CONFIG("workers", "4", "steps", "12", "out", place("b")), world);
    assert_true(a.seconds == b.seconds && a.messages == b.messages && a.bytes == b.bytes);
    assert_true(a.seconds > 12 * 0.01 && a.messages > 0 && a.bytes > 0);
    assert_int_equal(a.steps, 12);
    assert_true(first_weight(place("a"), 12) == first_weight(place("b"), 12));
    shoal_simulation_result c =
        simulate(RIG_CONFIG("workers", "4", "steps", "12", "seed", "5", "out", place("c")), world);
    assert_true(a.seconds != c.seconds);
}

TEST(train, a_straggler_makes_every_lockstep_wait) {
    sh_test_folder("api-train");
    shoal_simulation world = {.size = sizeof world, .compute = "10ms", .timing_only = true};
    shoal_simulation_result even = simulate(RIG_CONFIG("workers", "4", "steps", "10"), world);
    world.straggler = "2:4x";
    shoal_simulation_result uneven = simulate(RIG_CONFIG("workers", "4", "steps", "10"), world);
    assert_true(fabs(uneven.seconds / even.seconds - 4) < 0.1);
    assert_true(even.compute_s > 0.009 && even.compute_s < 0.011);
}

TEST(train, a_world_that_makes_no_sense_is_refused) {
    static const shoal_simulation worlds[] = {
        {.size = sizeof(shoal_simulation), .straggler = "9:4x", .compute = "1ms"},
        {.size = sizeof(shoal_simulation), .compute = "soon"},
        {.size = sizeof(shoal_simulation), .link = "fast", .compute = "1ms"},
        {.size = sizeof(shoal_simulation), .die = "7@1s", .compute = "1ms"},
        {.size = sizeof(shoal_simulation), .jitter = "-1ms", .compute = "1ms"},
        {.size = sizeof(shoal_simulation), .pairs = "0-9:1Gbit,1ms", .compute = "1ms"},
    };
    for (size_t i = 0; i < SH_COUNT(worlds); i++) {
        shoal_config *config = RIG_CONFIG("workers", "3", "steps", "2", "out", place("no"));
        if (shoal_simulate(config, NULL, &worlds[i], NULL, NULL) != SHOAL_E_USAGE)
            fail_msg("world %zu is taken", i);
        shoal_config_destroy(config);
    }
    assert_int_equal(access(place("no"), F_OK), -1);
}
