/* The clock is passed in, never read from the system by schemes: the simulator gives a virtual one.
 */
#ifndef SH_BASE_CLOCK_H
#define SH_BASE_CLOCK_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

typedef struct sh_clock {
    int64_t (*now_ns)(void *self);
    void *self;
} sh_clock;

static inline int64_t sh_clock_now_ns(const sh_clock *clock) { return clock->now_ns(clock->self); }

/* Whoever looks many times a second and finds so much time gone was stopped itself (Ctrl-Z, a
 * suspended job): its peers were too, or waited for it, and what it waits for begins anew. */
static inline bool sh_was_stopped(int64_t looked_ns, int64_t now_ns) {
    const int64_t stopped_ns = 2000000000;
    return looked_ns != 0 && now_ns - looked_ns > stopped_ns;
}

/* Monotonic time of this machine. */
extern const sh_clock sh_clock_real;

/* `wait_ns` from now on that clock, as pthread_cond_clockwait(CLOCK_MONOTONIC) takes it. */
struct timespec sh_deadline_in(int64_t wait_ns);

#endif
