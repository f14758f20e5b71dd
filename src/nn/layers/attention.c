/* Multi-head self-attention (Vaswani et al. 2017). `attention` stands for three layers: a dense
 * layer to q|k|v, the core, and a dense layer back; names follow GPT-2 (c_attn, c_proj). */
#include "tensor/kernels/attention.h"

#include <stdio.h>

#include "nn/layers/common.h"
#include "nn/layers/options.h"

static const sh_option rows[] = {
    {.key = "heads",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_attention_spec, heads),
     .initial = "1",
     .least = 1,
     .most = 4096,
     .help = "number of heads; divides the width"},
    {.key = "causal",
     .type = SH_OPTION_BOOL,
     .at = offsetof(sh_attention_spec, causal),
     .initial = "true",
     .help = "a token sees only itself and those before it"},
    {.key = "bias",
     .type = SH_OPTION_BOOL,
     .at = offsetof(sh_attention_spec, bias),
     .initial = "true",
     .help = "biases of the projections"},
    {.key = "std",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_attention_spec, std),
     .initial = "0.02",
     .least = 0,
     .most = 100,
     .help = "initial deviation of the projection to q, k, v"},
    {.key = "project_std",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_attention_spec, project_std),
     .initial = "0.02",
     .least = 0,
     .most = 100,
     .help = "initial deviation of the projection back"},
};

/* A layer of the group `name`, after `input`; NULL: after the layer before. */
static sh_status add_part(sh_net_spec *net, const char *name, const char *part,
                          const sh_layer_kind *kind, const int *input, const void *options) {
    char full[SH_LAYER_NAME + 16];
    snprintf(full, sizeof full, "%s.%s", name, part);
    return sh_net_spec_add(net, kind, full, input, 1, options, NULL);
}

static sh_status expand(sh_net_spec *net, const char *name, const int *inputs, int input_count,
                        const void *options) {
    const sh_attention_spec *o = options;
    const sh_shape *in = sh_net_spec_shape(net, inputs[0]);
    char found[SH_SHAPE_TEXT];
    if (input_count != 1 || in->rank != 2)
        return SH_FAIL(SH_E_SHAPE, "layer '%s' (attention) wants tokens (T, F), found %s", name,
                       sh_shape_text(in, found));
    int64_t width = in->dim[1];
    SH_TRY(
        add_part(net, name, "c_attn", &sh_layer_kind_dense, inputs,
                 SH_DENSE(.units = 3 * width, .bias = o->bias, .init = "normal", .std = o->std)));
    SH_TRY(add_part(net, name, "core", &sh_layer_kind_attention_core, NULL,
                    SH_ATTENTION_CORE(.heads = o->heads, .causal = o->causal)));
    return add_part(
        net, name, "c_proj", &sh_layer_kind_dense, NULL,
        SH_DENSE(.units = width, .bias = o->bias, .init = "normal", .std = o->project_std));
}

const sh_layer_kind sh_layer_kind_attention = {
    .name = "attention",
    .help = "multi-head self-attention with its projections, causal or full",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_attention_spec),
    .main_option = "heads",
    .inputs_least = 1,
    .inputs_most = 1,
    .expand = expand,
};

static const sh_option core_rows[] = {
    {.key = "heads",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_attention_core_spec, heads),
     .initial = "1",
     .least = 1,
     .most = 4096,
     .help = "number of heads"},
    {.key = "causal",
     .type = SH_OPTION_BOOL,
     .at = offsetof(sh_attention_core_spec, causal),
     .initial = "true",
     .help = "a token sees only itself and those before it"},
};

static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_attention_core_spec *o = layer->options;
    const sh_shape *in = &layer->in[0];
    if (in->rank != 2 || in->dim[1] % 3 != 0)
        return sh_layer_wrong_shape(layer, "tokens (T, 3F) with q, k and v side by side");
    int64_t width = in->dim[1] / 3;
    if (width % o->heads != 0)
        return SH_FAIL(SH_E_SHAPE, "layer '%s': a width of %ld is not divisible by %ld heads",
                       layer->name, (long)width, (long)o->heads);
    layer->out = SH_SHAPE(in->dim[0], width);
    double pairs = (double)in->dim[0] * (double)in->dim[0] * (o->causal ? 0.5 : 1.0);
    layer->flops = 4.0 * pairs * (double)width;
    return SH_OK;
}

static sh_attention_shape shape_of(const sh_op *op) {
    const sh_attention_core_spec *o = op->layer->options;
    const int64_t *y = op->out->shape.dim;
    return (sh_attention_shape){.B = (size_t)y[0],
                                .T = (size_t)y[1],
                                .H = (size_t)o->heads,
                                .D = (size_t)(y[2] / o->heads),
                                .causal = o->causal};
}

static sh_status build(sh_op *op, sh_builder *builder) {
    sh_attention_shape shape = shape_of(op);
    op->needs_input = op->needs_output = true;
    op->saved_bytes = shape.B * shape.H * shape.T * sizeof(float);  // log-sum-exp per row
    op->scratch_bytes =
        sh_attention()->scratch_bytes(&shape, sh_tuner_threads(sh_builder_tuner(builder)));
    return SH_OK;
}

static sh_status forward(sh_op *op) {
    sh_attention_shape shape = shape_of(op);
    sh_attention()->forward(&shape, op->in[0]->data, op->out->data, op->saved, op->scratch);
    return SH_OK;
}

static sh_status backward(sh_op *op) {
    sh_attention_shape shape = shape_of(op);
    if (op->dx[0] != NULL)
        sh_attention()->backward(&shape, op->in[0]->data, op->out->data, op->saved, op->out->grad,
                                 op->dx[0], op->scratch);
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_attention_core = {
    .name = "attention-core",
    .help = "self-attention on q, k, v side by side, without projections",
    .options = {core_rows, SH_COUNT(core_rows)},
    .options_bytes = sizeof(sh_attention_core_spec),
    .main_option = "heads",
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
};
