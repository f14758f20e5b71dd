/* Exact runs: the same bits with any number of threads, and nothing undefined on the way. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "data/files.h"
#include "harness.h"
#include "run/exact.h"

/* 8x8 digits through convolutions, batchnorm, a dropped branch and dropout. */
#define NET                                                                                  \
    "[{conv: 8, padding: 1}, batchnorm, relu, {conv: 8, padding: 1, name: c}, "              \
    "{batchnorm: , name: b}, {droppath: 0.3, name: d}, {name: j, add: , from: [d, relu1]}, " \
    "relu, maxpool, flatten, {dropout: 0.2}, {dense: 20}, relu, dense]"

typedef struct settings {
    const char *model, *optimizer, *more[8];  // more: key, value, ...
    const char *threads, *folder, *steps;
} settings;

static void set(shoal_config *config, const char *key, const char *value) {
    if (value == NULL) return;
    if (shoal_config_set(config, key, value) != SHOAL_OK)
        fail_msg("%s: %s", key, shoal_error_text());
}

/* 1,500 samples in batches of 107: a short shard in every batch, and 2 samples in the last one. */
static shoal_run *open_run(const settings *s) {
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    set(config, "exact", "true");
    set(config, "model", s->model != NULL ? s->model : NET);
    set(config, "data", "digits");
    set(config, "data.batch", "107");
    set(config, "optimizer", s->optimizer);
    set(config, "checkpoint.every", "1000");  // the last step is saved anyway
    set(config, "threads", s->threads);
    set(config, "out", s->folder);
    set(config, "steps", s->steps);
    for (size_t i = 0; i < SH_COUNT(s->more) && s->more[i] != NULL; i += 2)
        set(config, s->more[i], s->more[i + 1]);
    shoal_run *run = NULL;
    if (shoal_run_open(config, NULL, &run) != SHOAL_OK) fail_msg("%s", shoal_error_text());
    shoal_config_destroy(config);
    return run;
}

static void train(const settings *s) {
    shoal_run *run = open_run(s);
    if (shoal_run_train(run) != SHOAL_OK) fail_msg("%s", shoal_error_text());
    shoal_run_close(run);
}

static void check_same_file(const char *a, const char *b, const char *name) {
    char path[2][4300];
    sh_mapped file[2];
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "%s/checkpoints/%s", i ? b : a, name);
        CHECK_OK(sh_file_map(path[i], &file[i]));
    }
    if (file[0].bytes != file[1].bytes || memcmp(file[0].data, file[1].data, file[0].bytes) != 0)
        fail_msg("%s and %s differ", path[0], path[1]);
    for (int i = 0; i < 2; i++) sh_file_unmap(&file[i]);
}

/* The manifest holds the score and the position too. */
static void check_same_end(const char *a, const char *b) {
    check_same_file(a, b, "model-00000033.safetensors");
    check_same_file(a, b, "optimizer-00000033.safetensors");
    check_same_file(a, b, "manifest-00000033.json");
}

/* The thread sanitizer takes thirty times as long: one optimizer shows it all that threads share.
 */
#ifdef __SANITIZE_THREAD__
static const char *const thread_counts[] = {"1", "3"};
#define SLOW() skip()
#else
static const char *const thread_counts[] = {"1", "2", "3", "8"};
#define SLOW() (void)0
#endif

/* Trains 33 steps, over two ends of epochs, with each thread count; and once in two parts. */
static void check_threads(const char *name, settings s) {
    char folders[SH_COUNT(thread_counts)][4200];
    s.steps = "33";
    for (size_t i = 0; i < SH_COUNT(thread_counts); i++) {
        char label[64];
        snprintf(label, sizeof label, "exact-%s-%s", name, thread_counts[i]);
        snprintf(folders[i], sizeof folders[i], "%s", sh_test_folder(label));
        s.threads = thread_counts[i];
        s.folder = folders[i];
        train(&s);
        if (i > 0) check_same_end(folders[0], folders[i]);
    }
    char parts[4200];
    snprintf(parts, sizeof parts, "%s", sh_test_folder("exact-parts"));
    s.folder = parts;
    s.steps = "19";
    train(&s);  // with 8 threads
    s.steps = "33";
    s.threads = "3";
    size_t last = 0;
    while (s.more[last] != NULL) last += 2;
    s.more[last] = "resume";
    s.more[last + 1] = "auto";
    train(&s);
    check_same_end(folders[0], parts);
}

TEST(exact, sgd_with_momentum_has_the_same_bits_at_any_thread_count) {
    SLOW();
    check_threads("sgd", (settings){.optimizer = "sgd", .more = {"optimizer.momentum", "0.9"}});
}

