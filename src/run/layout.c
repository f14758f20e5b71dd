#include "run/layout.h"

#include <string.h>

#include "codec/codec.h"
#include "data/parts.h"
#include "parallel/pipeline.h"

/* With S stages and 4 S micro-batches the bubble of a pipeline, (S - 1) / (5 S - 1), stays
 * below a fifth of a step. */
enum { MICROS_PER_STAGE = 4 };

static const sh_option pipe_rows[] = {
    SH_TEXT_ROW(sh_pipe_options, schedule, "pipe.schedule", "1f1b",
                "order of the micro-batches: naive, gpipe, 1f1b, interleaved:V; see 'shoal explain "
                "pipeline'",
                .flag = "pipe-schedule", .value = "SCHEDULE"),
    SH_INT_ROW(sh_pipe_options, micro_batches, "pipe.micro_batches", "0", 0, SH_PIPE_MICROS_MOST,
               "parts of a batch; 0: four for each stage", .flag = "micro-batches", .value = "M"),
    SH_TEXT_ROW(sh_pipe_options, cut, "pipe.cut", NULL,
                "first layer of each stage but the first; default: by what the layers take",
                .flag = "cut", .value = "LAYER,..."),
    SH_REAL_ROW(sh_pipe_options, memory_mb, "pipe.memory_mb", "0", 0, 1e9,
                "most memory of a stage, when stages are cut; 0: no bound", .flag = "stage-mb",
                .value = "MIB"),
};
const sh_option_table sh_pipe_table = {pipe_rows, SH_COUNT(pipe_rows)};

sh_status sh_config_mesh(const sh_config *config, int64_t workers, sh_mesh_shape *shape_out) {
    if (config->layout != NULL && *config->layout != '\0')
        return sh_mesh_parse(config->layout, workers, shape_out);
    *shape_out = sh_mesh_of_data(workers > 0 ? (int)workers : 1);
    return SH_OK;
}

/* Asked of configs that were checked: an error is told there, so that none is noted here. */
bool sh_config_pipes(const sh_config *config) {
    const char *at = config->layout != NULL ? strstr(config->layout, "pipe=") : NULL;
    return at != NULL && strcmp(at, "pipe=1") != 0 && strncmp(at, "pipe=1,", 7) != 0;
}

/* Looks for names rather than parses, as sh_config_pipes does: asking must leave no error. */
bool sh_config_splits(const sh_config *config) {
    static const char *const names[] = {"pipe=", "tensor=", "space="};
    for (size_t i = 0; config->layout != NULL && i < SH_COUNT(names); i++) {
        const char *at = strstr(config->layout, names[i]);
        const char *size = at != NULL ? at + strlen(names[i]) : "1";
        if (strcmp(size, "1") != 0 && strncmp(size, "1,", 2) != 0) return true;
    }
    return false;
}

bool sh_config_mails(const sh_config *config) {
    sh_scheme scheme;
    if (sh_config_pipes(config)) return true;
    return sh_scheme_parse(config->scheme.name, &scheme) == SH_OK && scheme.kind->family->mails;
}

/* No more micro-batches than samples, so that none is empty. */
int64_t sh_config_micros(const sh_config *config, int stages) {
    int64_t micros = config->pipe.micro_batches;
    if (micros == 0) micros = MICROS_PER_STAGE * (int64_t)stages;
    return micros < config->batch ? micros : config->batch;
}

sh_status sh_layout_workers(const sh_config *config, int64_t *workers_out) {
    sh_mesh_shape shape;
    *workers_out = config->workers;
    if (config->workers > 1 || config->layout == NULL) return SH_OK;
    SH_TRY(sh_config_mesh(config, 0, &shape));
    *workers_out = sh_mesh_ranks(&shape);
    return SH_OK;
}

/* One text for all that pipelines do not go with; the hint leaves the choice to the user. */
static sh_status refuse_with(const char *other, const char *why) {
    SH_FAIL(SH_E_USAGE, "layout pipe does not go with %s: %s", other, why);
    return sh_error_hint("leave out one of the two");
}

/* What sums or shares gradients of the whole net has nothing to work on where workers have
 * different layers. */
