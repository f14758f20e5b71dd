/* Softmax over the last dimension, for outputs that are to be probabilities.
 *
 *   y_i = exp(x_i - max x) / sum_j exp(x_j - max x)     dx_i = y_i (dy_i - sum_j dy_j y_j)
 *
 * Backward needs the output alone, so forward may work in place. The cross-entropy loss has a
 * softmax of its own: do not put this layer before it. */
#include "tensor/kernels/softmax.h"

#include "nn/layers/common.h"

/* Ten flops per element: the exponential is most of it. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    layer->out = layer->in[0];
    layer->flops = 10.0 * (double)sh_shape_count(&layer->out);
    return SH_OK;
}

static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    op->out->block = 1;
    op->needs_output = true;
    return SH_OK;
}

/* Classes: the length of a row that sums to 1. */
static size_t cols_of(const sh_op *op) {
    const sh_shape *shape = &op->out->shape;
    return (size_t)shape->dim[shape->rank - 1];
}

static sh_status forward(sh_op *op) {
    sh_softmax()->forward(op->in[0]->data, op->out->data, op->out->count / cols_of(op),
                          cols_of(op));
    return SH_OK;
}

static sh_status backward(sh_op *op) {
    if (op->dx[0] != NULL)
        sh_softmax()->backward(op->out->grad, op->out->data, op->dx[0],
                               op->out->count / cols_of(op), cols_of(op));
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_softmax = {
    .name = "softmax",
    .help = "exp(x) / sum exp(x) over the last dimension",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
    .in_place = true,
};
