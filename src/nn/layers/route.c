/* One of several experts: from scores (N, E) and the outputs of all experts (N, E O), the O outputs
 * of the expert with the greatest score, the first of equals.
 *
 *   e = argmax scores[n]     y[n] = outputs[n, e]     doutputs[n, e] = dy[n], 0 elsewhere
 *
 * The argmax is piecewise constant, so scores get the gradient 0. Part of SVMs that train a model
 * per part of the data (models/learned.c): scores are minus distances to the centres of parts. */
#include <string.h>

#include "nn/layers/common.h"

/* The number of experts is the width of the scores; O follows from it. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_shape *scores = &layer->in[0], *outputs = &layer->in[1];
    if (scores->rank != 1 || outputs->rank != 1 || outputs->dim[0] % scores->dim[0] != 0)
        return sh_layer_wrong_shape(layer, "scores (E) and outputs (E * O)");
    layer->out = SH_SHAPE(outputs->dim[0] / scores->dim[0]);
    layer->flops = (double)scores->dim[0];
    return SH_OK;
}

/* Backward asks the scores again which expert was taken, so that nothing is saved. */
static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    SH_TRY(sh_builder_want(builder, op, 1, 1));
    op->out->block = 1;
    op->needs_input = true;
    return SH_OK;
}

/* A strict comparison keeps the first of equals, and expert 0 where its score is NaN. */
static size_t best_of(const float *scores, size_t experts) {
    size_t best = 0;
    for (size_t e = 1; e < experts; e++)
        if (scores[e] > scores[best]) best = e;
    return best;
}

/* N, E and O. */
typedef struct sizes {
    size_t rows, experts, outputs;
} sizes;

static sizes sizes_of(const sh_op *op) {
    size_t outputs = (size_t)op->layer->out.dim[0];
    return (sizes){op->out->count / outputs, (size_t)op->layer->in[0].dim[0], outputs};
}

static sh_status forward(sh_op *op) {
    sizes s = sizes_of(op);
    const float *scores = op->in[0]->data, *x = op->in[1]->data;
    for (size_t row = 0; row < s.rows; row++) {
        size_t e = row * s.experts + best_of(scores + row * s.experts, s.experts);
        memcpy((float *)op->out->data + row * s.outputs, x + e * s.outputs, s.outputs * sizeof *x);
    }
    return SH_OK;
}

/* All of dx is written: experts that were not chosen get zeros. */
static sh_status backward(sh_op *op) {
    sizes s = sizes_of(op);
    const float *scores = op->in[0]->data;
    if (op->dx[0] != NULL) memset(op->dx[0], 0, s.rows * s.experts * sizeof(float));
    if (op->dx[1] == NULL) return SH_OK;
    memset(op->dx[1], 0, s.rows * s.experts * s.outputs * sizeof(float));
    for (size_t row = 0; row < s.rows; row++) {
        size_t e = row * s.experts + best_of(scores + row * s.experts, s.experts);
        memcpy(op->dx[1] + e * s.outputs, op->out->grad + row * s.outputs,
               s.outputs * sizeof(float));
    }
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_route = {
    .name = "route",
    .help = "the outputs of the expert with the greatest score",
    .inputs_least = 2,
    .inputs_most = 2,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
};
