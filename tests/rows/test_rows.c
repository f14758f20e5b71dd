/* A scheme, a codec and an optimizer from this folder, one file and one row each, with options and
 * states of their own: options, help, run files, checkpoints and training know them like any. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "harness.h"
#include "rows/rows.h"
#include "shoal/tools.h"

const sh_codec_kind *const sh_codec_more[] = {&row_signum, NULL};
const sh_optim_kind *const sh_optim_more[] = {&row_lion, NULL};
const sh_sync_kind *const sh_sync_more[] = {&row_drift, NULL};

#define SUCCEEDS(call)                                                         \
    do {                                                                       \
        if ((call) != SHOAL_OK) fail_msg("%s: %s", #call, shoal_error_text()); \
    } while (0)

/* A run of two simulated workers; key, value, ..., NULL. Destroy it. */
static shoal_config *config_of(const char *const *settings) {
    static const char *const usual[] = {"model",      "{name: mlp, hidden: [8]}",
                                        "data",       "digits",
                                        "workers",    "2",
                                        "seed",       "3",
                                        "data.batch", "32",
                                        NULL};
    shoal_config *config = NULL;
    SUCCEEDS(shoal_config_create(&config));
    for (const char *const *at = usual; *at != NULL; at += 2)
        SUCCEEDS(shoal_config_set(config, at[0], at[1]));
    for (; *settings != NULL; settings += 2)
        SUCCEEDS(shoal_config_set(config, settings[0], settings[1]));
    return config;
}
#define CONFIG(...) config_of((const char *const[]){__VA_ARGS__, NULL})

static void note(void *user, const shoal_progress *progress) {
    double *losses = user;
    if (progress->step == 1) losses[0] = progress->train_loss;
    losses[1] = progress->train_loss;
}

/* Trains and destroys the config; losses of the first and the last step. */
static void train(shoal_config *config, double losses[2]) {
    const shoal_simulation world = {.size = sizeof world, .compute = "1ms"};
    const shoal_hooks hooks = {.size = sizeof hooks, .user = losses, .progress = note};
    SUCCEEDS(shoal_simulate(config, &hooks, &world, NULL, NULL));
    shoal_config_destroy(config);
}

static const char *place(const char *name) {
    static char paths[8][4200];
    static int next;
    char *path = paths[next++ % 8];
    snprintf(path, 4200, "%s/tests/tmp/rows/%s", SHOAL_BINARY, name);
    return path;
}

static void check_same_file(const char *a, const char *b) {
    sh_mapped x, y;
    CHECK_OK(sh_file_map(a, &x));
    CHECK_OK(sh_file_map(b, &y));
    assert_int_equal(x.bytes, y.bytes);
    assert_memory_equal(x.data, y.data, x.bytes);
    sh_file_unmap(&x);
    sh_file_unmap(&y);
}

/* Stopped half-way and resumed, a run ends with the bits of one that was not: options and states
 * have been in run file and checkpoint. Half of the way the option has another value than usual. */
static void check_row(const char *name, const char *key, const char *value, const char *option,
                      const char *option_value, const char *lr) {
    double losses[2], resumed[2], plain[2];
    sh_test_folder("rows");
    train(CONFIG(key, value, option, option_value, "optimizer.lr", lr, "steps", "60",
                 "checkpoint.every", "30", "out", place("whole")),
          losses);
    if (!(losses[1] < 0.8 * losses[0])) fail_msg("%s: loss %g to %g", name, losses[0], losses[1]);
    train(CONFIG(key, value, "optimizer.lr", lr, "steps", "60", "checkpoint.every", "30", "out",
                 place("plain")),
          plain);
    if (plain[1] == losses[1]) fail_msg("%s: %s has no effect", name, option);

    char manifest[4200];
    snprintf(manifest, sizeof manifest, "%s/checkpoints/manifest-00000030.json", place("whole"));
    shoal_config *again = NULL;
    SUCCEEDS(shoal_config_create(&again));
    SUCCEEDS(shoal_config_read(again, place("whole/run.yaml")));
    SUCCEEDS(shoal_config_set(again, "resume", manifest));
    SUCCEEDS(shoal_config_set(again, "out", place("resumed")));
    train(again, resumed);
    check_same_file(place("whole/checkpoints/model-00000060.safetensors"),
                    place("resumed/checkpoints/model-00000060.safetensors"));
}

TEST(rows, a_scheme_of_ones_own_trains_and_resumes) {
    check_row("drift", "sync", "drift:2", "sync.drift_pull", "0.75", "0.1");
}

TEST(rows, a_codec_of_ones_own_trains_and_resumes) {
    check_row("signum", "compress", "signum", "compress.signum_beta", "0.25", "0.05");
}

TEST(rows, an_optimizer_of_ones_own_trains_and_resumes) {
    check_row("lion", "optimizer", "lion", "optimizer.lion_mix", "0.5", "0.01");
}

static void find_name(void *user, const char *name, const char *help) {
    (void)help;
    const char **wanted = user;
    if (*wanted != NULL && strcmp(name, *wanted) == 0) *wanted = NULL;
}

TEST(rows, lists_show_them) {
    const char *scheme = "drift", *codec = "signum", *optim = "lion";
    SUCCEEDS(shoal_list("sync", find_name, &scheme));
    SUCCEEDS(shoal_list("codecs", find_name, &codec));
    SUCCEEDS(shoal_list("optimizers", find_name, &optim));
    assert_true(scheme == NULL && codec == NULL && optim == NULL);
}

/* An option without effect would be believed to have one. */
static void check_refused(const char *option, const char *value, const char *flag) {
    const shoal_simulation world = {.size = sizeof world, .compute = "1ms"};
    shoal_config *config = CONFIG(option, value, "steps", "2", "out", place("refused"));
    assert_int_equal(shoal_simulate(config, NULL, &world, NULL, NULL), SHOAL_E_USAGE);
    if (strstr(shoal_error_text(), flag) == NULL) fail_msg("%s", shoal_error_text());
    shoal_config_destroy(config);
}

TEST(rows, options_of_one_row_are_refused_with_another) {
    sh_test_folder("rows");
    check_refused("sync.drift_pull", "0.25", "--drift_pull");
    check_refused("compress.signum_beta", "0.25", "--signum_beta");
    check_refused("optimizer.lion_mix", "0.25", "--lion_mix");
}

TEST(rows, options_of_a_row_are_checked_like_any) {
    shoal_config *config = NULL;
    SUCCEEDS(shoal_config_create(&config));
    assert_int_equal(shoal_config_set(config, "sync.drift_pull", "2"), SHOAL_E_USAGE);
    assert_int_equal(shoal_config_set(config, "optimizer.lion_mix", "x"), SHOAL_E_USAGE);
    char *argv[] = {"--signum-beta", "0.75", NULL};
    int index = 0;
    SUCCEEDS(shoal_config_flag(config, 2, argv, &index));
    assert_int_equal(index, 2);
    char *text = shoal_config_print(config);
    if (strstr(text, "signum_beta: 0.75") == NULL) fail_msg("%s", text);
    shoal_free(text);
    shoal_config_destroy(config);
}