static sh_status check_others(const sh_config *config) {
    sh_codec codec;
    sh_scheme scheme;
    SH_TRY(sh_codec_make(&config->codec, &codec));
    SH_TRY(sh_scheme_parse(config->scheme.name, &scheme));
    if (!scheme.kind->family->together)
        return refuse_with("--sync", "its workers have different layers and step together");
    if (config->exact) return refuse_with("--exact", "shards of a batch are computed whole");
    if (codec.kind != NULL) return refuse_with("--compress", "no gradient of the net is sent");
    if (config->shard_optimizer)
        return refuse_with("--shard-optimizer", "a worker keeps the state of its stages anyway");
    if (config->balance) return refuse_with("--balance", "each worker takes the whole batch");
    if (config->sync_batchnorm)
        return refuse_with("--sync-batchnorm", "statistics are those of a micro-batch");
    if (config->elastic) return refuse_with("--elastic", "a stage cannot be left out");
    if (sh_part_named(config->data.train))
        return refuse_with("data in parts", "each worker takes the whole batch");
    return SH_OK;
}

/* A pipeline cuts batches into micro-batches by itself, so --accumulate would cut them twice. */
static sh_status check_parts(const sh_config *config) {
    int64_t parts = config->pipe.micro_batches;
    if (config->accumulate > 1) {
        SH_FAIL(SH_E_USAGE, "a pipeline's parts of a batch are its micro-batches");
        return sh_error_hint("--micro-batches %ld instead of --accumulate",
                             (long)config->accumulate);
    }
    if (parts <= config->batch) return SH_OK;
    SH_FAIL(SH_E_USAGE, "a batch of %ld cannot be cut into %ld micro-batches", (long)config->batch,
            (long)parts);
    return sh_error_hint("--micro-batches %ld, or a larger --batch", (long)config->batch);
}

static sh_status check_pipe(const sh_config *config, const sh_mesh_shape *shape) {
    sh_pipeline pipeline;
    SH_TRY(sh_pipeline_init(&pipeline, config->pipe.schedule, shape->size[SH_AXIS_PIPE], 1));
    // Such schedules are for `shoal explain`: a worker has neither a rollback nor a backward in two
    // halves.
    if (pipeline.schedule->needs_rollback || pipeline.schedule->splits) {
        SH_FAIL(SH_E_UNSUPPORTED, "schedule '%s' is explained and timed, but not run",
                pipeline.schedule->name);
        return sh_error_hint("--pipe-schedule 1f1b");
    }
    SH_TRY(check_parts(config));
    return check_others(config);
}

/* The first setting that assumes whole parameters, or samples of its own, on every worker;
 * NULL: none does. */
static const char *refused_with_parts(const sh_config *config) {
    const sh_optim_kind *optim = sh_optim_find(config->optim.name);
    sh_codec codec;
    if (config->exact) return "--exact";
    if (config->shard_optimizer) return "--shard-optimizer";
    if (config->elastic) return "--elastic";
    if (config->balance) return "--balance";
    if (sh_part_named(config->data.train)) return "data in parts";
    if (sh_codec_make(&config->codec, &codec) == SH_OK && codec.kind != NULL) return "--compress";
    if (optim != NULL && optim->adaptive)
        return "an optimizer that needs norms of whole parameters";
    return NULL;
}

/* Parts of layers (tensor) or of images (space), each by itself. */
static sh_status check_parts_of_layers(const sh_config *config, const sh_mesh_shape *shape) {
    int ranks = sh_mesh_ranks(shape);
    if (shape->size[SH_AXIS_TENSOR] != ranks && shape->size[SH_AXIS_SPACE] != ranks) {
        SH_FAIL(SH_E_USAGE, "layout '%s': tensor and space are run by themselves only",
                config->layout);
        return sh_error_hint("--layout tensor=%d, or space=%d", ranks, ranks);
    }
    const char *other = refused_with_parts(config);
    if (other == NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "layout '%s' does not go with %s", config->layout, other);
    return sh_error_hint("leave out one of the two");
}

sh_status sh_layout_check(const sh_config *config) {
    sh_mesh_shape shape;
    // One worker is what a run has that says nothing: then the layout tells how many.
    SH_TRY(sh_config_mesh(config, config->workers > 1 ? config->workers : 0, &shape));
    if (shape.size[SH_AXIS_TENSOR] > 1 || shape.size[SH_AXIS_SPACE] > 1)
        return check_parts_of_layers(config, &shape);
    if (shape.size[SH_AXIS_PIPE] == 1) return SH_OK;
    return check_pipe(config, &shape);
}
