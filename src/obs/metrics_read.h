/* Reading metrics.jsonl again. The file may be of a run that was killed, or of anybody's making:
 * a last line without its end is left out, any other line that is not a JSON object is a fault with
 * its place. */
#ifndef SH_OBS_METRICS_READ_H
#define SH_OBS_METRICS_READ_H

#include <jansson.h>

#include "base/status.h"

/* Called per line; `object` is borrowed for the call. */
typedef void (*sh_metrics_line)(void *user, const char *event, const json_t *object);

/* Calls `line` for each. `event` is "" where the object has none. */
sh_status sh_metrics_read(const char *path, sh_metrics_line line, void *user);
/* The same of a text; `path` is its name in messages. */
sh_status sh_metrics_parse(const char *path, const char *text, size_t bytes, sh_metrics_line line,
                           void *user);
/* A number of the object; NaN where it has none of that name. */
double sh_metrics_number(const json_t *object, const char *name);

/* Seconds of training over the lines of a run. A run that was started again after a worker's death
 * counts its seconds anew; the time before still passed. */
typedef struct sh_metrics_time {
    double before_s, last_s;
} sh_metrics_time;

/* The time of the next line, from its "train_s"; NaN where it has none. */
double sh_metrics_time_of(sh_metrics_time *time, const json_t *object);

#endif
