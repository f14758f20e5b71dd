/* The options of a run itself, and the table of all: rows of the parts, and of single rows of their
 * registries, each with its place in sh_config. */
#include "run/config.h"

#include <math.h>
#include <pthread.h>
#include <string.h>

#include "codec/codec.h"
#include "comm/schedule.h"
#include "data/parts.h"
#include "run/layout.h"

static const char *kernels_choice(size_t index) {
    static const char *const names[] = {"measure", "direct", "default"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *transport_choice(size_t index) {
    static const char *const names[] = {"auto", "shm", "mpi"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

/* The all-reduces among the schedules. */
static const char *allreduce_choice(size_t index) {
    if (index == 0) return "auto";
    const sh_algorithm *algorithm;
    for (size_t i = 0; (algorithm = sh_algorithm_at(i)) != NULL; i++)
        if (algorithm->does == SH_ALLREDUCE && --index == 0) return algorithm->name;
    return NULL;
}

/* The rows of sh_config itself, in the order of the help. */
static const sh_option model_rows[] = {
    SH_NODE_ROW(sh_config, model, "model",
                "a name from 'shoal list models', {name: mlp, hidden: [512]}, or a list of layers",
                .group = "Model", .value = "MODEL"),
    SH_TEXT_ROW(sh_config, load, "load", NULL,
                "start from the parameters of a checkpoint or model file", .group = "Model",
                .value = "PATH"),
};

static const sh_option batch_rows[] = {
    SH_INT_ROW(sh_config, batch, "data.batch", "128", 1, 1 << 20, "global batch: samples per step",
               .group = "Data", .value = "N"),
    SH_BOOL_ROW(sh_config, drop_last, "data.drop_last", "false",
                "leave out the short batch at the end of an epoch", .group = "Data"),
};

static const sh_option step_rows[] = {
    SH_REAL_ROW(sh_config, clip_norm, "clip.norm", "0", 0, 1e9,
                "largest norm of the gradient; 0: any", .flag = "clip-norm", .group = "Optimizer"),
    SH_REAL_ROW(sh_config, clip_value, "clip.value", "0", 0, 1e9,
                "largest gradient element; 0: any", .flag = "clip-value", .group = "Optimizer"),
    SH_INT_ROW(sh_config, accumulate, "accumulate", "1", 1, 1 << 16,
               "cut the batch into N parts computed one after the other", .group = "Optimizer",
               .value = "N"),
    SH_INT_ROW(sh_config, epochs, "epochs", "1", 1, 1e9, "passes over the training data",
               .group = "Run", .value = "N"),
    SH_INT_ROW(sh_config, steps, "steps", "0", 0, 1e15,
               "stop after N steps, whatever the epochs; 0: no limit", .group = "Run",
               .value = "N"),
    SH_REAL_ROW(sh_config, target, "target", "0", 0, 1, "stop once the test accuracy is reached",
                .group = "Run", .value = "ACCURACY"),
    SH_INT_ROW(sh_config, workers, "workers", "1", 1, 100000,
               "workers that share every batch; under mpirun, its ranks", .letter = 'n',
               .group = "Workers", .value = "N"),
    SH_TEXT_ROW(sh_config, layout, "layout", NULL,
                "what workers share: data=4 (the batch), pipe=2 (the layers), tensor=2 (parts of "
                "layers), space=2 "
                "(images); default: the batch",
                .group = "Workers", .value = "LAYOUT"),
    SH_INT_ROW(sh_config, threads, "threads", "0", 0, 1024,
               "threads per worker; 0: its part of the cores, and one in simulate",
               .group = "Workers", .value = "N"),
    SH_TEXT_ROW(sh_config, transport, "transport", "auto",
                "auto: mpi under mpirun or srun, shared memory otherwise",
                .choices = transport_choice, .group = "Workers"),
};

static const sh_option sum_rows[] = {
    SH_TEXT_ROW(sh_config, allreduce, "allreduce", "auto",
                "how gradients are summed; auto: by size and measured costs",
                .choices = allreduce_choice, .group = "Workers"),
    SH_REAL_ROW(sh_config, bucket_mb, "bucket_mb", "0", 0, 1 << 20,
                "gradients that travel together; 0: the default for the transport",
                .group = "Workers", .value = "MIB"),
};

static const sh_option run_rows[] = {
    SH_BOOL_ROW(sh_config, balance, "balance", "false",
                "workers of unequal speed take unequal parts of every batch", .group = "Workers"),
    SH_BOOL_ROW(sh_config, sync_batchnorm, "sync_batchnorm", "false",
                "batchnorm takes the whole batch, not each worker its part", .group = "Workers"),
    SH_BOOL_ROW(sh_config, shard_optimizer, "shard_optimizer", "false",
                "each worker keeps the optimizer's state of its part alone", .group = "Workers"),
    SH_BOOL_ROW(sh_config, overlap, "overlap", "true",
                "sum gradients, or let models travel, while backward still runs",
                .group = "Workers"),
    SH_INT_ROW(sh_config, restarts, "restarts", "3", 0, 1e6,
               "times that a run goes on after a worker died: with a new one, or (bsp, ps) from "
               "its last checkpoint",
               .group = "Workers", .value = "N"),
    SH_BOOL_ROW(sh_config, elastic, "elastic", "false", "then go on with one worker less",
                .group = "Workers"),
    SH_REAL_ROW(sh_config, watchdog, "watchdog", "0", 0, 1e6,
                "wait for a silent worker; 0: from the measured step times", .group = "Workers",
                .value = "SECONDS"),
    SH_INT_ROW(sh_config, check_every, "check_every", "100", 0, 1e12,
               "steps between comparisons of the workers' parameters; 0: never", .group = "Workers",
               .value = "STEPS"),
    SH_INT_ROW(sh_config, seed, "seed", "1", 0, 9e15, "of every random draw", .group = "Run",
               .value = "N"),
    SH_BOOL_ROW(sh_config, exact, "exact", "false",
                "the same bits with any number of workers and threads", .group = "Run"),
    SH_INT_ROW(sh_config, shards, "shards", "8", 1, 4096,
               "exact: parts of a batch that are computed alone; they fix the bits", .group = "Run",
               .value = "N"),
    SH_TEXT_ROW(sh_config, kernels, "kernels", "measure",
                "measure: the fastest per shape, remembered; direct: without Winograd's algorithm, "
                "which rounds more; default: the usual one",
                .choices = kernels_choice, .group = "Run"),
    SH_TEXT_ROW(sh_config, out, "out", NULL, "folder of the run; default runs/NAME",
                .group = "Output", .value = "DIR"),
    SH_TEXT_ROW(sh_config, name, "name", NULL,
                "name of the run; default from the run file or the model", .group = "Output",
                .value = "NAME"),
    SH_BOOL_ROW(sh_config, overwrite, "overwrite", "false",
                "start afresh in a folder that holds a run", .group = "Output"),
    SH_TEXT_ROW(sh_config, resume, "resume", NULL,
                "continue from the newest checkpoint of a run; without PATH, of this one; auto: if "
                "it has any",
                .group = "Output", .value = "PATH"),
    SH_INT_ROW(sh_config, checkpoint_every, "checkpoint.every", "0", 0, 1e12,
               "steps between checkpoints; 0: one per epoch", .flag = "checkpoint-every",
               .group = "Output", .value = "STEPS"),
    SH_INT_ROW(sh_config, checkpoint_keep, "checkpoint.keep", "3", 1, 1000000,
               "checkpoints kept, the newest", .flag = "checkpoint-keep", .group = "Output",
               .value = "K"),
    SH_REAL_ROW(sh_config, eval_every, "eval.every", "0", 0, 1e12,
                "steps between evaluations, or below 1 a part of the run; 0: one per epoch",
                .flag = "eval-every", .group = "Output", .value = "STEPS"),
    SH_INT_ROW(sh_config, eval_batch, "eval.batch", "0", 0, 1 << 20,
               "samples per evaluation step; 0: as in training", .flag = "eval-batch",
               .group = "Output", .value = "N"),
    SH_INT_ROW(sh_config, log_every, "log_every", "50", 1, 1e9, "steps between lines of metrics",
               .group = "Output", .value = "STEPS"),
    SH_BOOL_ROW(sh_config, trace, "trace", "false",
                "write trace.json for chrome://tracing or Perfetto", .group = "Output"),
    SH_BOOL_ROW(sh_config, tensorboard, "tensorboard", "false",
                "write the metrics as TensorBoard's event files, too", .group = "Output"),
};

#define OWN_TABLE(rows) (&(const sh_option_table){rows, SH_COUNT(rows)})

/* Where the rows of a part come from, and where their struct lies in sh_config. */
typedef struct part {
    const sh_option_table *table;  // NULL: the rows that single rows of `own` have
    sh_own_at *own;
    size_t at;
    const char *group;  // of rows that name none
} part;

static const part parts[] = {
    {OWN_TABLE(model_rows), NULL, 0, NULL},
    {&sh_loss_table, NULL, offsetof(sh_config, loss), "Model"},
    {&sh_data_table, NULL, offsetof(sh_config, data), "Data"},
    {OWN_TABLE(batch_rows), NULL, 0, NULL},
    {&sh_optim_table, NULL, offsetof(sh_config, optim), "Optimizer"},
    {NULL, sh_optim_own_at, offsetof(sh_config, optim.own), "Optimizer"},
    {&sh_schedule_table, NULL, offsetof(sh_config, schedule), "Optimizer"},
    {OWN_TABLE(step_rows), NULL, 0, NULL},
    {&sh_sync_table, NULL, offsetof(sh_config, scheme), "Workers"},
    {NULL, sh_sync_own_at, offsetof(sh_config, scheme.own), "Workers"},
    {&sh_pipe_table, NULL, offsetof(sh_config, pipe), "Pipeline"},
    {OWN_TABLE(sum_rows), NULL, 0, NULL},
    {&sh_codec_table, NULL, offsetof(sh_config, codec), "Workers"},
    {NULL, sh_codec_own_at, offsetof(sh_config, codec.own), "Workers"},
    {OWN_TABLE(run_rows), NULL, 0, NULL},
};

enum { ROWS_MOST = 256 };

/* Written once, before anybody reads it. */
static struct {
    pthread_once_t once;
    sh_option rows[ROWS_MOST];
    size_t count;
} whole = {.once = PTHREAD_ONCE_INIT};

/* Appends rows of a part. Their places count from the part's own struct, so its offset in
 * sh_config is added; rows without a group take the part's. */
static void add_rows(sh_option_table table, size_t at, const char *group) {
    for (size_t i = 0; i < table.count; i++) {
        SH_ASSERT(whole.count < ROWS_MOST);
        sh_option *row = &whole.rows[whole.count++];
        *row = table.rows[i];
        row->at += at;
        if (row->group == NULL) row->group = group;
    }
}

/* Runs once, under pthread_once. The order of `parts` is that of the help and of a printed run
 * file. */
static void compose(void) {
    for (size_t i = 0; i < SH_COUNT(parts); i++) {
        const part *p = &parts[i];
        if (p->table != NULL) add_rows(*p->table, p->at, p->group);
        for (size_t k = 0; p->table == NULL && p->own(k) != NULL; k++)
            add_rows(p->own(k)->table, p->at + sh_own_offset(p->own, k), p->group);
    }
}

/* Any thread may ask: the table is written before the first call returns, and never again. */
sh_option_table sh_config_table(void) {
    pthread_once(&whole.once, compose);
    return (sh_option_table){whole.rows, whole.count};
}

sh_status sh_config_init(sh_config *config) { return sh_options_init(sh_config_table(), config); }

void sh_config_fini(sh_config *config) { sh_options_fini(sh_config_table(), config); }

/* What would make the bits depend on the workers again. */
static sh_status check_exact(const sh_config *config, const sh_codec *codec) {
    const char *other = NULL;
    if (codec->kind != NULL) other = "--compress";
    if (config->shard_optimizer) other = "--shard-optimizer";
    if (config->balance) other = "--balance";
    if (config->sync_batchnorm) other = "--sync-batchnorm";
    const char *data[] = {config->data.train, config->data.test, config->data.validation};
    for (size_t i = 0; i < SH_COUNT(data); i++)
        if (data[i] != NULL && sh_part_named(data[i])) other = "data with a part for each worker";
    if (!config->exact || other == NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "an exact run does not go with %s", other);
    return sh_error_hint("leave out that, or --exact");
}

/* Only parameter servers can live without a worker beside them. */
static sh_status check_servers(const sh_config *config, sh_scheme scheme) {
    if (!sh_sync_apart(&config->scheme) || scheme.kind->policy != NULL) return SH_OK;
    SH_FAIL(SH_E_USAGE, "scheme '%s' has no parameter servers to give ranks of their own",
            scheme.kind->name);
    return sh_error_hint("leave out --server-ranks own, or use --sync ps, async or ssp");
}

sh_status sh_config_check_out(const sh_config *config) {
    if (config->out == NULL || *config->out != '\0') return SH_OK;
    SH_FAIL(SH_E_USAGE, "--out '' names no folder");
    return sh_error_hint("--out runs/NAME, or leave it out");
}

/* Options of a single row mean nothing with another: refused rather than believed to act. Schemes
 * have rules of their own (run/scheme.c). */
static sh_status check_own(sh_own_at *own, const void *block, const sh_own_options *chosen,
                           const char *what, const char *name) {
    for (size_t k = 0; own(k) != NULL; k++) {
        const char *target = (const char *)block + sh_own_offset(own, k);
        for (size_t i = 0; own(k) != chosen && i < own(k)->table.count; i++) {
            const sh_option *row = &own(k)->table.rows[i];
            if (sh_option_is_initial(row, target)) continue;
            SH_FAIL(SH_E_USAGE, "--%s means nothing to %s '%s'", sh_option_flag(row), what, name);
            return sh_error_hint("leave it out, or choose another %s", what);
        }
    }
    return SH_OK;
}

/* Own rows of the optimizers and codecs that were not chosen must be as they are by default. */
static sh_status check_rows(const sh_config *config, const sh_codec *codec) {
    const sh_optim_kind *optim = sh_optim_find(config->optim.name);
    SH_TRY(check_own(sh_optim_own_at, &config->optim.own, optim != NULL ? &optim->own : NULL,
                     "optimizer", config->optim.name));
    return check_own(sh_codec_own_at, &config->codec.own,
                     codec->kind != NULL ? &codec->kind->own : NULL, "codec", config->codec.name);
}

/* What is missing comes first, then what does not go together; the first finding is told, with
 * the option that cures it. */
sh_status sh_config_check(const sh_config *config) {
    if (config->model == NULL) {
        SH_FAIL(SH_E_USAGE, "no model is given");
        return sh_error_hint(
            "add 'model: lenet' to the run file or --model lenet; 'shoal list models'");
    }
    if (config->data.train == NULL) {
        SH_FAIL(SH_E_USAGE, "no data is given");
        return sh_error_hint(
            "add 'data: mnist' to the run file or --data mnist; 'shoal list data'");
    }
    // Workers that split the model see the same samples, so they may outnumber them.
    if (!sh_config_splits(config) && config->workers > config->batch) {
        SH_FAIL(SH_E_USAGE, "a batch of %ld has no work for %ld workers", (long)config->batch,
                (long)config->workers);
        return sh_error_hint("use a larger batch (--batch), or fewer workers (-n %ld)",
                             (long)config->batch);
    }
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(config->scheme.name, &scheme));
    SH_TRY(check_servers(config, scheme));
    sh_codec codec;
    SH_TRY(sh_codec_make(&config->codec, &codec));
    SH_TRY(check_exact(config, &codec));
    SH_TRY(check_rows(config, &codec));
    if (codec.kind != NULL && config->shard_optimizer) {
        SH_FAIL(SH_E_USAGE,
                "a sharded optimizer sums only its part of a gradient, and '%s' sends "
                "whole ones",
                config->codec.name);
        return sh_error_hint("leave out --shard-optimizer or --compress");
    }
    // Parts belong to workers by their number: with one worker less, one part would never be read
    // again.
    if (config->elastic && config->workers > 1 && sh_part_named(config->data.train)) {
        SH_FAIL(SH_E_USAGE, "elastic runs go on with fewer workers, but '%s' has a part for each",
                config->data.train);
        return sh_error_hint("leave elastic out, or give all workers the same data");
    }
    if (config->sync_batchnorm && config->accumulate > 1) {
        SH_FAIL(SH_E_USAGE, "sync_batchnorm needs a whole batch at once, accumulate cuts it");
        return sh_error_hint("use more workers instead of --accumulate");
    }
    if (config->accumulate > config->batch) {
        SH_FAIL(SH_E_USAGE, "a batch of %ld cannot be cut into %ld parts", (long)config->batch,
                (long)config->accumulate);
        return sh_error_hint("use --accumulate %ld or less, or a larger --batch",
                             (long)config->batch);
    }
    SH_TRY(sh_layout_check(config));
    return sh_config_check_out(config);
}
