/* Data sets: fetched, described, checked. */
#include <stdio.h>

#include "base/json.h"
#include "data/fetch.h"
#include "data/loader.h"
#include "shoal/shoal.h"
#include "train/config.h"
#include "train/run.h"

enum { CLASSES_SHOWN = 1000 };

static void hook_line(void *self, sh_log_level level, const char *text) {
    const shoal_hooks *hooks = self;
    hooks->line(hooks->user, (int)level, text);
}

static sh_log log_of(const shoal_hooks *hooks) {
    bool speaks = hooks != NULL && hooks->line != NULL;
    return (sh_log){.line = speaks ? hook_line : NULL, .self = (void *)(uintptr_t)hooks};
}

shoal_status shoal_data_get(const char *name, const shoal_hooks *hooks) {
    sh_log log = log_of(hooks);
    if (hooks == NULL || hooks->data_folder == NULL)
        return (shoal_status)SH_FAIL(SH_E_USAGE, "there is no folder to keep data in");
    return (shoal_status)sh_data_get(name, hooks->data_folder, &log, NULL);
}

static sh_status open_part(const shoal_config *config, const char *path, const shoal_hooks *hooks,
                           sh_dataset **dataset_out) {
    sh_data_options options = config->config.data;
    options.folder = hooks != NULL ? (char *)(uintptr_t)hooks->data_folder : NULL;
    return sh_dataset_open(path, &options, NULL, NULL, dataset_out);
}

/* How often each class occurs; NULL where the data has none, or too many to look at. sh_free it. */
static sh_status count_classes(const sh_dataset *dataset, size_t **counts_out) {
    const sh_data_info *info = &dataset->info;
    *counts_out = NULL;
    if (info->target != SH_TARGET_CLASS || info->classes > CLASSES_SHOWN) return SH_OK;
    size_t *counts = sh_alloc((size_t)info->classes, sizeof *counts);
    void *x = sh_alloc(sh_shape_count(&info->sample), sizeof(float));
    if (counts == NULL || x == NULL) {
        sh_free(counts);
        sh_free(x);
        return SH_FAIL(SH_E_MEMORY, "out of memory for class counts");
    }
    for (size_t i = 0; i < info->count; i++) {
        int32_t label;
        dataset->get(dataset, i, x, &label);
        counts[label]++;
    }
    sh_free(x);
    *counts_out = counts;
    return SH_OK;
}

static const char *const targets[] = {"none", "classes", "values", "tokens"};

static void print_text(const sh_data_info *info, const size_t *counts, FILE *file) {
    char shape[SH_SHAPE_TEXT];
    fprintf(file, "samples:   %zu\nsample:    %s %s\ntarget:    %s\n", info->count,
            sh_shape_text(&info->sample, shape), info->tokens ? "tokens" : "floats",
            targets[info->target]);
    if (info->classes > 0) fprintf(file, "classes:   %ld\n", (long)info->classes);
    if (info->values > 0) fprintf(file, "values:    %ld\n", (long)info->values);
    if (counts == NULL) return;
    fprintf(file, "per class:");
    for (int64_t i = 0; i < info->classes; i++) fprintf(file, " %zu", counts[i]);
    fprintf(file, "\n");
}

static void print_json(const char *path, const sh_data_info *info, const size_t *counts,
                       FILE *file) {
    json_t *shape = json_array(), *per_class = counts != NULL ? json_array() : json_null();
    for (int i = 0; i < info->sample.rank; i++)
        json_array_append_new(shape, json_integer(info->sample.dim[i]));
    for (int64_t i = 0; counts != NULL && i < info->classes; i++)
        json_array_append_new(per_class, json_integer((json_int_t)counts[i]));
    json_t *object =
        json_pack("{ss sI so ss ss sI sI so}", "path", path, "samples", (json_int_t)info->count,
                  "shape", shape, "cells", info->tokens ? "tokens" : "floats", "target",
                  targets[info->target], "classes", (json_int_t)info->classes, "values",
                  (json_int_t)info->values, "per_class", per_class);
    json_dumpf(object, file, JSON_COMPACT);
    fputc('\n', file);
    json_decref(object);
}

shoal_status shoal_data_info(const shoal_config *config, const char *path, const shoal_hooks *hooks,
                             bool json, FILE *file) {
    sh_dataset *dataset = NULL;
    size_t *counts = NULL;
    SHOAL_TRY(open_part(config, path, hooks, &dataset));
    sh_status status = count_classes(dataset, &counts);
    if (status == SH_OK && json)
        print_json(path, &dataset->info, counts, file);
    else if (status == SH_OK)
        print_text(&dataset->info, counts, file);
    sh_free(counts);
    sh_dataset_destroy(dataset);
    return (shoal_status)status;
}

/* Opening validates labels, sizes and numbers; reading every sample proves the rest. */
shoal_status shoal_data_check(const shoal_config *config, const char *path,
                              const shoal_hooks *hooks) {
    sh_dataset *dataset = NULL;
    SHOAL_TRY(open_part(config, path, hooks, &dataset));
    sh_loader_options options = {.batch = 1, .epochs = 1};
    sh_loader *loader = NULL;
    sh_status status = sh_loader_create(dataset, &options, &loader);
    while (status == SH_OK) {
        const sh_batch *batch;
        status = sh_loader_next(loader, &batch);
        if (status != SH_OK || batch == NULL) break;
        sh_loader_release(loader, batch);
    }
    sh_loader_destroy(loader);
    sh_dataset_destroy(dataset);
    return (shoal_status)status;
}
