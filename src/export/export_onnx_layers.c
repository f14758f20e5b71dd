/* Layers in ONNX's standard operators, set 17. */
#include <math.h>

#include "base/memory.h"
#include "export/onnx.h"
#include "nn/layers/options.h"

/* Parameters of a row's `add`: x are the inputs' names, y the output's. NAMES and NUMBERS are
 * lists for the calls of onnx.h; a NULL in NAMES ends the list, so a missing bias may stand
 * last. */
#define LAYER_PARAMETERS sh_onnx *onnx, const sh_layer *layer, const char *const *x, const char *y
#define NAMES(...)       ((const char *[]){__VA_ARGS__, NULL})
#define NUMBERS(...) \
    ((const int64_t[]){__VA_ARGS__}), sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)

/* Name of the layer's parameter, which is also the name of its constant in the graph. */
static const char *param(const sh_onnx *onnx, const sh_layer *layer, int index) {
    return onnx->trained->net->params.items[layer->params[index]].name;
}

/* Name of the layer's running statistic. */
static const char *state(const sh_onnx *onnx, const sh_layer *layer, int index) {
    return onnx->trained->net->states.items[layer->states[index]].name;
}

/* A single number as a constant. Returns name_out. */
static const char *number(sh_onnx *onnx, double value, char name_out[SH_ONNX_NAME]) {
    sh_shape shape = {.rank = 0};
    float single = (float)value;
    sh_onnx_floats(onnx, sh_onnx_fresh(onnx, name_out), &shape, &single);
    return name_out;
}

/* Vectors (N, F) take one Gemm. Tokens (N, T, F) take MatMul with the transposed weight, since
 * Gemm accepts only matrices. */
static void add_dense(LAYER_PARAMETERS) {
    bool biased = layer->param_count > 1;
    const char *weight = param(onnx, layer, 0), *bias = biased ? param(onnx, layer, 1) : NULL;
    // Shapes are without the batch: rank 1 is a vector per sample.
    if (layer->in[0].rank == 1) {
        sh_onnx_begin(onnx, "Gemm", NAMES(x[0], weight, bias), NAMES(y));
        sh_onnx_int(onnx, "transB", 1);
        sh_onnx_end(onnx);
        return;
    }
    char turned[SH_ONNX_NAME], product[SH_ONNX_NAME];
    sh_onnx_begin(onnx, "Transpose", NAMES(weight), NAMES(sh_onnx_fresh(onnx, turned)));
    sh_onnx_ints(onnx, "perm", NUMBERS(1, 0));
    sh_onnx_end(onnx);
    sh_onnx_node(onnx, "MatMul", NAMES(x[0], turned),
                 NAMES(biased ? sh_onnx_fresh(onnx, product) : y));
    if (biased) sh_onnx_node(onnx, "Add", NAMES(product, bias), NAMES(y));
}

/* `pads` lists the starts of both axes, then their ends. */
static void add_conv(LAYER_PARAMETERS) {
    const sh_conv_spec *o = layer->options;
    int64_t p = o->padding, wide = o->kernel_w > 0 ? o->kernel_w : o->kernel;
    sh_onnx_begin(
        onnx, "Conv",
        NAMES(x[0], param(onnx, layer, 0), layer->param_count > 1 ? param(onnx, layer, 1) : NULL),
        NAMES(y));
    sh_onnx_ints(onnx, "kernel_shape", NUMBERS(o->kernel, wide));
    sh_onnx_ints(onnx, "strides", NUMBERS(o->stride, o->stride));
    sh_onnx_ints(onnx, "pads", NUMBERS(p, p, p, p));
    sh_onnx_ints(onnx, "dilations", NUMBERS(o->dilation, o->dilation));
    sh_onnx_int(onnx, "group", o->groups);
    sh_onnx_end(onnx);
}

/* The caller may add attributes before it ends the node. stride 0 means windows side by side. */
static void begin_pool(const char *type, LAYER_PARAMETERS) {
    const sh_pool_spec *o = layer->options;
    int64_t p = o->padding, stride = o->stride > 0 ? o->stride : o->kernel;
    sh_onnx_begin(onnx, type, NAMES(x[0]), NAMES(y));
    sh_onnx_ints(onnx, "kernel_shape", NUMBERS(o->kernel, o->kernel));
    sh_onnx_ints(onnx, "strides", NUMBERS(stride, stride));
    sh_onnx_ints(onnx, "pads", NUMBERS(p, p, p, p));
}

static void add_maxpool(LAYER_PARAMETERS) {
    begin_pool("MaxPool", onnx, layer, x, y);
    sh_onnx_end(onnx);
}

