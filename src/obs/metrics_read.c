/* Metrics files line by line, for comparisons and reports; see metrics_read.h. */
#include "obs/metrics_read.h"

#include <math.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"

double sh_metrics_number(const json_t *object, const char *name) {
    const json_t *value = json_object_get(object, name);
    return json_is_number(value) ? json_number_value(value) : NAN;
}

/* A smaller number than before means a restart: what had passed is added from then on. */
double sh_metrics_time_of(sh_metrics_time *time, const json_t *object) {
    double train_s = sh_metrics_number(object, "train_s");
    if (isnan(train_s)) return NAN;
    if (train_s + time->before_s < time->last_s) time->before_s = time->last_s;
    time->last_s = time->before_s + train_s;
    return time->last_s;
}

/* Parses one line; a fault names file and line. */
static sh_status parse_line(const char *path, int number, const char *text, size_t bytes,
                            sh_metrics_line line, void *user) {
    char fault[SH_JSON_FAULT];
    json_t *object = sh_json_read_map(text, bytes, fault);
    if (object == NULL) return SH_FAIL(SH_E_FORMAT, "%s:%d: %s", path, number, fault);
    const char *event = json_string_value(json_object_get(object, "event"));
    line(user, event != NULL ? event : "", object);
    json_decref(object);
    return SH_OK;
}

sh_status sh_metrics_parse(const char *path, const char *text, size_t bytes, sh_metrics_line line,
                           void *user) {
    for (int number = 1; bytes > 0; number++) {
        const char *end = memchr(text, '\n', bytes);
        if (end == NULL) break;  // the run died while it wrote this line
        size_t length = (size_t)(end - text);
        SH_TRY(parse_line(path, number, text, length, line, user));
        text += length + 1;
        bytes -= length + 1;
    }
    return SH_OK;
}

sh_status sh_metrics_read(const char *path, sh_metrics_line line, void *user) {
    sh_mapped mapped;
    SH_TRY(sh_file_map(path, &mapped));
    sh_status status = sh_metrics_parse(path, (const char *)mapped.data, mapped.bytes, line, user);
    sh_file_unmap(&mapped);
    return status;
}
