/* Multi-head self-attention (Vaswani et al. 2017). `attention` expands to three layers, whose names
 * follow GPT-2:
 *
 *   x (B, T, C) ─ c_attn: dense ─▶ q|k|v (B, T, 3C) ─ core ─▶ (B, T, C) ─ c_proj: dense ─▶ y
 *
 * For each of H heads, which owns D = C/H columns of q, k and v:
 *
 *   S = q k^T / sqrt(D)      (T, T); causal: S_ts = -inf for s > t
 *   P = softmax(S) by rows
 *   y = P v                  (T, D)
 *
 * Backward, with dP = dy v^T and delta_t = sum_d dy_td y_td:
 *
 *   dv = P^T dy     dS = P (dP - delta)     dq = dS k / sqrt(D)     dk = dS^T q / sqrt(D)
 *
 * P is never stored: it is computed again from q, k and the logarithm of each row's sum of
 * exponentials (FlashAttention, Dao et al. 2022), so the memory is O(T), not O(T^2), per head. */
#include "tensor/kernels/attention.h"

#include <stdio.h>

#include "nn/layers/common.h"
#include "nn/layers/options.h"

/* The deviations start at GPT-2's 0.02. project_std is an option of its own because GPT-2 scales
 * the projection back down by 1/sqrt(2 layers) (models/gpt.c). */
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

/* Adds layer `name.part`, one of those that `attention` expands to. `input` NULL: it reads the
 * layer added before. */
static sh_status add_part(sh_net_spec *net, const char *name, const char *part,
                          const sh_layer_kind *kind, const int *input, const void *options) {
    char full[SH_LAYER_NAME + 16];
    snprintf(full, sizeof full, "%s.%s", name, part);
    return sh_net_spec_add(net, kind, full, input, 1, options, NULL);
}

/* The projections are plain dense layers, so that the core has no parameters, and the tuner and the
 * fusions of an executor serve them as any dense layer. */
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

/* The expanding kind has neither declare nor forward: no op is ever made of it. */
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

/* Without biases and deviations: the core has no parameters. */
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

/* Input (T, 3C), output (T, C) per sample. Both products, q k^T and P v, take 2 T^2 C flops; the
 * causal mask leaves half of the pairs, and the kernel computes no more than these. */
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

/* The sizes as kernels name them: B batch, T tokens, H heads, D head size, C = H D. */
static sh_attention_shape shape_of(const sh_op *op) {
    const sh_attention_core_spec *o = op->layer->options;
    const int64_t *y = op->out->shape.dim;
    return (sh_attention_shape){.B = (size_t)y[0],
                                .T = (size_t)y[1],
                                .H = (size_t)o->heads,
                                .D = (size_t)(y[2] / o->heads),
                                .causal = o->causal};
}

/* Backward reads q, k, v (the input) to compute P again, the output for delta, and the saved
 * logarithms. Scratch depends on the number of threads, as each works on a head of its own. */
static sh_status build(sh_op *op, sh_builder *builder) {
    sh_attention_shape shape = shape_of(op);
    op->needs_input = op->needs_output = true;
    op->saved_bytes = shape.B * shape.H * shape.T * sizeof(float);  // log-sum-exp per row
    op->scratch_bytes =
        sh_attention()->scratch_bytes(&shape, sh_tuner_threads(sh_builder_tuner(builder)));
    return SH_OK;
}

/* qkv (B, T, 3C) -> y (B, T, C), lse (B, H, T). */
static sh_status forward(sh_op *op) {
    sh_attention_shape shape = shape_of(op);
    sh_attention()->forward(&shape, op->in[0]->data, op->out->data, op->saved, op->scratch);
    return SH_OK;
}

/* dy (B, T, C) -> dqkv (B, T, 3C), in the order of q|k|v. */
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
