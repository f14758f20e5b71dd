/* Metrics as JSON lines. A resume cuts the file behind the step it resumes from, so that no step
 * is in it twice; a last line without its end, as a kill leaves it, is dropped. */
#include "obs/metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <jansson.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"

struct sh_metrics {
    int fd;
    char *path;
    char *line;  // reused from line to line
    size_t line_bytes;
    sh_tensorboard *board;  // NULL: nobody else wants the numbers
};

/* Tells whether a line belongs to a step beyond `resume_step`. A line that is no object fails:
 * cutting it off could lose a user's data. */
static sh_status is_beyond(const char *path, int number, const char *line, size_t bytes,
                           int64_t resume_step, bool *beyond_out) {
    json_t *object = json_loadb(line, bytes, 0, NULL);
    if (!json_is_object(object)) {
        json_decref(object);
        SH_FAIL(SH_E_FORMAT, "%s:%d: not a JSON object, so the metrics cannot be continued", path,
                number);
        return sh_error_hint("repair or move the file");
    }
    const json_t *step = json_object_get(object, "step");
    *beyond_out = json_is_integer(step) && json_integer_value(step) > resume_step;
    json_decref(object);
    return SH_OK;
}

/* Counts the bytes of the file that belong to steps up to `resume_step`. */
static sh_status kept_bytes(const char *path, int64_t resume_step, size_t *kept_out) {
    sh_mapped mapped;
    SH_TRY(sh_file_map(path, &mapped));
    sh_status status = SH_OK;
    size_t kept = 0;
    bool beyond = false;
    for (int number = 1; kept < mapped.bytes; number++) {
        const char *line = (const char *)mapped.data + kept;
        const char *end = memchr(line, '\n', mapped.bytes - kept);
        if (end == NULL) break;  // a line that was cut when the run died
        size_t bytes = (size_t)(end - line);
        status = is_beyond(path, number, line, bytes, resume_step, &beyond);
        if (status != SH_OK || beyond) break;
        kept += bytes + 1;
    }
    sh_file_unmap(&mapped);
    *kept_out = kept;
    return status;
}

