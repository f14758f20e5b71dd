/* The log of a run: every line with its time and level in a file, then handed on to another sink.
 * Lines may come from any task. */
#ifndef SH_OBS_RUN_LOG_H
#define SH_OBS_RUN_LOG_H

#include <stdint.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"

typedef struct sh_run_log sh_run_log;

typedef struct sh_run_log_options {
    const char *path;       // appended to
    const sh_clock *clock;  // kept
    int64_t unix_ns;        // the time of day right now, since the library does not ask for it
    sh_log next;            // kept; also gets every line
} sh_run_log_options;

sh_status sh_run_log_open(const sh_run_log_options *options, sh_run_log **run_log_out);
/* Passes on the first fault in writing, which the sink itself cannot report. NULL is welcome. */
sh_status sh_run_log_close(sh_run_log *run_log);

/* Valid until close. */
sh_log sh_run_log_sink(sh_run_log *run_log);
/* A line for the file alone: the caller hears of it in another way. NULL is welcome. */
void sh_run_log_note(sh_run_log *run_log, sh_log_level level, const char *text);

#endif
