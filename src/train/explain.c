/* `shoal explain`: the layer table of a run, its memory and its kernels. */
#include <stdio.h>
#include <string.h>

#include "base/text.h"

#include "train/explain.h"
#include "train/parts.h"

#include "tensor/kernels/activation.h"

static const sh_op *op_of(const sh_plan *plan, const sh_layer *layer) {
    for (size_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i]->layer == layer) return plan->ops[i];
    return NULL;
}

static size_t owned_params(const sh_net *net, const sh_layer *layer) {
    size_t count = 0;
    for (int i = 0; i < layer->param_count; i++)
        if (!layer->param_specs[i].tied) count += net->params.items[layer->params[i]].count;
    return count;
}

/* The table before its kernels: three columns of words, three of numbers, each as wide as its
 * widest cell. */
enum { COLUMNS = 6, WORDS = 3, CELL_BYTES = 128 };

typedef char cells[COLUMNS][CELL_BYTES];

static const cells heads = {"layer", "kind", "output", "parameters", "MFLOP", "MiB"};

static void fill(const sh_net *net, const sh_plan *plan, const sh_layer *layer, cells row_out) {
    char shape[SH_SHAPE_TEXT];
    const sh_op *op = op_of(plan, layer);
    double mib = op != NULL ? (double)op->out->count * sizeof(float) / 0x1p20 : 0.0;
    sh_escape(row_out[0], CELL_BYTES, layer->name, false);
    snprintf(row_out[1], CELL_BYTES, "%s", layer->kind->name);
    snprintf(row_out[2], CELL_BYTES, "%s", sh_shape_text(&layer->out, shape));
    snprintf(row_out[3], CELL_BYTES, "%zu", owned_params(net, layer));
    sh_snprintf(row_out[4], CELL_BYTES, "%.3f", layer->flops * 1e-6);
    sh_snprintf(row_out[5], CELL_BYTES, "%.2f", mib);
}

static void widen(const cells row, int widths[COLUMNS]) {
    for (int i = 0; i < COLUMNS; i++)
        if ((int)strlen(row[i]) > widths[i]) widths[i] = (int)strlen(row[i]);
}

static void print_row(const cells row, const int widths[COLUMNS], FILE *file) {
    for (int i = 0; i < COLUMNS; i++)
        fprintf(file, "%s%*s", i > 0 ? "  " : "", i < WORDS ? -widths[i] : widths[i], row[i]);
}

static void print_kernels(const sh_plan *plan, const sh_layer *layer, FILE *file) {
    const sh_op *op = op_of(plan, layer);
    const char *kernels = op == NULL                      ? "absorbed by a neighbour"
                          : layer->kind->describe != NULL ? layer->kind->describe(op)
                                                          : "";
    const char *curve = op == NULL          ? NULL
                        : op->relu          ? "relu"
                        : op->curve != NULL ? op->curve->name
                                            : NULL;
    fprintf(file, "%s%s%s%s%s\n", *kernels != '\0' ? "  " : "", kernels,
            curve != NULL && *kernels == '\0' ? " " : "", curve != NULL ? " + " : "",
            curve != NULL ? curve : "");
}

static void print_layers(const sh_net *net, const sh_plan *plan, FILE *file) {
    cells row;
    int widths[COLUMNS] = {0};
    widen(heads, widths);
    for (size_t i = 0; i < net->layer_count; i++) {
        fill(net, plan, net->layers[i], row);
        widen(row, widths);
    }
    print_row(heads, widths, file);
    fputs("  kernels (forward / input gradient / weight gradient)\n", file);
    for (size_t i = 0; i < net->layer_count; i++) {
        fill(net, plan, net->layers[i], row);
        print_row(row, widths, file);
        print_kernels(plan, net->layers[i], file);
    }
}

static void print_memory(const shoal_run *run, const sh_plan *plan, FILE *file) {
    double mib = 1.0 / 0x1p20;
    double params = (double)run->model.net->params.total * sizeof(float) * mib;
    double slots = params * run->optim.slot_count;
    double work = (double)plan->memory_bytes * mib;
    sh_fprintf(file,
               "\nmemory, MiB: parameters %.1f, gradients %.1f, optimizer %.1f, activations and "
               "scratch %.1f (%.1f without reuse); in all %.1f\n",
               params, params, slots, work, (double)plan->unshared_bytes * mib,
               2 * params + slots + work);
    double measured;
    if (sh_run_measured_mib(run, &measured))
        sh_fprintf(file,
                   "measured, MiB: %.1f at the peak of the last run, libraries and data included\n",
                   measured);
}

shoal_status shoal_run_explain(shoal_run *run, FILE *file) {
    SHOAL_TRY(sh_run_make_optimizer(run));
    sh_plan *plan;
    int64_t part = sh_part_most(run->config.batch, run->config.accumulate);
    SHOAL_TRY(sh_model_plan(&run->model, part, true, &plan));
    sh_run_save_kernels(run);
    const sh_net *net = run->model.net;
    char shape[SH_SHAPE_TEXT];
    fprintf(file, "sample %s, batch %ld, %ld steps per epoch, %d thread%s\n\n",
            sh_shape_text(&net->input.sample, shape), (long)run->config.batch,
            (long)run->steps_per_epoch, sh_run_threads(run), sh_run_threads(run) == 1 ? "" : "s");
    print_layers(net, plan, file);
    double flops = 0;
    for (size_t i = 0; i < net->layer_count; i++) flops += net->layers[i]->flops;
    sh_fprintf(file,
               "\n%zu parameters; %.1f MFLOP per sample forward, %.2f GFLOP per training step\n",
               net->params.total, flops * 1e-6, 3 * flops * (double)run->config.batch * 1e-9);
    print_memory(run, plan, file);
    sh_explain_team(run, file);
    return SHOAL_OK;
}
