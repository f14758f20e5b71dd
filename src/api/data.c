/* Data sets of the public interface: shoal_data_get fetches one by name, shoal_data_info describes
 * every part of a file, shoal_data_check reads all of it. A description looks at every sample
 * once, as ranges and counts per class are in no header. */
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/text.h"
#include "data/fetch.h"
#include "data/loader.h"
#include "data/view.h"
#include "api/sink.h"
#include "shoal/tools.h"
#include "run/config.h"
#include "run/run.h"

enum { CLASSES_SHOWN = 1000 };  // more classes are not counted one by one

/* The library knows no folder of its own: without one from the hooks there is nowhere to keep
 * data. */
shoal_status shoal_data_get(const char *name, const shoal_hooks *hooks) {
    SHOAL_NEED(name);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    sh_log log = sh_log_to_hooks(&whole);
    if (whole.data_folder == NULL)
        return (shoal_status)SH_FAIL(SH_E_USAGE, "there is no folder to keep data in");
    return (shoal_status)sh_data_get(name, whole.data_folder, &log, NULL);
}

/* Opens all parts of a file or a name. The config's data settings say how to read it. Caller
 * closes. */
static sh_status open_parts(const shoal_config *config, const char *path, const shoal_hooks *hooks,
                            sh_dataset_parts *parts_out) {
    // The caller's settings with folder, seed and ignored label of the run, as training would open
    // it.
    sh_data_options options = config->config.data;
    options.folder = (char *)(uintptr_t)hooks->data_folder;
    options.seed = (uint64_t)config->config.seed;
    options.ignore = &config->config.loss.ignore_index;
    return sh_dataset_open_parts(path, &options, parts_out);
}

/* "all" where the file is not divided into a training and a test part. */
static const char *part_name(const sh_dataset_parts *parts, const sh_dataset *dataset) {
    if (parts->whole) return "all";
    return dataset == parts->train ? "train" : "test";
}

/* What a look at every sample of a part shows. */
typedef struct summary {
    bool has_range, has_target_range;  // samples are numbers; so are targets
    float least, most;                 // of the samples
    float target_least, target_most;   // of the values
    size_t *counts;                    // per class; NULL: none, or too many to look at
    size_t ignored;                    // samples whose label does not count
} summary;

/* Widens a range by some values. Comparisons keep the old bound for NaN. */
static void widen(const float *values, size_t count, float *least, float *most) {
    for (size_t i = 0; i < count; i++) {
        *least = values[i] < *least ? values[i] : *least;
        *most = values[i] > *most ? values[i] : *most;
    }
}

/* Rows hold only the values that are not zero. */
static bool is_sparse(const sh_dataset *dataset) {
    return sh_view_source(dataset)->sparse.rows > 0;
}

/* Widens the range by a sparse row: by its stored values and, unless every place is stored, by one
 * zero for all the others. */
static void widen_sparse(const sh_dataset *dataset, size_t index, summary *s) {
    const sh_sparse *sparse = &sh_view_source(dataset)->sparse;
    // A part may be a view: `at` is the row of the source behind sample `index`.
    const size_t at = sh_view_at(dataset, index), start = sparse->start[at];
    const size_t stored = sparse->start[at + 1] - start;
    widen(sparse->value + start, stored, &s->least, &s->most);
    if (stored < sparse->width) widen(&(float){0}, 1, &s->least, &s->most);
}

/* Reads all samples of a part. `x` is memory for a dense sample, NULL for sparse data; `y` for a
 * target. */
static void look(const sh_dataset *dataset, int64_t ignore, float *x, void *y, summary *s) {
    const sh_data_info *info = &dataset->info;
    bool classes = info->target == SH_TARGET_CLASS;
    size_t cells = sh_shape_count(&info->sample);
    for (size_t i = 0; i < info->count; i++) {
        dataset->get(dataset, i, x, y);
        if (x == NULL)
            widen_sparse(dataset, i, s);
        else
            widen(x, cells, &s->least, &s->most);
        if (s->has_target_range) widen(y, (size_t)info->values, &s->target_least, &s->target_most);
        if (classes && *(const int32_t *)y == ignore)
            s->ignored++;
        else if (s->counts != NULL)
            s->counts[*(const int32_t *)y]++;
    }
}

