/* The speed and the time of training that the loop tells: of steps alone, whatever lies between
 * them. Time is virtual: what a step, an evaluation and a checkpoint take is said here. */
#include <math.h>

#include "api/rig.h"
#include "run/loop.h"

enum { STEP_MS = 10, EVALUATION_MS = 700, CHECKPOINT_MS = 4000, BATCH = 100, STEPS = 12 };

static int64_t now_ns;

static int64_t read_now(void *self) {
    (void)self;
    return now_ns;
}

static const sh_clock virtual_clock = {.now_ns = read_now};
static const sh_learner_kind *usual;

static void pass_ms(int64_t ms) { now_ns += ms * 1000000; }

static sh_status slow_step(sh_learner *learner, int64_t to, sh_learner_step *step_out) {
    pass_ms(STEP_MS);
    return usual->step(learner, to, step_out);
}

static sh_status slow_evaluate(sh_learner *learner, const sh_dataset *dataset,
                               shoal_result *result_out) {
    pass_ms(EVALUATION_MS);
    return usual->evaluate(learner, dataset, result_out);
}

static sh_status slow_save(sh_learner *learner) {
    pass_ms(CHECKPOINT_MS);
    return usual->save(learner);
}

/* What was told after each step, and the time of training in the end. */
typedef struct told {
    int count;
    double rate[2 * STEPS], training_s;
} told;

static void hear(void *user, const shoal_progress *progress) {
    told *heard = user;
    assert_true(heard->count < 2 * STEPS);
    heard->rate[heard->count++] = progress->samples_per_s;
}

/* Trains alone, with lines of metrics every so many steps. */
static told train(const char *log_every) {
    shoal_config *config =
        RIG_CONFIG("data.batch", "100", "steps", "12", "log_every", log_every, "eval.every", "2",
                   "checkpoint.every", "4", "overwrite", "true", "out", sh_test_folder("speed"));
    told heard = {0};
    const shoal_hooks hooks = {.size = sizeof hooks, .progress = hear, .user = &heard};
    shoal_run *run = NULL;
    SUCCEEDS(shoal_run_open(config, &hooks, &run));
    usual = run->learner.kind;
    sh_learner_kind slow = *usual;
    slow.step = slow_step;
    slow.evaluate = slow_evaluate;
    slow.save = slow_save;
    run->learner.kind = &slow;
    run->clock = &virtual_clock;
    SUCCEEDS(shoal_run_train(run));
    heard.training_s = sh_run_training_s(run, now_ns);
    shoal_run_close(run);
    shoal_config_destroy(config);
    return heard;
}

TEST(speed, and_time_are_those_of_the_steps_whatever_evaluations_and_checkpoints_take) {
    const char *const every[] = {"1", "5", "100"};
    const double wanted = BATCH * 1000.0 / STEP_MS;
    for (size_t k = 0; k < SH_COUNT(every); k++) {
        told heard = train(every[k]);
        assert_int_equal(heard.count, STEPS);
        assert_true(fabs(heard.training_s - STEPS * STEP_MS * 1e-3) < 1e-9);
        for (int i = 0; i < heard.count; i++)
            if (fabs(heard.rate[i] - wanted) > 1e-6 * wanted)
                fail_msg("log_every %s: %g samples/s after step %d, not %g", every[k],
                         heard.rate[i], i + 1, wanted);
    }
}
