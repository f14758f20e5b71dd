/* Pooling of an image whose rows are spread over workers. A worker computes its own output rows,
 * and again those of its neighbours whose windows reach into its own input rows: in backward it
 * then needs the gradients of these only, and its own part of dx is complete. */
#include "tensor/kernels/pool.h"

#include <string.h>

#include "base/memory.h"
#include "nn/layers/common.h"
#include "parallel/space.h"

typedef struct kernels {
    sh_pool_shape shape;  // of the extended image
    sh_rows x_rows, y_rows;
    size_t index;                   // in `saved`, bytes: where the maxima lie, behind x
    size_t y_ext, message, dx_ext;  // in scratch, floats
} kernels;

static const sh_space_cut *cut_of(const sh_op *op) {
    return &((const sh_space_pool_spec *)op->layer->options)->cut;
}

/* Output rows that the worker computes: its own, and those that read its input rows. */
static sh_rows wanted_y(const sh_space_cut *cut, int rank) {
    sh_rows own = sh_rows_owned(cut->out_rows, cut->parts, rank);
    sh_rows in = sh_rows_owned(cut->in_rows, cut->parts, rank);
    sh_rows touching = sh_window_outputs(&cut->window, in, cut->out_rows);
    if (sh_rows_count(own) == 0) return touching;
    if (sh_rows_count(touching) == 0) return own;
    if (touching.first < own.first) own.first = touching.first;
    if (touching.last > own.last) own.last = touching.last;
    return own;
}

static sh_rows wanted_x(const sh_space_cut *cut, int rank) {
    return sh_window_inputs(&cut->window, wanted_y(cut, rank), cut->in_rows);
}

bool sh_space_pool_reaches(const sh_space_cut *cut) {
    return sh_halo_reaches_neighbours_only(cut, cut->in_rows, wanted_x) &&
           sh_halo_reaches_neighbours_only(cut, cut->out_rows, wanted_y);
}

static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_space_pool_spec *o = layer->options;
    const sh_shape *in = &layer->in[0];
    const sh_window *w = &o->cut.window;
    sh_rows own = sh_rows_owned(o->cut.out_rows, o->cut.parts, o->cut.rank);
    int64_t width = (in->dim[2] + 2 * w->padding - w->kernel) / w->stride + 1;
    layer->out = SH_SHAPE(in->dim[0], sh_rows_count(own), width);
    layer->flops = (double)(sh_shape_count(&layer->out)) * (double)(w->kernel * w->kernel);
    return SH_OK;
}

static sh_pool_shape shape_of(const sh_op *op, const kernels *k) {
    const int64_t *x = op->in[0]->shape.dim, *y = op->out->shape.dim;
    const sh_window *w = &cut_of(op)->window;
    size_t lanes = (size_t)op->in[0]->block;
    return (sh_pool_shape){.images = (size_t)(x[0] * x[1]) / lanes,
                           .lanes = lanes,
                           .height = (int)sh_rows_count(k->x_rows),
                           .width = (int)x[3],
                           .out_height = (int)sh_rows_count(k->y_rows),
                           .out_width = (int)y[3],
                           .kernel_height = (int)w->kernel,
                           .kernel_width = (int)w->kernel,
                           .stride_height = (int)w->stride,
                           .stride_width = (int)w->stride,
                           .pad_top = (int)sh_window_above(w, k->y_rows),
                           .pad_left = (int)w->padding};
}

static size_t aligned(size_t floats) {
    return sh_round_up(floats * sizeof(float), SH_ALIGN) / sizeof(float);
}

