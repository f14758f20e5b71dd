#include "run/config.h"

#include <math.h>
#include <string.h>

#include "codec/codec.h"
#include "comm/schedule.h"
#include "data/parts.h"
#include "sync/graph.h"

#define AT(field) .at = offsetof(sh_config, field)

static const char *optim_choice(size_t index) {
    const sh_optim_kind *kind = sh_optim_at(index);
    return kind != NULL ? kind->name : NULL;
}

static const char *schedule_choice(size_t index) {
    const sh_schedule_kind *kind = sh_schedule_at(index);
    return kind != NULL ? kind->name : NULL;
}

static const char *loss_choice(size_t index) {
    return index == 0 ? "auto" : sh_loss_name_at(index - 1);
}

static const char *normalise_choice(size_t index) {
    static const char *const names[] = {"auto", "unit", "none"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *targets_choice(size_t index) {
    static const char *const names[] = {"auto", "classes", "values"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *tokens_choice(size_t index) {
    static const char *const names[] = {"chars", "bytes"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *kernels_choice(size_t index) {
    static const char *const names[] = {"measure", "direct", "default"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *transport_choice(size_t index) {
    static const char *const names[] = {"auto", "shm", "mpi"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *placement_choice(size_t index) {
    static const char *const names[] = {"range", "variable"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *server_ranks_choice(size_t index) {
    static const char *const names[] = {"shared", "own"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *auto_choice(size_t index) {
    static const char *const names[] = {"auto", "on", "off"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *momentum_choice(size_t index) {
    static const char *const names[] = {"auto", "average", "keep", "reset"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

static const char *graph_choice(size_t index) {
    const sh_graph_kind *kind = index > 0 ? sh_graph_at(index - 1) : NULL;
    return index == 0 ? "auto" : kind != NULL ? kind->name : NULL;
}

/* The all-reduces among the schedules. */
static const char *allreduce_choice(size_t index) {
    if (index == 0) return "auto";
    const sh_algorithm *algorithm;
    for (size_t i = 0; (algorithm = sh_algorithm_at(i)) != NULL; i++)
        if (algorithm->does == SH_ALLREDUCE && --index == 0) return algorithm->name;
    return NULL;
}

static const sh_option rows[] = {
    // One option, one paragraph.
    // clang-format off
    {.key = "model", .type = SH_OPTION_NODE, AT(model), .group = "Model", .value = "MODEL",
     .help = "a name from 'shoal list models', {name: mlp, hidden: [512]}, or a list of layers"},
    {.key = "load", .type = SH_OPTION_STRING, AT(load), .group = "Model", .value = "PATH",
     .help = "start from the parameters of a checkpoint or model file"},
    {.key = "loss.name", .flag = "loss-name", .alias = "loss", .type = SH_OPTION_STRING,
     AT(loss.name), .initial = "auto", .choices = loss_choice, .group = "Model",
     .help = "auto: cross-entropy for classes, mse for values"},
    {.key = "loss.smoothing", .type = SH_OPTION_REAL, AT(loss.smoothing), .initial = "0",
     .least = 0, .most = 0.999, .group = "Model", .help = "label smoothing of cross-entropy"},
    {.key = "loss.ignore", .type = SH_OPTION_INT, AT(loss.ignore_index), .initial = "-100",
     .least = -2147483648.0, .most = 2147483647.0, .group = "Model", .value = "LABEL",
     .help = "label that does not count"},
    {.key = "loss.delta", .type = SH_OPTION_REAL, AT(loss.delta), .initial = "1", .least = 1e-9,
     .most = 1e9, .group = "Model", .help = "where the Huber loss turns linear"},

    {.key = "data.train", .flag = "train-data", .alias = "data", .type = SH_OPTION_STRING,
     AT(data.train), .group = "Data", .value = "DATA",
     .help = "mnist, digits, shakespeare, synthetic:..., or a file; with %r in its name, a file "
             "for each worker"},
    {.key = "data.test", .flag = "test-data", .type = SH_OPTION_STRING, AT(data.test),
     .group = "Data", .value = "DATA", .help = "test data; named sets bring their own"},
    {.key = "data.validation", .flag = "validation-data", .type = SH_OPTION_STRING,
     AT(data.validation), .group = "Data", .value = "DATA", .help = "validation data"},
    {.key = "data.labels", .type = SH_OPTION_STRING, AT(data.labels), .group = "Data",
     .value = "FILE", .help = "labels, where they are in a file of their own"},
    {.key = "data.label_column", .type = SH_OPTION_STRING, AT(data.label_column), .group = "Data",
     .value = "COLUMN", .help = "CSV: name or index of the label column; default the last"},
    {.key = "data.targets", .type = SH_OPTION_STRING, AT(data.targets), .initial = "auto",
     .choices = targets_choice, .group = "Data",
     .help = "auto: whole numbers are classes; values: they are numbers to regress on"},
    {.key = "data.hold_out", .type = SH_OPTION_REAL, AT(data.hold_out), .initial = "nan",
     .least = 0, .most = 0.9, .group = "Data",
     .help = "part of the training data kept for validation; default 0, for text without a test "
             "part 0.1"},
    {.key = "data.hold_out_test", .type = SH_OPTION_REAL, AT(data.hold_out_test), .initial = "0",
     .least = 0, .most = 0.9, .group = "Data",
     .help = "part of the training data kept for testing, where there is no test data"},
    {.key = "data.batch", .type = SH_OPTION_INT, AT(batch), .initial = "128", .least = 1,
     .most = 1 << 20, .group = "Data", .value = "N", .help = "global batch: samples per step"},
    {.key = "data.context", .type = SH_OPTION_INT, AT(data.context), .initial = "64", .least = 1,
     .most = 1 << 20, .group = "Data", .value = "N", .help = "text: tokens per sample"},
    {.key = "data.tokens", .type = SH_OPTION_STRING, AT(data.tokens), .initial = "chars",
     .choices = tokens_choice, .group = "Data", .help = "text: what a token is"},
    {.key = "data.normalise", .type = SH_OPTION_STRING, AT(data.normalise), .initial = "auto",
     .choices = normalise_choice, .group = "Data",
     .help = "auto: mean 0 and deviation 1 over the training set; unit: 0 to 1"},
    {.key = "data.crop", .type = SH_OPTION_INT, AT(data.crop), .initial = "0", .least = 0,
     .most = 64, .group = "Data", .value = "N", .help = "random crops after padding by N pixels"},
    {.key = "data.flip", .type = SH_OPTION_BOOL, AT(data.flip), .initial = "false",
     .group = "Data", .help = "random horizontal flips"},
    {.key = "data.drop_last", .type = SH_OPTION_BOOL, AT(drop_last), .initial = "false",
     .group = "Data", .help = "leave out the short batch at the end of an epoch"},

    {.key = "optimizer.name", .flag = "optimizer-name", .alias = "optimizer",
     .type = SH_OPTION_STRING, AT(optim.name), .initial = "sgd", .choices = optim_choice,
     .group = "Optimizer", .help = "the update rule"},
    {.key = "optimizer.lr", .type = SH_OPTION_REAL, AT(optim.lr), .initial = "nan", .least = 0,
     .most = 1e6, .group = "Optimizer", .help = "learning rate; default the optimizer's own"},
    {.key = "optimizer.momentum", .type = SH_OPTION_REAL, AT(optim.momentum), .initial = "nan",
     .least = 0, .most = 1, .group = "Optimizer", .help = "momentum"},
    {.key = "optimizer.dampening", .type = SH_OPTION_REAL, AT(optim.dampening), .initial = "nan",
     .least = 0, .most = 1, .group = "Optimizer", .help = "dampening of momentum"},
    {.key = "optimizer.beta1", .type = SH_OPTION_REAL, AT(optim.beta1), .initial = "nan",
     .least = 0, .most = 1, .group = "Optimizer", .help = "decay of the first moment"},
    {.key = "optimizer.beta2", .type = SH_OPTION_REAL, AT(optim.beta2), .initial = "nan",
     .least = 0, .most = 1, .group = "Optimizer", .help = "decay of the second moment"},
    {.key = "optimizer.rho", .type = SH_OPTION_REAL, AT(optim.rho), .initial = "nan", .least = 0,
     .most = 1, .group = "Optimizer", .help = "RMSProp: decay of the squared gradients"},
    {.key = "optimizer.epsilon", .type = SH_OPTION_REAL, AT(optim.epsilon), .initial = "nan",
     .least = 0, .most = 1, .group = "Optimizer", .help = "added to denominators"},
    {.key = "optimizer.weight_decay", .type = SH_OPTION_REAL, AT(optim.weight_decay),
     .initial = "nan", .least = 0, .most = 10, .group = "Optimizer", .help = "weight decay"},
    {.key = "optimizer.decay_all", .type = SH_OPTION_BOOL, AT(optim.decay_all),
     .initial = "false", .group = "Optimizer", .help = "decay biases and norms too"},
    {.key = "optimizer.trust", .type = SH_OPTION_REAL, AT(optim.trust), .initial = "nan",
     .least = 0, .most = 100, .group = "Optimizer", .help = "LARS: trust coefficient"},
    {.key = "schedule.name", .flag = "schedule-name", .alias = "schedule",
     .type = SH_OPTION_STRING, AT(schedule.name), .initial = "constant",
     .choices = schedule_choice, .group = "Optimizer", .help = "learning-rate schedule"},
    {.key = "schedule.warmup", .type = SH_OPTION_REAL, AT(schedule.warmup), .initial = "0",
     .least = 0, .most = 1e12, .group = "Optimizer",
     .help = "linear warm-up: steps, or below 1 a part of the run"},
    {.key = "schedule.last", .type = SH_OPTION_REAL, AT(schedule.last), .initial = "0",
     .least = 0, .most = 1, .group = "Optimizer", .help = "final rate as a part of the peak"},
    {.key = "schedule.milestones", .type = SH_OPTION_INTS, AT(schedule.milestones), .least = 1,
     .most = 1e9, .group = "Optimizer", .value = "EPOCHS",
     .help = "step: epochs after which the rate is multiplied by gamma"},
    {.key = "schedule.gamma", .type = SH_OPTION_REAL, AT(schedule.gamma), .initial = "0.1",
     .least = 0, .most = 1, .group = "Optimizer", .help = "step: the factor"},
    {.key = "schedule.reference_batch", .type = SH_OPTION_INT, AT(schedule.reference_batch),
     .initial = "0", .least = 0, .most = 1 << 20, .group = "Optimizer", .value = "N",
     .help = "linear scaling: lr is for batch N and grows with the batch; 0: off"},
    {.key = "clip.norm", .flag = "clip-norm", .type = SH_OPTION_REAL, AT(clip_norm),
     .initial = "0", .least = 0, .most = 1e9, .group = "Optimizer",
     .help = "largest norm of the gradient; 0: any"},
    {.key = "clip.value", .flag = "clip-value", .type = SH_OPTION_REAL, AT(clip_value),
     .initial = "0", .least = 0, .most = 1e9, .group = "Optimizer",
     .help = "largest gradient element; 0: any"},
    {.key = "accumulate", .type = SH_OPTION_INT, AT(accumulate), .initial = "1", .least = 1,
     .most = 1 << 16, .group = "Optimizer", .value = "N",
     .help = "cut the batch into N parts computed one after the other"},

    {.key = "epochs", .type = SH_OPTION_INT, AT(epochs), .initial = "1", .least = 1, .most = 1e9,
     .group = "Run", .value = "N", .help = "passes over the training data"},
    {.key = "steps", .type = SH_OPTION_INT, AT(steps), .initial = "0", .least = 0, .most = 1e15,
     .group = "Run", .value = "N",
     .help = "stop after N steps, whatever the epochs; 0: no limit"},
    {.key = "target", .type = SH_OPTION_REAL, AT(target), .initial = "0", .least = 0, .most = 1,
     .group = "Run", .value = "ACCURACY", .help = "stop once the test accuracy is reached"},
    {.key = "workers", .letter = 'n', .type = SH_OPTION_INT, AT(workers), .initial = "1",
     .least = 1, .most = 100000, .group = "Workers", .value = "N",
     .help = "workers that share every batch; under mpirun, its ranks"},
    {.key = "threads", .type = SH_OPTION_INT, AT(threads), .initial = "0", .least = 0,
     .most = 1024, .group = "Workers", .value = "N",
     .help = "threads per worker; 0: its part of the cores, and one in simulate"},
    {.key = "transport", .type = SH_OPTION_STRING, AT(transport), .initial = "auto",
     .choices = transport_choice, .group = "Workers",
     .help = "auto: mpi under mpirun or srun, shared memory otherwise"},
    {.key = "sync.name", .flag = "sync-name", .alias = "sync", .type = SH_OPTION_STRING,
     AT(scheme.name), .initial = "bsp", .group = "Workers", .value = "SCHEME",
     .help = "how workers agree on the parameters: bsp, local:8, ...; 'shoal list sync'"},
    {.key = "sync.servers", .flag = "servers", .type = SH_OPTION_INT, AT(scheme.servers),
     .initial = "0", .least = 0, .most = 4096, .group = "Workers", .value = "S",
     .help = "parameter servers: parts of the parameters; 0: one on each worker, 16 at most"},
    {.key = "sync.server_ranks", .flag = "server-ranks", .type = SH_OPTION_STRING,
     AT(scheme.server_ranks), .initial = "shared", .choices = server_ranks_choice,
     .group = "Workers",
     .help = "parameter servers: shared: beside the workers; own: each has a process of its own, "
             "under mpirun the last ranks"},
    {.key = "sync.placement", .flag = "placement", .type = SH_OPTION_STRING,
     AT(scheme.placement), .initial = "range", .choices = placement_choice, .group = "Workers",
     .help = "parameter servers: equal ranges, or each variable whole on one server"},
    {.key = "sync.staleness", .flag = "staleness", .type = SH_OPTION_STRING,
     AT(scheme.staleness), .initial = "auto", .choices = auto_choice, .group = "Workers",
     .help = "divide the rate by the staleness of a gradient; auto: as the scheme's paper does, and "
             "not with --compensation"},
    {.key = "sync.compensation", .flag = "compensation", .type = SH_OPTION_REAL,
     AT(scheme.compensation), .initial = "0", .least = 0, .most = 1e6, .group = "Workers",
     .help = "delay compensation: lambda of DC-ASGD, instead of a rate divided by the staleness; 0: "
             "none"},
    {.key = "sync.fetch_every", .flag = "fetch-every", .type = SH_OPTION_INT,
     AT(scheme.fetch_every), .initial = "1", .least = 1, .most = 1e6, .group = "Workers",
     .value = "N", .help = "async: pull weights every N steps, and go on alone in between"},
    {.key = "sync.push_every", .flag = "push-every", .type = SH_OPTION_INT,
     AT(scheme.push_every), .initial = "1", .least = 1, .most = 1e6, .group = "Workers",
     .value = "N", .help = "async: push gradients every N steps, added up; at every pull anyway"},
    {.key = "sync.momentum", .flag = "sync-momentum", .type = SH_OPTION_STRING,
     AT(scheme.momentum), .initial = "auto", .choices = momentum_choice, .group = "Workers",
     .help = "the optimizer's state where models are averaged; auto: average; diloco, codecs: keep"},
    {.key = "sync.graph", .flag = "graph", .type = SH_OPTION_STRING, AT(scheme.graph),
     .initial = "auto", .choices = graph_choice, .group = "Workers",
     .help = "gossip: who talks to whom; auto: ring (in pairs: complete, sgp: exponential)"},
    {.key = "sync.snapshot_every", .flag = "snapshot-every", .type = SH_OPTION_INT,
     AT(scheme.snapshot_every), .initial = "50", .least = 1, .most = 1e9, .group = "Workers",
     .value = "N", .help = "parameter servers: updates between two snapshots of a shard; those "
                           "after the last are lost when its worker dies"},
    {.key = "sync.mixing", .flag = "mixing", .type = SH_OPTION_REAL, AT(scheme.mixing),
     .initial = "0", .least = 0, .most = 1, .group = "Workers", .value = "GAMMA",
     .help = "gossip through a codec: step towards the neighbours; 0: by the codec"},
    {.key = "sync.switch", .flag = "sync-switch", .type = SH_OPTION_REAL, AT(scheme.switch_at),
     .initial = "0.5", .least = 0, .most = 1e12, .group = "Workers",
     .help = "post-local: steps until workers go alone, or below 1 a part of the run"},
    {.key = "sync.outer_lr", .flag = "outer-lr", .type = SH_OPTION_REAL, AT(scheme.outer_lr),
     .initial = "0.7", .least = 0, .most = 100, .group = "Workers",
     .help = "diloco: rate of the outer step"},
    {.key = "sync.outer_momentum", .flag = "outer-momentum", .type = SH_OPTION_REAL,
     AT(scheme.outer_momentum), .initial = "0.9", .least = 0, .most = 1, .group = "Workers",
     .help = "diloco: Nesterov momentum of the outer step"},
    {.key = "allreduce", .type = SH_OPTION_STRING, AT(allreduce), .initial = "auto",
     .choices = allreduce_choice, .group = "Workers",
     .help = "how gradients are summed; auto: by size and measured costs"},
    {.key = "bucket_mb", .type = SH_OPTION_REAL, AT(bucket_mb), .initial = "0", .least = 0,
     .most = 1 << 20, .group = "Workers", .value = "MIB",
     .help = "gradients that travel together; 0: the default for the transport"},
    {.key = "compress.name", .flag = "compress-name", .alias = "compress",
     .type = SH_OPTION_STRING, AT(compress), .initial = "none", .group = "Workers",
     .value = "CODEC", .help = "gradients made smaller: none, fp16, qsgd:4, topk:1%, ...; "
                               "'shoal list codecs'"},
    {.key = "compress.feedback", .flag = "error-feedback", .type = SH_OPTION_BOOL, AT(feedback),
     .initial = "true", .group = "Workers",
     .help = "send later what a biased codec left out; off shows why"},
    {.key = "compress.warmup", .flag = "compress-warmup", .type = SH_OPTION_REAL,
     AT(compress_warmup), .initial = "0.1", .least = 0, .most = 1e12, .group = "Workers",
     .help = "dgc: steps until the ratio is reached, or below 1 a part of the run"},
    {.key = "balance", .type = SH_OPTION_BOOL, AT(balance), .initial = "false",
     .group = "Workers", .help = "workers of unequal speed take unequal parts of every batch"},
    {.key = "sync_batchnorm", .type = SH_OPTION_BOOL, AT(sync_batchnorm), .initial = "false",
     .group = "Workers", .help = "batchnorm takes the whole batch, not each worker its part"},
    {.key = "shard_optimizer", .type = SH_OPTION_BOOL, AT(shard_optimizer), .initial = "false",
     .group = "Workers", .help = "each worker keeps the optimizer's state of its part alone"},
    {.key = "overlap", .type = SH_OPTION_BOOL, AT(overlap), .initial = "true",
     .group = "Workers", .help = "sum gradients, or let models travel, while backward still runs"},
    {.key = "restarts", .type = SH_OPTION_INT, AT(restarts), .initial = "3", .least = 0,
     .most = 1e6, .group = "Workers", .value = "N",
     .help = "times that a run goes on after a worker died: with a new one, or (bsp, ps) from its "
             "last checkpoint"},
    {.key = "elastic", .type = SH_OPTION_BOOL, AT(elastic), .initial = "false",
     .group = "Workers", .help = "then go on with one worker less"},
    {.key = "watchdog", .type = SH_OPTION_REAL, AT(watchdog), .initial = "0", .least = 0,
     .most = 1e6, .group = "Workers", .value = "SECONDS",
     .help = "wait for a silent worker; 0: from the measured step times"},
    {.key = "check_every", .type = SH_OPTION_INT, AT(check_every), .initial = "100",
     .least = 0, .most = 1e12, .group = "Workers", .value = "STEPS",
     .help = "steps between comparisons of the workers' parameters; 0: never"},
    {.key = "seed", .type = SH_OPTION_INT, AT(seed), .initial = "1", .least = 0, .most = 9e15,
     .group = "Run", .value = "N", .help = "of every random draw"},
    {.key = "exact", .type = SH_OPTION_BOOL, AT(exact), .initial = "false", .group = "Run",
     .help = "the same bits with any number of workers and threads"},
    {.key = "shards", .type = SH_OPTION_INT, AT(shards), .initial = "8", .least = 1,
     .most = 4096, .group = "Run", .value = "N",
     .help = "exact: parts of a batch that are computed alone; they fix the bits"},
    {.key = "kernels", .type = SH_OPTION_STRING, AT(kernels), .initial = "measure",
     .choices = kernels_choice, .group = "Run",
     .help = "measure: the fastest per shape, remembered; direct: without Winograd's algorithm, "
             "which rounds more; default: the usual one"},

    {.key = "out", .type = SH_OPTION_STRING, AT(out), .group = "Output", .value = "DIR",
     .help = "folder of the run; default runs/NAME"},
    {.key = "name", .type = SH_OPTION_STRING, AT(name), .group = "Output", .value = "NAME",
     .help = "name of the run; default from the run file or the model"},
    {.key = "overwrite", .type = SH_OPTION_BOOL, AT(overwrite), .initial = "false",
     .group = "Output", .help = "start afresh in a folder that holds a run"},
    {.key = "resume", .type = SH_OPTION_STRING, AT(resume), .group = "Output", .value = "PATH",
     .help = "continue from the newest checkpoint of a run; without PATH, of this one; auto: if it has any"},
    {.key = "checkpoint.every", .flag = "checkpoint-every", .type = SH_OPTION_INT,
     AT(checkpoint_every), .initial = "0", .least = 0, .most = 1e12, .group = "Output",
     .value = "STEPS", .help = "steps between checkpoints; 0: one per epoch"},
    {.key = "checkpoint.keep", .flag = "checkpoint-keep", .type = SH_OPTION_INT,
     AT(checkpoint_keep), .initial = "3", .least = 1, .most = 1000000, .group = "Output",
     .value = "K", .help = "checkpoints kept, the newest"},
    {.key = "eval.every", .flag = "eval-every", .type = SH_OPTION_REAL, AT(eval_every),
     .initial = "0", .least = 0, .most = 1e12, .group = "Output", .value = "STEPS",
     .help = "steps between evaluations, or below 1 a part of the run; 0: one per epoch"},
    {.key = "eval.batch", .flag = "eval-batch", .type = SH_OPTION_INT, AT(eval_batch),
     .initial = "0", .least = 0, .most = 1 << 20, .group = "Output", .value = "N",
     .help = "samples per evaluation step; 0: as in training"},
    {.key = "log_every", .type = SH_OPTION_INT, AT(log_every), .initial = "50", .least = 1,
     .most = 1e9, .group = "Output", .value = "STEPS", .help = "steps between lines of metrics"},
    {.key = "trace", .type = SH_OPTION_BOOL, AT(trace), .initial = "false", .group = "Output",
     .help = "write trace.json for chrome://tracing or Perfetto"},
    {.key = "tensorboard", .type = SH_OPTION_BOOL, AT(tensorboard), .initial = "false",
     .group = "Output", .help = "write the metrics as TensorBoard's event files, too"},
    // clang-format on
};

const sh_option_table sh_config_table = {rows, SH_COUNT(rows)};

sh_status sh_config_init(sh_config *config) { return sh_options_init(sh_config_table, config); }

void sh_config_fini(sh_config *config) { sh_options_fini(sh_config_table, config); }

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
    if (config->workers > config->batch) {
        SH_FAIL(SH_E_USAGE, "a batch of %ld has no work for %ld workers", (long)config->batch,
                (long)config->workers);
        return sh_error_hint("use a larger batch (--batch), or fewer workers (-n %ld)",
                             (long)config->batch);
    }
    sh_scheme scheme;
    SH_TRY(sh_scheme_parse(config->scheme.name, &scheme));
    SH_TRY(check_servers(config, scheme));
    sh_codec codec;
    SH_TRY(sh_codec_parse(config->compress, &codec));
    SH_TRY(check_exact(config, &codec));
    if (codec.kind != NULL && config->shard_optimizer) {
        SH_FAIL(SH_E_USAGE,
                "a sharded optimizer sums only its part of a gradient, and '%s' sends "
                "whole ones",
                config->compress);
        return sh_error_hint("leave out --shard-optimizer or --compress");
    }
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
    return sh_config_check_out(config);
}
