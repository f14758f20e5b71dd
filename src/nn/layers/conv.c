/* 2-d convolution (cross-correlation, as all frameworks have it): x (N, C, H, W), weight w (O, C/G,
 * kh, kw), y (N, O, H', W') for G groups. In group g, with stride s, padding p and dilation d:
 *
 *   y[n,o,i,j] = b_o + sum over c,u,v of w[o,c,u,v] x[n, g C/G + c, i s + u d - p, j s + v d - p]
 *   H' = (H + 2p - d (kh - 1) - 1) / s + 1     (rounded down; W' likewise)
 *
 *   db_o        = sum over n,i,j of dy[n,o,i,j]
 *   dw[o,c,u,v] = sum over n,i,j of dy[n,o,i,j] x[n, g C/G + c, i s + u d - p, j s + v d - p]
 *   dx          = the transposed convolution of dy with w
 *
 * Backward reads the input (for dw) and, with an absorbed relu, the output (for the mask). Channels
 * in multiples of 8 run on blocked activations, (N, C/8, H, W, 8): 8 floats are one AVX register,
 * so that a kernel loads whole vectors of channels at any pixel. */
#include "tensor/kernels/conv.h"

#include "nn/layers/common.h"
#include "nn/layers/options.h"

/* stride, padding and dilation are the same in both directions; only the kernel may be oblong. */
static const sh_option rows[] = {
    {.key = "channels",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_conv_spec, channels),
     .initial = "1",
     .least = 1,
     .most = 1 << 20,
     .help = "output channels"},
    {.key = "kernel",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_conv_spec, kernel),
     .initial = "3",
     .least = 1,
     .most = 255,
     .help = "kernel height, and width unless kernel_w is given"},
    {.key = "kernel_w",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_conv_spec, kernel_w),
     .initial = "0",
     .least = 0,
     .most = 255,
     .help = "kernel width; 0: the same as kernel"},
    {.key = "stride",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_conv_spec, stride),
     .initial = "1",
     .least = 1,
     .most = 255,
     .help = "step between windows"},
    {.key = "padding",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_conv_spec, padding),
     .initial = "0",
     .least = 0,
     .most = 255,
     .help = "zeros around the image"},
    {.key = "dilation",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_conv_spec, dilation),
     .initial = "1",
     .least = 1,
     .most = 255,
     .help = "distance between taps"},
    {.key = "groups",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_conv_spec, groups),
     .initial = "1",
     .least = 1,
     .most = 1 << 20,
     .help = "groups of channels convolved separately"},
    {.key = "bias",
     .type = SH_OPTION_BOOL,
     .at = offsetof(sh_conv_spec, bias),
     .initial = "true",
     .help = "add a trained bias"},
    {.key = "init",
     .type = SH_OPTION_STRING,
     .at = offsetof(sh_conv_spec, init),
     .initial = "he",
     .choices = sh_init_choice,
     .help = "how the weight starts"},
    {.key = "std",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_conv_spec, std),
     .initial = "0.01",
     .least = 0,
     .most = 100,
     .help = "standard deviation of init: normal"},
};

/* Windows that fit along one direction; 0: not even one. `reach`: pixels a dilated kernel spans. */
static int64_t out_size(int64_t in, int64_t k, const sh_conv_spec *o) {
    int64_t reach = o->dilation * (k - 1) + 1, room = in + 2 * o->padding - reach;
    return room < 0 ? 0 : room / o->stride + 1;
}

static int64_t kernel_w(const sh_conv_spec *o) { return o->kernel_w ? o->kernel_w : o->kernel; }

