/* Building an executor: layers become ops in order, activations are absorbed by their neighbours,
 * layout changes are put in where an op asks for them. */
#include "nn/executor.h"

#include <string.h>

#include "nn/executor_internal.h"

struct sh_builder {
    sh_executor *executor;
    sh_tuner *tuner;
    sh_value **of_layer;  // output value per layer
    int *readers;         // layers that read a layer
    int *first_reader;    // the first of them
    bool *into_pool;      // this relu is done by the max pooling after it
};

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

static sh_op *new_op(sh_executor *executor, const sh_layer *layer, const sh_layer_kind *kind) {
    sh_op *op = sh_alloc(1, sizeof *op);
    if (op == NULL) return NULL;
    op->executor = executor;
    op->layer = layer;
    op->kind = kind;
    op->guard = -1;
    return op;
}

extern const sh_layer_kind sh_layer_kind_reorder;

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

sh_status sh_builder_want(sh_builder *builder, sh_op *op, int index, int block) {
    sh_value *value = op->in[index];
    if (value->block == block) return SH_OK;
    SH_ASSERT(block == 1 || (value->shape.rank == 4 && value->shape.dim[1] % 8 == 0));
    return add_reorder(builder->executor, value, block, &op->in[index]);
}

static bool is_kind(const sh_layer *layer, const char *name) {
    return strcmp(layer->kind->name, name) == 0;
}

/* The only layer that reads `layer`, or NULL. */
static const sh_layer *sole_reader(const sh_builder *builder, int layer) {
    const sh_net *net = builder->executor->net;
    return builder->readers[layer] == 1 ? net->layers[builder->first_reader[layer]] : NULL;
}

/* relu before max pooling commutes with it and is cheaper on the pooled side; any other relu is
 * absorbed by the layer before it where that can. */
static void mark_fusions(sh_builder *builder) {
    const sh_net *net = builder->executor->net;
    for (size_t i = 0; i < net->layer_count; i++)
        for (int k = 0; k < net->layers[i]->input_count; k++) {
            int input = net->layers[i]->inputs[k];
            if (input >= 0 && builder->readers[input]++ == 0) builder->first_reader[input] = (int)i;
        }
    for (size_t i = 0; i < net->layer_count; i++) {
        const sh_layer *reader =
            is_kind(net->layers[i], "relu") ? sole_reader(builder, (int)i) : NULL;
        builder->into_pool[i] = reader != NULL && is_kind(reader, "maxpool");
    }
}

static bool absorbs_relu(const sh_builder *builder, const sh_layer *layer) {
    if (is_kind(layer, "maxpool"))
        return layer->inputs[0] >= 0 && builder->into_pool[layer->inputs[0]];
    if (!layer->kind->fuses_relu) return false;
    const sh_layer *reader = sole_reader(builder, layer->index);
    return reader != NULL && is_kind(reader, "relu") && !builder->into_pool[reader->index];
}

/* The activation after `layer` that it can do itself, or NULL. */
static const struct sh_activation_row *absorbed_curve(const sh_builder *builder,
                                                      const sh_layer *layer) {
    const sh_layer *reader = layer->kind->fuses_curve ? sole_reader(builder, layer->index) : NULL;
    return reader != NULL && reader->kind->curve != NULL ? reader->kind->curve(reader) : NULL;
}

static bool is_absorbed(const sh_builder *builder, const sh_layer *layer) {
    if (layer->inputs[0] < 0) return false;
    const sh_layer *before = builder->executor->net->layers[layer->inputs[0]];
    if (layer->kind->curve != NULL) return absorbed_curve(builder, before) != NULL;
    if (!is_kind(layer, "relu")) return false;
    return builder->into_pool[layer->index] || absorbs_relu(builder, before);
}

static sh_value *value_of(const sh_builder *builder, int layer) {
    return layer == SH_NET_INPUT ? builder->executor->input : builder->of_layer[layer];
}