static sh_status build(sh_op *op, sh_builder *builder) {
    (void)builder;
    const sh_space_cut *cut = cut_of(op);
    kernels *k = op->kernel = sh_alloc(1, sizeof *k);
    if (k == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for pooling");
    k->x_rows = wanted_x(cut, cut->rank);
    k->y_rows = wanted_y(cut, cut->rank);
    k->shape = shape_of(op, k);
    sh_halo_exchange x = sh_space_exchange(op, cut, op->in[0], cut->in_rows, NULL);
    sh_halo_exchange y = sh_space_exchange(op, cut, op->out, cut->out_rows, NULL);
    size_t x_floats = x.planes * (size_t)sh_rows_count(k->x_rows) * x.row;
    size_t y_floats = y.planes * (size_t)sh_rows_count(k->y_rows) * y.row;
    size_t there = sh_halo_floats(&x, cut, wanted_x), back = sh_halo_floats(&y, cut, wanted_y);
    k->message = aligned(y_floats);
    k->dx_ext = k->message + aligned(there > back ? there : back);
    op->saved_bytes = y_floats;  // a byte of index per output
    sh_op_scratch(op, (k->dx_ext + x_floats) * sizeof(float));
    return SH_OK;
}

/* The input with its halo, in scratch. */
static sh_status extend(sh_op *op, sh_row_block *x_out) {
    const sh_space_cut *cut = cut_of(op);
    const kernels *k = op->kernel;
    float *scratch = op->scratch;
    sh_halo_exchange x = sh_space_exchange(op, cut, op->in[0], cut->in_rows, scratch + k->message);
    const sh_row_block own = {op->in[0]->data, sh_rows_owned(cut->in_rows, cut->parts, cut->rank)};
    *x_out = (sh_row_block){scratch + k->dx_ext, k->x_rows};
    return sh_halo_run(&x, cut, wanted_x, &own, x_out);
}

static void take_own(sh_op *op) {
    const sh_space_cut *cut = cut_of(op);
    const kernels *k = op->kernel;
    sh_halo_exchange y = sh_space_exchange(op, cut, op->out, cut->out_rows, NULL);
    const sh_row_block all = {op->scratch, k->y_rows};
    const sh_row_block own = {op->out->data, sh_rows_owned(cut->out_rows, cut->parts, cut->rank)};
    sh_rows_copy(&all, &own, y.planes, y.row);
}

static sh_status forward_max(sh_op *op) {
    sh_row_block x;
    const kernels *k = op->kernel;
    SH_TRY(extend(op, &x));
    sh_pool()->max_forward(&k->shape, x.data, op->scratch, op->saved);
    take_own(op);
    return SH_OK;
}

static sh_status forward_average(sh_op *op) {
    sh_row_block x;
    const kernels *k = op->kernel;
    SH_TRY(extend(op, &x));
    sh_pool()->average_forward(&k->shape, x.data, op->scratch);
    take_own(op);
    return SH_OK;
}

/* The gradient of the extended output, in scratch. */
static sh_status extend_gradient(sh_op *op) {
    const sh_space_cut *cut = cut_of(op);
    const kernels *k = op->kernel;
    float *scratch = op->scratch;
    sh_halo_exchange y = sh_space_exchange(op, cut, op->out, cut->out_rows, scratch + k->message);
    const sh_row_block own = {op->out->grad, sh_rows_owned(cut->out_rows, cut->parts, cut->rank)};
    const sh_row_block all = {scratch, k->y_rows};
    return sh_halo_run(&y, cut, wanted_y, &own, &all);
}

static void take_own_gradient(sh_op *op) {
    const sh_space_cut *cut = cut_of(op);
    const kernels *k = op->kernel;
    sh_halo_exchange x = sh_space_exchange(op, cut, op->in[0], cut->in_rows, NULL);
    const sh_row_block all = {(float *)op->scratch + k->dx_ext, k->x_rows};
    const sh_row_block own = {op->dx[0], sh_rows_owned(cut->in_rows, cut->parts, cut->rank)};
    sh_rows_copy(&all, &own, x.planes, x.row);
}

static sh_status backward_max(sh_op *op) {
    const kernels *k = op->kernel;
    if (op->dx[0] == NULL) return SH_OK;
    SH_TRY(extend_gradient(op));
    sh_pool()->max_backward(&k->shape, op->scratch, NULL, op->saved,
                            (float *)op->scratch + k->dx_ext);
    take_own_gradient(op);
    return SH_OK;
}

static sh_status backward_average(sh_op *op) {
    const kernels *k = op->kernel;
    if (op->dx[0] == NULL) return SH_OK;
    SH_TRY(extend_gradient(op));
    sh_pool()->average_backward(&k->shape, op->scratch, (float *)op->scratch + k->dx_ext);
    take_own_gradient(op);
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_space_maxpool = {
    .name = "space-maxpool",
    .help = "largest value of each window of an image whose rows are spread over workers",
    .options_bytes = sizeof(sh_space_pool_spec),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward_max,
    .backward = backward_max,
    .destroy = sh_op_free_kernel,
};

const sh_layer_kind sh_layer_kind_space_avgpool = {
    .name = "space-avgpool",
    .help = "mean of each window of an image whose rows are spread over workers",
    .options_bytes = sizeof(sh_space_pool_spec),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward_average,
    .backward = backward_average,
    .destroy = sh_op_free_kernel,
};
