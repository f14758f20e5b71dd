/* Element-wise activations. Those whose backward needs only the output work in place. */
#include "tensor/kernels/activation.h"

#include "nn/layers/common.h"
#include "nn/layers/options.h"

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

static sh_status run_backward(sh_op *op, sh_activation_kind kind) {
    const sh_activation_row *row = &sh_activation()->row[kind];
    if (op->dx[0] != NULL)
        row->backward(op->out->grad, row->needs_input ? op->in[0]->data : op->out->data, op->dx[0],
                      op->out->count);
    return SH_OK;
}

static sh_status build_by_output(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->needs_output = true;
    return SH_OK;
}

static sh_status build_by_input(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->needs_input = true;
    return SH_OK;
}

/* What the dense layer before it may do in its place: kinds by input only (nn/layer.h). */
static const sh_activation_row *silu_activation(const sh_layer *layer) {
    (void)layer;
    return &sh_activation()->row[SH_ACTIVATION_SILU];
}

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

static const sh_option gelu_rows[] = {
    {.key = "approximate",
     .type = SH_OPTION_BOOL,
     .at = offsetof(sh_gelu_spec, approximate),
     .initial = "false",
     .help = "GPT-2's tanh formula instead of erf"},
};

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