/* weight (O, C/G, kh, kw), bias (O). 2 flops per tap, output channel and output pixel. Fans are per
 * group: what one output sums over, and what one input contributes to. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_conv_spec *o = layer->options;
    const sh_shape *in = &layer->in[0];
    if (in->rank != 3) return sh_layer_wrong_shape(layer, "an image (C, H, W)");
    if (in->dim[0] % o->groups != 0 || o->channels % o->groups != 0)
        return SH_FAIL(
            SH_E_SHAPE,
            "layer '%s': %ld input and %ld output channels are not divisible by %ld groups",
            layer->name, (long)in->dim[0], (long)o->channels, (long)o->groups);
    int64_t oh = out_size(in->dim[1], o->kernel, o), ow = out_size(in->dim[2], kernel_w(o), o);
    if (oh < 1 || ow < 1)
        return sh_layer_wrong_shape(layer, "an image at least as large as its kernel");
    layer->out = SH_SHAPE(o->channels, oh, ow);
    int64_t ic = in->dim[0] / o->groups, fan_in = ic * o->kernel * kernel_w(o);
    int64_t fan_out = o->channels / o->groups * o->kernel * kernel_w(o);
    layer->flops = 2.0 * (double)(o->channels * oh * ow) * (double)fan_in;
    SH_TRY(sh_layer_param(layer, "weight", SH_SHAPE(o->channels, ic, o->kernel, kernel_w(o)), true,
                          sh_init_named(o->init, o->std, fan_in, fan_out)));
    if (!o->bias) return SH_OK;
    return sh_layer_param(layer, "bias", SH_SHAPE(o->channels), false,
                          (sh_init){.rule = SH_INIT_CONSTANT});
}

/* The sizes as kernels name them (conv_shape.h): i input, o output; c channels, h, w. */
static sh_conv_shape shape_of(const sh_op *op) {
    const sh_conv_spec *o = op->layer->options;
    const int64_t *x = op->in[0]->shape.dim, *y = op->out->shape.dim;
    return (sh_conv_shape){
        .n = x[0],
        .ic = x[1],
        .ih = x[2],
        .iw = x[3],
        .oc = y[1],
        .oh = y[2],
        .ow = y[3],
        .kh = o->kernel,
        .kw = kernel_w(o),
        .stride_h = o->stride,
        .stride_w = o->stride,
        .pad_h = o->padding,
        .pad_w = o->padding,
        .dilation_h = o->dilation,
        .dilation_w = o->dilation,
        .groups = o->groups,
    };
}

/* A block of 8 channels must not straddle two groups. Depthwise convolution (one channel per group)
 * is exempt: the library has kernels of its own for it. */
static bool blocks_fit_groups(const sh_conv_shape *s) {
    int64_t in = s->ic / s->groups, out = s->oc / s->groups;
    return s->groups == 1 || (in == 1 && out == 1) || (in % 8 == 0 && out % 8 == 0);
}

/* Chooses layouts, then kernels: blocked output where the channels allow it, blocked input only
 * with it. The first convolution of a net reads 1 or 3 plain channels and gives blocked ones. A
 * reorder op is put in where the producer's layout is another. */
static sh_status build(sh_op *op, sh_builder *builder) {
    sh_conv_shape shape = shape_of(op);
    int y_block = shape.oc % 8 == 0 && blocks_fit_groups(&shape) ? 8 : 1;
    int x_block = shape.ic % 8 == 0 && y_block == 8 ? 8 : 1;
    if (op->in[0]->block != x_block) SH_TRY(sh_builder_want(builder, op, 0, x_block));
    op->out->block = y_block;
    op->needs_input = true;
    sh_conv_options options = {
        .shape = shape,
        .x_block = x_block,
        .y_block = y_block,
        .bias = op->layer->param_count > 1,
        .relu = op->relu,
        .backward = op->executor->training,
        .input_gradient = op->in[0]->needs_grad,
    };
    sh_conv *conv = NULL;
    SH_TRY(sh_conv_create(&options, sh_builder_tuner(builder), &conv));
    op->kernel = conv;
    op->scratch_bytes = sh_conv_scratch_bytes(conv);
    return SH_OK;
}

/* Serves parameters and their gradients alike; NULL: no bias, which kernels understand. */
static float *bias_of(float *const *params, const sh_op *op) {
    return op->layer->param_count > 1 ? params[1] : NULL;
}

/* y is written with bias and absorbed relu in one pass of the kernel. */
static sh_status forward(sh_op *op) {
    sh_conv_forward(op->kernel, op->in[0]->data, op->param[0], bias_of(op->param, op),
                    op->out->data, op->scratch);
    return SH_OK;
}

/* dx is NULL for the first trained layer of a net, which saves a third of this layer's work in a
 * step: forward, dw and dx cost the same. */
static sh_status backward(sh_op *op) {
    sh_op_mask_relu(op);
    sh_conv_weight_gradient(op->kernel, op->in[0]->data, op->out->grad, op->param_grad[0],
                            bias_of(op->param_grad, op), sh_op_adds(op, 0), op->scratch);
    if (op->dx[0] != NULL)
        sh_conv_input_gradient(op->kernel, op->out->grad, op->param[0], op->dx[0], op->scratch);
    return SH_OK;
}

static void destroy(sh_op *op) {
    sh_conv_destroy(op->kernel);
    op->kernel = NULL;
}

static const char *describe(const sh_op *op) { return sh_conv_kernels(op->kernel); }

const sh_layer_kind sh_layer_kind_conv = {
    .name = "conv",
    .help = "2-d convolution with stride, padding, dilation and groups",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_conv_spec),
    .main_option = "channels",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
    .destroy = destroy,
    .describe = describe,
    .fuses_relu = true,
};
