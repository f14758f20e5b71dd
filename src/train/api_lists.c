/* What there is: registries, data sets, and what this machine offers. */
#include <stdio.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "codec/codec.h"
#include "comm/schedule.h"
#include "comm/transports/mpi.h"
#include "data/fetch.h"
#include "data/loader.h"
#include "data/reader.h"
#include "shoal/shoal.h"
#include "sync/graph.h"
#include "tensor/kernels/machine.h"
#include "tensor/kernels/simd.h"
#include "train/config.h"
#include "train/run.h"

/* One line per registry: its name and how to reach row `index`. */
#define ROW_FUNCTION(id, type, at)                                             \
    static bool row_##id(size_t index, const char **name, const char **help) { \
        const type *row = at(index);                                           \
        if (row == NULL) return false;                                         \
        *name = row->name;                                                     \
        *help = row->help;                                                     \
        return true;                                                           \
    }

ROW_FUNCTION(models, sh_model_kind, sh_model_at)
ROW_FUNCTION(layers, sh_layer_kind, sh_layer_at)
ROW_FUNCTION(losses, sh_loss_kind, sh_loss_at)
ROW_FUNCTION(optimizers, sh_optim_kind, sh_optim_at)
ROW_FUNCTION(schedules, sh_schedule_kind, sh_schedule_at)
ROW_FUNCTION(codecs, sh_codec_kind, sh_codec_at)
ROW_FUNCTION(sync, sh_sync_kind, sh_sync_at)
ROW_FUNCTION(graphs, sh_graph_kind, sh_graph_at)
ROW_FUNCTION(readers, sh_reader, sh_reader_at)
ROW_FUNCTION(data, sh_data_name, sh_data_name_at)

/* The name of a row says what it does and how: "allreduce ring". */
static bool row_collectives(size_t index, const char **name, const char **help) {
    static _Thread_local char text[64];
    const sh_algorithm *row = sh_algorithm_at(index);
    if (row == NULL) return false;
    snprintf(text, sizeof text, "%s %s", sh_collective_name(row->does), row->name);
    *name = text;
    *help = row->help;
    return true;
}

static const struct {
    const char *kind;
    bool (*row)(size_t index, const char **name, const char **help);
} registries[] = {
    {"models", row_models},           {"layers", row_layers},       {"losses", row_losses},
    {"optimizers", row_optimizers},   {"schedules", row_schedules}, {"readers", row_readers},
    {"collectives", row_collectives}, {"codecs", row_codecs},       {"sync", row_sync},
    {"graphs", row_graphs},           {"data", row_data},
};

const char *shoal_list_kind(size_t index) {
    return index < SH_COUNT(registries) ? registries[index].kind : NULL;
}

static const char *kind_name(const void *names, size_t index) {
    (void)names;
    return shoal_list_kind(index);
}

shoal_status shoal_list(const char *kind,
                        void (*row)(void *user, const char *name, const char *help), void *user) {
    for (size_t i = 0; i < SH_COUNT(registries); i++) {
        if (strcmp(registries[i].kind, kind) != 0) continue;
        const char *name, *help;
        for (size_t k = 0; registries[i].row(k, &name, &help); k++) row(user, name, help);
        return SHOAL_OK;
    }
    SH_FAIL(SH_E_USAGE, "there is no list of '%s'", kind);
    const char *near = sh_nearest(kind, kind_name, NULL);
    return (shoal_status)sh_error_hint("'shoal list %s', or 'shoal list' for all",
                                       near != NULL ? near : "models");
}

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

/* How often each class occurs, for data that has classes. */
static sh_status print_classes(const sh_dataset *dataset, FILE *file) {
    const sh_data_info *info = &dataset->info;
    if (info->target != SH_TARGET_CLASS || info->classes > 1000) return SH_OK;
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
    fprintf(file, "per class:");
    for (int64_t i = 0; i < info->classes; i++) fprintf(file, " %zu", counts[i]);
    fprintf(file, "\n");
    sh_free(counts);
    sh_free(x);
    return SH_OK;
}

shoal_status shoal_data_info(const shoal_config *config, const char *path, const shoal_hooks *hooks,
                             FILE *file) {
    static const char *const targets[] = {"none", "classes", "values", "tokens"};
    sh_dataset *dataset = NULL;
    SHOAL_TRY(open_part(config, path, hooks, &dataset));
    const sh_data_info *info = &dataset->info;
    char shape[SH_SHAPE_TEXT];
    fprintf(file, "samples:   %zu\nsample:    %s %s\ntarget:    %s\n", info->count,
            sh_shape_text(&info->sample, shape), info->tokens ? "tokens" : "floats",
            targets[info->target]);
    if (info->classes > 0) fprintf(file, "classes:   %ld\n", (long)info->classes);
    if (info->values > 0) fprintf(file, "values:    %ld\n", (long)info->values);
    sh_status status = print_classes(dataset, file);
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

static void print_space(const char *what, const char *folder, FILE *file) {
    struct statvfs info;
    if (folder == NULL || statvfs(folder, &info) != 0) {
        fprintf(file, "%-16s %s (not there yet)\n", what, folder != NULL ? folder : "none");
        return;
    }
    double free_bytes = (double)info.f_bavail * (double)info.f_frsize;
    fprintf(file, "%-16s %s, %.1f GiB free\n", what, folder, free_bytes / 0x1p30);
}

/* The module by which runs go over machines: its MPI and its place, or what is wrong with it. */
static void print_mpi(const char *what, sh_mpi_flavour flavour, FILE *file) {
    sh_mpi_report report;
    sh_mpi_probe(flavour, &report);
    const char *between = report.loads ? ", " : report.found ? "; " : "";
    fprintf(file, "%-16s %s%s%s\n", what, report.text, between, report.path);
}

void shoal_doctor(const shoal_hooks *hooks, FILE *file) {
    char text[SH_MACHINE_TEXT];
    double memory = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    fprintf(file, "%-16s %s\n", "shoal", SHOAL_VERSION);
    fprintf(file, "%-16s %s\n", "processor", sh_machine_processor(text));
    fprintf(file, "%-16s %ld\n", "cores", sysconf(_SC_NPROCESSORS_ONLN));
    fprintf(file, "%-16s %s%s\n", "instructions", sh_simd_name(sh_simd_level_get()),
            sh_simd_level_get() == SH_SIMD_BASE ? " (no AVX2: kernels run at a fraction)" : "");
    fprintf(file, "%-16s %.1f GiB\n", "memory", memory / 0x1p30);
    fprintf(file, "%-16s %s\n", "oneDNN", sh_machine_onednn(text));
    fprintf(file, "%-16s %s\n", "OpenBLAS", sh_machine_openblas(text));
    print_space("shared memory", "/dev/shm", file);
    print_mpi("Open MPI", SH_MPI_OPENMPI, file);
    print_mpi("MPICH", SH_MPI_MPICH, file);
    const char *folder = hooks != NULL ? hooks->data_folder : NULL;
    print_space("data folder", folder, file);
    print_space("cache folder", hooks != NULL ? hooks->cache_folder : NULL, file);
    for (size_t i = 0; sh_data_name_at(i) != NULL && folder != NULL; i++) {
        const char *name = sh_data_name_at(i)->name;
        bool there = sh_data_has(name, folder);
        fprintf(file, "%-16s %s%s\n", name, there ? "there" : "missing: shoal data get ",
                there ? "" : name);
    }
}