/* Summary of a part. Tokens have no range but their vocabulary, so they are not read. Caller frees
 * s->counts. */
static sh_status summarise(const sh_dataset *dataset, int64_t ignore, summary *s) {
    const sh_data_info *info = &dataset->info;
    *s = (summary){
        .least = INFINITY, .most = -INFINITY, .target_least = INFINITY, .target_most = -INFINITY};
    if (info->tokens) return SH_OK;
    // Counting needs memory for each class, and a line of thousands of numbers helps nobody.
    bool counts = info->target == SH_TARGET_CLASS && info->classes <= CLASSES_SHOWN;
    s->has_range = true;
    s->has_target_range = info->target == SH_TARGET_VALUES;
    s->counts = counts ? sh_alloc((size_t)info->classes, sizeof *s->counts) : NULL;
    bool dense = !is_sparse(dataset);
    float *x = dense ? sh_alloc(sh_shape_count(&info->sample), sizeof *x) : NULL;
    // A target of classes has no values, and takes the place of one.
    void *y = sh_alloc((size_t)info->values + 1, sizeof(float));
    sh_status status = SH_OK;
    if ((dense && x == NULL) || y == NULL || (counts && s->counts == NULL))
        status = SH_FAIL(SH_E_MEMORY, "out of memory for a look at the data");
    else
        look(dataset, ignore, x, y, s);
    sh_free(x);
    sh_free(y);
    return status;
}

/* Names of the kinds of target, in the order of their enum. */
static const char *const targets[] = {"none", "classes", "values", "tokens"};

/* One line per property; those that the data does not have are left out. */
static void print_text(const char *part, const sh_dataset *dataset, const summary *s, FILE *file) {
    const sh_data_info *info = &dataset->info;
    char shape[SH_SHAPE_TEXT];
    fprintf(file, "part:      %s\nformat:    %s\nsamples:   %zu\nsample:    %s %s\n", part,
            sh_view_source(dataset)->format, info->count, sh_shape_text(&info->sample, shape),
            info->tokens ? "tokens" : "floats");
    if (s->has_range) sh_fprintf(file, "range:     %g to %g\n", (double)s->least, (double)s->most);
    fprintf(file, "target:    %s\n", targets[info->target]);
    if (info->classes > 0) fprintf(file, "classes:   %ld\n", (long)info->classes);
    if (s->ignored > 0) fprintf(file, "ignored:   %zu samples\n", s->ignored);
    if (info->values > 0) fprintf(file, "values:    %ld\n", (long)info->values);
    if (s->has_target_range)
        sh_fprintf(file, "           %g to %g\n", (double)s->target_least, (double)s->target_most);
    if (s->counts == NULL) return;
    fprintf(file, "per class:");
    for (int64_t i = 0; i < info->classes; i++) fprintf(file, " %zu", s->counts[i]);
    fprintf(file, "\n");
}

/* [least, most], or null where there is none. */
static json_t *json_range(bool known, float least, float most) {
    return known ? json_pack("[ff]", (double)least, (double)most) : json_null();
}

/* One line with the same keys for every part, null where a property is missing. */
static void print_json(const char *path, const char *part, const sh_dataset *dataset,
                       const summary *s, FILE *file) {
    const sh_data_info *info = &dataset->info;
    // The object takes over the values that are packed into it ("o"), and is freed with them.
    json_t *shape = json_array(), *per_class = s->counts != NULL ? json_array() : json_null();
    for (int i = 0; i < info->sample.rank; i++)
        json_array_append_new(shape, json_integer(info->sample.dim[i]));
    for (int64_t i = 0; s->counts != NULL && i < info->classes; i++)
        json_array_append_new(per_class, json_integer((json_int_t)s->counts[i]));
    json_t *object = json_pack(
        "{so ss ss sI so ss so ss sI sI so so sI}", "path", sh_json_string(path), "part", part,
        "format", sh_view_source(dataset)->format, "samples", (json_int_t)info->count, "shape",
        shape, "cells", info->tokens ? "tokens" : "floats", "range",
        json_range(s->has_range, s->least, s->most), "target", targets[info->target], "classes",
        (json_int_t)info->classes, "values", (json_int_t)info->values, "target_range",
        json_range(s->has_target_range, s->target_least, s->target_most), "per_class", per_class,
        "ignored", (json_int_t)s->ignored);
    json_dumpf(object, file, JSON_COMPACT | JSON_ENSURE_ASCII);
    fputc('\n', file);
    json_decref(object);
}

