/* shoal_explain: the layer table of a run, its memory and its kernels, as one of its workers has
 * them. The run is opened as for training, with an executor of the size that a worker computes at
 * a time, but no step is taken. What several workers cost is in explain_team.c. */
#include "api/explain.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "data/parts.h"
#include "tensor/kernels/activation.h"
#include "host/launch.h"
#include "api/sink.h"
#include "shoal/tools.h"
#include "run/layout.h"
#include "run/parts.h"

/* The op that computes a layer; NULL: a neighbour has absorbed it (relu into dense, for example).
 */
static const sh_op *op_of(const sh_executor *executor, const sh_layer *layer) {
    for (size_t i = 0; i < executor->op_count; i++)
        if (executor->ops[i]->layer == layer) return executor->ops[i];
    return NULL;
}

/* Parameters that a layer adds: tied ones are counted where they are owned. */
static size_t owned_params(const sh_net *net, const sh_layer *layer) {
    size_t count = 0;
    for (int i = 0; i < layer->param_count; i++)
        if (!layer->param_specs[i].tied) count += net->params.items[layer->params[i]].count;
    return count;
}

/* Layer table, left of its kernels: three columns of words, three of numbers, each as wide as its
 * widest cell. */
enum { COLUMNS = 6, WORDS = 3, CELL_BYTES = 128 };

typedef char cells[COLUMNS][CELL_BYTES];

/* MFLOP: forward of one sample. MiB: output of the batch part. */
static const cells heads = {"layer", "kind", "output", "parameters", "MFLOP", "MiB"};

/* Cells of one layer. An absorbed layer has no output of its own, so 0 MiB. */
static void fill(const sh_net *net, const sh_executor *executor, const sh_layer *layer,
                 cells row_out) {
    char shape[SH_SHAPE_TEXT];
    const sh_op *op = op_of(executor, layer);
    double mib = op != NULL ? (double)op->out->count * sizeof(float) / 0x1p20 : 0.0;
    sh_escape(row_out[0], CELL_BYTES, layer->name, false);
    snprintf(row_out[1], CELL_BYTES, "%s", layer->kind->name);
    snprintf(row_out[2], CELL_BYTES, "%s", sh_shape_text(&layer->out, shape));
    snprintf(row_out[3], CELL_BYTES, "%zu", owned_params(net, layer));
    sh_snprintf(row_out[4], CELL_BYTES, "%.3f", layer->flops * 1e-6);
    sh_snprintf(row_out[5], CELL_BYTES, "%.2f", mib);
}

/* Widths of the columns over all rows. */
static void widen(const cells row, int widths[COLUMNS]) {
    for (int i = 0; i < COLUMNS; i++)
        if ((int)strlen(row[i]) > widths[i]) widths[i] = (int)strlen(row[i]);
}

/* Words stand left, numbers right. */
static void print_row(const cells row, const int widths[COLUMNS], FILE *file) {
    for (int i = 0; i < COLUMNS; i++)
        fprintf(file, "%s%*s", i > 0 ? "  " : "", i < WORDS ? -widths[i] : widths[i], row[i]);
}

/* Kernels of a layer, as its kind describes them, and the activation that was fused into it. */
static void print_kernels(const sh_executor *executor, const sh_layer *layer, FILE *file) {
    const sh_op *op = op_of(executor, layer);
    // Kernels and activation are each optional, and so are the blanks and the plus between them.
    const char *kernels = op == NULL                      ? "absorbed by a neighbour"
                          : layer->kind->describe != NULL ? layer->kind->describe(op)
                                                          : "";
    const char *curve = op == NULL               ? NULL
                        : op->relu               ? "relu"
                        : op->activation != NULL ? op->activation->name
                                                 : NULL;
    fprintf(file, "%s%s%s%s%s\n", *kernels != '\0' ? "  " : "", kernels,
            curve != NULL && *kernels == '\0' ? " " : "", curve != NULL ? " + " : "",
            curve != NULL ? curve : "");
}

/* Two passes over the layers: the first finds the widths. */
static void print_layers(const sh_net *net, const sh_executor *executor, FILE *file) {
    cells row;
    int widths[COLUMNS] = {0};
    widen(heads, widths);
    for (size_t i = 0; i < net->layer_count; i++) {
        fill(net, executor, net->layers[i], row);
        widen(row, widths);
    }
    print_row(heads, widths, file);
    fputs("  kernels (forward / input gradient / weight gradient)\n", file);
    for (size_t i = 0; i < net->layer_count; i++) {
        fill(net, executor, net->layers[i], row);
        print_row(row, widths, file);
        print_kernels(executor, net->layers[i], file);
    }
}

