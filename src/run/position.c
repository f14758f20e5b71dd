/* How far a run has come. */
#include "run/run.h"

/* Epochs are counted in steps, so an epoch ends after the same step on all workers, whatever
 * their shares. */
void sh_run_step_done(shoal_run *run, int64_t samples) {
    run->at.step++;
    run->at.samples += samples;
    run->at.samples_here += samples;
    if (++run->at.batch < run->length.steps_per_epoch) return;
    run->at.batch = 0;
    run->at.epoch++;
}

/* Epoch and batch follow from the step alone, so that members who agree on a step agree on the
 * position. */
void sh_run_move_to(shoal_run *run, int64_t step) {
    run->at.step = step;
    run->at.epoch = step / run->length.steps_per_epoch;
    run->at.batch = step % run->length.steps_per_epoch;
}

/* Epochs in between count whole; the difference of the two offsets may be negative. */
double sh_run_samples_between(const shoal_run *run, int64_t from, int64_t to) {
    int64_t batch = run->config.batch, each = run->length.steps_per_epoch * batch;
    int64_t all = (int64_t)sh_loader_samples(run->loader);
    if (all < each) each = all;  // the last batch of an epoch is short
    int64_t begin = from % run->length.steps_per_epoch * batch,
            end = to % run->length.steps_per_epoch * batch;
    int64_t epochs = to / run->length.steps_per_epoch - from / run->length.steps_per_epoch;
    return (double)(epochs * each + end - begin);
}
