/* What ops of an executor do for each other: activations that the layer before them absorbs, slopes
 * that the next op multiplies in, and branches that a drop-path skips as a whole. */
#include "nn/executor_internal.h"
#include "nn/layers/options.h"

/* The only layer of the range that reads `layer`; NULL: there are others, or it is outside. */
static const sh_layer *sole_reader(const sh_builder *builder, int layer) {
    const sh_executor *executor = builder->executor;
    if (layer < executor->layers.first || builder->readers[layer] != 1) return NULL;
    int reader = builder->first_reader[layer];
    return reader < executor->layers.last ? executor->net->layers[reader] : NULL;
}

/* relu before max pooling commutes with it and is cheaper on the pooled side; any other relu is
 * absorbed by the layer before it where that can. */
void sh_builder_mark_fusions(sh_builder *builder) {
    const sh_net *net = builder->executor->net;
    for (size_t i = 0; i < net->layer_count; i++)
        for (int k = 0; k < net->layers[i]->input_count; k++) {
            int input = net->layers[i]->inputs[k];
            if (input >= 0 && builder->readers[input]++ == 0) builder->first_reader[input] = (int)i;
        }
    for (size_t i = 0; i < net->layer_count; i++) {
        bool is_relu = net->layers[i]->kind == &sh_layer_kind_relu;
        const sh_layer *reader = is_relu ? sole_reader(builder, (int)i) : NULL;
        builder->into_pool[i] = reader != NULL && reader->kind == &sh_layer_kind_maxpool;
    }
}

bool sh_builder_absorbs_relu(const sh_builder *builder, const sh_layer *layer) {
    if (layer->kind == &sh_layer_kind_maxpool)
        return layer->inputs[0] >= 0 && builder->into_pool[layer->inputs[0]];
    if (!layer->kind->fuses_relu) return false;
    const sh_layer *reader = sole_reader(builder, layer->index);
    return reader != NULL && reader->kind == &sh_layer_kind_relu &&
           !builder->into_pool[reader->index];
}

const struct sh_activation_row *sh_builder_activation(const sh_builder *builder,
                                                      const sh_layer *layer) {
    if (!layer->kind->fuses_activation) return NULL;
    const sh_layer *reader = sole_reader(builder, layer->index);
    return reader != NULL && reader->kind->activation != NULL ? reader->kind->activation(reader)
                                                              : NULL;
}

bool sh_builder_is_absorbed(const sh_builder *builder, const sh_layer *layer) {
    if (layer->inputs[0] < builder->executor->layers.first) return false;
    const sh_layer *before = builder->executor->net->layers[layer->inputs[0]];
    if (layer->kind->activation != NULL) return sh_builder_activation(builder, before) != NULL;
    if (layer->kind != &sh_layer_kind_relu) return false;
    return builder->into_pool[layer->index] || sh_builder_absorbs_relu(builder, before);
}

/* Where one op alone reads an output with an absorbed activation, it can multiply the gradient by
 * the slopes as it writes it, which saves a pass over memory. */
void sh_executor_find_slopes(sh_executor *executor) {
    for (size_t i = 0; i < executor->op_count; i++) {
        sh_op *reader = executor->ops[i];
        int at = reader->in[0]->producer;
        if (!reader->kind->applies_slopes || at < 0) continue;
        sh_op *producer = executor->ops[at];
        if (producer->activation == NULL || producer->out->leaves || producer->out->readers != 1)
            continue;
        reader->slopes_from = producer;
        producer->slopes_applied = true;
    }
}

/* ---- Drop-paths ---- */

enum { UNREAD = -2 };

/* The first drop-path, in the order of forward, that both `a` and `b` pass; -1: none. From each a
 * chain of guards leads forward. */
static int common_guard(const int *guards, int a, int b) {
    while (a != b) {
        if (a < 0 || b < 0) return -1;
        if (a < b)
            a = guards[a];
        else
            b = guards[b];
    }
    return a;
}

/* A reader of `from`, all of whose own readers pass the drop-path `passed`. */
static void guard(int *guards, int from, int passed) {
    guards[from] = guards[from] == UNREAD ? passed : common_guard(guards, guards[from], passed);
}

/* An op is guarded by the first drop-path that all pass who read its output, directly or through
 * other ops. Readers come later in the list, so that theirs are known. */
sh_status sh_executor_mark_guards(sh_executor *executor) {
    int *guards = sh_alloc(executor->op_count, sizeof *guards);
    if (guards == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    for (size_t i = 0; i < executor->op_count; i++) guards[i] = UNREAD;
    for (int i = (int)executor->op_count - 1; i >= 0; i--) {
        sh_op *op = executor->ops[i];
        if (guards[i] == UNREAD || op->out->leaves) guards[i] = -1;
        op->guard = guards[i];
        int passed = op->kind->drops_branch ? i : guards[i];
        for (int k = 0; k < op->in_count; k++)
            if (op->in[k]->producer >= 0) guard(guards, op->in[k]->producer, passed);
    }
    sh_free(guards);
    return SH_OK;
}

/* The same over the layers of a whole net. */
static void guard_layers(const sh_net *net, int *guards) {
    for (size_t i = 0; i < net->layer_count; i++) guards[i] = UNREAD;
    for (int i = (int)net->layer_count - 1; i >= 0; i--) {
        const sh_layer *layer = net->layers[i];
        if (guards[i] == UNREAD) guards[i] = -1;
        int passed = layer->kind->drops_branch ? i : guards[i];
        for (int k = 0; k < layer->input_count; k++)
            if (layer->inputs[k] >= 0) guard(guards, layer->inputs[k], passed);
    }
}

/* The only reader of a layer is an activation on the other side of the cut, and keeping slopes
 * rounds differently from keeping inputs. */
static bool parts_activation(const sh_net *net, int cut) {
    for (size_t i = (size_t)cut; i < net->layer_count; i++) {
        const sh_layer *layer = net->layers[i];
        int input = layer->inputs[0];
        if (layer->kind->activation != NULL && layer->kind->activation(layer) != NULL &&
            input >= 0 && input < cut && net->layers[input]->kind->fuses_activation)
            return true;
    }
    return false;
}

sh_status sh_net_cut_is_exact(const sh_net *net, int layer, bool *exact_out) {
    int *guards = sh_alloc(net->layer_count, sizeof *guards);
    if (guards == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a net");
    guard_layers(net, guards);
    bool exact = !parts_activation(net, layer);
    for (int i = 0; i < layer; i++) exact = exact && guards[i] < layer;
    sh_free(guards);
    *exact_out = exact;
    return SH_OK;
}
