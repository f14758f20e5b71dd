/* Building an executor: layers become ops in order, activations are absorbed by their neighbours
 * (executor_fuse.c), layout changes are put in where an op asks for them or a border of the range
 * does. */
#include "nn/executor.h"

#include <string.h>

#include "nn/executor_internal.h"

sh_tuner *sh_builder_tuner(sh_builder *builder) { return builder->tuner; }

static sh_status add_value(sh_executor *executor, sh_shape shape, bool tokens,
                           sh_value **value_out) {
    char text[SH_SHAPE_TEXT];
    size_t count;
    if (!sh_shape_count_checked(&shape, &count))
        return SH_FAIL(SH_E_SHAPE, "an activation of %s is too large", sh_shape_text(&shape, text));
    SH_TRY(sh_grow((void **)&executor->values, &executor->value_capacity, executor->value_count + 1,
                   sizeof *executor->values));
    sh_value *value = sh_alloc(1, sizeof *value);
    if (value == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    *value = (sh_value){.shape = shape,
                        .count = count,
                        .block = 1,
                        .tokens = tokens,
                        .producer = -1,
                        .data_class = -1,
                        .grad_class = -1,
                        .grad_writer = -1};
    executor->values[executor->value_count++] = value;
    *value_out = value;
    return SH_OK;
}

static void op_destroy(sh_op *op) {
    if (op == NULL) return;
    if (op->kind->destroy != NULL && op->kernel != NULL) op->kind->destroy(op);
    sh_free(op);
}

static sh_status add_op(sh_executor *executor, sh_op *op) {
    sh_status status = sh_grow((void **)&executor->ops, &executor->op_capacity,
                               executor->op_count + 1, sizeof *executor->ops);
    if (status != SH_OK) {
        op_destroy(op);
        return status;
    }
    op->index = (int)executor->op_count;
    op->out->producer = op->index;
    executor->ops[executor->op_count++] = op;
    return SH_OK;
}

/* flight and guard are -1 until executor_memory.c and executor_fuse.c find them. */
static sh_op *new_op(sh_executor *executor, const sh_layer *layer, const sh_layer_kind *kind) {
    sh_op *op = sh_alloc(1, sizeof *op);
    if (op == NULL) return NULL;
    op->executor = executor;
    op->layer = layer;
    op->kind = kind;
    op->guard = op->flight.start = op->flight.finish = op->flight.back = -1;
    return op;
}

extern const sh_layer_kind sh_layer_kind_reorder;

/* The reorder op belongs to no layer. It reads an activation, never tokens, and passes gradients
 * on. */
static sh_status add_reorder(sh_executor *executor, sh_value *from, int block, sh_value **to_out) {
    sh_value *to;
    SH_TRY(add_value(executor, from->shape, false, &to));
    to->block = block;
    to->needs_grad = from->needs_grad;
    sh_op *op = new_op(executor, NULL, &sh_layer_kind_reorder);
    if (op == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    op->in[0] = from;
    op->in_count = 1;
    op->out = to;
    SH_TRY(add_op(executor, op));
    *to_out = to;
    return SH_OK;
}

/* Each reader that wants the other layout gets a reorder of its own; most values have one reader.
 */
sh_status sh_builder_want(sh_builder *builder, sh_op *op, int index, int block) {
    sh_value *value = op->in[index];
    if (value->block == block) return SH_OK;
    SH_ASSERT(block == 1 || (value->shape.rank == 4 && value->shape.dim[1] % 8 == 0));
    return add_reorder(builder->executor, value, block, &op->in[index]);
}

/* The output of a layer, or of the data, inside the executor: `of_layer` begins with the data. */
static sh_value **value_of(const sh_builder *builder, int layer) {
    return &builder->of_layer[layer + 1];
}

/* One layer becomes one op, or none: the value of an absorbed activation is that of the layer that
 * absorbed it. Gradients are needed from the first trained layer on. */
static sh_status plan_layer(sh_builder *builder, const sh_layer *layer) {
    sh_executor *executor = builder->executor;
    if (sh_builder_is_absorbed(builder, layer)) {
        *value_of(builder, layer->index) = *value_of(builder, layer->inputs[0]);
        return SH_OK;
    }
    sh_op *op = new_op(executor, layer, layer->kind);
    if (op == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    op->in_count = layer->input_count;
    bool needs_grad = layer->param_count > 0;
    for (int i = 0; i < op->in_count; i++) {
        op->in[i] = *value_of(builder, layer->inputs[i]);
        needs_grad = needs_grad || op->in[i]->needs_grad;
    }
    sh_status status =
        add_value(executor, sh_shape_with(executor->batch, &layer->out), false, &op->out);
    if (status == SH_OK) {
        op->out->needs_grad = needs_grad && executor->training;
        op->out->block = op->in[0]->block;
        op->relu = sh_builder_absorbs_relu(builder, layer);
        op->needs_output = op->relu;
        op->activation = sh_builder_activation(builder, layer);
        if (layer->kind->build != NULL) status = layer->kind->build(op, builder);
    }
    if (status != SH_OK) {
        op_destroy(op);
        return status;
    }
    *value_of(builder, layer->index) = op->out;
    return add_op(executor, op);
}

/* Tied weights: the op that comes last in forward comes first in backward and overwrites. `writers`
 * takes an op index per parameter. */
static void order_param_writers(sh_executor *executor, int *writers) {
    for (size_t i = 0; i < executor->net->params.count; i++) writers[i] = -1;
    for (int i = (int)executor->op_count - 1; i >= 0; i--) {
        sh_op *op = executor->ops[i];
        for (int k = 0; op->layer != NULL && k < op->layer->param_count; k++) {
            size_t param = op->layer->params[k];
            op->param_added[k] = writers[param] > i;  // a later op
            writers[param] = i;
        }
    }
    for (size_t i = 0; i < executor->op_count; i++) {  // the first op of each is left
        sh_op *op = executor->ops[i];
        for (int k = 0; op->layer != NULL && k < op->layer->param_count; k++)
            op->param_last[k] = writers[op->layer->params[k]] == (int)i;
    }
}

/* Reorders count as readers, as they are ops; absorbed layers do not. */
static void count_readers(sh_executor *executor) {
    for (size_t i = 0; i < executor->op_count; i++)
        for (int k = 0; k < executor->ops[i]->in_count; k++) executor->ops[i]->in[k]->readers++;
}

/* A branch that ends nowhere is a mistake in the model, and would be trained by nothing. */
static sh_status check_used(const sh_executor *executor) {
    for (size_t i = 0; i < executor->op_count; i++) {
        const sh_op *op = executor->ops[i];
        if (op->out->leaves || op->out->readers > 0) continue;
        return SH_FAIL(SH_E_USAGE, "nothing uses the output of layer '%s'", sh_op_name(op));
    }
    return SH_OK;
}

/* ---- The borders of the range ---- */

/* The last layer that reads a layer's output, or the data's; the end of the net reads the last one.
 * -1: none. */
static int last_reader(const sh_net *net, int layer) {
    int last = layer == (int)net->layer_count - 1 ? (int)net->layer_count : -1;
    for (size_t i = 0; i < net->layer_count; i++)
        for (int k = 0; k < net->layers[i]->input_count; k++)
            if (net->layers[i]->inputs[k] == layer && (int)i > last) last = (int)i;
    return last;
}

static bool is_tokens(const sh_net *net, int layer) {
    return layer == SH_NET_INPUT && net->input.tokens;
}

/* Images travel over borders in blocks of 8 channels where that is possible, as convolutions have
 * them; the data, and what the whole net gives, is plain. */
static int border_block(const sh_net *net, int layer, const sh_shape *shape) {
    bool inside = layer != SH_NET_INPUT && layer != (int)net->layer_count - 1;
    return inside && shape->rank == 4 && shape->dim[1] % 8 == 0 ? 8 : 1;
}

/* Whether a parameter stands before a layer's output in the whole net: both sides of a border must
 * agree on which gradients cross it. */
static bool is_trained(const sh_net *net, int layer) {
    if (layer == SH_NET_INPUT) return false;
    bool trained = net->layers[layer]->param_count > 0;
    for (int k = 0; k < net->layers[layer]->input_count && !trained; k++)
        trained = is_trained(net, net->layers[layer]->inputs[k]);
    return trained;
}

static sh_shape border_shape(const sh_executor *executor, int layer) {
    const sh_net *net = executor->net;
    const sh_shape *sample = layer == SH_NET_INPUT ? &net->input.sample : &net->layers[layer]->out;
    return sh_shape_with(executor->batch, sample);
}

/* The data is an input of a range that begins the net, read or not. */
static bool enters(const sh_executor *executor, int layer) {
    if (layer == SH_NET_INPUT && executor->layers.first == 0) return true;
    return layer < executor->layers.first &&
           last_reader(executor->net, layer) >= executor->layers.first;
}

static sh_status add_input(sh_builder *builder, int layer) {
    sh_executor *executor = builder->executor;
    const sh_net *net = executor->net;
    sh_shape shape = border_shape(executor, layer);
    sh_value *value;
    SH_TRY(add_value(executor, shape, is_tokens(net, layer), &value));
    value->block = border_block(net, layer, &shape);
    value->data_class = -1 - (int)executor->inputs.count;
    bool wants = is_trained(net, layer) || (layer == SH_NET_INPUT && executor->layers.first == 0);
    value->needs_grad =
        executor->training && executor->rules.input_gradients && wants && !value->tokens;
    *value_of(builder, layer) = value;
    executor->inputs.items[executor->inputs.count++] = (sh_port){layer, value};
    return SH_OK;
}

/* Arrays have room for every layer below the border, though few cross it. */
static sh_status add_inputs(sh_builder *builder) {
    sh_executor *executor = builder->executor;
    executor->inputs.items =
        sh_alloc((size_t)executor->layers.first + 1, sizeof *executor->inputs.items);
    executor->outputs.items =
        sh_alloc((size_t)executor->layers.last + 1, sizeof *executor->outputs.items);
    if (executor->inputs.items == NULL || executor->outputs.items == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    for (int layer = SH_NET_INPUT; layer < executor->layers.first; layer++)
        if (enters(executor, layer)) SH_TRY(add_input(builder, layer));
    executor->input = executor->inputs.count > 0 ? executor->inputs.items[0].value : NULL;
    return SH_OK;
}

static sh_status add_output(sh_builder *builder, int layer) {
    sh_executor *executor = builder->executor;
    sh_value *value = *value_of(builder, layer);
    int block = border_block(executor->net, layer, &value->shape);
    if (value->block != block) SH_TRY(add_reorder(executor, value, block, &value));
    value->leaves = true;
    executor->outputs.items[executor->outputs.count++] = (sh_port){layer, value};
    if (layer == executor->layers.last - 1) executor->output = value;
    return SH_OK;
}

static sh_status add_outputs(sh_builder *builder) {
    const sh_executor *executor = builder->executor;
    for (int layer = SH_NET_INPUT; layer < executor->layers.last; layer++)
        if (last_reader(executor->net, layer) >= executor->layers.last)
            SH_TRY(add_output(builder, layer));
    return SH_OK;
}

static sh_status order_params(sh_executor *executor) {
    int *writers = sh_alloc(executor->net->params.count, sizeof *writers);
    if (writers == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    order_param_writers(executor, writers);
    sh_free(writers);
    return SH_OK;
}

/* In this order: ops must exist before readers are counted, and both before memory is assigned. */
static sh_status plan_all(sh_builder *builder) {
    sh_executor *executor = builder->executor;
    const sh_net *net = executor->net;
    SH_TRY(add_inputs(builder));
    sh_builder_mark_fusions(builder);
    for (int i = executor->layers.first; i < executor->layers.last; i++)
        SH_TRY(plan_layer(builder, net->layers[i]));
    SH_TRY(add_outputs(builder));
    count_readers(executor);
    SH_TRY(check_used(executor));
    executor->skipped = sh_alloc(executor->op_count, sizeof *executor->skipped);
    executor->flying.ops = sh_alloc(executor->op_count, sizeof *executor->flying.ops);
    executor->param_unused = sh_alloc(net->params.count, sizeof *executor->param_unused);
    if (executor->skipped == NULL || executor->flying.ops == NULL || executor->param_unused == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    SH_TRY(order_params(executor));
    sh_executor_find_slopes(executor);
    SH_TRY(sh_executor_mark_guards(executor));
    return sh_executor_assign_memory(executor);
}

/* A net that holds only a range of its layers (a stage of a pipeline) bounds the executor's. */
static void set_options(sh_executor *executor, const sh_net *net,
                        const sh_executor_options *options) {
    bool all = options->first == 0 && options->last == 0;
    executor->net = net;
    executor->layers.first = all ? net->first : options->first;
    executor->layers.last = all ? net->last : options->last;
    SH_ASSERT(net->first <= executor->layers.first && executor->layers.last <= net->last);
    executor->batch = options->batch;
    executor->training = options->training;
    executor->rules.no_sharing = options->no_sharing;
    executor->rules.gradients_idle = options->gradients_idle;
    executor->rules.input_gradients = options->input_gradients;
    executor->loss = options->loss;
    executor->trace = options->trace;
}

sh_status sh_executor_create(const sh_net *net, const sh_executor_options *options,
                             sh_executor **executor_out) {
    if (net->layer_count == 0) return SH_FAIL(SH_E_USAGE, "the model has no layers");
    sh_executor *executor = sh_alloc(1, sizeof *executor);
    sh_builder builder = {
        .executor = executor,
        .tuner = options->tuner,
        .of_layer = sh_alloc(net->layer_count + 1, sizeof *builder.of_layer),
        .readers = sh_alloc(net->layer_count, sizeof *builder.readers),
        .first_reader = sh_alloc(net->layer_count, sizeof *builder.first_reader),
        .into_pool = sh_alloc(net->layer_count, sizeof *builder.into_pool),
    };
    sh_status status = SH_OK;
    if (executor == NULL || builder.of_layer == NULL || builder.readers == NULL ||
        builder.first_reader == NULL || builder.into_pool == NULL) {
        status = SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    } else {
        set_options(executor, net, options);
        status = plan_all(&builder);
    }
    sh_free(builder.of_layer);
    sh_free(builder.readers);
    sh_free(builder.first_reader);
    sh_free(builder.into_pool);
    if (status != SH_OK)
        sh_executor_destroy(executor);
    else
        *executor_out = executor;
    return status;
}

void sh_executor_destroy(sh_executor *executor) {
    if (executor == NULL) return;
    for (size_t i = 0; i < executor->op_count; i++) op_destroy(executor->ops[i]);
    for (size_t i = 0; i < executor->value_count; i++) sh_free(executor->values[i]);
    sh_free(executor->ops);
    sh_free(executor->values);
    sh_free(executor->inputs.items);
    sh_free(executor->outputs.items);
    sh_free(executor->skipped);
    sh_free(executor->flying.ops);
    sh_free(executor->param_unused);
    sh_free(executor->buffers.items);
    sh_free(executor->buffers.of_data);
    sh_free(executor->buffers.of_grad);
    sh_free(executor);
}

const char *sh_op_name(const sh_op *op) {
    return op->layer != NULL ? op->layer->name : op->kind->name;
}