/* Shoal divides by the whole window, padding included; ONNX does so only on request. */
static void add_avgpool(LAYER_PARAMETERS) {
    begin_pool("AveragePool", onnx, layer, x, y);
    sh_onnx_int(onnx, "count_include_pad", 1);
    sh_onnx_end(onnx);
}

static void add_flatten(LAYER_PARAMETERS) {
    (void)layer;
    sh_onnx_node(onnx, "Flatten", NAMES(x[0]), NAMES(y));  // from dimension 1 on
}

/* The operator keeps (N, C, 1, 1); Shoal's layer gives (N, C). */
static void add_globalpool(LAYER_PARAMETERS) {
    char pooled[SH_ONNX_NAME];
    sh_onnx_node(onnx, "GlobalAveragePool", NAMES(x[0]), NAMES(sh_onnx_fresh(onnx, pooled)));
    add_flatten(onnx, layer, NAMES(pooled), y);
}

/* In inference form: mean and variance are the running ones. */
static void add_batchnorm(LAYER_PARAMETERS) {
    const sh_batchnorm_spec *o = layer->options;
    sh_onnx_begin(onnx, "BatchNormalization",
                  NAMES(x[0], param(onnx, layer, 0), param(onnx, layer, 1), state(onnx, layer, 0),
                        state(onnx, layer, 1)),
                  NAMES(y));
    sh_onnx_float(onnx, "epsilon", o->epsilon);
    sh_onnx_end(onnx);
}

/* Along the last dimension. */
static void add_layernorm(LAYER_PARAMETERS) {
    const sh_layernorm_spec *o = layer->options;
    sh_onnx_begin(
        onnx, "LayerNormalization",
        NAMES(x[0], param(onnx, layer, 0), layer->param_count > 1 ? param(onnx, layer, 1) : NULL),
        NAMES(y));
    sh_onnx_int(onnx, "axis", -1);
    sh_onnx_float(onnx, "epsilon", o->epsilon);
    sh_onnx_end(onnx);
}

static void add_softmax(LAYER_PARAMETERS) {
    (void)layer;
    sh_onnx_begin(onnx, "Softmax", NAMES(x[0]), NAMES(y));
    sh_onnx_int(onnx, "axis", -1);
    sh_onnx_end(onnx);
}

/* Rows of the table by token. */
static void add_embedding(LAYER_PARAMETERS) {
    sh_onnx_node(onnx, "Gather", NAMES(param(onnx, layer, 0), x[0]), NAMES(y));
}

/* (N, T, C) + (T, C): the batch broadcasts. */
static void add_positions(LAYER_PARAMETERS) {
    sh_onnx_node(onnx, "Add", NAMES(x[0], param(onnx, layer, 0)), NAMES(y));
}

/* 0 where token t may see token s, minus infinity where s comes later. Returns name_out; "" when
 * there is no memory, and then the graph has failed. */
static const char *causal_mask(sh_onnx *onnx, int64_t tokens, char name_out[SH_ONNX_NAME]) {
    sh_shape shape = SH_SHAPE(tokens, tokens);
    float *mask = sh_alloc(sh_shape_count(&shape), sizeof *mask);
    name_out[0] = '\0';
    if (mask == NULL) {
        onnx->graph.failed = true;
        return name_out;
    }
    for (int64_t t = 0; t < tokens; t++)
        // Later tokens only: a token sees itself.
        for (int64_t s = t + 1; s < tokens; s++) mask[t * tokens + s] = -INFINITY;
    sh_onnx_floats(onnx, sh_onnx_fresh(onnx, name_out), &shape, mask);
    sh_free(mask);
    return name_out;
}

/* One of query, key and value (N, T, C) by heads: (N, H, T, C/H), or with T and C/H exchanged. */
static void split_heads(sh_onnx *onnx, const char *x, const char *sizes, bool turns,
                        const char *y) {
    char parted[SH_ONNX_NAME];
    sh_onnx_node(onnx, "Reshape", NAMES(x, sizes), NAMES(sh_onnx_fresh(onnx, parted)));
    sh_onnx_begin(onnx, "Transpose", NAMES(parted), NAMES(y));
    sh_onnx_ints(onnx, "perm", (const int64_t[]){0, 2, turns ? 3 : 1, turns ? 1 : 3}, 4);
    sh_onnx_end(onnx);
}

/* Order in which the projection puts its three parts side by side. */
enum { QUERY, KEY, VALUE, PARTS };

