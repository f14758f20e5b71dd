/* A change of layout between plain (N, C, H, W) and blocked (N, C/8, H, W, 8). Not in the list of
 * layers: the builder puts it in where an op wants the other layout. */
#include "tensor/kernels/layout.h"

#include "nn/layers/common.h"

/* A pure permutation of N C H W floats: no value changes. `block` is that of `to`; `from` has the
 * other one. */
static void convert(const sh_value *value, int block, const float *from, float *to) {
    const int64_t *d = value->shape.dim;
    size_t area = (size_t)(d[2] * d[3]);
    (block == 8 ? sh_layout()->to_blocked : sh_layout()->to_plain)(from, (size_t)d[0], (size_t)d[1],
                                                                   area, 8, to);
}

/* One read and one write of the activation; build functions ask for it only where kernels win more.
 */
static sh_status forward(sh_op *op) {
    convert(op->out, op->out->block, op->in[0]->data, op->out->data);
    return SH_OK;
}

/* The gradient goes back into the layout of the input. */
static sh_status backward(sh_op *op) {
    if (op->dx[0] != NULL) convert(op->out, op->in[0]->block, op->out->grad, op->dx[0]);
    return SH_OK;
}

extern const sh_layer_kind sh_layer_kind_reorder;
const sh_layer_kind sh_layer_kind_reorder = {
    .name = "reorder",
    .help = "plain to blocked layout or back",
    .inputs_least = 1,
    .inputs_most = 1,
    .forward = forward,
    .backward = backward,
};
