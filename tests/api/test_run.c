/* A run through the public interface: what its hooks hear, what it leaves, and what it can be
 * asked. */
#include "rig.h"

#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

typedef struct heard {
    int steps, epoch_ends, stops, folders, stop_after;
    int64_t last, most;
    double loss, test_loss;
    char folder[512];
} heard;

static void hear_progress(void *user, const shoal_progress *progress) {
    heard *h = user;
    h->stops += progress->stops;
    if (progress->stops) return;
    if (progress->step != h->last) h->steps++;
    assert_true(progress->step >= h->last);
    h->last = progress->step;
    h->most = progress->steps;
    h->epoch_ends += progress->epoch_end;
    h->loss = progress->train_loss;
    h->test_loss = progress->test_loss;
}

static void hear_folder(void *user, const char *folder) {
    heard *h = user;
    h->folders++;
    snprintf(h->folder, sizeof h->folder, "%s", folder);
}

static bool wants_stop(void *user) {
    const heard *h = user;
    return h->stop_after > 0 && h->last >= h->stop_after;
}

static heard ears;
static const shoal_hooks hooks = {.size = sizeof hooks,
                                  .user = &ears,
                                  .progress = hear_progress,
                                  .folder = hear_folder,
                                  .stop = wants_stop};

/* A folder below the test's, emptied when the name is asked for the first time in a test. */
static const char *place(const char *name) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/tests/tmp/api-run/%s", SHOAL_BINARY, name);
    return path;
}

static void begin(void) {
    sh_test_folder("api-run");
    ears = (heard){0};
}

static shoal_run *open_run(shoal_config *config) {
    shoal_run *run = NULL;
    ears.last = 0;
    SUCCEEDS(shoal_run_open(config, &hooks, &run));
    shoal_config_destroy(config);
    return run;
}

static bool exists(const char *folder, const char *name) {
    char path[8400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return access(path, R_OK) == 0;
}

TEST(run, hooks_hear_every_step_and_epoch_and_the_folder_once) {
    begin();
    shoal_run *run =
        open_run(RIG_CONFIG("data.batch", "100", "epochs", "2", "out", place("heard")));
    assert_null(shoal_run_folder(run));  // training opens it
    SUCCEEDS(shoal_run_train(run));
    assert_int_equal(ears.steps, 30);
    assert_int_equal(ears.most, 30);
    assert_int_equal(ears.epoch_ends, 2);
    assert_int_equal(ears.folders, 1);
    assert_int_equal(ears.stops, 0);
    assert_string_equal(ears.folder, place("heard"));
    assert_string_equal(shoal_run_folder(run), place("heard"));
    assert_true(isfinite(ears.loss) && isfinite(ears.test_loss));
    shoal_run_close(run);
}

TEST(run, leaves_its_files_and_a_checkpoint) {
    begin();
    shoal_run *run = open_run(RIG_CONFIG("steps", "5", "out", place("files"), "trace", "true"));
    SUCCEEDS(shoal_run_train(run));
    shoal_run_close(run);
    static const char *const files[] = {"run.yaml",
                                        "metrics.jsonl",
                                        "log.txt",
                                        "trace.json",
                                        "checkpoints/model-00000005.safetensors",
                                        "checkpoints/manifest-00000005.json"};
    for (size_t i = 0; i < SH_COUNT(files); i++)
        if (!exists(place("files"), files[i])) fail_msg("no %s", files[i]);
}

TEST(run, a_stop_ends_the_step_and_leaves_a_checkpoint_of_it) {
    begin();
    ears.stop_after = 7;
    shoal_run *run = open_run(RIG_CONFIG("epochs", "100", "out", place("stopped")));
    REFUSED(SHOAL_E_INTERRUPTED, "stopped after step 7 of", shoal_run_train(run));
    shoal_run_close(run);
    assert_int_equal(ears.last, 7);
    assert_int_equal(ears.stops, 1);
    assert_true(exists(place("stopped"), "checkpoints/manifest-00000007.json"));
}

static void outputs_of(shoal_config *config, float *values, size_t count) {
    shoal_run *run = open_run(config);
    SUCCEEDS(shoal_run_train(run));
    char path[4300];
    snprintf(path, sizeof path, "%s.safetensors", place("saved"));
    SUCCEEDS(shoal_run_save(run, path));
    shoal_run_close(run);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, -(long)(count * sizeof *values), SEEK_END), 0);
    assert_int_equal(fread(values, sizeof *values, count, file), count);
    fclose(file);
}

