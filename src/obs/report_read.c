/* A run's folder as JSON: what report.h promises. Cost: one pass over metrics, log and trace; what
 * is kept is bounded, whatever the length of the run. */
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "obs/metrics_read.h"
#include "obs/report.h"

enum {
    POINTS_MOST = 2000,   // lines of steps in a report; more are thinned out
    NOTICES_MOST = 200,   // warnings of the log
    EVENTS_MOST = 20000,  // of the timeline
    STEPS_SHOWN = 3,      // of the timeline
};

static sh_status no_memory(void) { return SH_FAIL(SH_E_MEMORY, "out of memory for a report"); }

/* ---- metrics ---- */

typedef struct reader {
    json_t *run;
    sh_metrics_time time;
    int64_t every, seen;  // one of `every` lines of steps is kept; lines of steps so far
    json_t *newest;       // the last line of a step, if it is not kept already; NULL: it is
    bool failed;
} reader;

/* Keeps every second point, the first among them, when there are too many: memory stays bounded
 * and points evenly spaced. */
static void thin(reader *r, json_t *steps) {
    for (size_t i = json_array_size(steps); i-- > 0;)
        if (i % 2 == 1) json_array_remove(steps, i);
    r->every *= 2;
}

/* Keeps one of `every` lines. The newest is remembered, so that the last point is always shown. */
static void add_step(reader *r, json_t *line) {
    json_t *steps = json_object_get(r->run, "steps");
    json_decref(r->newest);
    r->newest = NULL;
    if (r->seen++ % r->every != 0)
        r->newest = json_incref(line);
    else
        r->failed |= json_array_append(steps, line) != 0;
    if (json_array_size(steps) > POINTS_MOST) thin(r, steps);
}

/* Sorts a line of the metrics by its event; unknown events are left out. */
static void take_line(void *user, const char *event, const json_t *object) {
    reader *r = user;
    json_t *line = json_deep_copy(object);
    if (line == NULL) {
        r->failed = true;
        return;
    }
    double time_s = sh_metrics_time_of(&r->time, object);
    json_object_set_new(line, "time_s", isfinite(time_s) ? json_real(time_s) : json_null());
    if (strcmp(event, "step") == 0)
        add_step(r, line);
    else if (strcmp(event, "eval") == 0)
        r->failed |= json_array_append(json_object_get(r->run, "evals"), line) != 0;
    else if (strcmp(event, "worker") == 0)
        r->failed |= json_array_append(json_object_get(r->run, "workers"), line) != 0;
    else if (strcmp(event, "end") == 0 || strcmp(event, "staleness") == 0)
        r->failed |= json_object_set(r->run, event, line) != 0;
    json_decref(line);
}

static sh_status read_metrics(const char *folder, json_t *run) {
    char *path = sh_path_join(folder, "metrics.jsonl");
    if (path == NULL) return no_memory();
    reader r = {.run = run, .every = 1};
    sh_status status = sh_metrics_read(path, take_line, &r);
    sh_free(path);
    if (r.newest != NULL) json_array_append_new(json_object_get(run, "steps"), r.newest);
    if (status == SH_OK && r.failed) status = no_memory();
    json_object_set_new(run, "every", json_integer(r.every));
    return status;
}

/* ---- settings and log ---- */

/* A file of the folder as text; NULL with `*bytes_out` 0 where it cannot be read. Caller unmaps. */
static sh_mapped map_file(const char *folder, const char *name) {
    sh_mapped mapped = {0};
    char *path = sh_path_join(folder, name);
    if (path != NULL && sh_file_exists(path) && sh_file_map(path, &mapped) != SH_OK)
        mapped = (sh_mapped){0};
    sh_free(path);
    return mapped;
}

/* A missing file, or one that is not UTF-8, gives an empty text. */
static void read_settings(const char *folder, json_t *run) {
    sh_mapped file = map_file(folder, "run.yaml");
    bool fits = file.bytes < SH_JSON_BYTES_MOST;
    json_t *text = fits ? json_stringn((const char *)file.data, file.bytes) : NULL;
    json_object_set_new(run, "settings", text != NULL ? text : json_string(""));
    sh_file_unmap(&file);
}