/* Cuts the file only after every line kept has been read, so that a failure changes nothing. */
sh_status sh_metrics_open(const char *path, int64_t resume_step, sh_metrics **metrics_out) {
    size_t kept = 0;
    if (resume_step >= 0 && sh_file_exists(path)) SH_TRY(kept_bytes(path, resume_step, &kept));
    sh_metrics *metrics = sh_alloc(1, sizeof *metrics);
    if (metrics == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", path);
    metrics->fd = -1;
    metrics->path = sh_strdup(path);
    // Lines of a step are shorter; histograms make it grow.
    metrics->line_bytes = 4096;
    metrics->line = sh_alloc(metrics->line_bytes, 1);
    sh_status status = SH_OK;
    if (metrics->path == NULL || metrics->line == NULL) {
        status = SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", path);
    } else {
        status = sh_file_open_own(path, O_APPEND, &metrics->fd);
        if (status == SH_OK && ftruncate(metrics->fd, (off_t)kept) != 0)
            status = SH_FAIL(SH_E_IO, "cannot write '%s': %s", path, strerror(errno));
    }
    if (status != SH_OK) {
        sh_metrics_close(metrics);
        return status;
    }
    *metrics_out = metrics;
    return SH_OK;
}

void sh_metrics_close(sh_metrics *metrics) {
    if (metrics == NULL) return;
    if (metrics->fd >= 0) close(metrics->fd);
    sh_free(metrics->path);
    sh_free(metrics->line);
    sh_free(metrics);
}

/* Counts of a histogram as a list. */
static json_t *array_of(const uint64_t *counts, size_t count) {
    json_t *array = json_array();
    for (size_t i = 0; i < count && array != NULL; i++)
        json_array_append_new(array, json_integer((json_int_t)counts[i]));
    return array;
}

/* JSON has neither NaN nor infinity: they become null. */
static json_t *value_of(const sh_metric *field) {
    json_t *value = NULL;
    switch (field->type) {
        case SH_METRIC_INT:
            value = json_integer(field->i);
            break;
        case SH_METRIC_REAL:
            value = isfinite(field->r) ? json_real(field->r) : json_null();
            break;
        case SH_METRIC_BOOL:
            value = json_boolean(field->b);
            break;
        case SH_METRIC_TEXT:
            value = field->s != NULL ? sh_json_string(field->s) : NULL;
            break;
        case SH_METRIC_COUNTS:
            value = array_of(field->counts, field->count);
            break;
    }
    return value != NULL ? value : json_null();
}

/* Writes a line by one call where possible: the kernel then appends it whole. */
static sh_status write_line(sh_metrics *metrics, size_t bytes) {
    size_t done = 0;
    while (done < bytes) {
        ssize_t written = write(metrics->fd, metrics->line + done, bytes - done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0)
            return SH_FAIL(SH_E_IO, "cannot write '%s': %s", metrics->path, strerror(errno));
        done += (size_t)written;
    }
    return SH_OK;
}

/* Formats a line with 12 digits: more than a float has, without the noise that 17 show. */
static sh_status print_line(sh_metrics *metrics, const json_t *object, size_t *bytes_out) {
    const size_t flags = JSON_COMPACT | JSON_REAL_PRECISION(12);
    size_t bytes = json_dumpb(object, metrics->line, metrics->line_bytes, flags);
    if (bytes == 0) return SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", metrics->path);
    // json_dumpb tells the length that it needs, so a second try fits.
    if (bytes + 1 > metrics->line_bytes) {
        void *line = metrics->line;
        SH_TRY(sh_grow(&line, &metrics->line_bytes, bytes + 1, 1));
        metrics->line = line;
        bytes = json_dumpb(object, metrics->line, metrics->line_bytes, flags);
    }
    metrics->line[bytes] = '\n';
    *bytes_out = bytes + 1;
    return SH_OK;
}

void sh_metrics_share(sh_metrics *metrics, sh_tensorboard *board) { metrics->board = board; }

/* Step of a line; 0 where it has none. */
static int64_t step_of(const sh_metric *fields, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (fields[i].type == SH_METRIC_INT && strcmp(fields[i].name, "step") == 0)
            return fields[i].i;
    return 0;
}

/* Sends the finite numbers of a line to TensorBoard, as EVENT/NAME. */
static sh_status write_scalars(const sh_metrics *metrics, const char *event,
                               const sh_metric *fields, size_t count) {
    int64_t step = step_of(fields, count);
    for (size_t i = 0; i < count; i++) {
        char tag[128];
        bool real = fields[i].type == SH_METRIC_REAL && isfinite(fields[i].r);
        if (!real && fields[i].type != SH_METRIC_INT) continue;
        snprintf(tag, sizeof tag, "%s/%s", event, fields[i].name);
        SH_TRY(sh_tensorboard_scalar(metrics->board, tag, step,
                                     real ? fields[i].r : (double)fields[i].i));
    }
    return SH_OK;
}

/* Writes the members in the order of the fields. */
sh_status sh_metrics_write(sh_metrics *metrics, const char *event, const sh_metric *fields,
                           size_t count) {
    json_t *object = json_object();
    bool complete =
        object != NULL && json_object_set_new_nocheck(object, "event", json_string(event)) == 0;
    for (size_t i = 0; i < count && complete; i++)
        complete = json_object_set_new_nocheck(object, fields[i].name, value_of(&fields[i])) == 0;
    size_t bytes = 0;
    sh_status status = complete ? print_line(metrics, object, &bytes)
                                : SH_FAIL(SH_E_MEMORY, "out of memory for '%s'", metrics->path);
    json_decref(object);
    SH_TRY(status);
    SH_TRY(write_line(metrics, bytes));
    return metrics->board != NULL ? write_scalars(metrics, event, fields, count) : SH_OK;
}