TEST(run, stopped_and_resumed_it_has_the_bits_of_one_that_went_through) {
    enum { LAST = 64 };
    float through[LAST], halves[LAST], other[LAST];
    begin();
    outputs_of(RIG_CONFIG("steps", "40", "optimizer", "adamw", "out", place("whole")), through,
               LAST);
    ears.stop_after = 17;
    shoal_run *run =
        open_run(RIG_CONFIG("steps", "40", "optimizer", "adamw", "out", place("half")));
    REFUSED(SHOAL_E_INTERRUPTED, "stopped", shoal_run_train(run));
    shoal_run_close(run);
    ears = (heard){0};
    outputs_of(RIG_CONFIG("steps", "40", "optimizer", "adamw", "out", place("half"), "resume",
                          place("half")),
               halves, LAST);
    assert_int_equal(ears.steps, 23);
    assert_memory_equal(through, halves, sizeof through);
    outputs_of(RIG_CONFIG("steps", "40", "optimizer", "adamw", "seed", "2", "out", place("other")),
               other, LAST);
    assert_memory_not_equal(through, other, sizeof through);  // the seed counts
}

TEST(run, stops_once_the_target_is_reached) {
    begin();
    shoal_run *run = open_run(RIG_CONFIG("epochs", "50", "optimizer", "adam", "optimizer.lr",
                                         "0.01", "target", "0.5", "out", place("target")));
    SUCCEEDS(shoal_run_train(run));
    shoal_result result = {.size = sizeof result};
    SUCCEEDS(shoal_run_evaluate(run, "test", &result));
    assert_true(result.accuracy >= 0.5);
    assert_true(ears.steps < 50 * 30);
    shoal_run_close(run);
}

TEST(run, a_folder_with_a_run_is_not_overwritten_unasked) {
    begin();
    shoal_run *run = open_run(RIG_CONFIG("steps", "2", "out", place("taken")));
    SUCCEEDS(shoal_run_train(run));
    shoal_run_close(run);
    run = open_run(RIG_CONFIG("steps", "3", "out", place("taken")));
    REFUSED(SHOAL_E_USAGE, "already holds a run", shoal_run_train(run));
    rig_hint("--overwrite");
    shoal_run_close(run);
    assert_true(exists(place("taken"), "checkpoints/manifest-00000002.json"));
    run = open_run(RIG_CONFIG("steps", "3", "out", place("taken"), "overwrite", "true"));
    SUCCEEDS(shoal_run_train(run));
    shoal_run_close(run);
    assert_false(exists(place("taken"), "checkpoints/manifest-00000002.json"));
    assert_true(exists(place("taken"), "checkpoints/manifest-00000003.json"));
}

/* ---- Questions ---- */

typedef struct answers {
    int64_t rows, right, width;
    double sums;
} answers;

static void count_row(void *user, int64_t index, const float *output, int64_t width) {
    answers *a = user;
    assert_int_equal(index, a->rows);
    a->rows++;
    a->width = width;
    for (int64_t i = 0; i < width; i++) a->sums += (double)output[i];
}

TEST(run, evaluates_and_predicts_every_part_that_there_is) {
    begin();
    shoal_run *run = open_run(RIG_CONFIG("data.hold_out", "0.2"));
    static const struct {
        const char *part;
        int64_t samples;
    } parts[] = {{"train", 1200}, {"validation", 300}, {"test", 297}};
    for (size_t i = 0; i < SH_COUNT(parts); i++) {
        shoal_result result = {.size = sizeof result};
        SUCCEEDS(shoal_run_evaluate(run, parts[i].part, &result));
        assert_int_equal(result.samples, parts[i].samples);
        assert_true(result.accuracy >= 0 && result.accuracy <= 1 && isfinite(result.loss));
        answers all = {0};
        SUCCEEDS(shoal_run_predict(run, parts[i].part, count_row, &all));
        assert_int_equal(all.rows, parts[i].samples);
        assert_int_equal(all.width, 10);
    }
    assert_int_equal(shoal_run_classes(run), 10);
    shoal_run_close(run);
}

TEST(run, a_part_that_is_not_there_is_refused) {
    shoal_result result = {.size = sizeof result};
    shoal_run *run = open_run(RIG_CONFIG("epochs", "1"));
    REFUSED(SHOAL_E_USAGE, "'all' is not a part of the data",
            shoal_run_evaluate(run, "all", &result));
    REFUSED(SHOAL_E_USAGE, "this run has no validation data",
            shoal_run_evaluate(run, "validation", &result));
    rig_hint("--validation-data");
    shoal_run_close(run);
}

