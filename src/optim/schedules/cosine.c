/* Half a cosine from the peak down to `last` (Loshchilov and Hutter 2017, without restarts). */
#include "optim/schedules/list.h"

#include <math.h>

/* last + (1 - last) (1 + cos(pi t)) / 2, with t = step / steps. */
static double factor_cosine(const sh_schedule *schedule, int64_t step, int64_t steps) {
    double last = schedule->options.last;  // as a part of the peak
    return last + (1 - last) * 0.5 * (1 + cos(M_PI * (double)step / (double)steps));
}

const sh_schedule_kind sh_schedule_cosine = {
    .name = "cosine",
    .help = "half a cosine from the peak to 'last'",
    .factor = factor_cosine,
};
