/* Renames (N, C, H, W) to (N, C H W): y and dx are x and dy under another shape, in the same memory
 * (`reshapes`), so forward does no work. Order is that of plain images, c first: a blocked input is
 * reordered before, as dense weights count on it. */
#include "nn/layers/common.h"

static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    layer->out = SH_SHAPE((int64_t)sh_shape_count(&layer->in[0]));
    return SH_OK;
}

static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    op->out->block = 1;
    return SH_OK;
}

static sh_status nothing(sh_op *op) {
    (void)op;
    return SH_OK;
}

/* dx is dy in place, but where the input has several readers: then this one's share of the gradient
 * lies aside and is added, so it must be copied there. */
static sh_status backward(sh_op *op) {
    if (op->dx[0] != NULL && op->dx[0] != op->out->grad)
        memcpy(op->dx[0], op->out->grad, op->out->count * sizeof(float));
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_flatten = {
    .name = "flatten",
    .help = "an image as a vector",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = nothing,
    .backward = backward,
    .reshapes = true,
};
