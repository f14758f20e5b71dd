/* The real clock: monotonic, so that a correction of the time of day neither ends a wait nor makes
 * a step take negative time. */
#include "base/clock.h"

#include <time.h>

static int64_t real_now_ns(void *self) {
    (void)self;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

const sh_clock sh_clock_real = {.now_ns = real_now_ns};

/* Absolute deadline for waits on conditions, which take a point in time and not a duration. */
struct timespec sh_deadline_in(int64_t wait_ns) {
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + wait_ns;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    return until;
}
