/* Multi-head self-attention (Vaswani et al. 2017). `attention` stands for three layers: a dense
 * layer to q|k|v, the core, and a dense layer back; names follow GPT-2 (c_attn, c_proj). */
#include "base/text.h"
#include "tensor/kernels/attention.h"

#include <stdio.h>

#include "nn/layers/common.h"

typedef struct attention_options {
    int64_t heads;
    bool causal, bias;
    double std;          // of c_attn
    double project_std;  // of c_proj
} attention_options;

static const sh_option rows[] = {
    {.key = "heads",
     .type = SH_OPTION_INT,
     .at = offsetof(attention_options, heads),
     .initial = "1",
     .least = 1,
     .most = 4096,
     .help = "number of heads; divides the width"},
    {.key = "causal",
     .type = SH_OPTION_BOOL,
     .at = offsetof(attention_options, causal),
     .initial = "true",
     .help = "a token sees only itself and those before it"},
    {.key = "bias",
     .type = SH_OPTION_BOOL,
     .at = offsetof(attention_options, bias),
     .initial = "true",
     .help = "biases of the projections"},
    {.key = "std",
     .type = SH_OPTION_REAL,
     .at = offsetof(attention_options, std),
     .initial = "0.02",
     .least = 0,
     .most = 100,
     .help = "initial deviation of the projection to q, k, v"},
    {.key = "project_std",
     .type = SH_OPTION_REAL,
     .at = offsetof(attention_options, project_std),
     .initial = "0.02",
     .least = 0,
     .most = 100,
     .help = "initial deviation of the projection back"},
};

static sh_status dense(sh_net *net, const char *name, const char *part, const int *input,
                       int64_t units, bool bias, double std) {
    char full[SH_LAYER_NAME + 16], text[128];
    snprintf(full, sizeof full, "%s.%s", name, part);
    sh_snprintf(text, sizeof text, "{units: %ld, bias: %s, init: normal, std: %.17g}", (long)units,
                bias ? "true" : "false", std);
    return sh_net_add_text(net, "dense", full, input, 1, text);
}

static sh_status expand(sh_net *net, const char *name, const int *inputs, int input_count,
                        const void *options) {
    const attention_options *o = options;
    const sh_shape *in = sh_net_shape(net, inputs[0]);
    char found[SH_SHAPE_TEXT], text[64], full[SH_LAYER_NAME + 16];
    if (input_count != 1 || in->rank != 2)
        return SH_FAIL(SH_E_SHAPE, "layer '%s' (attention) wants tokens (T, F), found %s", name,
                       sh_shape_text(in, found));
    int64_t width = in->dim[1];
    SH_TRY(dense(net, name, "c_attn", inputs, 3 * width, o->bias, o->std));
    snprintf(full, sizeof full, "%s.core", name);
    snprintf(text, sizeof text, "{heads: %ld, causal: %s}", (long)o->heads,
             o->causal ? "true" : "false");
    SH_TRY(sh_net_add_text(net, "attention-core", full, NULL, 0, text));
    return dense(net, name, "c_proj", NULL, width, o->bias, o->project_std);
}

const sh_layer_kind sh_layer_kind_attention = {
    .name = "attention",
    .help = "multi-head self-attention with its projections, causal or full",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(attention_options),
    .main_option = "heads",
    .inputs_least = 1,
    .inputs_most = 1,
    .expand = expand,
};

typedef struct core_options {
    int64_t heads;
    bool causal;
} core_options;

static const sh_option core_rows[] = {
    {.key = "heads",
     .type = SH_OPTION_INT,
     .at = offsetof(core_options, heads),
     .initial = "1",
     .least = 1,
     .most = 4096,
     .help = "number of heads"},
    {.key = "causal",
     .type = SH_OPTION_BOOL,
     .at = offsetof(core_options, causal),
     .initial = "true",
     .help = "a token sees only itself and those before it"},
};

static sh_status build(sh_net *net, sh_layer *layer) {
    (void)net;
    const core_options *o = layer->options;
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
    const core_options *o = op->layer->options;
    const int64_t *y = op->out->shape.dim;
    return (sh_attention_shape){.B = (size_t)y[0],
                                .T = (size_t)y[1],
                                .H = (size_t)o->heads,
                                .D = (size_t)(y[2] / o->heads),
                                .causal = o->causal};
}

static sh_status plan(sh_op *op, sh_planner *planner) {
    sh_attention_shape shape = shape_of(op);
    op->needs_input = op->needs_output = true;
    op->saved_bytes = shape.B * shape.H * shape.T * sizeof(float);  // log-sum-exp per row
    op->scratch_bytes =
        sh_attention()->scratch_bytes(&shape, sh_tuner_threads(sh_planner_tuner(planner)));
    return SH_OK;
}

static void forward(sh_op *op) {
    sh_attention_shape shape = shape_of(op);
    sh_attention()->forward(&shape, op->in[0]->data, op->out->data, op->saved, op->scratch);
}

static void backward(sh_op *op) {
    sh_attention_shape shape = shape_of(op);
    if (op->dx[0] != NULL)
        sh_attention()->backward(&shape, op->in[0]->data, op->out->data, op->saved, op->out->grad,
                                 op->dx[0], op->scratch);
}

const sh_layer_kind sh_layer_kind_attention_core = {
    .name = "attention-core",
    .help = "self-attention on q, k, v side by side, without projections",
    .options = {core_rows, SH_COUNT(core_rows)},
    .options_bytes = sizeof(core_options),
    .main_option = "heads",
    .inputs_least = 1,
    .inputs_most = 1,
    .build = build,
    .plan = plan,
    .forward = forward,
    .backward = backward,
};