TEST(exact, adamw_has_the_same_bits_at_any_thread_count) {
    check_threads("adamw", (settings){.optimizer = "adamw", .more = {"shards", "7"}});
}

TEST(exact, lamb_with_clipping_has_the_same_bits_at_any_thread_count) {
    SLOW();
    check_threads("lamb", (settings){.optimizer = "lamb", .more = {"clip.norm", "0.5"}});
}

TEST(exact, lars_with_parts_has_the_same_bits_at_any_thread_count) {
    SLOW();
    check_threads(
        "lars", (settings){.optimizer = "lars", .more = {"accumulate", "3", "clip.value", "0.01"}});
}

TEST(exact, wide_layers_are_cut_without_changing_bits) {
    check_threads("wide", (settings){.model = "{name: mlp, hidden: [700]}",
                                     .optimizer = "adam",
                                     .more = {"data.batch", "500", "loss.ignore", "3"}});
}

/* Weights after some steps on the same batches. */
static float *weights_after(const settings *s, const char *exact, int64_t *count_out) {
    settings with = *s;
    with.folder = sh_test_folder("exact-close");
    size_t last = 0;
    while (with.more[last] != NULL) last += 2;
    with.more[last] = "exact";
    with.more[last + 1] = exact;
    shoal_run *run = open_run(&with);
    if (shoal_run_train(run) != SHOAL_OK) fail_msg("%s", shoal_error_text());
    size_t total = run->model.net->params.total;
    float *weights = malloc(total * sizeof *weights);
    memcpy(weights, run->model.blocks.weights, total * sizeof *weights);
    shoal_run_close(run);
    *count_out = (int64_t)total;
    return weights;
}

static void check_close(settings s) {
    int64_t count, same;
    s.threads = "2";
    s.steps = "16";  // the last batch and one more
    float *exact = weights_after(&s, "true", &count);
    float *plain = weights_after(&s, "false", &same);
    assert_int_equal(count, same);
    CHECK_CLOSE(exact, plain, (size_t)count, 2e-4);
    assert_memory_not_equal(exact, plain, (size_t)count * sizeof *exact);  // it was another way
    free(exact);
    free(plain);
}

/* Without batchnorm, whose statistics are a shard's own, and without dropped paths, which each
 * shard drops for itself, only rounding tells the two apart. */
TEST(exact, means_what_a_plain_run_means) {
    const char *net =
        "[{conv: 8, padding: 1}, relu, {conv: 8, padding: 1, name: c}, {droppath: 0, name: d}, "
        "{name: j, add: , from: [d, relu1]}, relu, maxpool, flatten, {dropout: 0.2}, dense]";
    check_close(
        (settings){.model = net,
                   .optimizer = "sgd",
                   .more = {"optimizer.momentum", "0.9", "optimizer.weight_decay", "0.05"}});
    check_close((settings){.model = net,
                           .optimizer = "sgd",
                           .more = {"accumulate", "5", "loss.ignore", "7", "clip.norm", "0.3"}});
}

/* One step with batchnorm: the running statistics are the mean of the shards'. */
TEST(exact, running_statistics_are_the_mean_over_shards) {
    settings s = {.model = "[flatten, batchnorm, dense]",
                  .optimizer = "sgd",
                  .threads = "2",
                  .steps = "1",
                  .folder = sh_test_folder("exact-states")};
    shoal_run *run = open_run(&s);
    assert_int_equal(shoal_run_train(run), SHOAL_OK);
    const sh_param_list *states = &run->model.net->states;
    assert_int_equal(states->count, 2);
    run->at.epoch = run->at.batch = 0;
    sh_loader *loader = NULL;
    CHECK_OK(sh_run_loader(run, 1, &loader));
    const sh_batch *batch;
    CHECK_OK(sh_loader_next(loader, &batch));
    float want[2][64];
    for (int f = 0; f < 64; f++) {
        double mean_of = 0, variance_of = 0;  // weighted by the shards' samples
        for (int shard = 0; shard < 8; shard++) {
            int first = 107 * shard / 8, last = 107 * (shard + 1) / 8, n = last - first;
            double mean = 0, squares = 0;
            for (int i = first; i < last; i++) mean += ((float *)batch->x)[i * 64 + f] / (double)n;
            for (int i = first; i < last; i++)
                squares += pow(((float *)batch->x)[i * 64 + f] - mean, 2);
            mean_of += 0.1 * mean * n / 107;
            variance_of += (0.9 + 0.1 * squares / (n - 1)) * n / 107;
        }
        want[0][f] = (float)mean_of;
        want[1][f] = (float)variance_of;
    }
    for (int i = 0; i < 2; i++)
        CHECK_CLOSE(run->model.blocks.states + states->items[i].offset, want[i], 64, 1e-6);
    sh_loader_release(loader, batch);
    sh_loader_destroy(loader);
    shoal_run_close(run);
}