/* Takes a warning out of a line of the log: "2026-11-19T21:49:53.892Z warn  text". */
static void add_notice(json_t *notices, const char *line, size_t bytes) {
    enum { STAMP = 24, LEVEL = 6 };
    if (bytes < STAMP + 1 + LEVEL || memcmp(line + STAMP + 1, "warn", 4) != 0) return;
    if (json_array_size(notices) >= NOTICES_MOST) return;
    const char *text = line + STAMP + 1 + LEVEL;
    size_t length = bytes - STAMP - 1 - LEVEL;
    json_t *notice = json_pack("{s:s%, s:s%}", "at", line, (size_t)STAMP, "text", text, length);
    if (notice != NULL) json_array_append_new(notices, notice);
}

static void read_log(const char *folder, json_t *run) {
    sh_mapped file = map_file(folder, "log.txt");
    json_t *notices = json_object_get(run, "notices");
    const char *at = (const char *)file.data, *end = at + file.bytes;
    while (at != NULL && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        if (newline == NULL) break;
        add_notice(notices, at, (size_t)(newline - at));
        at = newline + 1;
    }
    sh_file_unmap(&file);
}

/* ---- timeline ---- */

/* Parses one line of a trace: an event, with a comma or not; NULL for anything else, such as the
 * array's brackets. */
static json_t *event_of(const char *line, size_t bytes) {
    char fault[SH_JSON_FAULT];
    while (bytes > 0 && (line[bytes - 1] == ',' || line[bytes - 1] == '\r')) bytes--;
    if (bytes == 0 || line[0] != '{') return NULL;
    return sh_json_read_map(line, bytes, fault);
}

/* Step of an event; -1: it has none. */
static int64_t step_of(const json_t *event) {
    const json_t *step = json_object_get(json_object_get(event, "args"), "step");
    return json_is_integer(step) ? json_integer_value(step) : -1;
}

/* A callback for each event of a trace. */
typedef struct line_reader {
    void (*take)(void *user, const json_t *event);
    void *user;
} line_reader;

/* Calls back for each event of a trace; lines that are none are skipped. */
static void each_event(const sh_mapped *file, line_reader taker) {
    const char *at = (const char *)file->data, *end = at + file->bytes;
    while (at != NULL && at < end) {
        const char *newline = memchr(at, '\n', (size_t)(end - at));
        size_t bytes = newline != NULL ? (size_t)(newline - at) : (size_t)(end - at);
        json_t *event = event_of(at, bytes);
        if (event != NULL) taker.take(taker.user, event);
        json_decref(event);
        at += bytes + 1;
    }
}

/* Steps first .. last, both included; first -1: none. */
typedef struct step_range {
    int64_t first, last;
} step_range;

/* Extends the range of all steps. */
static void widen(void *user, const json_t *event) {
    step_range *range = user;
    int64_t step = step_of(event);
    if (step < 0) return;
    if (range->first < 0 || step < range->first) range->first = step;
    if (step > range->last) range->last = step;
}

typedef struct chooser {
    step_range range;
    json_t *events;
} chooser;

/* Copies the events of the chosen steps, and the names of threads. */
static void choose(void *user, const json_t *event) {
    chooser *c = user;
    const char *phase = json_string_value(json_object_get(event, "ph"));
    int64_t step = step_of(event);
    bool names = phase != NULL && strcmp(phase, "M") == 0;
    bool inside = step >= c->range.first && step <= c->range.last;
    if ((names || inside) && json_array_size(c->events) < EVENTS_MOST)
        json_array_append_new(c->events, json_deep_copy(event));
}

/* Some steps in a row without an evaluation, far from the first ones, which still warm caches up.
 */
typedef struct quiet_steps {
    int64_t from, wanted;  // where the search begins; steps in a row that it wants
    int64_t begin;         // of those under way
    step_range found;      // first -1: none
} quiet_steps;

