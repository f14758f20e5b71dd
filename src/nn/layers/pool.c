/* Pooling on (N, C, H, W), plain or blocked; k x k windows.
 *
 *   maxpool       y = max over the window             dx = dy at the maximum, 0 elsewhere
 *   avgpool       y = sum over the window / k^2       dx = dy / k^2 over the window
 *   globalpool    y = mean over H W: (N, C)           dx = dy / (H W)
 *
 * Overlapping windows add up in dx. Padding never wins a maximum and counts as 0 in a mean. Max
 * pooling saves the place of each maximum (one byte), so that backward reads no activation. It
 * absorbs the relu before it: max and relu commute, and relu is cheaper on the pooled side;
 * backward then also reads its output. */
#include "tensor/kernels/pool.h"

#include "nn/layers/common.h"
#include "nn/layers/options.h"

/* A window has at most 15 x 15 = 225 places: the saved index is a byte. */
static const sh_option rows[] = {
    {.key = "kernel",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_pool_spec, kernel),
     .initial = "2",
     .least = 1,
     .most = 15,
     .help = "window height and width"},
    {.key = "stride",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_pool_spec, stride),
     .initial = "0",
     .least = 0,
     .most = 255,
     .help = "step between windows; 0: the kernel"},
    {.key = "padding",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_pool_spec, padding),
     .initial = "0",
     .least = 0,
     .most = 14,
     .help = "border around the image, less than the kernel"},
};

static int64_t stride_of(const sh_pool_spec *o) { return o->stride > 0 ? o->stride : o->kernel; }

/* Padding above half the kernel would make windows of nothing but padding, whose maximum is
 * undefined. Windows that reach over the far border are left out (rounded down). */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_pool_spec *o = layer->options;
    const sh_shape *in = &layer->in[0];
    if (in->rank != 3) return sh_layer_wrong_shape(layer, "an image (C, H, W)");
    if (2 * o->padding > o->kernel)
        return SH_FAIL(SH_E_SHAPE, "layer '%s': padding %ld is more than half the kernel %ld",
                       layer->name, (long)o->padding, (long)o->kernel);
    if (in->dim[1] + 2 * o->padding < o->kernel || in->dim[2] + 2 * o->padding < o->kernel)
        return sh_layer_wrong_shape(layer, "an image at least as large as its window");
    layer->out = SH_SHAPE(in->dim[0], (in->dim[1] + 2 * o->padding - o->kernel) / stride_of(o) + 1,
                          (in->dim[2] + 2 * o->padding - o->kernel) / stride_of(o) + 1);
    layer->flops = (double)(sh_shape_count(&layer->out)) * (double)(o->kernel * o->kernel);
    return SH_OK;
}

/* The kernel data of an op: each plane of a channel, or of 8 blocked channels, is an image of its
 * own, N C / lanes of them. Caller owns it (sh_op_free_kernel). */
static sh_pool_shape *shape_of(sh_op *op) {
    const sh_pool_spec *o = op->layer->options;
    const int64_t *x = op->in[0]->shape.dim, *y = op->out->shape.dim;
    sh_pool_shape *shape = sh_alloc(1, sizeof *shape);
    if (shape == NULL) return NULL;
    size_t lanes = (size_t)op->in[0]->block;
    *shape = (sh_pool_shape){
        .images = (size_t)(x[0] * x[1]) / lanes,
        .lanes = lanes,
        .height = (int)x[2],
        .width = (int)x[3],
        .out_height = (int)y[2],
        .out_width = (int)y[3],
        .kernel_height = (int)o->kernel,
        .kernel_width = (int)o->kernel,
        .stride_height = (int)stride_of(o),
        .stride_width = (int)stride_of(o),
        .pad_top = (int)o->padding,
        .pad_left = (int)o->padding,
        .relu = op->relu,
    };
    return shape;
}

static sh_status build_max(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->kernel = shape_of(op);
    if (op->executor->training) op->saved_bytes = op->out->count;  // a byte of index per output
    return op->kernel != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for pooling");
}

/* Outside training `saved` is NULL, and no places are written. */
static sh_status forward_max(sh_op *op) {
    sh_pool()->max_forward(op->kernel, op->in[0]->data, op->out->data, op->saved);
    return SH_OK;
}

/* Of equal maxima the first in row-major order takes the whole gradient. */
static sh_status backward_max(sh_op *op) {
    if (op->dx[0] != NULL)
        sh_pool()->max_backward(op->kernel, op->out->grad, op->out->data, op->saved, op->dx[0]);
    return SH_OK;
}

/* Nothing is saved: the gradient of a mean depends on no value. */
static sh_status build_average(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->kernel = shape_of(op);
    return op->kernel != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for pooling");
}

static sh_status forward_average(sh_op *op) {
    sh_pool()->average_forward(op->kernel, op->in[0]->data, op->out->data);
    return SH_OK;
}

static sh_status backward_average(sh_op *op) {
    if (op->dx[0] != NULL) sh_pool()->average_backward(op->kernel, op->out->grad, op->dx[0]);
    return SH_OK;
}

/* (C, H, W) to (C): what a residual net ends in before its dense layer (Lin et al. 2013). */
static sh_status declare_global(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    if (layer->in[0].rank != 3) return sh_layer_wrong_shape(layer, "an image (C, H, W)");
    layer->out = SH_SHAPE(layer->in[0].dim[0]);
    layer->flops = (double)sh_shape_count(&layer->in[0]);
    return SH_OK;
}

/* (N, C/8, 1, 1, 8) is (N, C) already: the output is plain whatever the input's lanes. */
static sh_status build_global(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->out->block = 1;
    return SH_OK;
}

/* x->count / out->count = H W is the area. */
static sh_status forward_global(sh_op *op) {
    const sh_value *x = op->in[0];
    sh_pool()->global_forward(op->out->count / (size_t)x->block, x->count / op->out->count,
                              (size_t)x->block, x->data, op->out->data);
    return SH_OK;
}

static sh_status backward_global(sh_op *op) {
    const sh_value *x = op->in[0];
    if (op->dx[0] != NULL)
        sh_pool()->global_backward(op->out->count / (size_t)x->block, x->count / op->out->count,
                                   (size_t)x->block, op->out->grad, op->dx[0]);
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_maxpool = {
    .name = "maxpool",
    .help = "largest value of each window",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_pool_spec),
    .main_option = "kernel",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build_max,
    .forward = forward_max,
    .backward = backward_max,
    .destroy = sh_op_free_kernel,
};

const sh_layer_kind sh_layer_kind_avgpool = {
    .name = "avgpool",
    .help = "mean of each window, padding counted",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_pool_spec),
    .main_option = "kernel",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build_average,
    .forward = forward_average,
    .backward = backward_average,
    .destroy = sh_op_free_kernel,
};

const sh_layer_kind sh_layer_kind_globalpool = {
    .name = "globalpool",
    .help = "mean over the whole image: (C, H, W) to (C)",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare_global,
    .build = build_global,
    .forward = forward_global,
    .backward = backward_global,
};
