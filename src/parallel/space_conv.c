/* Convolution of an image whose rows are spread over workers.
 *
 *   forward    x own rows + halo ─▶ y own rows
 *   backward   dy own rows + halo of dy ─▶ dx own rows, complete: nothing is added across workers
 *              x own rows + halo, dy own rows ─▶ dw of these rows, summed over the workers
 *
 * Two kernels, because forward reads other rows than backward writes. The sum of dw travels while
 * earlier layers compute. */
#include <string.h>

#include "base/memory.h"
#include "nn/layers/common.h"
#include "parallel/space.h"
#include "tensor/kernels/conv.h"

/* Where the op's buffers lie, in floats. */
typedef struct places {
    size_t x_ext, gradient;                // in `saved`
    size_t dy_ext, dx_ext, message, rest;  // in scratch; `rest` is the kernels'
} places;

typedef struct kernels {
    sh_peer_call call;  // first: the exchange of the gradient
    sh_conv *forward, *input_gradient;
    places at;
    sh_rows x_rows, dy_rows, dx_rows;  // of the extended images
    size_t weight_count, bias_count;   // floats of the gradients that travel together
} kernels;

/* The cut stands behind the options of the layer itself, at a place of its own in each kind. */
static const sh_space_cut *cut_of(const sh_op *op) {
    return &((const sh_space_conv_spec *)op->layer->options)->cut;
}

static sh_rows owned_in(const sh_space_cut *cut, int rank) {
    return sh_rows_owned(cut->in_rows, cut->parts, rank);
}
static sh_rows owned_out(const sh_space_cut *cut, int rank) {
    return sh_rows_owned(cut->out_rows, cut->parts, rank);
}

/* Input rows that forward reads, and output rows whose gradient backward reads. */
static sh_rows wanted_x(const sh_space_cut *cut, int rank) {
    return sh_window_inputs(&cut->window, owned_out(cut, rank), cut->in_rows);
}
static sh_rows wanted_dy(const sh_space_cut *cut, int rank) {
    return sh_window_outputs(&cut->window, owned_in(cut, rank), cut->out_rows);
}

/* A halo from further than the neighbours would need messages to others: not supported. */
bool sh_space_conv_reaches(const sh_space_cut *cut) {
    return sh_halo_reaches_neighbours_only(cut, cut->in_rows, wanted_x) &&
           sh_halo_reaches_neighbours_only(cut, cut->out_rows, wanted_dy);
}

/* The output holds this worker's rows; parameters are whole, as all rows need all of them. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_space_conv_spec *spec = layer->options;
    const sh_conv_spec *o = &spec->conv;
    const sh_shape *in = &layer->in[0];
    sh_rows own = owned_out(&spec->cut, spec->cut.rank);
    int64_t wide = o->kernel_w ? o->kernel_w : o->kernel;
    int64_t width = (in->dim[2] + 2 * o->padding - o->dilation * (wide - 1) - 1) / o->stride + 1;
    int64_t ic = in->dim[0] / o->groups;
    layer->out = SH_SHAPE(o->channels, sh_rows_count(own), width);
    layer->flops = 2.0 * (double)sh_shape_count(&layer->out) * (double)(ic * o->kernel * wide);
    SH_TRY(sh_layer_param(layer, "weight", SH_SHAPE(o->channels, ic, o->kernel, wide), true,
                          (sh_init){.rule = SH_INIT_CONSTANT}));
    if (!o->bias) return SH_OK;
    return sh_layer_param(layer, "bias", SH_SHAPE(o->channels), false,
                          (sh_init){.rule = SH_INIT_CONSTANT});
}

/* The convolution that takes input rows `in` to output rows `out`. */
static sh_conv_shape shape_of(const sh_op *op, sh_rows in, sh_rows out) {
    const sh_conv_spec *o = op->layer->options;
    const int64_t *x = op->in[0]->shape.dim, *y = op->out->shape.dim;
    return (sh_conv_shape){.n = x[0],
                           .ic = x[1],
                           .ih = sh_rows_count(in),
                           .iw = x[3],
                           .oc = y[1],
                           .oh = sh_rows_count(out),
                           .ow = y[3],
                           .kh = o->kernel,
                           .kw = o->kernel_w ? o->kernel_w : o->kernel,
                           .stride_h = o->stride,
                           .stride_w = o->stride,
                           // Padding above only where the image itself begins.
                           .pad_h = sh_window_above(&cut_of(op)->window, out),
                           .pad_w = o->padding,
                           .dilation_h = o->dilation,
                           .dilation_w = o->dilation,
                           .groups = o->groups};
}