static sh_status plan_layer(sh_builder *builder, const sh_layer *layer) {
    sh_executor *executor = builder->executor;
    if (is_absorbed(builder, layer)) {
        builder->of_layer[layer->index] = value_of(builder, layer->inputs[0]);
        return SH_OK;
    }
    sh_op *op = new_op(executor, layer, layer->kind);
    if (op == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    op->in_count = layer->input_count;
    bool needs_grad = layer->param_count > 0;
    for (int i = 0; i < op->in_count; i++) {
        op->in[i] = value_of(builder, layer->inputs[i]);
        needs_grad = needs_grad || op->in[i]->needs_grad;
    }
    sh_status status =
        add_value(executor, sh_shape_with(executor->batch, &layer->out), false, &op->out);
    if (status == SH_OK) {
        op->out->needs_grad = needs_grad && executor->training;
        op->out->block = op->in[0]->block;
        op->relu = absorbs_relu(builder, layer);
        op->needs_output = op->relu;
        op->curve = absorbed_curve(builder, layer);
        if (layer->kind->build != NULL) status = layer->kind->build(op, builder);
    }
    if (status != SH_OK) {
        op_destroy(op);
        return status;
    }
    builder->of_layer[layer->index] = op->out;
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

static void count_readers(sh_executor *executor) {
    for (size_t i = 0; i < executor->op_count; i++)
        for (int k = 0; k < executor->ops[i]->in_count; k++) executor->ops[i]->in[k]->readers++;
}

/* Where one op alone reads a bent output, it can multiply the gradient by the slopes as it writes
 * it. */
static void find_scalers(sh_executor *executor) {
    for (size_t i = 0; i < executor->op_count; i++) {
        sh_op *reader = executor->ops[i];
        int producer = reader->in[0]->producer;
        if (!reader->kind->scales_dx || producer < 0 || executor->ops[producer]->curve == NULL)
            continue;
        sh_op *bent = executor->ops[producer];
        if (bent->out == executor->output || bent->out->readers != 1) continue;
        reader->bent = bent;
        bent->scaled = true;
    }
}

/* The first drop-path, in the order of forward, that both `a` and `b` pass; -1: none. From each a
 * chain of guards leads forward. */
static int common_guard(const sh_executor *executor, int a, int b) {
    while (a != b) {
        if (a < 0 || b < 0) return -1;
        if (a < b)
            a = executor->ops[a]->guard;
        else
            b = executor->ops[b]->guard;
    }
    return a;
}

/* An op is guarded by the first drop-path that all pass who read its output, directly or through
 * other ops. Readers come later in the list, so that theirs are known. */
static void mark_guards(sh_executor *executor) {
    enum { UNREAD = -2 };
    for (size_t i = 0; i < executor->op_count; i++) executor->ops[i]->guard = UNREAD;
    for (int i = (int)executor->op_count - 1; i >= 0; i--) {
        sh_op *op = executor->ops[i];
        if (op->guard == UNREAD) op->guard = -1;
        bool drops = op->layer != NULL && is_kind(op->layer, "droppath");
        int passed = drops ? i : op->guard;
        for (int k = 0; k < op->in_count; k++) {
            if (op->in[k]->producer < 0) continue;
            sh_op *from = executor->ops[op->in[k]->producer];
            from->guard =
                from->guard == UNREAD ? passed : common_guard(executor, from->guard, passed);
        }
    }
}

static sh_status check_used(const sh_executor *executor) {
    for (size_t i = 0; i < executor->op_count; i++) {
        const sh_op *op = executor->ops[i];
        if (op->out == executor->output || op->out->readers > 0) continue;
        return SH_FAIL(SH_E_USAGE, "nothing uses the output of layer '%s'", sh_op_name(op));
    }
    return SH_OK;
}

static sh_status plan_all(sh_builder *builder) {
    sh_executor *executor = builder->executor;
    const sh_net *net = executor->net;
    sh_shape shape = sh_shape_with(executor->batch, &net->input.sample);
    SH_TRY(add_value(executor, shape, net->input.tokens, &executor->input));
    mark_fusions(builder);
    for (size_t i = 0; i < net->layer_count; i++) SH_TRY(plan_layer(builder, net->layers[i]));
    executor->output = builder->of_layer[net->layer_count - 1];
    if (executor->output->block != 1)
        SH_TRY(add_reorder(executor, executor->output, 1, &executor->output));
    count_readers(executor);
    SH_TRY(check_used(executor));
    executor->skipped = sh_alloc(executor->op_count, sizeof *executor->skipped);
    executor->param_unused = sh_alloc(net->params.count, sizeof *executor->param_unused);
    if (executor->skipped == NULL || executor->param_unused == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    int *writers = sh_alloc(net->params.count, sizeof *writers);
    if (writers == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    order_param_writers(executor, writers);
    sh_free(writers);
    find_scalers(executor);
    mark_guards(executor);
    return sh_executor_assign_memory(executor);
}

sh_status sh_executor_create(const sh_net *net, const sh_executor_options *options,
                             sh_executor **executor_out) {
    if (net->layer_count == 0) return SH_FAIL(SH_E_USAGE, "the model has no layers");
    sh_executor *executor = sh_alloc(1, sizeof *executor);
    sh_builder builder = {
        .executor = executor,
        .tuner = options->tuner,
        .of_layer = sh_alloc(net->layer_count, sizeof *builder.of_layer),
        .readers = sh_alloc(net->layer_count, sizeof *builder.readers),
        .first_reader = sh_alloc(net->layer_count, sizeof *builder.first_reader),
        .into_pool = sh_alloc(net->layer_count, sizeof *builder.into_pool),
    };
    sh_status status = SH_OK;
    if (executor == NULL || builder.of_layer == NULL || builder.readers == NULL ||
        builder.first_reader == NULL || builder.into_pool == NULL) {
        status = SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    } else {
        executor->net = net;
        executor->batch = options->batch;
        executor->training = options->training;
        executor->no_sharing = options->no_sharing;
        executor->gradients_idle = options->gradients_idle;
        executor->loss = options->loss;
        executor->trace = options->trace;
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
    sh_free(executor->skipped);
    sh_free(executor->param_unused);
    sh_free(executor->buffers);
    sh_free(executor->data_buffers);
    sh_free(executor->grad_buffers);
    sh_free(executor);
}

const char *sh_op_name(const sh_op *op) {
    return op->layer != NULL ? op->layer->name : op->kind->name;
}
