/* Lines of metrics of several workers: their speed, their epochs, and whose loss they tell. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "harness.h"
#include "obs/metrics_read.h"
#include "shoal/shoal.h"

/* Epochs of 749, 749 and 2 samples, of which the last gives worker 0 of 3 none; meetings that end
 * no epoch. */
enum { EPOCHS = 6, EPOCH_STEPS = 3, STEPS = EPOCHS * EPOCH_STEPS, SAMPLES = 1500 * EPOCHS };

typedef struct lines {
    int count, epoch_ends;
    int still;        // without a speed, though time has passed
    double samples;   // by all speeds and the time that each holds for
    double last_s;    // train_s of the line before
    double loss;      // of the last line
    double accuracy;  // likewise
} lines;

static void add_line(void *user, const char *event, const json_t *object) {
    lines *seen = user;
    if (strcmp(event, "step") != 0) return;
    double rate = sh_metrics_number(object, "samples_per_s");
    double now_s = sh_metrics_number(object, "train_s");
    bool passes = now_s > seen->last_s;  // a line may tell late of a step, and the next one at once
    seen->still += passes ? !(rate > 0) : rate < 0;
    seen->count++;
    seen->epoch_ends += (int)sh_metrics_number(object, "step") % EPOCH_STEPS == 0;
    seen->samples += rate * (now_s - seen->last_s);
    seen->last_s = now_s;
    seen->loss = sh_metrics_number(object, "train_loss");
    seen->accuracy = sh_metrics_number(object, "train_accuracy");
}

/* Three simulated workers, each of whose steps takes 20 ms or so. */
static lines train(const char *scheme, const char *log_every, const char *compute) {
    char folder[4096], path[4200];
    snprintf(folder, sizeof folder, "%s", sh_test_folder("lines"));
    const char *settings[][2] = {{"model", "{name: mlp, hidden: [16]}"},
                                 {"data", "digits"},
                                 {"data.batch", "749"},
                                 {"workers", "3"},
                                 {"epochs", "6"},
                                 {"optimizer.lr", "0.1"},
                                 {"sync", scheme},
                                 {"eval.every", "5"},
                                 {"checkpoint.every", "100"},
                                 {"log_every", log_every},
                                 {"threads", "1"},
                                 {"kernels", "default"},
                                 {"out", folder}};
    shoal_config *config = NULL;
    assert_int_equal(shoal_config_create(&config), SHOAL_OK);
    for (size_t i = 0; i < SH_COUNT(settings); i++) {
        shoal_status set = shoal_config_set(config, settings[i][0], settings[i][1]);
        if (set != SHOAL_OK) fail_msg("%s: %s", settings[i][0], shoal_error_text());
    }
    const shoal_simulation world = {.size = sizeof world, .compute = compute};
    if (shoal_simulate(config, NULL, &world, NULL, NULL) != SHOAL_OK)
        fail_msg("%s: %s", scheme, shoal_error_text());
    shoal_config_destroy(config);
    lines seen = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", folder);
    CHECK_OK(sh_metrics_read(path, add_line, &seen));
    return seen;
}

TEST(lines, tell_of_more_than_no_samples_a_second) {
    const char *schemes[] = {"bsp",     "ps",      "ssp:2",   "async",  "softsync:1",
                             "ksync:2", "easgd:4", "local:3", "gossip", "adpsgd"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        for (int even = 0; even < 2; even++) {
            lines seen = train(schemes[i], "1", even ? "20ms" : "exp:20ms");
            if (seen.count == 0 || seen.still > 0)
                fail_msg("%s: no speed in %d of %d lines", schemes[i], seen.still, seen.count);
        }
    }
}

TEST(lines, of_workers_in_step_are_there_for_all_steps_and_add_up_to_all_samples) {
    const char *schemes[] = {"bsp", "local:3", "gossip"};
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        lines seen = train(schemes[i], "1", "exp:20ms");
        if (fabs(seen.samples - SAMPLES) > 1e-3 * SAMPLES || seen.epoch_ends != EPOCHS)
            fail_msg("%s: %g samples in %d lines, %d of them at ends of epochs", schemes[i],
                     seen.samples, seen.count, seen.epoch_ends);
    }
}

TEST(lines, are_there_for_every_epoch_and_tell_the_loss_of_all_where_workers_meet) {
    const char *schemes[] = {"ps", "ssp:0", "local:1"};
    lines wanted = train("bsp", "1000", "exp:20ms");
    assert_int_equal(wanted.count, EPOCHS);
    for (size_t i = 0; i < SH_COUNT(schemes); i++) {
        lines seen = train(schemes[i], "1000", "exp:20ms");
        bool same = seen.count == EPOCHS && seen.epoch_ends == EPOCHS &&
                    fabs(seen.loss - wanted.loss) < 1e-5 * wanted.loss &&
                    fabs(seen.accuracy - wanted.accuracy) < 1e-3;
        if (!same)
            fail_msg("%s: loss %g, accuracy %g after %d lines, not %g, %g after %d", schemes[i],
                     seen.loss, seen.accuracy, seen.count, wanted.loss, wanted.accuracy, EPOCHS);
    }
}