/* Blocked layouts hold 8 channels side by side: groups must not share a block. */
static bool blocks_fit_groups(const sh_conv_shape *s) {
    int64_t in = s->ic / s->groups, out = s->oc / s->groups;
    return s->groups == 1 || (in == 1 && out == 1) || (in % 8 == 0 && out % 8 == 0);
}

static sh_status create(sh_op *op, sh_builder *builder, const sh_conv_shape *shape, bool forward,
                        sh_conv **conv_out) {
    sh_conv_options options = {.shape = *shape,
                               .x_block = op->in[0]->block,
                               .y_block = op->out->block,
                               .bias = op->layer->param_count > 1,
                               .relu = forward && op->relu,
                               .backward = op->executor->training,
                               // A second kernel, for the input's gradient.
                               .input_gradient = !forward};
    return sh_conv_create(&options, sh_builder_tuner(builder), conv_out);
}

static size_t image_floats(const sh_value *value, sh_rows rows) {
    const int64_t *d = value->shape.dim;
    return (size_t)(d[0] * d[1] * sh_rows_count(rows) * d[3]);
}

static size_t aligned(size_t floats) {  // floats, so that the next buffer is aligned
    return sh_round_up(floats * sizeof(float), SH_ALIGN) / sizeof(float);
}

/* Lays out saved and scratch memory, once. x with its halo is saved: backward needs it for dw. */
static void place(sh_op *op, kernels *k) {
    const sh_space_cut *cut = cut_of(op);
    bool trains = op->executor->training, returns = k->input_gradient != NULL;
    sh_halo_exchange x = sh_space_exchange(op, cut, op->in[0], cut->in_rows, NULL);
    sh_halo_exchange y = sh_space_exchange(op, cut, op->out, cut->out_rows, NULL);
    size_t forward = sh_halo_floats(&x, cut, wanted_x);
    size_t backward = returns ? sh_halo_floats(&y, cut, wanted_dy) : 0;
    size_t gradient = k->weight_count + k->bias_count;
    k->at.gradient = aligned(image_floats(op->in[0], k->x_rows));  // x_ext comes first in `saved`
    op->saved_bytes = (k->at.gradient + (trains ? gradient : 0)) * sizeof(float);
    k->at.dx_ext = returns ? aligned(image_floats(op->out, k->dy_rows)) : 0;
    k->at.message = k->at.dx_ext + (returns ? aligned(image_floats(op->in[0], k->dx_rows)) : 0);
    // Forward and backward do not overlap in time.
    k->at.rest = k->at.message + aligned(forward > backward ? forward : backward);
    size_t kernel = sh_conv_scratch_bytes(k->forward);
    if (returns && sh_conv_scratch_bytes(k->input_gradient) > kernel)
        kernel = sh_conv_scratch_bytes(k->input_gradient);
    sh_op_scratch(op, k->at.rest * sizeof(float) + kernel);
}

static void count_params(const sh_op *op, kernels *k) {
    const sh_param *params = op->executor->net->params.items;
    k->weight_count = params[op->layer->params[0]].count;
    if (op->layer->param_count > 1) k->bias_count = params[op->layer->params[1]].count;
}

