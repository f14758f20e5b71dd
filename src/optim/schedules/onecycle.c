/* One cycle (Smith and Topin 2018): up from a 25th of the peak during the first 30 % of the run,
 * then down to `last`, both along half a cosine. A warm-up, where one is set, is the rise, and the
 * cycle has only its way down left. */
#include "optim/schedules/list.h"

#include <math.h>

/* Half a cosine from `from` (part 0) to `to` (part 1). */
static double along_cosine(double from, double to, double part) {
    return to + (from - to) * 0.5 * (1 + cos(M_PI * part));
}

static double factor_onecycle(const sh_schedule *schedule, int64_t step, int64_t steps) {
    const double first = 1.0 / 25, rising = 0.3;
    // Steps of the rise; the warm-up takes its place where one is set.
    double rise = schedule->warmup_steps > 0 ? 0 : rising * (double)steps, at = (double)step;
    if (at < rise) return along_cosine(first, 1, at / rise);
    return along_cosine(1, schedule->options.last, (at - rise) / ((double)steps - rise));
}

const sh_schedule_kind sh_schedule_onecycle = {
    .name = "onecycle",
    .help = "up to the peak in 30 % of the run, then down to 'last'",
    .factor = factor_onecycle,
};
