/* The clock is passed in, never read from the system by schemes: the simulator gives a virtual one.
 */
#ifndef SH_BASE_CLOCK_H
#define SH_BASE_CLOCK_H

#include <stdint.h>

typedef struct sh_clock {
    int64_t (*now_ns)(void *self);
    void *self;
} sh_clock;

static inline int64_t sh_clock_now_ns(const sh_clock *clock) { return clock->now_ns(clock->self); }

/* Monotonic time of this machine. */
extern const sh_clock sh_clock_real;

#endif
