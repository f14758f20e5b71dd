/* Building a plan: layers become ops in order, activations are absorbed by their neighbours, layout
 * changes are put in where an op asks for them. */
#include "nn/plan.h"

#include <string.h>

#include "nn/plan_internal.h"

struct sh_planner {
    sh_plan *plan;
    sh_tuner *tuner;
    sh_value **of_layer;  // output value per layer
    int *readers;         // layers that read a layer
    int *first_reader;    // the first of them
    bool *into_pool;      // this relu is done by the max pooling after it
};

sh_tuner *sh_planner_tuner(sh_planner *planner) { return planner->tuner; }

static sh_status add_value(sh_plan *plan, sh_shape shape, bool tokens, sh_value **value_out) {
    char text[SH_SHAPE_TEXT];
    size_t count;
    if (!sh_shape_count_checked(&shape, &count))
        return SH_FAIL(SH_E_SHAPE, "an activation of %s is too large", sh_shape_text(&shape, text));
    SH_TRY(sh_grow((void **)&plan->values, &plan->value_capacity, plan->value_count + 1,
                   sizeof *plan->values));
    sh_value *value = sh_alloc(1, sizeof *value);
    if (value == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    *value = (sh_value){.shape = shape,
                        .count = count,
                        .block = 1,
                        .tokens = tokens,
                        .producer = -1,
                        .data_class = -1,
                        .grad_class = -1,
                        .grad_writer = -1};
    plan->values[plan->value_count++] = value;
    *value_out = value;
    return SH_OK;
}

static void op_destroy(sh_op *op) {
    if (op == NULL) return;
    if (op->kind->destroy != NULL && op->kernel != NULL) op->kind->destroy(op);
    sh_free(op);
}

static sh_status add_op(sh_plan *plan, sh_op *op) {
    sh_status status =
        sh_grow((void **)&plan->ops, &plan->op_capacity, plan->op_count + 1, sizeof *plan->ops);
    if (status != SH_OK) {
        op_destroy(op);
        return status;
    }
    op->index = (int)plan->op_count;
    op->out->producer = op->index;
    plan->ops[plan->op_count++] = op;
    return SH_OK;
}

static sh_op *new_op(sh_plan *plan, const sh_layer *layer, const sh_layer_kind *kind) {
    sh_op *op = sh_alloc(1, sizeof *op);
    if (op == NULL) return NULL;
    op->plan = plan;
    op->layer = layer;
    op->kind = kind;
    op->guard = -1;
    return op;
}

extern const sh_layer_kind sh_layer_kind_reorder;

static sh_status add_reorder(sh_plan *plan, sh_value *from, int block, sh_value **to_out) {
    sh_value *to;
    SH_TRY(add_value(plan, from->shape, false, &to));
    to->block = block;
    to->needs_grad = from->needs_grad;
    sh_op *op = new_op(plan, NULL, &sh_layer_kind_reorder);
    if (op == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    op->in[0] = from;
    op->in_count = 1;
    op->out = to;
    SH_TRY(add_op(plan, op));
    *to_out = to;
    return SH_OK;
}

sh_status sh_planner_want(sh_planner *planner, sh_op *op, int index, int block) {
    sh_value *value = op->in[index];
    if (value->block == block) return SH_OK;
    SH_ASSERT(block == 1 || (value->shape.rank == 4 && value->shape.dim[1] % 8 == 0));
    return add_reorder(planner->plan, value, block, &op->in[index]);
}

static bool is_kind(const sh_layer *layer, const char *name) {
    return strcmp(layer->kind->name, name) == 0;
}

/* The only layer that reads `layer`, or NULL. */
static const sh_layer *sole_reader(const sh_planner *planner, int layer) {
    const sh_net *net = planner->plan->net;
    return planner->readers[layer] == 1 ? net->layers[planner->first_reader[layer]] : NULL;
}

/* relu before max pooling commutes with it and is cheaper on the pooled side; any other relu is
 * absorbed by the layer before it where that can. */
static void mark_fusions(sh_planner *planner) {
    const sh_net *net = planner->plan->net;
    for (size_t i = 0; i < net->layer_count; i++)
        for (int k = 0; k < net->layers[i]->input_count; k++) {
            int input = net->layers[i]->inputs[k];
            if (input >= 0 && planner->readers[input]++ == 0) planner->first_reader[input] = (int)i;
        }
    for (size_t i = 0; i < net->layer_count; i++) {
        const sh_layer *reader =
            is_kind(net->layers[i], "relu") ? sole_reader(planner, (int)i) : NULL;
        planner->into_pool[i] = reader != NULL && is_kind(reader, "maxpool");
    }
}

static bool absorbs_relu(const sh_planner *planner, const sh_layer *layer) {
    if (is_kind(layer, "maxpool"))
        return layer->inputs[0] >= 0 && planner->into_pool[layer->inputs[0]];
    if (!layer->kind->fuses_relu) return false;
    const sh_layer *reader = sole_reader(planner, layer->index);
    return reader != NULL && is_kind(reader, "relu") && !planner->into_pool[reader->index];
}

/* The activation after `layer` that it can do itself, or NULL. */
static const struct sh_activation_row *absorbed_curve(const sh_planner *planner,
                                                      const sh_layer *layer) {
    const sh_layer *reader = layer->kind->fuses_curve ? sole_reader(planner, layer->index) : NULL;
    return reader != NULL && reader->kind->curve != NULL ? reader->kind->curve(reader) : NULL;
}

static bool is_absorbed(const sh_planner *planner, const sh_layer *layer) {
    if (layer->inputs[0] < 0) return false;
    const sh_layer *before = planner->plan->net->layers[layer->inputs[0]];
    if (layer->kind->curve != NULL) return absorbed_curve(planner, before) != NULL;
    if (!is_kind(layer, "relu")) return false;
    return planner->into_pool[layer->index] || absorbs_relu(planner, before);
}

static sh_value *value_of(const sh_planner *planner, int layer) {
    return layer == SH_NET_INPUT ? planner->plan->input : planner->of_layer[layer];
}

static sh_status plan_layer(sh_planner *planner, const sh_layer *layer) {
    sh_plan *plan = planner->plan;
    if (is_absorbed(planner, layer)) {
        planner->of_layer[layer->index] = value_of(planner, layer->inputs[0]);
        return SH_OK;
    }
    sh_op *op = new_op(plan, layer, layer->kind);
    if (op == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    op->in_count = layer->input_count;
    bool needs_grad = layer->param_count > 0;
    for (int i = 0; i < op->in_count; i++) {
        op->in[i] = value_of(planner, layer->inputs[i]);
        needs_grad = needs_grad || op->in[i]->needs_grad;
    }
    sh_status status = add_value(plan, sh_shape_with(plan->batch, &layer->out), false, &op->out);
    if (status == SH_OK) {
        op->out->needs_grad = needs_grad && plan->training;
        op->out->block = op->in[0]->block;
        op->relu = absorbs_relu(planner, layer);
        op->needs_output = op->relu;
        op->curve = absorbed_curve(planner, layer);
        if (layer->kind->plan != NULL) status = layer->kind->plan(op, planner);
    }
    if (status != SH_OK) {
        op_destroy(op);
        return status;
    }
    planner->of_layer[layer->index] = op->out;
    return add_op(plan, op);
}

/* Tied weights: the op that comes last in forward comes first in backward and overwrites. `writers`
 * takes an op index per parameter. */
static void order_param_writers(sh_plan *plan, int *writers) {
    for (size_t i = 0; i < plan->net->params.count; i++) writers[i] = -1;
    for (int i = (int)plan->op_count - 1; i >= 0; i--) {
        sh_op *op = plan->ops[i];
        for (int k = 0; op->layer != NULL && k < op->layer->param_count; k++) {
            size_t param = op->layer->params[k];
            op->param_added[k] = writers[param] > i;  // a later op
            writers[param] = i;
        }
    }
    for (size_t i = 0; i < plan->op_count; i++) {  // the first op of each is left
        sh_op *op = plan->ops[i];
        for (int k = 0; op->layer != NULL && k < op->layer->param_count; k++)
            op->param_last[k] = writers[op->layer->params[k]] == (int)i;
    }
}

static void count_readers(sh_plan *plan) {
    for (size_t i = 0; i < plan->op_count; i++)
        for (int k = 0; k < plan->ops[i]->in_count; k++) plan->ops[i]->in[k]->readers++;
}

/* Where one op alone reads a bent output, it can multiply the gradient by the slopes as it writes
 * it. */
static void find_scalers(sh_plan *plan) {
    for (size_t i = 0; i < plan->op_count; i++) {
        sh_op *reader = plan->ops[i];
        int producer = reader->in[0]->producer;
        if (!reader->kind->scales_dx || producer < 0 || plan->ops[producer]->curve == NULL)
            continue;
        sh_op *bent = plan->ops[producer];
        if (bent->out == plan->output || bent->out->readers != 1) continue;
        reader->bent = bent;
        bent->scaled = true;
    }
}

/* The first drop-path, in the order of forward, that both `a` and `b` pass; -1: none. From each a
 * chain of guards leads forward. */
static int common_guard(const sh_plan *plan, int a, int b) {
    while (a != b) {
        if (a < 0 || b < 0) return -1;
        if (a < b)
            a = plan->ops[a]->guard;
        else
            b = plan->ops[b]->guard;
    }
    return a;
}

/* An op is guarded by the first drop-path that all pass who read its output, directly or through
 * other ops. Readers come later in the list, so that theirs are known. */
static void mark_guards(sh_plan *plan) {
    enum { UNREAD = -2 };
    for (size_t i = 0; i < plan->op_count; i++) plan->ops[i]->guard = UNREAD;
    for (int i = (int)plan->op_count - 1; i >= 0; i--) {
        sh_op *op = plan->ops[i];
        if (op->guard == UNREAD) op->guard = -1;
        bool drops = op->layer != NULL && is_kind(op->layer, "droppath");
        int passed = drops ? i : op->guard;
        for (int k = 0; k < op->in_count; k++) {
            if (op->in[k]->producer < 0) continue;
            sh_op *from = plan->ops[op->in[k]->producer];
            from->guard = from->guard == UNREAD ? passed : common_guard(plan, from->guard, passed);
        }
    }
}

static sh_status check_used(const sh_plan *plan) {
    for (size_t i = 0; i < plan->op_count; i++) {
        const sh_op *op = plan->ops[i];
        if (op->out == plan->output || op->out->readers > 0) continue;
        return SH_FAIL(SH_E_USAGE, "nothing uses the output of layer '%s'", sh_op_name(op));
    }
    return SH_OK;
}

static sh_status plan_all(sh_planner *planner) {
    sh_plan *plan = planner->plan;
    const sh_net *net = plan->net;
    sh_shape shape = sh_shape_with(plan->batch, &net->input.sample);
    SH_TRY(add_value(plan, shape, net->input.tokens, &plan->input));
    mark_fusions(planner);
    for (size_t i = 0; i < net->layer_count; i++) SH_TRY(plan_layer(planner, net->layers[i]));
    plan->output = planner->of_layer[net->layer_count - 1];
    if (plan->output->block != 1) SH_TRY(add_reorder(plan, plan->output, 1, &plan->output));
    count_readers(plan);
    SH_TRY(check_used(plan));
    plan->skipped = sh_alloc(plan->op_count, sizeof *plan->skipped);
    plan->param_unused = sh_alloc(net->params.count, sizeof *plan->param_unused);
    if (plan->skipped == NULL || plan->param_unused == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    int *writers = sh_alloc(net->params.count, sizeof *writers);
    if (writers == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    order_param_writers(plan, writers);
    sh_free(writers);
    find_scalers(plan);
    mark_guards(plan);
    return sh_plan_assign_memory(plan);
}

sh_status sh_plan_create(const sh_net *net, const sh_plan_options *options, sh_plan **plan_out) {
    if (net->layer_count == 0) return SH_FAIL(SH_E_USAGE, "the model has no layers");
    sh_plan *plan = sh_alloc(1, sizeof *plan);
    sh_planner planner = {
        .plan = plan,
        .tuner = options->tuner,
        .of_layer = sh_alloc(net->layer_count, sizeof *planner.of_layer),
        .readers = sh_alloc(net->layer_count, sizeof *planner.readers),
        .first_reader = sh_alloc(net->layer_count, sizeof *planner.first_reader),
        .into_pool = sh_alloc(net->layer_count, sizeof *planner.into_pool),
    };
    sh_status status = SH_OK;
    if (plan == NULL || planner.of_layer == NULL || planner.readers == NULL ||
        planner.first_reader == NULL || planner.into_pool == NULL) {
        status = SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    } else {
        plan->net = net;
        plan->batch = options->batch;
        plan->training = options->training;
        plan->no_sharing = options->no_sharing;
        plan->gradients_idle = options->gradients_idle;
        plan->loss = options->loss;
        plan->trace = options->trace;
        status = plan_all(&planner);
    }
    sh_free(planner.of_layer);
    sh_free(planner.readers);
    sh_free(planner.first_reader);
    sh_free(planner.into_pool);
    if (status != SH_OK)
        sh_plan_destroy(plan);
    else
        *plan_out = plan;
    return status;
}

void sh_plan_destroy(sh_plan *plan) {
    if (plan == NULL) return;
    for (size_t i = 0; i < plan->op_count; i++) op_destroy(plan->ops[i]);
    for (size_t i = 0; i < plan->value_count; i++) sh_free(plan->values[i]);
    sh_free(plan->ops);
    sh_free(plan->values);
    sh_free(plan->skipped);
    sh_free(plan->param_unused);
    sh_free(plan->buffers);
    sh_free(plan->data_buffers);
    sh_free(plan->grad_buffers);
    sh_free(plan);
}

const char *sh_op_name(const sh_op *op) {
    return op->layer != NULL ? op->layer->name : op->kind->name;
}