/* softmax(Q K^T / sqrt(D) + mask), (N, H, T, T). */
static void add_attention_weights(sh_onnx *onnx, const sh_layer *layer, const char *query,
                                  const char *key, const char *y) {
    const sh_attention_core_spec *o = layer->options;
    char scores[SH_ONNX_NAME], scaled[SH_ONNX_NAME], masked[SH_ONNX_NAME], factor[SH_ONNX_NAME],
        mask[SH_ONNX_NAME];
    double head_width = (double)layer->out.dim[1] / (double)o->heads;  // D of the formula
    sh_onnx_node(onnx, "MatMul", NAMES(query, key), NAMES(sh_onnx_fresh(onnx, scores)));
    sh_onnx_node(onnx, "Mul", NAMES(scores, number(onnx, 1 / sqrt(head_width), factor)),
                 NAMES(sh_onnx_fresh(onnx, scaled)));
    if (o->causal)
        sh_onnx_node(onnx, "Add", NAMES(scaled, causal_mask(onnx, layer->out.dim[0], mask)),
                     NAMES(sh_onnx_fresh(onnx, masked)));
    add_softmax(onnx, layer, NAMES(o->causal ? masked : scaled), y);
}

/* x (N, T, 3C) to (N, T, C): split, by heads, weights (N, H, T, T), weighted values, heads side by
 * side again. A 0 in a Reshape keeps the batch. */
static void add_attention(LAYER_PARAMETERS) {
    const sh_attention_core_spec *o = layer->options;
    int64_t tokens = layer->out.dim[0], width = layer->out.dim[1];
    char part[PARTS][SH_ONNX_NAME], heads[PARTS][SH_ONNX_NAME], sizes[SH_ONNX_NAME],
        whole[SH_ONNX_NAME], weights[SH_ONNX_NAME], mixed[SH_ONNX_NAME], turned[SH_ONNX_NAME],
        widths[SH_ONNX_NAME];
    sh_onnx_numbers(onnx, sh_onnx_fresh(onnx, widths), NUMBERS(width, width, width));
    sh_onnx_numbers(onnx, sh_onnx_fresh(onnx, sizes),
                    NUMBERS(0, tokens, o->heads, width / o->heads));
    sh_onnx_numbers(onnx, sh_onnx_fresh(onnx, whole), NUMBERS(0, tokens, width));
    for (int i = 0; i < PARTS; i++) {
        sh_onnx_fresh(onnx, part[i]);
        sh_onnx_fresh(onnx, heads[i]);
    }
    sh_onnx_begin(onnx, "Split", NAMES(x[0], widths), NAMES(part[QUERY], part[KEY], part[VALUE]));
    sh_onnx_int(onnx, "axis", -1);
    sh_onnx_end(onnx);
    for (int i = 0; i < PARTS; i++) split_heads(onnx, part[i], sizes, i == KEY, heads[i]);
    add_attention_weights(onnx, layer, heads[QUERY], heads[KEY], sh_onnx_fresh(onnx, weights));
    sh_onnx_node(onnx, "MatMul", NAMES(weights, heads[VALUE]), NAMES(sh_onnx_fresh(onnx, mixed)));
    sh_onnx_begin(onnx, "Transpose", NAMES(mixed), NAMES(sh_onnx_fresh(onnx, turned)));
    sh_onnx_ints(onnx, "perm", NUMBERS(0, 2, 1, 3));
    sh_onnx_end(onnx);
    sh_onnx_node(onnx, "Reshape", NAMES(turned, whole), NAMES(y));
}

/* Add takes two inputs: a chain for more, whose last sum has the name y. */
static void add_add(LAYER_PARAMETERS) {
    char sum[SH_INPUTS_MOST][SH_ONNX_NAME];
    const char *so_far = x[0];
    for (int i = 1; i < layer->input_count; i++) {
        // Intermediate sums need names of their own: ONNX values are assigned once.
        const char *next = i == layer->input_count - 1 ? y : sh_onnx_fresh(onnx, sum[i]);
        sh_onnx_node(onnx, "Add", NAMES(so_far, x[i]), NAMES(next));
        so_far = next;
    }
    if (layer->input_count == 1) sh_onnx_node(onnx, "Identity", NAMES(x[0]), NAMES(y));
}

/* Along channels: dimension 2 of (N, T, C), else 1. */
static void add_concat(LAYER_PARAMETERS) {
    const char *names[SH_INPUTS_MOST + 1] = {NULL};
    for (int i = 0; i < layer->input_count; i++) names[i] = x[i];
    sh_onnx_begin(onnx, "Concat", names, NAMES(y));
    sh_onnx_int(onnx, "axis", layer->out.rank == 2 ? 2 : 1);
    sh_onnx_end(onnx);
}

static void add_relu(LAYER_PARAMETERS) {
    (void)layer;
    sh_onnx_node(onnx, "Relu", NAMES(x[0]), NAMES(y));
}

static void add_tanh(LAYER_PARAMETERS) {
    (void)layer;
    sh_onnx_node(onnx, "Tanh", NAMES(x[0]), NAMES(y));
}

