/* Learning-rate schedules: pure functions of the step. One file and one row each. */
#ifndef SH_OPTIM_SCHEDULE_H
#define SH_OPTIM_SCHEDULE_H

#include <stddef.h>
#include <stdint.h>

#include "base/option.h"
#include "base/status.h"

typedef struct sh_schedule_options {
    char *name;          // constant, step, cosine, linear, onecycle
    double warmup;       // steps when >= 1, a part of the run when < 1
    double last;         // cosine, linear, onecycle: final lr as a part of the peak
    sh_ints milestones;  // step: epochs after which lr is multiplied by gamma
    double gamma;
    int64_t reference_batch;  // linear-scaling rule: lr is multiplied by batch / reference, 0: off
} sh_schedule_options;

typedef struct sh_schedule {
    const struct sh_schedule_kind *kind;
    sh_schedule_options options;  // complete; milestones borrowed
    double peak;                  // lr after the linear-scaling rule
    int64_t warmup_steps, steps, steps_per_epoch;
} sh_schedule;

typedef struct sh_schedule_kind {
    const char *name, *help;
    /* The factor on the peak at `step` (from 0) of `steps`, both after the warm-up. Falling
     * schedules reach `last` at step == steps, one past the final step: none is wasted on lr 0. */
    double (*factor)(const sh_schedule *schedule, int64_t step, int64_t steps);
} sh_schedule_kind;

const sh_schedule_kind *sh_schedule_find(const char *name);
extern const sh_option_table sh_schedule_table;  // for sh_schedule_options; options.c
const sh_schedule_kind *sh_schedule_at(size_t index);

/* NAN in `options` takes the default: no warm-up, last 0, gamma 0.1. Borrows the milestones. */
sh_status sh_schedule_init(sh_schedule *schedule, const sh_schedule_options *options, double lr,
                           int64_t batch, int64_t steps, int64_t steps_per_epoch);
/* The learning rate of `step` (from 0). Warm-up is linear from peak/warmup to the peak. Beyond the
 * run's end, the rate of the end. */
double sh_schedule_lr(const sh_schedule *schedule, int64_t step);

#endif
