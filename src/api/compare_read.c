/* Numbers of a variant from its run's metrics.jsonl: time, steps and evaluations line by line,
 * totals from the last line ("end"). A run that stopped early has no such line, and its totals
 * stay NaN. */
#include <math.h>
#include <string.h>

#include "obs/metrics_read.h"
#include "api/compare.h"

/* State while the lines of one file are read. */
typedef struct reader {
    sh_variant *row;
    double target;         // accuracy that target_s is the time to; 0: none
    sh_metrics_time time;  // training time over restarts of the run
    sh_status status;      // first failure; the reader's callback cannot return one
} reader;

/* Step of a line; 0: it has none. */
static int64_t step_of(const json_t *object) {
    const json_t *step = json_object_get(object, "step");
    return json_is_integer(step) ? json_integer_value(step) : 0;
}

/* An evaluation: a point of the curve, the latest result, and the first that reaches the target. */
static void read_eval(reader *r, const json_t *object) {
    shoal_variant *seen = &r->row->seen;
    shoal_point point = {.step = step_of(object),
                         .train_s = r->time.last_s,
                         .loss = sh_metrics_number(object, "test_loss"),
                         .accuracy = sh_metrics_number(object, "test_accuracy")};
    void *points = r->row->points;
    if (r->status == SH_OK)
        r->status = sh_grow(&points, &r->row->point_room, seen->point_count + 1, sizeof point);
    if (r->status != SH_OK) return;
    r->row->points = points;
    r->row->points[seen->point_count++] = point;
    seen->points = r->row->points;
    seen->loss = point.loss;
    seen->accuracy = point.accuracy;
    if (isnan(seen->target_s) && r->target > 0 && point.accuracy >= r->target)
        seen->target_s = point.train_s;
}

/* Callback of sh_metrics_read, once per line. */
static void read_line(void *user, const char *event, const json_t *object) {
    reader *r = user;
    shoal_variant *seen = &r->row->seen;
    double time_s = sh_metrics_time_of(&r->time, object);
    if (!isnan(time_s)) seen->seconds = time_s;
    if (step_of(object) > 0) seen->steps = (double)step_of(object);
    if (strcmp(event, "eval") == 0) read_eval(r, object);
    if (strcmp(event, "end") != 0) return;
    seen->updates = sh_metrics_number(object, "updates");
    seen->sent_bytes = sh_metrics_number(object, "all_sent_bytes");
    seen->staleness_mean = sh_metrics_number(object, "staleness_mean");
    seen->staleness_most = sh_metrics_number(object, "staleness_most");
}

/* Texts point into the row itself, so a row must not be copied afterwards. */
void sh_compare_clear(sh_variant *row) {
    shoal_variant *seen = &row->seen;
    seen->name = row->name;
    seen->folder = row->folder;
    seen->sync = row->sync;
    seen->compress = row->compress;
    seen->reason = row->reason;
    seen->hint = row->hint;
    seen->outcome = "not run";
    seen->seconds = seen->virtual_s = seen->steps = seen->updates = seen->sent_bytes = NAN;
    seen->staleness_mean = seen->staleness_most = seen->loss = seen->accuracy = NAN;
    seen->target_s = NAN;
    seen->point_count = 0;
}

/* A failure to read the file comes first; then one of the callback's. */
sh_status sh_compare_read(const char *path, double target, sh_variant *row) {
    reader r = {.row = row, .target = target};
    SH_TRY(sh_metrics_read(path, read_line, &r));
    return r.status;
}