static void add_sigmoid(LAYER_PARAMETERS) {
    (void)layer;
    sh_onnx_node(onnx, "Sigmoid", NAMES(x[0]), NAMES(y));
}

static void add_silu(LAYER_PARAMETERS) {
    char gate[SH_ONNX_NAME];
    add_sigmoid(onnx, layer, x, sh_onnx_fresh(onnx, gate));
    sh_onnx_node(onnx, "Mul", NAMES(x[0], gate), NAMES(y));
}

/* The argument of tanh in GELU's approximation: sqrt(2 / pi) x (1 + 0.044715 x^2). */
static void add_gelu_inner(sh_onnx *onnx, const char *x, const char *y) {
    char square[SH_ONNX_NAME], cubic[SH_ONNX_NAME], sum[SH_ONNX_NAME], product[SH_ONNX_NAME],
        a[SH_ONNX_NAME], b[SH_ONNX_NAME], c[SH_ONNX_NAME];
    sh_onnx_node(onnx, "Mul", NAMES(x, x), NAMES(sh_onnx_fresh(onnx, square)));
    sh_onnx_node(onnx, "Mul", NAMES(square, number(onnx, 0.044715, a)),
                 NAMES(sh_onnx_fresh(onnx, cubic)));
    sh_onnx_node(onnx, "Add", NAMES(cubic, number(onnx, 1, b)), NAMES(sh_onnx_fresh(onnx, sum)));
    sh_onnx_node(onnx, "Mul", NAMES(x, sum), NAMES(sh_onnx_fresh(onnx, product)));
    sh_onnx_node(onnx, "Mul", NAMES(product, number(onnx, sqrt(2 / M_PI), c)), NAMES(y));
}

/* x / 2 (1 + erf(x / sqrt 2)), or tanh of the argument above in place of erf. Set 17 has no Gelu
 * operator. */
static void add_gelu(LAYER_PARAMETERS) {
    const sh_gelu_spec *o = layer->options;
    char inner[SH_ONNX_NAME], curved[SH_ONNX_NAME], more[SH_ONNX_NAME], half[SH_ONNX_NAME],
        one[SH_ONNX_NAME], two[SH_ONNX_NAME], factor[SH_ONNX_NAME];
    sh_onnx_fresh(onnx, inner);
    if (o->approximate)
        add_gelu_inner(onnx, x[0], inner);
    else
        sh_onnx_node(onnx, "Mul", NAMES(x[0], number(onnx, sqrt(0.5), factor)), NAMES(inner));
    sh_onnx_node(onnx, o->approximate ? "Tanh" : "Erf", NAMES(inner),
                 NAMES(sh_onnx_fresh(onnx, curved)));
    sh_onnx_node(onnx, "Add", NAMES(curved, number(onnx, 1, one)),
                 NAMES(sh_onnx_fresh(onnx, more)));
    sh_onnx_node(onnx, "Mul", NAMES(x[0], more), NAMES(sh_onnx_fresh(onnx, half)));
    sh_onnx_node(onnx, "Mul", NAMES(half, number(onnx, 0.5, two)), NAMES(y));
}

/* NULL: the layer is its input at inference. */
static const sh_onnx_row table[] = {
    {&sh_layer_kind_dense, add_dense},
    {&sh_layer_kind_conv, add_conv},
    {&sh_layer_kind_maxpool, add_maxpool},
    {&sh_layer_kind_avgpool, add_avgpool},
    {&sh_layer_kind_globalpool, add_globalpool},
    {&sh_layer_kind_batchnorm, add_batchnorm},
    {&sh_layer_kind_layernorm, add_layernorm},
    {&sh_layer_kind_dropout, NULL},
    {&sh_layer_kind_droppath, NULL},
    {&sh_layer_kind_flatten, add_flatten},
    {&sh_layer_kind_embedding, add_embedding},
    {&sh_layer_kind_positions, add_positions},
    {&sh_layer_kind_attention_core, add_attention},
    {&sh_layer_kind_add, add_add},
    {&sh_layer_kind_concat, add_concat},
    {&sh_layer_kind_relu, add_relu},
    {&sh_layer_kind_gelu, add_gelu},
    {&sh_layer_kind_silu, add_silu},
    {&sh_layer_kind_tanh, add_tanh},
    {&sh_layer_kind_sigmoid, add_sigmoid},
    {&sh_layer_kind_softmax, add_softmax},
};

/* Linear search: an export asks a few times per layer. */
const sh_onnx_row *sh_onnx_row_of(const sh_layer_kind *kind) {
    for (size_t i = 0; i < SH_COUNT(table); i++)
        if (table[i].kind == kind) return &table[i];
    return NULL;
}
