/* `shoal explain`: the layer table of a run, its memory and its kernels. */
#include <stdio.h>
#include <string.h>

#include "train/explain.h"

static const sh_op *op_of(const sh_plan *plan, const sh_layer *layer) {
    for (size_t i = 0; i < plan->op_count; i++)
        if (plan->ops[i]->layer == layer) return plan->ops[i];
    return NULL;
}

static size_t owned_params(const sh_net *net, const sh_layer *layer) {
    size_t count = 0;
    for (int i = 0; i < layer->param_count; i++)
        if (layer->owns_param[i]) count += net->params.items[layer->params[i]].count;
    return count;
}

static void print_layer(const sh_net *net, const sh_plan *plan, const sh_layer *layer, FILE *file) {
    char shape[SH_SHAPE_TEXT];
    const sh_op *op = op_of(plan, layer);
    const char *kernels = op == NULL                      ? "absorbed by a neighbour"
                          : layer->kind->describe != NULL ? layer->kind->describe(op)
                                                          : "";
    double mib = op != NULL ? (double)op->out->count * sizeof(float) / 0x1p20 : 0.0;
    fprintf(file, "%-28s %-14s %-14s %12zu %12.3f %10.2f  %s%s\n", layer->name, layer->kind->name,
            sh_shape_text(&layer->out, shape), owned_params(net, layer), layer->flops * 1e-6, mib,
            kernels, op != NULL && op->relu ? " + relu" : "");
}

static void print_memory(const shoal_run *run, const sh_plan *plan, FILE *file) {
    double mib = 1.0 / 0x1p20;
    double params = (double)run->model.net->params.total * sizeof(float) * mib;
    double slots = params * run->optim.slot_count;
    double work = (double)plan->memory_bytes * mib;
    fprintf(file,
            "\nmemory, MiB: parameters %.1f, gradients %.1f, optimizer %.1f, activations and "
            "scratch %.1f (%.1f without reuse); in all %.1f\n",
            params, params, slots, work, (double)plan->unshared_bytes * mib,
            2 * params + slots + work);
    double measured;
    if (sh_run_measured_mib(run, &measured))
        fprintf(file,
                "measured, MiB: %.1f at the peak of the last run, libraries and data included\n",
                measured);
}

shoal_status shoal_run_explain(shoal_run *run, FILE *file) {
    SHOAL_TRY(sh_run_make_optimizer(run));
    sh_plan *plan;
    int64_t part = (run->config.batch + run->config.accumulate - 1) / run->config.accumulate;
    SHOAL_TRY(sh_model_plan(&run->model, part, true, &plan));
    sh_run_save_kernels(run);
    const sh_net *net = run->model.net;
    char shape[SH_SHAPE_TEXT];
    fprintf(file, "sample %s, batch %ld, %ld steps per epoch, %d thread%s\n\n",
            sh_shape_text(&net->input.sample, shape), (long)run->config.batch,
            (long)run->steps_per_epoch, sh_run_threads(run), sh_run_threads(run) == 1 ? "" : "s");
    fprintf(file, "%-28s %-14s %-14s %12s %12s %10s  %s\n", "layer", "kind", "output", "parameters",
            "MFLOP", "MiB", "kernels (forward / input gradient / weight gradient)");
    double flops = 0;
    for (size_t i = 0; i < net->layer_count; i++) {
        print_layer(net, plan, net->layers[i], file);
        flops += net->layers[i]->flops;
    }
    fprintf(file, "\n%zu parameters; %.1f MFLOP per sample forward, %.2f GFLOP per training step\n",
            net->params.total, flops * 1e-6, 3 * flops * (double)run->config.batch * 1e-9);
    print_memory(run, plan, file);
    sh_explain_team(run, file);
    return SHOAL_OK;
}
