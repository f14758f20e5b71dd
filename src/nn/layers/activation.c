/* Element-wise activations: y = f(x), dx = f'(x) dy, on tensors of any shape.
 *
 *   relu      max(0, x)                    f' = [y > 0]                      from the output
 *   tanh      tanh x                       f' = 1 - y^2                      from the output
 *   sigmoid   s(x) = 1 / (1 + exp(-x))     f' = y (1 - y)                    from the output
 *   silu      x s(x)                       f' = s(x) (1 + x (1 - s(x)))      from the input
 *   gelu      x Phi(x)                     f' = Phi(x) + x phi(x)            from the input
 *
 * Which of input and output backward reads decides the memory: where the slope follows from the
 * output, the input may be overwritten in place; silu and gelu are not monotonic, so one output
 * belongs to two inputs, and the input must live until backward.
 *
 * None of these needs an op of its own after a layer that can absorb it (executor_fuse.c): a relu
 * becomes part of dense, conv, batchnorm, add or max pooling; silu and gelu become part of dense,
 * which then saves slopes f'(x) in place of x. */
#include "tensor/kernels/activation.h"

#include "nn/layers/common.h"
#include "nn/layers/options.h"

/* The 8 flops per element are an estimate for the planner: the transcendental kinds are short
 * polynomials, and one figure serves them all. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    layer->out = layer->in[0];
    layer->flops = 8.0 * (double)sh_shape_count(&layer->out);
    return SH_OK;
}

static sh_status run_forward(sh_op *op, sh_activation_kind kind) {
    sh_activation()->row[kind].forward(op->in[0]->data, op->out->data, op->out->count);
    return SH_OK;
}

/* dx may be dy itself. dx is NULL where nothing before the activation is trained. */
static sh_status run_backward(sh_op *op, sh_activation_kind kind) {
    const sh_activation_row *row = &sh_activation()->row[kind];
    if (op->dx[0] != NULL)
        row->backward(op->out->grad, row->needs_input ? op->in[0]->data : op->out->data, op->dx[0],
                      op->out->count);
    return SH_OK;
}

/* relu, tanh, sigmoid: the output lives until backward, the input need not. */
static sh_status build_by_output(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->needs_output = true;
    return SH_OK;
}

/* silu, gelu: the input lives until backward, so that training never works in place here. */
static sh_status build_by_input(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->needs_input = true;
    return SH_OK;
}

/* The function that a dense layer before a silu may apply in its own matrix product. Only kinds
 * with needs_input offer one: fusing pays where slopes replace a saved input (nn/layer.h). */
static const sh_activation_row *silu_activation(const sh_layer *layer) {
    (void)layer;
    return &sh_activation()->row[SH_ACTIVATION_SILU];
}

/* A row per activation. `by`: what backward reads, output or input. `by_slope`: the function that a
 * dense layer may absorb; NULL: none (relu is absorbed by way of op->relu). */
#define ACTIVATION(id, KIND, by, by_slope, text)                                 \
    static sh_status forward_##id(sh_op *op) { return run_forward(op, KIND); }   \
    static sh_status backward_##id(sh_op *op) { return run_backward(op, KIND); } \
    const sh_layer_kind sh_layer_kind_##id = {                                   \
        .name = #id,                                                             \
        .help = text,                                                            \
        .inputs_least = 1,                                                       \
        .inputs_most = 1,                                                        \
        .declare = declare,                                                      \
        .build = build_by_##by,                                                  \
        .forward = forward_##id,                                                 \
        .backward = backward_##id,                                               \
        .in_place = true,                                                        \
        .activation = by_slope,                                                  \
    };

ACTIVATION(relu, SH_ACTIVATION_RELU, output, NULL, "max(0, x)")
ACTIVATION(silu, SH_ACTIVATION_SILU, input, silu_activation, "x sigmoid(x)")
ACTIVATION(tanh, SH_ACTIVATION_TANH, output, NULL, "hyperbolic tangent")
ACTIVATION(sigmoid, SH_ACTIVATION_SIGMOID, output, NULL, "1 / (1 + exp(-x))")

/* The two formulas of GELU differ by up to about 5e-4, so a checkpoint must be run with the one it
 * was trained with.
 *
 *   exact          x/2 (1 + erf(x / sqrt 2))
 *   approximate    x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) */
static const sh_option gelu_rows[] = {
    {.key = "approximate",
     .type = SH_OPTION_BOOL,
     .at = offsetof(sh_gelu_spec, approximate),
     .initial = "false",
     .help = "GPT-2's tanh formula instead of erf"},
};

/* gelu is the only activation with an option, so it picks its kernel row per layer. */
static sh_activation_kind gelu_kind(const sh_layer *layer) {
    const sh_gelu_spec *o = layer->options;
    return o->approximate ? SH_ACTIVATION_GELU_TANH : SH_ACTIVATION_GELU;
}

static const sh_activation_row *gelu_activation(const sh_layer *layer) {
    return &sh_activation()->row[gelu_kind(layer)];
}

static sh_status forward_gelu(sh_op *op) { return run_forward(op, gelu_kind(op->layer)); }
static sh_status backward_gelu(sh_op *op) { return run_backward(op, gelu_kind(op->layer)); }

const sh_layer_kind sh_layer_kind_gelu = {
    .name = "gelu",
    .help = "x Phi(x) (Hendrycks, Gimpel 2016)",
    .options = {gelu_rows, SH_COUNT(gelu_rows)},
    .options_bytes = sizeof(sh_gelu_spec),
    .main_option = "approximate",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build_by_input,
    .forward = forward_gelu,
    .backward = backward_gelu,
    .in_place = true,
    .activation = gelu_activation,
};
