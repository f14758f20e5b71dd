/* Metrics as JSON lines: one object a line, written whole and flushed, so that a reader may follow
 * the file while the run goes on and a killed run leaves complete lines. Numbers that are not
 * finite become null. One task at a time. */
#ifndef SH_OBS_METRICS_H
#define SH_OBS_METRICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"
#include "obs/tensorboard.h"

typedef enum sh_metric_type {
    SH_METRIC_INT,
    SH_METRIC_REAL,
    SH_METRIC_BOOL,
    SH_METRIC_TEXT,
    SH_METRIC_COUNTS,
} sh_metric_type;

/* {"step", SH_METRIC_INT, .i = 5}, {"train_loss", SH_METRIC_REAL, .r = 0.5} */
typedef struct sh_metric {
    const char *name;
    sh_metric_type type;
    union {
        int64_t i;
        double r;
        bool b;
        const char *s;  // UTF-8; NULL becomes null
        const uint64_t *counts;
    };
    size_t count;  // of counts
} sh_metric;

typedef struct sh_metrics sh_metrics;

enum { SH_METRICS_FRESH = -1 };

/* Opens the file for writing. `resume_step` is SH_METRICS_FRESH to begin an empty file; otherwise
 * lines of an existing file stay up to the first one whose "step" is beyond it, and a last line
 * without its end is cut off. Fails with SH_E_FORMAT, changing nothing, if a complete line is not a
 * JSON object. Caller closes. */
sh_status sh_metrics_open(const char *path, int64_t resume_step, sh_metrics **metrics_out);
void sh_metrics_close(sh_metrics *metrics);

/* From now on the numbers of every line go to `board`, too, as EVENT/NAME. Keeps it until close. */
void sh_metrics_share(sh_metrics *metrics, sh_tensorboard *board);

/* Writes {"event": event, ...fields}. */
sh_status sh_metrics_write(sh_metrics *metrics, const char *event, const sh_metric *fields,
                           size_t count);

#endif