/* Looks for steps in a row that no evaluation or checkpoint interrupts. */
static void find_quiet(void *user, const json_t *event) {
    quiet_steps *q = user;
    int64_t step = step_of(event);
    const char *kind = json_string_value(json_object_get(event, "cat"));
    if (step < q->from || kind == NULL || q->found.first >= 0) return;
    if (strcmp(kind, "eval") == 0 || strcmp(kind, "checkpoint") == 0)
        q->begin = step + 1;
    else if (step >= q->begin + q->wanted)
        q->found = (step_range){.first = q->begin, .last = q->begin + q->wanted - 1};
}

/* Steps from the middle of the run, without an evaluation or checkpoint among them if possible. */
static step_range steps_to_show(const sh_mapped *file, const step_range *all) {
    int64_t middle = all->first + (all->last - all->first) / 2;
    quiet_steps q = {
        .from = middle, .wanted = STEPS_SHOWN, .begin = middle, .found = {.first = -1}};
    each_event(file, (line_reader){find_quiet, &q});
    if (q.found.first >= 0) return q.found;
    int64_t last = middle + STEPS_SHOWN - 1;
    return (step_range){.first = middle, .last = last < all->last ? last : all->last};
}

/* Three passes over the trace: its range, quiet steps, their events. Memory stays bounded by
 * EVENTS_MOST. */
static void read_timeline(const char *folder, json_t *run) {
    sh_mapped file = map_file(folder, "trace.json");
    step_range all = {.first = -1, .last = -1};
    each_event(&file, (line_reader){widen, &all});
    if (all.first >= 0) {
        chooser c = {.range = steps_to_show(&file, &all), .events = json_array()};
        each_event(&file, (line_reader){choose, &c});
        json_object_set_new(run, "timeline",
                            json_pack("{s:I, s:I, s:o}", "first", (json_int_t)c.range.first, "last",
                                      (json_int_t)c.range.last, "events", c.events));
    }
    sh_file_unmap(&file);
}

/* ---- the whole ---- */

/* Tells whether a run lives: it holds a lock on its folder as long as it does. */
static bool is_running(const char *folder) {
    int file = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) return false;
    bool locked = flock(file, LOCK_SH | LOCK_NB) != 0;
    close(file);
    return locked;
}

/* "stopped": neither a lock nor an end, as after a kill. */
static const char *state_of(const char *folder, const json_t *run) {
    if (is_running(folder)) return "running";
    return json_is_null(json_object_get(run, "end")) ? "stopped" : "finished";
}

/* Last part of a path, without trailing slashes. */
static json_t *name_of(const char *folder) {
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/') length--;
    size_t begin = length;
    while (begin > 0 && folder[begin - 1] != '/') begin--;
    char *name = sh_format("%.*s", (int)(length - begin), folder + begin);
    json_t *string = name != NULL ? sh_json_string(name) : NULL;
    sh_free(name);
    return string;
}

static sh_status check_folder(const char *folder) {
    char *path = sh_path_join(folder, "metrics.jsonl");
    bool is_run = path != NULL && sh_file_exists(path);
    sh_free(path);
    if (is_run) return SH_OK;
    SH_FAIL(SH_E_USAGE, "'%s' is no run's folder: it has no metrics.jsonl", folder);
    return sh_error_hint("name the folder that 'shoal train' wrote, such as runs/NAME");
}

/* Metrics must be readable; everything else is optional and left out if it is not. */
sh_status sh_report_read(const char *folder, json_t **run_out) {
    SH_TRY(check_folder(folder));
    json_t *run = json_pack("{s:o, s:o, s:n, s:n, s:n, s:[], s:[], s:[], s:[]}", "name",
                            name_of(folder), "folder", sh_json_string(folder), "end", "staleness",
                            "timeline", "steps", "evals", "workers", "notices");
    if (run == NULL) return no_memory();
    sh_status status = read_metrics(folder, run);
    if (status != SH_OK) {
        json_decref(run);
        return status;
    }
    read_settings(folder, run);
    read_log(folder, run);
    read_timeline(folder, run);
    json_object_set_new(run, "state", json_string(state_of(folder, run)));
    *run_out = run;
    return SH_OK;
}