/* How workers and threads divide a step. */
typedef struct division {
    int workers, threads;  // threads of each worker
    int64_t share;         // the most samples of a batch that one worker takes
    int64_t part;          // samples that a worker computes at a time
} division;

/* count / parts, rounded up. */
static int64_t quotient_up(int64_t count, int64_t parts) { return (count + parts - 1) / parts; }

/* Most samples of a batch that one worker takes. Data in parts is dealt evenly to the steps of an
 * epoch, whatever the batch. */
static int64_t share_of(const shoal_run *run) {
    const sh_config *config = &run->config;
    if (config->workers == 1 || !sh_part_named(config->data.train))
        return quotient_up(config->batch, config->workers);
    int64_t samples = (int64_t)run->data.train->info.count;
    return quotient_up(quotient_up(samples, config->workers), run->length.steps_per_epoch);
}

/* The division of this run. Exact runs compute whole shards, one at a time; others cut a share
 * into `accumulate` parts. */
static division divide(const shoal_run *run, int threads) {
    const sh_config *config = &run->config;
    division d = {.workers = (int)config->workers, .threads = threads};
    if (config->exact) {
        d.part = quotient_up(config->batch, config->shards);
        d.share = d.part * quotient_up(config->shards, d.workers);
    } else {
        d.share = share_of(run);
        d.part = sh_part_most(d.share, config->accumulate);
    }
    return d;
}

/* Memory by the plan of executor and optimizer, and measured if the run's folder has a last run.
 * An exact run has an executor on each thread; any other has one that all threads work on. */
static void print_memory(const shoal_run *run, const sh_executor *executor, const division *d,
                         FILE *file) {
    const char *whose = d->workers > 1 ? "memory of each worker" : "memory";
    int executors = run->config.exact ? d->threads : 1;
    double mib = 1.0 / 0x1p20;
    double params = (double)run->model.net->params.total * sizeof(float) * mib;
    // Each slot of the optimizer has the size of the parameters.
    double slots = params * run->optim.slot_count;
    // Activations and scratch of all executors that live at once.
    double work = executors * (double)executor->memory_bytes * mib;
    sh_fprintf(file,
               "\n%s, MiB: parameters %.1f, gradients %.1f, optimizer %.1f, activations and "
               "scratch %.1f (%.1f without reuse); in all %.1f\n",
               whose, params, params, slots, work,
               executors * (double)executor->unshared_bytes * mib, 2 * params + slots + work);
    double measured;
    if (sh_run_measured_mib(run, &measured))
        sh_fprintf(file,
                   "measured, MiB: %.1f at the peak of the last run, libraries and data included\n",
                   measured);
}

/* Ending of a counted noun. */
static const char *plural(int count) { return count == 1 ? "" : "s"; }

/* Sample, batch and its division, in one line above the table. */
static void print_head(const shoal_run *run, const division *d, FILE *file) {
    char shape[SH_SHAPE_TEXT];
    fprintf(file, "sample %s, batch %ld", sh_shape_text(&run->model.net->input.sample, shape),
            (long)run->config.batch);
    if (d->workers > 1) fprintf(file, ", %ld on each worker", (long)d->share);
    if (d->part < d->share) fprintf(file, ", %ld at a time", (long)d->part);
    fprintf(file, ", %ld steps per epoch, ", (long)run->length.steps_per_epoch);
    if (d->workers > 1) fprintf(file, "%d workers of ", d->workers);
    fprintf(file, "%d thread%s\n\n", d->threads, plural(d->threads));
}

/* Prints the page of an open run. Making the executor measures kernels that nobody has measured
 * yet, so the choices are saved for the run that follows. */
static sh_status explain(shoal_run *run, int threads, FILE *file) {
    SH_TRY(sh_run_make_optimizer(run));
    const division d = divide(run, threads);
    sh_executor *executor;
    SH_TRY(sh_model_executor(&run->model, d.part, true, &executor));
    sh_run_save_kernels(run);
    const sh_net *net = run->model.net;
    print_head(run, &d, file);
    print_layers(net, executor, file);
    const sh_learner_cost cost = run->learner.kind->cost(&run->learner);
    sh_fprintf(file,
               "\n%zu parameters; %.1f MFLOP per sample forward, %.2f GFLOP per training step\n",
               net->params.total, cost.forward_flops * 1e-6,
               cost.flops * (double)run->config.batch * 1e-9);
    print_memory(run, executor, &d, file);
    sh_explain_team(run, file);
    return SH_OK;
}

