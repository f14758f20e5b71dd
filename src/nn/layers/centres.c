/* Distances to centres: y_j = -|x - c_j|^2, for rows x (N, F) and centres c (count, F); y is (N,
 * count). The nearest centre has the greatest output, as the likeliest class has, so the prediction
 * of a class serves as that of a cluster. The net form of k-means (models/learned.c).
 *
 *   dc_j = 2 sum over rows of dy_j (x - c_j)     dx = -2 sum over j of dy_j (x - c_j)
 *
 * With loss `nearest`, dy is negative at the nearest centre and 0 elsewhere, so that dc_j is the
 * k-means gradient (MacQueen 1967: a step towards the mean of the rows). */
#include "nn/layers/common.h"
#include "nn/layers/options.h"
#include "tensor/kernels/distance.h"

static const sh_option rows[] = {
    {.key = "count",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_centres_spec, count),
     .initial = "8",
     .least = 1,
     .most = 1 << 24,
     .help = "centres"},
};

/* Three flops per feature and centre: subtract, square, add. Centres do not decay: the origin means
 * nothing to a cluster. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_centres_spec *options = layer->options;
    const sh_shape *in = &layer->in[0];
    if (in->rank != 1) return sh_layer_wrong_shape(layer, "a vector (F); put a flatten before it");
    layer->out = SH_SHAPE(options->count);
    layer->flops = 3.0 * (double)in->dim[0] * (double)options->count;
    return sh_layer_param(layer, "centre", SH_SHAPE(options->count, in->dim[0]), false,
                          (sh_init){.rule = SH_INIT_NORMAL, .scale = 1});
}

/* Distances run over whole rows, so that the input must be plain. Backward reads it again. */
static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    op->out->block = 1;
    op->needs_input = true;
    return SH_OK;
}

/* N, count and F. Taken from the parameter: in a trained net the option need not be looked up. */
typedef struct sizes {
    size_t rows, centres, width;
} sizes;

static sizes sizes_of(const sh_op *op) {
    const sh_shape *centre = &op->executor->net->params.items[op->layer->params[0]].shape;
    size_t centres = (size_t)centre->dim[0];
    return (sizes){op->out->count / centres, centres, (size_t)centre->dim[1]};
}

/* Rows are independent, so that the bits do not depend on the number of threads. O(N count F). */
static sh_status forward(sh_op *op) {
    sizes s = sizes_of(op);
    const float *x = op->in[0]->data, *c = op->param[0];
    float *y = op->out->data;
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < s.rows; row++)
        for (size_t j = 0; j < s.centres; j++)
            y[row * s.centres + j] =
                (float)-sh_distance(x + row * s.width, c + j * s.width, s.width);
    return SH_OK;
}

/* Gradients of centres and input, in one thread and in the order of rows: several threads would add
 * to the same centre. Zeros in dy are skipped, which with loss `nearest` is all but one centre of
 * each row: O(N F). */
static sh_status backward(sh_op *op) {
    sizes s = sizes_of(op);
    const float *x = op->in[0]->data, *c = op->param[0], *dy = op->out->grad;
    float *dc = op->param_grad[0], *dx = op->dx[0];
    if (!sh_op_adds(op, 0)) memset(dc, 0, s.centres * s.width * sizeof *dc);
    if (dx != NULL) memset(dx, 0, s.rows * s.width * sizeof *dx);
    for (size_t row = 0; row < s.rows; row++)
        for (size_t j = 0; j < s.centres; j++) {
            float twice = 2 * dy[row * s.centres + j];
            if (twice == 0) continue;
            for (size_t i = 0; i < s.width; i++) {
                float gap = twice * (x[row * s.width + i] - c[j * s.width + i]);
                dc[j * s.width + i] += gap;
                if (dx != NULL) dx[row * s.width + i] -= gap;
            }
        }
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_centres = {
    .name = "centres",
    .help = "minus the squared distances to centres",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_centres_spec),
    .main_option = "count",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
};
