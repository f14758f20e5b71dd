/* Where branches meet.
 *
 *   add       y = x_0 + x_1 + ...          dx_k = dy
 *   concat    y = [x_0, x_1, ...]          dx_k = its stretch of dy
 *
 * add is element-wise, of any number of inputs of one shape: the end of a residual branch. concat
 * joins along the first dimension of a sample (channels of images, features of vectors), but the
 * last for tokens (T, F). Neither backward reads inputs or outputs; add with an absorbed relu reads
 * its output for the mask. */
#include "nn/layers/common.h"
#include "tensor/kernels/activation.h"

static sh_status declare_add(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    for (int i = 1; i < layer->input_count; i++) {
        char a[SH_SHAPE_TEXT], b[SH_SHAPE_TEXT];
        if (!sh_shape_equal(&layer->in[0], &layer->in[i]))
            return SH_FAIL(SH_E_SHAPE, "layer '%s' (add) cannot add %s and %s", layer->name,
                           sh_shape_text(&layer->in[0], a), sh_shape_text(&layer->in[i], b));
    }
    layer->out = layer->in[0];
    layer->flops = (double)sh_shape_count(&layer->out) * (layer->input_count - 1);
    return SH_OK;
}

/* The first input decides the layout, the others follow it, so that a sum is one loop over memory.
 */
static sh_status build_add(sh_op *op, sh_builder *builder) {
    for (int i = 1; i < op->in_count; i++)
        SH_TRY(sh_builder_want(builder, op, i, op->in[0]->block));
    return SH_OK;
}

/* y may be the memory of the first input. The absorbed relu is a second pass over y, but spares an
 * op. */
static sh_status forward_add(sh_op *op) {
    float *y = op->out->data;
    const sh_vector_kernels *v = sh_vector();
    v->add(op->in[0]->data, op->in[1]->data, y, op->out->count);
    for (int i = 2; i < op->in_count; i++) v->add_to(y, op->in[i]->data, op->out->count);
    if (op->relu) sh_activation()->row[SH_ACTIVATION_RELU].forward(y, y, op->out->count);
    return SH_OK;
}

/* All branches get the same gradient. The first usually shares dy's memory, so that one copy is
 * saved. */
static sh_status backward_add(sh_op *op) {
    sh_op_mask_relu(op);
    for (int i = 0; i < op->in_count; i++)
        if (op->dx[i] != NULL && op->dx[i] != op->out->grad)
            memcpy(op->dx[i], op->out->grad, op->out->count * sizeof(float));
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_add = {
    .name = "add",
    .help = "element-wise sum of branches (from: [a, b])",
    .inputs_least = 2,
    .inputs_most = SH_INPUTS_MOST,
    .declare = declare_add,
    .build = build_add,
    .forward = forward_add,
    .backward = backward_add,
    .in_place = true,
    .fuses_relu = true,
};

/* Joining is done with N (or N T) rows: a row of the output is the rows of the inputs one after the
 * other. `axis` is the dimension of a sample that grows. */
static int axis_of(const sh_shape *sample) { return sample->rank == 2 ? 1 : 0; }

/* All dimensions but the joined one must agree. No flops: only copies. */
static sh_status declare_concat(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    layer->out = layer->in[0];
    int axis = axis_of(&layer->out);
    for (int i = 1; i < layer->input_count; i++) {
        sh_shape same = layer->in[i];
        same.dim[axis] = layer->in[0].dim[axis];
        char a[SH_SHAPE_TEXT], b[SH_SHAPE_TEXT];
        if (same.rank != layer->out.rank || !sh_shape_equal(&layer->in[0], &same))
            return SH_FAIL(SH_E_SHAPE, "layer '%s' (concat) cannot join %s and %s", layer->name,
                           sh_shape_text(&layer->in[0], a), sh_shape_text(&layer->in[i], b));
        layer->out.dim[axis] += layer->in[i].dim[axis];
    }
    return SH_OK;
}

/* Blocks of 8 channels follow each other like channels do, so blocked inputs join as well. */
static sh_status build_concat(sh_op *op, sh_builder *builder) {
    bool blocked = true;
    for (int i = 0; i < op->in_count; i++) blocked = blocked && op->in[i]->block == 8;
    for (int i = 0; i < op->in_count; i++) SH_TRY(sh_builder_want(builder, op, i, blocked ? 8 : 1));
    op->out->block = blocked ? 8 : 1;
    return SH_OK;
}

/* Rows: N, or N T of tokens (N, T, F). */
static size_t outer_of(const sh_op *op) {
    const sh_shape *shape = &op->out->shape;
    return (size_t)(shape->rank == 3 ? shape->dim[0] * shape->dim[1] : shape->dim[0]);
}

/* `row`: floats of an output row; `part`: those of one input in it; `at`: where they begin. */
static sh_status forward_concat(sh_op *op) {
    size_t outer = outer_of(op), row = op->out->count / outer, at = 0;
    float *y = op->out->data;
    for (int i = 0; i < op->in_count; i++) {
        size_t part = op->in[i]->count / outer;
        const float *x = op->in[i]->data;
        for (size_t o = 0; o < outer; o++) memcpy(y + o * row + at, x + o * part, part * sizeof *y);
        at += part;
    }
    return SH_OK;
}

/* The same copies the other way; inputs that want no gradient are passed over. */
static sh_status backward_concat(sh_op *op) {
    size_t outer = outer_of(op), row = op->out->count / outer, at = 0;
    const float *dy = op->out->grad;
    for (int i = 0; i < op->in_count; i++) {
        size_t part = op->in[i]->count / outer;
        for (size_t o = 0; o < outer && op->dx[i] != NULL; o++)
            memcpy(op->dx[i] + o * part, dy + o * row + at, part * sizeof *dy);
        at += part;
    }
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_concat = {
    .name = "concat",
    .help = "joins branches along channels or features (from: [a, b])",
    .inputs_least = 2,
    .inputs_most = SH_INPUTS_MOST,
    .declare = declare_concat,
    .build = build_concat,
    .forward = forward_concat,
    .backward = backward_concat,
};
