#include "optim/schedules/list.h"

/* 1 - (1 - last) t, with t = step / steps. Reaches `last` one step after the final one, so that no
 * step is wasted on a rate of 0. */
static double factor_linear(const sh_schedule *schedule, int64_t step, int64_t steps) {
    return 1 - (1 - schedule->options.last) * (double)step / (double)steps;
}

const sh_schedule_kind sh_schedule_linear = {
    .name = "linear",
    .help = "a straight line from the peak to 'last'",
    .factor = factor_linear,
};
