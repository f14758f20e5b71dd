/* The training loop: when it evaluates, saves and tells of itself, and what it counts. */
#include <math.h>
#include <unistd.h>

#include "api/rig.h"
#include "obs/metrics_read.h"

enum { LINES_MOST = 200 };

/* The metrics of a run. */
typedef struct record {
    int steps, evals, ends;
    int64_t step[LINES_MOST], eval[LINES_MOST];
    double epoch[LINES_MOST], loss[LINES_MOST], lr[LINES_MOST], train_s[LINES_MOST];
    double samples, end_step, updates;
} record;

static void take_line(void *user, const char *event, const json_t *object) {
    record *r = user;
    int64_t step = (int64_t)sh_metrics_number(object, "step");
    if (strcmp(event, "step") == 0) {
        assert_true(r->steps < LINES_MOST);
        r->step[r->steps] = step;
        r->epoch[r->steps] = sh_metrics_number(object, "epoch");
        r->loss[r->steps] = sh_metrics_number(object, "train_loss");
        r->lr[r->steps] = sh_metrics_number(object, "lr");
        r->train_s[r->steps++] = sh_metrics_number(object, "train_s");
    } else if (strcmp(event, "eval") == 0) {
        r->eval[r->evals++] = step;
    } else if (strcmp(event, "end") == 0) {
        r->ends++;
        r->end_step = (double)step;
        r->samples = sh_metrics_number(object, "samples");
        r->updates = sh_metrics_number(object, "updates");
    }
}

static const char *folder(void) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/tests/tmp/loop", SHOAL_BINARY);
    return path;
}

/* 1500 samples: 15 steps an epoch with batches of 100. */
static record train(shoal_config *config) {
    static const char *const usual[][2] = {{"data.batch", "100"}, {"overwrite", "true"}};
    record seen = {0};
    for (size_t i = 0; i < SH_COUNT(usual); i++)
        SUCCEEDS(shoal_config_set(config, usual[i][0], usual[i][1]));
    sh_test_folder("loop");
    SUCCEEDS(shoal_config_set(config, "out", folder()));
    SUCCEEDS(shoal_train(config, NULL, NULL));
    shoal_config_destroy(config);
    char path[4300];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder());
    CHECK_OK(sh_metrics_read(path, take_line, &seen));
    assert_int_equal(seen.ends, 1);
    return seen;
}

static bool has_checkpoint(int step) {
    char path[4400];
    snprintf(path, sizeof path, "%s/checkpoints/manifest-%08d.json", folder(), step);
    return access(path, R_OK) == 0;
}

static void expect_steps(const int64_t *steps, int count, const int64_t *wanted, int wanted_count) {
    for (int i = 0; i < count && i < wanted_count; i++)
        if (steps[i] != wanted[i])
            fail_msg("line %d is of step %ld, not %ld", i, (long)steps[i], (long)wanted[i]);
    assert_int_equal(count, wanted_count);
}
#define EXPECT_STEPS(steps, count, ...)                            \
    expect_steps((steps), (count), (const int64_t[]){__VA_ARGS__}, \
                 (int)SH_COUNT(((const int64_t[]){__VA_ARGS__})))

TEST(loop, evaluates_and_saves_after_every_epoch_unless_told_otherwise) {
    record r = train(RIG_CONFIG("epochs", "3"));
    EXPECT_STEPS(r.eval, r.evals, 15, 30, 45);
    assert_true(has_checkpoint(15) && has_checkpoint(30) && has_checkpoint(45));
    assert_true(r.end_step == 45 && r.samples == 4500 && r.updates == 45);
}

TEST(loop, evaluates_every_so_many_steps_and_at_the_end) {
    record r = train(RIG_CONFIG("steps", "20", "eval.every", "6"));
    EXPECT_STEPS(r.eval, r.evals, 6, 12, 18, 20);
}

TEST(loop, evaluates_at_parts_of_the_run) {
    record r = train(RIG_CONFIG("steps", "20", "eval.every", "0.25"));
    EXPECT_STEPS(r.eval, r.evals, 5, 10, 15, 20);
}

TEST(loop, saves_every_so_many_steps_and_keeps_as_many_as_it_is_told) {
    train(RIG_CONFIG("steps", "20", "checkpoint.every", "6", "checkpoint.keep", "2"));
    assert_false(has_checkpoint(6));
    assert_false(has_checkpoint(12));
    assert_true(has_checkpoint(18) && has_checkpoint(20));
    train(RIG_CONFIG("steps", "20", "checkpoint.every", "6", "checkpoint.keep", "9"));
    assert_true(has_checkpoint(6) && has_checkpoint(12) && has_checkpoint(18));
}

TEST(loop, tells_of_every_so_many_steps_of_epochs_and_of_the_last) {
    record r = train(RIG_CONFIG("steps", "33", "log_every", "10"));
    EXPECT_STEPS(r.step, r.steps, 10, 15, 20, 30, 33);
    assert_true(r.epoch[0] == 1 && r.epoch[1] == 1 && r.epoch[2] == 2 && r.epoch[4] == 3);
    for (int i = 0; i < r.steps; i++) {
        assert_true(isfinite(r.loss[i]) && r.loss[i] > 0);
        if (i > 0) assert_true(r.train_s[i] >= r.train_s[i - 1]);
    }
}

TEST(loop, a_line_has_the_mean_loss_since_the_one_before) {
    record each = train(RIG_CONFIG("steps", "12", "log_every", "1"));
    record four = train(RIG_CONFIG("steps", "12", "log_every", "4"));
    assert_int_equal(each.steps, 12);
    assert_int_equal(four.steps, 3);
    for (int i = 0; i < 3; i++) {
        double mean = 0;
        for (int k = 0; k < 4; k++) mean += each.loss[4 * i + k] / 4;
        assert_true(fabs(four.loss[i] - mean) < 1e-6 * mean);
    }
}

