/* Kernel functions: y_j = K(x, v_j), for rows x (N, F) and vectors v (count, F); y is (N, count).
 * With the support vectors as v and a dense layer after it, this is a support vector machine as a
 * net (models/learned.c).
 *
 *   rbf           exp(-gamma |x - v|^2)         dK/dv = 2 gamma K (x - v)
 *   linear        x.v                           dK/dv = x
 *   polynomial    (gamma x.v + coef0)^degree    dK/dv = degree gamma (...)^(degree - 1) x
 *
 * dK/dx is the same with x and v exchanged. Backward reads the input and computes K again. Kernels
 * are those of libsvm, in doubles: src/learn trains with the same formulas, and a trained model
 * must decide as its training did. */
#include <math.h>
#include <string.h>

#include "nn/layers/common.h"
#include "nn/layers/options.h"
#include "tensor/kernels/distance.h"

static const char *kernel_choice(size_t index) {
    static const char *const names[] = {"rbf", "linear", "polynomial"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

/* The model `svm` sets all of these; the defaults serve run files that list the layer themselves.
 */
static const sh_option rows[] = {
    {.key = "count",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_kernel_spec, count),
     .initial = "1",
     .least = 1,
     .most = 1 << 24,
     .help = "vectors"},
    {.key = "kernel",
     .type = SH_OPTION_STRING,
     .at = offsetof(sh_kernel_spec, kernel),
     .initial = "rbf",
     .choices = kernel_choice,
     .help = "exp(-gamma |x - v|^2), x.v, or (gamma x.v + coef0)^degree"},
    {.key = "gamma",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_kernel_spec, gamma),
     .initial = "1",
     .least = 0,
     .most = 1e300,
     .help = "of the kernel"},
    {.key = "coef0",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_kernel_spec, coef0),
     .initial = "0",
     .least = -1e300,
     .most = 1e300,
     .help = "of the polynomial"},
    {.key = "degree",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_kernel_spec, degree),
     .initial = "3",
     .least = 1,
     .most = 64,
     .help = "of the polynomial"},
};

/* Vectors are rows of the training data (or drawn, where only gradients train them), so that they
 * do not decay. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_kernel_spec *options = layer->options;
    const sh_shape *in = &layer->in[0];
    if (in->rank != 1) return sh_layer_wrong_shape(layer, "a vector (F); put a flatten before it");
    layer->out = SH_SHAPE(options->count);
    layer->flops = 3.0 * (double)in->dim[0] * (double)options->count;
    return sh_layer_param(layer, "vector", SH_SHAPE(options->count, in->dim[0]), false,
                          (sh_init){.rule = SH_INIT_NORMAL, .scale = 1});
}

/* Rows are read feature by feature: plain layout. */
static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    op->out->block = 1;
    op->needs_input = true;
    return SH_OK;
}

/* N, count and F. */
typedef struct sizes {
    size_t rows, vectors, width;
} sizes;

static sizes sizes_of(const sh_op *op) {
    const sh_shape *vector = &op->executor->net->params.items[op->layer->params[0]].shape;
    size_t vectors = (size_t)vector->dim[0];
    return (sizes){op->out->count / vectors, vectors, (size_t)vector->dim[1]};
}

/* K(x, v). The name of the kernel was checked by the option table; polynomial is what remains. */
static double value(const sh_kernel_spec *o, const float *x, const float *v, size_t width) {
    if (strcmp(o->kernel, "rbf") == 0) return exp(-o->gamma * sh_distance(x, v, width));
    if (strcmp(o->kernel, "linear") == 0) return sh_dot(x, v, width);
    return pow(o->gamma * sh_dot(x, v, width) + o->coef0, (double)o->degree);
}

/* O(N count F). Each value depends on its two rows alone: the same bits for any number of threads.
 */
static sh_status forward(sh_op *op) {
    sizes s = sizes_of(op);
    const sh_kernel_spec *o = op->layer->options;
    const float *x = op->in[0]->data, *v = op->param[0];
    float *y = op->out->data;
#pragma omp parallel for schedule(static)
    for (size_t row = 0; row < s.rows; row++)
        for (size_t j = 0; j < s.vectors; j++)
            y[row * s.vectors + j] = (float)value(o, x + row * s.width, v + j * s.width, s.width);
    return SH_OK;
}

/* dv_j = sum over rows of dy_j dK/dv_j; dx = sum over j of dy_j dK/dx. `by` is the scalar factor of
 * one pair (row, vector), which multiplies x - v for rbf, and the other vector otherwise. One
 * thread, in the order of rows, as several would add to the same vector. */
static sh_status backward(sh_op *op) {
    sizes s = sizes_of(op);
    const sh_kernel_spec *o = op->layer->options;
    const float *x = op->in[0]->data, *v = op->param[0], *dy = op->out->grad;
    float *dv = op->param_grad[0], *dx = op->dx[0];
    bool rbf = strcmp(o->kernel, "rbf") == 0, linear = strcmp(o->kernel, "linear") == 0;
    if (!sh_op_adds(op, 0)) memset(dv, 0, s.vectors * s.width * sizeof *dv);
    if (dx != NULL) memset(dx, 0, s.rows * s.width * sizeof *dx);
    for (size_t row = 0; row < s.rows; row++)
        for (size_t j = 0; j < s.vectors; j++) {
            const float *a = x + row * s.width, *b = v + j * s.width;
            double by = (double)dy[row * s.vectors + j];
            if (rbf)
                by *= 2 * o->gamma * value(o, a, b, s.width);
            else if (!linear)
                by *= o->gamma * (double)o->degree *
                      pow(o->gamma * sh_dot(a, b, s.width) + o->coef0, (double)(o->degree - 1));
            for (size_t i = 0; i < s.width; i++) {
                double gap = (double)a[i] - (double)b[i];
                dv[j * s.width + i] += (float)(by * (rbf ? gap : (double)a[i]));
                if (dx != NULL) dx[row * s.width + i] += (float)(by * (rbf ? -gap : (double)b[i]));
            }
        }
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_kernel = {
    .name = "kernel",
    .help = "the kernel of a row with each of some vectors, as in an SVM",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_kernel_spec),
    .main_option = "count",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
};