TEST(exact, shards_fix_the_bits) {
    int64_t count;
    settings s = {.optimizer = "sgd", .threads = "2", .steps = "3"};
    float *eight = weights_after(&s, "true", &count);
    s.more[0] = "shards";
    s.more[1] = "4";
    float *four = weights_after(&s, "true", &count);
    assert_memory_not_equal(eight, four, (size_t)count * sizeof *four);
    free(eight);
    free(four);
}

TEST(exact, a_loss_that_is_not_finite_is_explained_alike) {
    char text[512] = "";
    for (size_t i = 0; i < SH_COUNT(thread_counts); i++) {
        settings s = {.model = "[flatten, {dense: 30}, relu, dense]",
                      .optimizer = "sgd",
                      .threads = thread_counts[i],
                      .steps = "60",
                      .folder = sh_test_folder("exact-nan"),
                      .more = {"optimizer.lr", "1e6"}};
        shoal_run *run = open_run(&s);
        assert_int_equal(shoal_run_train(run), SHOAL_E_NUMERIC);
        assert_non_null(strstr(shoal_error_text(), "first in layer"));
        if (i > 0) assert_string_equal(text, shoal_error_text());
        snprintf(text, sizeof text, "%s", shoal_error_text());
        shoal_run_close(run);
    }
}

/* Eight samples whose gradients are 3e38 each, behind a loss of 1/4: four of them in one shard
 * are more than a float holds. Apart, their mean is exact. */
TEST(exact, a_gradient_that_is_not_finite_is_named) {
    use_folder("exact-inf");
    char text[512] = "a,y\n", *file;
    for (int i = 0; i < 8; i++) strcat(text, "3e38,0.5\n");
    file = put_text("huge.csv", text);
    for (int shards = 2; shards <= 8; shards += 6) {
        settings s = {.model = "[{dense: 1, init: normal, std: 0}]",
                      .optimizer = "sgd",
                      .threads = "2",
                      .steps = "1",
                      .folder = test_path(shards == 2 ? "two" : "eight"),
                      .more = {"data", file, "data.normalise", "none", "data.batch", "8", "shards",
                               shards == 2 ? "2" : "8"}};
        shoal_run *run = open_run(&s);
        run->config.optim.lr = 0;
        shoal_status status = shoal_run_train(run);
        if (shards == 2) {
            assert_int_equal(status, SHOAL_E_NUMERIC);
            assert_non_null(strstr(shoal_error_text(), "the gradient of 'dense1.weight'"));
        } else {
            if (status != SHOAL_OK) fail_msg("%s", shoal_error_text());
            assert_true(run->model.blocks.gradients[0] == -3e38f);
        }
        shoal_run_close(run);
    }
}

/* Worker r has the shards [V r / P, V (r + 1) / P): together all samples, once. */
TEST(exact, workers_share_out_whole_shards) {
    for (int64_t count = 0; count < 60; count += 7)
        for (int ranks = 1; ranks <= 9; ranks++) {
            int64_t next = 0;
            for (int rank = 0; rank < ranks; rank++) {
                sh_batch_share share = sh_exact_share(8, rank, ranks);
                int64_t first = (int64_t)sh_share_begin(share, (size_t)count);
                int64_t last = (int64_t)sh_share_end(share, (size_t)count);
                assert_int_equal(first, next);
                assert_true(last >= first);
                assert_int_equal(share.of, 8);
                next = last;
            }
            assert_int_equal(next, count);
        }
}

typedef struct record {
    uint64_t early, late;
} record;

static void note(void *user, const shoal_progress *progress) {
    record *seen = user;
    if (progress->step == 2) seen->early = sh_alloc_calls();
    if (progress->step == 200) seen->late = sh_alloc_calls();
}

TEST(exact, allocates_nothing_after_the_first_steps) {
    record seen = {0};
    settings s = {.optimizer = "adamw",
                  .threads = "3",
                  .steps = "201",
                  .folder = sh_test_folder("exact-steady"),
                  .more = {"eval.every", "10000", "checkpoint.every", "10000", "log_every", "10000",
                           "data.drop_last", "false"}};
    shoal_run *run = open_run(&s);
    run->hooks.user = &seen;
    run->hooks.progress = note;
    if (shoal_run_train(run) != SHOAL_OK) fail_msg("%s", shoal_error_text());
    shoal_run_close(run);
    assert_true(seen.early > 0);
    assert_int_equal(seen.early, seen.late);
}