/* Public entry for a run that is open already. */
shoal_status shoal_run_explain(shoal_run *run, const shoal_sink *sink) {
    SHOAL_NEED(run);
    SHOAL_NEED_SINK(sink);
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    return sh_sink_close(file, explain(run, sh_run_threads(run), file));
}

/* Kernel choices that the newest checkpoint of a run recorded; NULL: there are none that can be
 * used, which the log says. Caller frees. */
static char *recorded_kernels(const char *folder, const sh_log *log) {
    char *manifest = NULL;
    sh_checkpoint_info info;
    if (sh_checkpoint_find(folder, log, &manifest, &info) != SH_OK) {
        SH_WARN(log, "%s: threads and kernels are those that a run would have now",
                sh_error_last()->text);
        return NULL;
    }
    char *kernels = info.kernels;
    info.kernels = NULL;
    sh_checkpoint_info_fini(&info);
    sh_free(manifest);
    return kernels;
}

/* An exact run computes a shard on one thread, with kernels that no measurement chooses: opening
 * the run with these settings shows them. */
static sh_status fix_kernels(sh_config *config) {
    char *kernels = sh_strdup("default");
    if (kernels == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for options");
    sh_free(config->kernels);
    config->kernels = kernels;
    config->threads = 1;
    return SH_OK;
}

/* Shows a pipeline as one worker would compute it: the table is that of the whole net, whose
 * stages do the same to one micro-batch after the other. */
static void see_as_one(sh_config *config, FILE *file) {
    sh_mesh_shape shape;
    if (!sh_config_pipes(config) || sh_config_mesh(config, 0, &shape) != SH_OK) return;
    fprintf(file, "layout %s: all stages of the pipeline together, as one worker would be\n",
            config->layout);
    config->accumulate = sh_config_micros(config, shape.size[SH_AXIS_PIPE]);
    config->workers = 1;
    sh_free(config->layout);
    config->layout = NULL;
}

/* Opens the run as one of its workers would and explains it. `kernels`: choices that an earlier
 * run in `folder` recorded; NULL: there was none, or they are unknown. Threads are the config's,
 * else those of the recorded choices, else what each worker would get. */
static sh_status explain_one(sh_config *config, const char *folder, const char *kernels,
                             const shoal_hooks *hooks, FILE *file) {
    // Threads are part of a kernel choice's key: choices of another number of threads do not
    // apply.
    int recorded = kernels != NULL ? sh_choices_threads(kernels, strlen(kernels)) : 0;
    if (config->threads == 0)
        config->threads =
            recorded > 0 ? recorded : sh_threads_each(config, (int)config->workers, sh_cores());
    int threads = (int)config->threads;
    if (config->exact) SH_TRY(fix_kernels(config));
    see_as_one(config, file);
    shoal_run *run = NULL;
    SH_TRY(sh_run_open(config, hooks, NULL, &run));
    sh_status status = SH_OK;
    if (kernels != NULL)
        status = sh_tuner_load(run->model.tuner, folder, kernels, strlen(kernels), false);
    if (status == SH_OK) status = explain(run, threads, file);
    shoal_run_close(run);
    return status;
}

/* Works on a copy of the config, which explaining changes. */
shoal_status shoal_explain(const shoal_config *config, const char *folder, const shoal_hooks *hooks,
                           const shoal_sink *sink) {
    SHOAL_NEED(config);
    SHOAL_NEED_SINK(sink);
    SHOAL_TAKE(shoal_hooks, own_hooks, hooks);
    FILE *file;
    SHOAL_TRY(sh_sink_open(sink, &file));
    sh_log log = sh_log_to_hooks(&own_hooks);
    sh_config whole;
    sh_status status = sh_config_copy(&config->config, &whole);
    char *kernels = folder != NULL ? recorded_kernels(folder, &log) : NULL;
    if (status == SH_OK) status = explain_one(&whole, folder, kernels, &own_hooks, file);
    sh_free(kernels);
    sh_config_fini(&whole);
    return sh_sink_close(file, status);
}