TEST(run, loads_what_it_saved) {
    begin();
    char path[4300];
    snprintf(path, sizeof path, "%s.safetensors", place("model"));
    shoal_run *a = open_run(RIG_CONFIG("steps", "10", "out", place("a")));
    SUCCEEDS(shoal_run_train(a));
    SUCCEEDS(shoal_run_save(a, path));
    shoal_run *b = open_run(RIG_CONFIG("seed", "9"));
    answers from_a = {0}, before = {0}, after = {0};
    SUCCEEDS(shoal_run_predict(a, "test", count_row, &from_a));
    SUCCEEDS(shoal_run_predict(b, "test", count_row, &before));
    SUCCEEDS(shoal_run_load(b, path));
    SUCCEEDS(shoal_run_predict(b, "test", count_row, &after));
    assert_true(from_a.sums != before.sums);
    assert_true(from_a.sums == after.sums);
    REFUSED(SHOAL_E_IO, "none", shoal_run_load(b, "none.safetensors"));
    shoal_run_close(a);
    shoal_run_close(b);
    shoal_run *other = open_run(RIG_CONFIG("model", "{name: mlp, hidden: [9]}"));
    if (shoal_run_load(other, path) == SHOAL_OK) fail_msg("another model's parameters are taken");
    rig_has(shoal_error_text(), "fc1");
    shoal_run_close(other);
}

TEST(run, explain_shows_layers_parameters_and_memory) {
    shoal_run *run = open_run(RIG_CONFIG("epochs", "1"));
    FILE *paper = rig_paper();
    SUCCEEDS(shoal_run_explain(run, RIG_SINK(paper)));
    const char *text = rig_read(paper);
    rig_has(text, "fc1");
    rig_has(text, "fc2");
    rig_has(text, "610 parameters");  // 64 x 8 + 8 + 8 x 10 + 10
    rig_has(text, "memory");
    shoal_run_close(run);
}

TEST(run, a_benchmark_times_as_many_steps_as_it_is_told) {
    begin();
    shoal_timing timing = {0};
    shoal_run *run = open_run(RIG_CONFIG("epochs", "1"));
    REFUSED(SHOAL_E_USAGE, "at least one step", shoal_run_bench(run, 0, 0, 1, &timing));
    SUCCEEDS(shoal_run_bench(run, 2, 20, 1000, &timing));
    assert_int_equal(timing.steps, 20);
    assert_int_equal(ears.last, 22);
    assert_int_equal(timing.workers, 1);
    assert_int_equal(timing.threads, 1);
    assert_true(timing.p10_ms <= timing.median_ms && timing.median_ms <= timing.p90_ms);
    assert_true(timing.samples_per_s > 0 && timing.rss_mib > 1);
    shoal_run_close(run);
    // Ten steps are enough where the time is up.
    run = open_run(RIG_CONFIG("epochs", "1"));
    SUCCEEDS(shoal_run_bench(run, 0, 1000000, 0, &timing));
    assert_int_equal(timing.steps, 10);
    shoal_run_close(run);
}

TEST(run, opening_fails_with_the_next_step) {
    shoal_run *run = NULL;
    static const struct {
        const char *key, *value, *text, *hint;
    } faults[] = {
        {"model", NULL, "no model is given", "--model"},
        {"data.train", NULL, "no data is given", "--data"},
        {"workers", "51", "has no work for 51 workers", "larger batch"},
        {"accumulate", "51", "cannot be cut into 51 parts", "--accumulate 50 or less"},
        {"model", "lenett", "there is no model 'lenett'", "lenet"},
        {"data.train", "none.csv", "cannot open 'none.csv'", "give the path of a file"},
    };
    for (size_t i = 0; i < SH_COUNT(faults); i++) {
        shoal_config *config = RIG_CONFIG("epochs", "1");
        SUCCEEDS(shoal_config_set(config, faults[i].key, faults[i].value));
        if (shoal_run_open(config, &hooks, &run) == SHOAL_OK) fail_msg("%s", faults[i].text);
        rig_has(shoal_error_text(), faults[i].text);
        rig_hint(faults[i].hint);
        shoal_config_destroy(config);
    }
}
