/* Parameter servers with processes of their own, and sparse steps: the results of the plain way. */
#include <math.h>
#include <unistd.h>

#include "api/rig.h"

static char said[1 << 14];

static void hear_line(void *user, shoal_log_level level, const char *text) {
    (void)user, (void)level;
    strncat(said, text, sizeof said - strlen(said) - 2);
    strcat(said, "\n");
}

static const char *place(const char *name) {
    static char paths[2][4200];
    static int at;
    at = !at;
    snprintf(paths[at], sizeof paths[at], "%s/tests/tmp/servers/%s", SHOAL_BINARY, name);
    return paths[at];
}

static shoal_status train(const char *name, const char *const *more) {
    shoal_hooks hooks = {.size = sizeof hooks, .line = hear_line};
    shoal_config *config = RIG_CONFIG("data.batch", "60", "steps", "20", "workers", "2",
                                      "optimizer.lr", "0.05", "out", place(name));
    for (; *more != NULL; more += 2) SUCCEEDS(shoal_config_set(config, more[0], more[1]));
    said[0] = '\0';
    shoal_status status = shoal_train(config, &hooks, NULL);
    shoal_config_destroy(config);
    return status;
}
#define TRAIN(name, ...) SUCCEEDS(train(name, (const char *const[]){__VA_ARGS__, NULL}))

static void expect_same_model(const char *a, const char *b) {
    char command[9000];
    snprintf(command, sizeof command,
             "cmp '%s/checkpoints/model-00000020.safetensors' "
             "'%s/checkpoints/model-00000020.safetensors'",
             place(a), place(b));
    assert_int_equal(system(command), 0);
}

TEST(servers, their_place_and_number_change_no_bit) {
    sh_test_folder("servers");
    TRAIN("shared", "sync", "ps", "sync.servers", "2", "optimizer", "momentum");
    TRAIN("own", "sync", "ps", "sync.servers", "2", "optimizer", "momentum", "sync.server_ranks",
          "own");
    expect_same_model("shared", "own");
    TRAIN("one", "exact", "true", "workers", "1");
    TRAIN("exact", "exact", "true", "sync", "ps", "sync.servers", "3", "sync.server_ranks", "own");
    expect_same_model("one", "exact");
}

TEST(servers, of_their_own_take_up_the_state_of_a_checkpoint) {
    sh_test_folder("servers");
    TRAIN("whole", "sync", "ps", "optimizer", "adam");
    TRAIN("half", "sync", "ps", "optimizer", "adam", "steps", "10", "sync.server_ranks", "own",
          "sync.servers", "1");
    TRAIN("half", "sync", "ps", "optimizer", "adam", "resume", place("half"), "sync.server_ranks",
          "own", "sync.servers", "1");
    expect_same_model("whole", "half");
}

TEST(servers, serve_one_worker_too_and_end_with_it) {
    sh_test_folder("servers");
    TRAIN("alone", "sync", "async", "sync.server_ranks", "own", "workers", "1");
    assert_int_equal(access(place("alone/checkpoints/manifest-00000020.json"), R_OK), 0);
}

TEST(servers, a_failure_of_a_worker_ends_them) {
    sh_test_folder("servers");
    REFUSED(SHOAL_E_NUMERIC, "the loss is",
            train("wild", (const char *const[]){"sync", "async", "sync.server_ranks", "own",
                                                "optimizer.lr", "1e6", "optimizer.weight_decay",
                                                "10", "restarts", "0", NULL}));
}

/* ---- Sparse steps ---- */

#define SPARSE "synthetic:features=300,nonzeros=6,count=2000"

static double last_loss(const char *name) {
    char path[4300];
    snprintf(path, sizeof path, "%s/metrics.jsonl", place(name));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const char *text = rig_read(file), *at = text, *last = NULL;
    while ((at = strstr(at, "\"train_loss\":")) != NULL) last = at += strlen("\"train_loss\":");
    assert_non_null(last);
    return strtod(last, NULL);
}

TEST(sparse, steps_touch_few_features_and_have_the_loss_of_dense_ones) {
    sh_test_folder("servers");
    TRAIN("sparse", "model", "logistic", "data", SPARSE, "workers", "1", "data.batch", "16",
          "optimizer.lr", "1");
    rig_has(said, "sparse steps: 6.0 of 300 features");
    // Clipping needs whole gradients; this one clips nothing.
    TRAIN("dense", "model", "logistic", "data", SPARSE, "workers", "1", "data.batch", "16",
          "optimizer.lr", "1", "clip.value", "1e6");
    assert_null(strstr(said, "sparse steps"));
    assert_true(fabs(last_loss("sparse") - last_loss("dense")) < 1e-5);
}

TEST(sparse, steps_are_for_plain_sgd_on_one_dense_layer) {
    static const char *const others[][2] = {{"optimizer", "adam"},
                                            {"optimizer.weight_decay", "0.1"},
                                            {"model", "{name: mlp, hidden: [4]}"},
                                            {"accumulate", "2"}};
    for (size_t i = 0; i < SH_COUNT(others); i++) {
        sh_test_folder("servers");
        TRAIN("other", "model", "logistic", "data", SPARSE, "workers", "1", "data.batch", "16",
              others[i][0], others[i][1]);
        if (strstr(said, "sparse steps") != NULL) fail_msg("%s steps sparsely", others[i][1]);
    }
}

TEST(sparse, hogwild_workers_step_sparsely_together) {
    sh_test_folder("servers");
    TRAIN("hogwild", "model", "logistic", "data", SPARSE, "sync", "hogwild", "data.batch", "16",
          "optimizer.lr", "1", "steps", "200");
    rig_has(said, "sparse steps: 6.0 of 300 features");
    assert_true(last_loss("hogwild") < 0.69);  // guessing has ln 2
}
