/* Fully connected: y (rows, out) = x (rows, in) W^T + b, with W (out, in) as PyTorch has it. All
 * leading dimensions are rows, so it serves vectors (N, F) and tokens (N, T, F) alike.
 *
 *   dW = dy^T x  (out, in)     db = column sums of dy  (out)     dx = dy W  (rows, in)
 *
 * Three products of 2 rows in out flops each, so backward costs twice forward. Backward reads the
 * input x. With an absorbed relu it also reads the output, for the mask; with another absorbed
 * activation y = f(z) the product saves the slopes f'(z) (rows, out) beside y, since z itself is
 * never stored. */
#include <stdio.h>

#include "nn/layers/common.h"
#include "nn/layers/options.h"
#include "tensor/kernels/gemm.h"

/* `tie` names the weight of an embedding, which has the shape (vocabulary, width) that this layer
 * wants (Press, Wolf 2017): one parameter, whose gradients of both places are added. */
static const sh_option rows[] = {
    {.key = "units",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_dense_spec, units),
     .initial = "0",
     .least = 0,
     .most = 1 << 24,
     .help = "width of the output; 0: what the data asks for"},
    {.key = "bias",
     .type = SH_OPTION_BOOL,
     .at = offsetof(sh_dense_spec, bias),
     .initial = "true",
     .help = "add a trained bias"},
    {.key = "init",
     .type = SH_OPTION_STRING,
     .at = offsetof(sh_dense_spec, init),
     .initial = "he",
     .choices = sh_init_choice,
     .help = "how the weight starts"},
    {.key = "std",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_dense_spec, std),
     .initial = "0.02",
     .least = 0,
     .most = 100,
     .help = "standard deviation of init: normal"},
    {.key = "tie",
     .type = SH_OPTION_STRING,
     .at = offsetof(sh_dense_spec, tie),
     .help = "use this parameter (`layer.weight`) as the weight"},
};

/* The bias does not decay. A tied weight takes decay and initial values from the layer that
 * declares it. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    const sh_dense_spec *options = layer->options;
    const sh_shape *in = &layer->in[0];
    int64_t features = in->dim[in->rank - 1];
    int64_t units = options->units > 0 ? options->units : net->input.outputs;
    if (in->rank > 2)
        return sh_layer_wrong_shape(layer,
                                    "a vector (F) or tokens (T, F); put a flatten before it");
    layer->out = *in;
    layer->out.dim[in->rank - 1] = units;
    layer->flops = 2.0 * (double)sh_shape_count(in) * (double)units;
    if (options->tie != NULL)
        SH_TRY(sh_layer_share(net, layer, options->tie, SH_SHAPE(units, features)));
    else
        SH_TRY(sh_layer_param(layer, "weight", SH_SHAPE(units, features), true,
                              sh_init_named(options->init, options->std, features, units)));
    if (!options->bias) return SH_OK;
    return sh_layer_param(layer, "bias", SH_SHAPE(units), false,
                          (sh_init){.rule = SH_INIT_CONSTANT});
}

/* The three products have transposed shapes, so that the tuner may choose another library for each.
 */
typedef struct kernels {
    sh_gemm forward, input_gradient, weight_gradient;
    char text[64];  // for describe, which hands out a pointer
} kernels;

/* Products that are not wanted are not measured: an evaluating executor chooses forward alone, the
 * first trained layer no input gradient. */
static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    op->out->block = 1;
    op->needs_input = true;
    kernels *k = op->kernel = sh_alloc(1, sizeof *k);
    if (k == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for layer '%s'", op->layer->name);
    sh_tuner *tuner = sh_builder_tuner(builder);
    const sh_shape *weight = &op->executor->net->params.items[op->layer->params[0]].shape;
    int64_t out = weight->dim[0], in = weight->dim[1], rows_count = (int64_t)op->out->count / out;
    SH_TRY(sh_gemm_choose(&k->forward, rows_count, out, in, false, true, tuner));
    op->scratch_bytes = k->forward.scratch_bytes;
    if (!op->executor->training) return SH_OK;
    if (op->activation != NULL) op->saved_bytes = op->out->count * sizeof(float);  // slopes
    SH_TRY(sh_gemm_choose(&k->weight_gradient, out, in, rows_count, true, false, tuner));
    sh_op_scratch(op, k->weight_gradient.scratch_bytes);
    if (!op->in[0]->needs_grad) return SH_OK;
    SH_TRY(sh_gemm_choose(&k->input_gradient, rows_count, in, out, false, false, tuner));
    sh_op_scratch(op, k->input_gradient.scratch_bytes);
    return SH_OK;
}

/* Bias and absorbed activation are applied while a block of y is still in registers or cache.
 * `saved` is NULL outside training: no slopes are written then. */
static sh_status forward(sh_op *op) {
    const kernels *k = op->kernel;
    sh_gemm_run(&k->forward,
                (sh_gemm_args){.a = op->in[0]->data,
                               .b = op->param[0],
                               .c = op->out->data,
                               .bias = op->layer->param_count > 1 ? op->param[1] : NULL,
                               .relu = op->relu,
                               .activation = op->activation,
                               .slope = op->saved},
                op->scratch);
    return SH_OK;
}

/* dx may be multiplied by the slopes of the op before (op->slopes_from), whose backward then skips
 * its own pass over memory. */
static sh_status backward(sh_op *op) {
    const kernels *k = op->kernel;
    float *dy = op->out->grad;
    sh_op_mask_relu(op);
    sh_gemm_run(
        &k->weight_gradient,
        (sh_gemm_args){
            .a = dy, .b = op->in[0]->data, .c = op->param_grad[0], .accumulate = sh_op_adds(op, 0)},
        op->scratch);
    if (op->layer->param_count > 1)
        sh_vector()->bias_grad(dy, (size_t)k->forward.m, (size_t)k->forward.n, sh_op_adds(op, 1),
                               op->param_grad[1]);
    if (op->dx[0] != NULL)
        sh_gemm_run(
            &k->input_gradient,
            (sh_gemm_args){.a = dy,
                           .b = op->param[0],
                           .c = op->dx[0],
                           .factor = op->slopes_from != NULL ? op->slopes_from->saved : NULL},
            op->scratch);
    return SH_OK;
}

/* Libraries of forward / input gradient / weight gradient, as far as they exist. */
static const char *describe(const sh_op *op) {
    kernels *k = op->kernel;
    bool trains = op->executor->training, has_dx = trains && op->in[0]->needs_grad;
    snprintf(k->text, sizeof k->text, "%s%s%s%s%s", sh_gemm_library_name(k->forward.library),
             has_dx ? " / " : "", has_dx ? sh_gemm_library_name(k->input_gradient.library) : "",
             trains ? " / " : "", trains ? sh_gemm_library_name(k->weight_gradient.library) : "");
    return k->text;
}

const sh_layer_kind sh_layer_kind_dense = {
    .name = "dense",
    .help = "fully connected; over the last dimension of vectors and tokens",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_dense_spec),
    .main_option = "units",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
    .destroy = sh_op_free_kernel,
    .describe = describe,
    .fuses_relu = true,
    .fuses_activation = true,
    .applies_slopes = true,
};
