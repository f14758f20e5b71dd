/* Trace events: everyone emits, only obs knows file formats. Without a sink an event costs one
 * load. Names are borrowed for the life of the run (string literals or layer names). */
#ifndef SH_BASE_TRACE_H
#define SH_BASE_TRACE_H

#include <stdint.h>

#include "base/clock.h"

/* One span of work, as a rectangle in the trace viewer. */
typedef struct sh_trace_event {
    const char *category;  // "forward", "backward", "optim", "data", "eval", "checkpoint"
    const char *name;
    int64_t start_ns, end_ns;
    int64_t step;
} sh_trace_event;

/* Where events go. Passed down by pointer; NULL or without `emit` costs one test. */
typedef struct sh_trace {
    void (*emit)(void *self, const sh_trace_event *event);  // NULL: tracing is off
    void *self;
    const sh_clock *clock;
} sh_trace;

/* The start of a span; 0 while tracing is off, as nobody will read it. */
static inline int64_t sh_trace_begin(const sh_trace *trace) {
    return trace != 0 && trace->emit != 0 ? sh_clock_now_ns(trace->clock) : 0;
}

/* Emits the span. Any task; the sink locks. */
static inline void sh_trace_end(const sh_trace *trace, const char *category, const char *name,
                                int64_t step, int64_t start_ns) {
    if (trace == 0 || trace->emit == 0) return;
    sh_trace_event event = {category, name, start_ns, sh_clock_now_ns(trace->clock), step};
    trace->emit(trace->self, &event);
}

#endif
