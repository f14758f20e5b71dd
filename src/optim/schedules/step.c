#include "optim/schedules/list.h"

/* gamma to the power of milestones passed. Milestones are epochs of the whole run, so the warm-
 * up's steps are added back. */
static double factor_step(const sh_schedule *schedule, int64_t step, int64_t steps) {
    (void)steps;
    int64_t epoch = (step + schedule->warmup_steps) / schedule->steps_per_epoch;
    double factor = 1;  // few milestones: a loop instead of pow
    for (size_t i = 0; i < schedule->options.milestones.count; i++)
        if (epoch >= schedule->options.milestones.items[i]) factor *= schedule->options.gamma;
    return factor;
}

const sh_schedule_kind sh_schedule_step = {
    .name = "step",
    .help = "multiplied by gamma after each milestone epoch",
    .factor = factor_step,
};