static sh_status build(sh_op *op, sh_builder *builder) {
    const sh_space_cut *cut = cut_of(op);
    sh_rows out = owned_out(cut, cut->rank);
    kernels *k = op->kernel = sh_alloc(1, sizeof *k);
    if (k == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for layer '%s'", op->layer->name);
    k->x_rows = wanted_x(cut, cut->rank);
    k->dy_rows = wanted_dy(cut, cut->rank);
    k->dx_rows = sh_window_inputs(&cut->window, k->dy_rows, cut->in_rows);
    sh_conv_shape shape = shape_of(op, k->x_rows, out);
    // 8 where channels fill blocks, else plain.
    int y_block = shape.oc % 8 == 0 && blocks_fit_groups(&shape) ? 8 : 1;
    int x_block = shape.ic % 8 == 0 && y_block == 8 ? 8 : 1;
    SH_TRY(sh_builder_want(builder, op, 0, x_block));
    op->out->block = y_block;
    count_params(op, k);
    SH_TRY(create(op, builder, &shape, true, &k->forward));
    // Rows that no window reads need no kernel.
    if (op->executor->training && op->in[0]->needs_grad && sh_rows_count(k->dy_rows) > 0) {
        sh_conv_shape back = shape_of(op, k->dx_rows, k->dy_rows);
        SH_TRY(create(op, builder, &back, false, &k->input_gradient));
    }
    place(op, k);
    return SH_OK;
}

static float *bias_of(float *const *params, const sh_op *op) {
    return op->layer->param_count > 1 ? params[1] : NULL;
}

static sh_status forward(sh_op *op) {
    const sh_space_cut *cut = cut_of(op);
    const kernels *k = op->kernel;
    float *scratch = op->scratch;
    sh_halo_exchange x =
        sh_space_exchange(op, cut, op->in[0], cut->in_rows, scratch + k->at.message);
    const sh_row_block own = {op->in[0]->data, owned_in(cut, cut->rank)};
    const sh_row_block want = {op->saved, k->x_rows};
    SH_TRY(sh_halo_run(&x, cut, wanted_x, &own, &want));  // halos travel before the kernel begins
    sh_conv_forward(k->forward, op->saved, op->param[0], bias_of(op->param, op), op->out->data,
                    scratch + k->at.rest);
    return SH_OK;
}

/* dx of own rows: neighbours' dy arrives first, so that no sum over workers is needed. */
static sh_status return_gradient(sh_op *op) {
    const sh_space_cut *cut = cut_of(op);
    const kernels *k = op->kernel;
    float *scratch = op->scratch;
    const sh_row_block own = {op->out->grad, owned_out(cut, cut->rank)};
    const sh_row_block dy = {scratch, k->dy_rows};
    const sh_row_block dx = {scratch + k->at.dx_ext, k->dx_rows};
    const sh_row_block to = {op->dx[0], owned_in(cut, cut->rank)};
    sh_halo_exchange y =
        sh_space_exchange(op, cut, op->out, cut->out_rows, scratch + k->at.message);
    SH_TRY(sh_halo_run(&y, cut, wanted_dy, &own, &dy));
    sh_halo_exchange x = sh_space_exchange(op, cut, op->in[0], cut->in_rows, NULL);
    if (k->input_gradient == NULL) {  // no window of anybody reads these rows
        memset(op->dx[0], 0, op->in[0]->count * sizeof(float));
        return SH_OK;
    }
    sh_conv_input_gradient(k->input_gradient, dy.data, op->param[0], dx.data, scratch + k->at.rest);
    // Rows of the halo are dropped: their owners compute them.
    sh_rows_copy(&dx, &to, x.planes, x.row);
    return SH_OK;
}

static sh_status backward(sh_op *op) {
    kernels *k = op->kernel;
    float *gradient = (float *)op->saved + k->at.gradient;
    sh_op_mask_relu(op);  // dy behind the fused relu
    sh_conv_weight_gradient(k->forward, op->saved, op->out->grad, gradient,
                            k->bias_count > 0 ? gradient + k->weight_count : NULL, false,
                            (float *)op->scratch + k->at.rest);
    // Under way while dx is computed.
    SH_TRY(sh_space_sum_start(op, &k->call, gradient, k->weight_count + k->bias_count));
    return op->dx[0] != NULL ? return_gradient(op) : SH_OK;
}

/* Adds to the gradient, or overwrites it where this op is the first to write. */
static void take(const sh_op *op, int index, const float *from, size_t count) {
    if (sh_op_adds(op, index))
        sh_vector()->add_to(op->param_grad[index], from, count);
    else
        memcpy(op->param_grad[index], from, count * sizeof *from);
}

static sh_status finish_forward(sh_op *op) {
    (void)op;
    return SH_OK;
}

static sh_status finish_backward(sh_op *op) {
    kernels *k = op->kernel;
    const float *gradient = (const float *)op->saved + k->at.gradient;
    SH_TRY(sh_peer_call_finish(&k->call, sh_space_peers(op)));  // waits for the sum of dw
    take(op, 0, gradient, k->weight_count);
    if (k->bias_count > 0) take(op, 1, gradient + k->weight_count, k->bias_count);
    return SH_OK;
}

static void progress(sh_op *op) {
    kernels *k = op->kernel;
    sh_peer_call_progress(&k->call, sh_space_peers(op));
}

static void destroy(sh_op *op) {
    kernels *k = op->kernel;
    sh_conv_destroy(k->forward);
    sh_conv_destroy(k->input_gradient);
    sh_op_free_kernel(op);
}

static const char *describe(const sh_op *op) {
    return sh_conv_kernels(((const kernels *)op->kernel)->forward);
}

static const sh_layer_exchange exchange = {finish_forward, finish_backward, progress};

const sh_layer_kind sh_layer_kind_space_conv = {
    .name = "space-conv",
    .help = "2-d convolution of an image whose rows are spread over workers",
    .options_bytes = sizeof(sh_space_conv_spec),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
    .exchange = &exchange,
    .destroy = destroy,
    .describe = describe,
    .fuses_relu = true,
};