TEST(loop, the_short_batch_at_the_end_of_an_epoch_counts_or_is_left_out) {
    record whole = train(RIG_CONFIG("epochs", "2"));
    assert_true(whole.samples == 3000);
    shoal_config *config = RIG_CONFIG("epochs", "2", "data.drop_last", "true");
    SUCCEEDS(shoal_config_set(config, "data.train", "digits"));
    record r = train(config);
    assert_true(r.samples == 3000);  // 15 batches of 100 leave nothing over
    sh_test_folder("loop");
    config = RIG_CONFIG("epochs", "1", "data.batch", "400", "out", folder());
    SUCCEEDS(shoal_train(config, NULL, NULL));
    shoal_config_destroy(config);
    assert_true(has_checkpoint(4));  // 400, 400, 400, 300
    sh_test_folder("loop");
    config =
        RIG_CONFIG("epochs", "1", "data.batch", "400", "data.drop_last", "true", "out", folder());
    SUCCEEDS(shoal_train(config, NULL, NULL));
    shoal_config_destroy(config);
    assert_true(has_checkpoint(3));
}

TEST(loop, the_rate_follows_the_schedule) {
    record r = train(RIG_CONFIG("steps", "20", "log_every", "5", "optimizer.lr", "0.4", "schedule",
                                "linear", "schedule.warmup", "10"));
    EXPECT_STEPS(r.step, r.steps, 5, 10, 15, 20);
    assert_true(fabs(r.lr[0] - 0.2) < 1e-9 && fabs(r.lr[1] - 0.4) < 1e-9);
    assert_true(r.lr[2] < 0.4 && r.lr[3] < r.lr[2] && r.lr[3] > 0);
}

TEST(loop, accumulation_changes_neither_steps_nor_samples_nor_the_loss) {
    record one = train(RIG_CONFIG("steps", "10", "log_every", "1"));
    record four = train(RIG_CONFIG("steps", "10", "log_every", "1", "accumulate", "4"));
    assert_true(four.samples == one.samples && four.updates == one.updates);
    for (int i = 0; i < 10; i++) assert_true(fabs(one.loss[i] - four.loss[i]) < 1e-4 * one.loss[i]);
}

TEST(loop, a_target_ends_the_run_with_a_checkpoint_of_that_step) {
    record r = train(RIG_CONFIG("epochs", "100", "target", "0.3", "eval.every", "10", "optimizer",
                                "adam", "optimizer.lr", "0.01"));
    assert_true(r.end_step < 1500);
    assert_int_equal(r.eval[r.evals - 1], (int64_t)r.end_step);
    assert_true(has_checkpoint((int)r.end_step));
}

TEST(loop, several_workers_tell_the_loss_of_all) {
    record one = train(RIG_CONFIG("steps", "10", "log_every", "5"));
    record three = train(RIG_CONFIG("steps", "10", "log_every", "5", "workers", "3"));
    assert_int_equal(three.steps, 2);
    for (int i = 0; i < 2; i++) assert_true(fabs(one.loss[i] - three.loss[i]) < 1e-4 * one.loss[i]);
    assert_true(three.samples == one.samples);
}

/* ---- Schemes ---- */

typedef struct scheme_case {
    const char *sync;
    double updates;  // of all workers' models, in 30 steps of 3 workers
    bool free;       // no worker waits for the others
} scheme_case;

static void simulate(const char *sync, const char *codec, record *seen) {
    sh_test_folder("loop");
    shoal_config *config =
        RIG_CONFIG("data.batch", "100", "steps", "30", "workers", "3", "sync", sync, "compress",
                   codec, "optimizer.lr", "0.05", "log_every", "10", "out", folder());
    const shoal_simulation world = {.size = sizeof world, .compute = "exp:10ms"};
    if (shoal_simulate(config, NULL, &world, NULL, NULL) != SHOAL_OK)
        fail_msg("%s: %s", sync, shoal_error_text());
    shoal_config_destroy(config);
    char path[4300];
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder());
    *seen = (record){0};
    CHECK_OK(sh_metrics_read(path, take_line, seen));
}

TEST(loop, every_scheme_counts_its_steps_samples_and_updates) {
    static const scheme_case cases[] = {
        {"bsp", 30, false},       {"ps", 30, false},        {"ssp:0", 30, false},
        {"async", 90, true},      {"ssp:2", 90, true},      {"local:4", 90, false},
        {"gossip", 90, false},    {"sgp:1", 90, false},     {"easgd:4", 90, true},
        {"adpsgd", 90, true},     {"diloco:4", 90, false},  {"gossip-pull:2", 90, true},
        {"softsync:1", 30, true}, {"softsync:3", 90, true},
    };
    for (size_t i = 0; i < SH_COUNT(cases); i++) {
        record r;
        simulate(cases[i].sync, "none", &r);
        if (r.ends != 1 || r.end_step != 30) fail_msg("%s ends at %g", cases[i].sync, r.end_step);
        // Who goes its own way takes more of its uneven shares than another.
        if (fabs(r.samples - 3000) > (cases[i].free ? 30 : 0))
            fail_msg("%s saw %g samples", cases[i].sync, r.samples);
        if (r.updates != cases[i].updates)
            fail_msg("%s made %g updates, not %g", cases[i].sync, r.updates, cases[i].updates);
        if (r.step[r.steps - 1] != 30 || !isfinite(r.loss[r.steps - 1]))
            fail_msg("%s: the last line is of step %ld", cases[i].sync, (long)r.step[r.steps - 1]);
        if (r.evals == 0 || r.eval[r.evals - 1] != 30) fail_msg("%s: no evaluation", cases[i].sync);
    }
}