/* A summary per part, the training part first. */
static sh_status describe(const shoal_config *config, const char *path, const shoal_hooks *hooks,
                          bool json, FILE *file) {
    sh_dataset_parts parts;
    SH_TRY(open_parts(config, path, hooks, &parts));
    const sh_dataset *sets[] = {parts.train, parts.test};
    sh_status status = SH_OK;
    for (size_t i = 0; i < SH_COUNT(sets) && status == SH_OK; i++) {
        if (sets[i] == NULL) continue;
        const char *part = part_name(&parts, sets[i]);
        summary s;
        status = summarise(sets[i], config->config.loss.ignore_index, &s);
        if (status == SH_OK && json)
            print_json(path, part, sets[i], &s, file);
        else if (status == SH_OK)
            print_text(part, sets[i], &s, file);
        if (!json && i == 0 && parts.test != NULL) fputc('\n', file);
        sh_free(s.counts);
    }
    sh_dataset_close_parts(&parts);
    return status;
}

shoal_status shoal_data_info(const shoal_config *config, const char *path, const shoal_hooks *hooks,
                             bool json, const shoal_sink *sink) {
    SHOAL_NEED(config);
    SHOAL_NEED(path);
    SHOAL_NEED_SINK(sink);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    return sh_sink_close(file, describe(config, path, &whole, json, file));
}

/* Opening validates labels, sizes and numbers; reading every sample through a loader, as training
 * would, proves the rest. */
static sh_status read_all(const sh_dataset *dataset) {
    if (dataset == NULL) return SH_OK;
    sh_loader_options options = {.batch = 1, .epochs = 1, .rows = is_sparse(dataset)};
    sh_loader *loader = NULL;
    SH_TRY(sh_loader_create(dataset, &options, &loader));
    sh_status status = SH_OK;
    for (const sh_batch *batch = NULL; status == SH_OK;) {
        status = sh_loader_next(loader, &batch);
        if (status != SH_OK || batch == NULL) break;
        sh_loader_release(loader, batch);
    }
    sh_loader_destroy(loader);
    return status;
}

/* Reports a part as good only after all parts have been read. */
static sh_status check(const shoal_config *config, const char *path, const shoal_hooks *hooks,
                       FILE *file) {
    sh_dataset_parts parts;
    SH_TRY(open_parts(config, path, hooks, &parts));
    const sh_dataset *sets[] = {parts.train, parts.test};
    sh_status status = read_all(parts.train);
    if (status == SH_OK) status = read_all(parts.test);
    char shown[SH_ESCAPED];
    for (size_t i = 0; i < SH_COUNT(sets) && status == SH_OK; i++)
        if (sets[i] != NULL)
            fprintf(file, "%s (%s): %zu samples, no fault found\n", sh_escaped(path, shown),
                    part_name(&parts, sets[i]), sets[i]->info.count);
    sh_dataset_close_parts(&parts);
    return status;
}

shoal_status shoal_data_check(const shoal_config *config, const char *path,
                              const shoal_hooks *hooks, const shoal_sink *sink) {
    SHOAL_NEED(config);
    SHOAL_NEED(path);
    SHOAL_NEED_SINK(sink);
    SHOAL_TAKE(shoal_hooks, whole, hooks);
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    return sh_sink_close(file, check(config, path, &whole, file));
}
