/* Trace events as a file that chrome://tracing and Perfetto open. It is a JSON array whose closing
 * bracket those readers do not ask for; whole events are written, each led by its comma, so the
 * file of a killed run is valid up to that bracket. Events may come from any task; each thread is a
 * row of its own, under its name. */
#ifndef SH_OBS_CHROME_TRACE_H
#define SH_OBS_CHROME_TRACE_H

#include "base/status.h"
#include "base/trace.h"

typedef struct sh_chrome_trace sh_chrome_trace;

/* Begins a new file; `rank` is the process of the picture. Keeps `clock`. Caller closes. */
sh_status sh_chrome_trace_open(const char *path, int rank, const sh_clock *clock,
                               sh_chrome_trace **trace_out);
/* Writes what is left and the bracket. Passes on the first fault in writing, which the sink itself
 * cannot report. NULL is welcome. */
sh_status sh_chrome_trace_close(sh_chrome_trace *trace);

/* Valid until close. */
sh_trace sh_chrome_trace_sink(sh_chrome_trace *trace);

#endif
