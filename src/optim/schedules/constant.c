#include "optim/schedules/list.h"

/* factor = 1: after the warm-up the rate is the peak. */
static double factor_constant(const sh_schedule *schedule, int64_t step, int64_t steps) {
    (void)schedule, (void)step, (void)steps;
    return 1;
}

const sh_schedule_kind sh_schedule_constant = {
    .name = "constant",
    .help = "the peak all along",
    .factor = factor_constant,
};
