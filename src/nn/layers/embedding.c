/* Token embedding and learned positions, the first two layers of a language model (V words, C
 * channels):
 *
 *   embedding    y[n,t] = table[token[n,t]]     (N, T) of int32 -> (N, T, C), table (V, C)
 *                dtable[w] = sum of dy[n,t] over all places where token[n,t] = w
 *   positions    y[n,t] = x[n,t] + position[t]  (N, T, C), position (T, C)
 *                dposition[t] = sum over n of dy[n,t],  dx = dy
 *
 * The table's gradient is dense, (V, C), though a batch touches few rows of it: it lies in the
 * block of all gradients, which optimizers and all-reduces treat alike. */
#include "nn/layers/common.h"
#include "nn/layers/options.h"
#include "tensor/kernels/embed.h"

static const sh_option rows[] = {
    {.key = "width",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_embedding_spec, width),
     .initial = "128",
     .least = 1,
     .most = 1 << 20,
     .help = "floats per token"},
    {.key = "vocabulary",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_embedding_spec, vocabulary),
     .initial = "0",
     .least = 0,
     .most = 1 << 28,
     .help = "rows of the table; 0: what the data asks for"},
    {.key = "std",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_embedding_spec, std),
     .initial = "0.02",
     .least = 0,
     .most = 100,
     .help = "initial standard deviation"},
};

/* Only the data itself can be embedded: no layer gives tokens. A table may have more rows than the
 * data has tokens (GPT-2's 50257 on smaller text), never fewer: a token would point past the end.
 */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    const sh_embedding_spec *o = layer->options;
    if (layer->in[0].rank != 1 || !net->input.tokens || layer->inputs[0] != SH_NET_INPUT)
        return sh_layer_wrong_shape(layer, "the tokens (T) of text data as its input");
    int64_t vocabulary = o->vocabulary > 0 ? o->vocabulary : net->input.outputs;
    if (vocabulary < net->input.outputs)
        return SH_FAIL(SH_E_SHAPE, "layer '%s' has %ld rows, but the data has %ld tokens",
                       layer->name, (long)vocabulary, (long)net->input.outputs);
    layer->out = SH_SHAPE(layer->in[0].dim[0], o->width);
    layer->flops = (double)sh_shape_count(&layer->out);
    return sh_layer_param(layer, "weight", SH_SHAPE(vocabulary, o->width), true,
                          (sh_init){.rule = SH_INIT_NORMAL, .scale = o->std});
}

/* C, from the output (N, T, C). */
static size_t width_of(const sh_op *op) { return (size_t)op->out->shape.dim[2]; }

/* V, from the parameter (V, C): kernels assert that every token is below it. */
static size_t words_of(const sh_op *op) {
    return (size_t)op->executor->net->params.items[op->layer->params[0]].shape.dim[0];
}

static sh_status forward(sh_op *op) {
    sh_embed()->forward(op->param[0], words_of(op), width_of(op), op->in[0]->data, op->in[0]->count,
                        NULL, 1, op->out->data);
    return SH_OK;
}

/* The kernel only ever adds, so the gradient is cleared first, unless something is in it: an
 * earlier micro-batch, or the head that is tied to this table and came first in backward. */
static sh_status backward(sh_op *op) {
    const sh_param *table = &op->executor->net->params.items[op->layer->params[0]];
    if (!sh_op_adds(op, 0)) memset(op->param_grad[0], 0, table->count * sizeof(float));
    sh_embed()->backward(op->out->grad, op->in[0]->data, op->in[0]->count, words_of(op),
                         width_of(op), op->param_grad[0]);
    return SH_OK;
}

/* Backward reads the tokens again. They have no gradient, so there is no dx. */
static sh_status build(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->needs_input = true;
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_embedding = {
    .name = "embedding",
    .help = "a trained vector per token",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_embedding_spec),
    .main_option = "width",
    .inputs_least = 1,
    .inputs_most = 1,
    .takes_tokens = true,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
};

/* Options of `positions`. The model gpt takes their default, so they need no shared struct. */
typedef struct positions_options {
    double std;
} positions_options;

static const sh_option position_rows[] = {
    {.key = "std",
     .type = SH_OPTION_REAL,
     .at = offsetof(positions_options, std),
     .initial = "0.02",
     .least = 0,
     .most = 100,
     .help = "initial standard deviation"},
};

/* As many positions as the data has tokens per sample: longer text cannot be read later. */
static sh_status declare_positions(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const positions_options *o = layer->options;
    if (layer->in[0].rank != 2) return sh_layer_wrong_shape(layer, "tokens (T, F)");
    layer->out = layer->in[0];
    layer->flops = (double)sh_shape_count(&layer->out);
    return sh_layer_param(layer, "weight", layer->out, true,
                          (sh_init){.rule = SH_INIT_NORMAL, .scale = o->std});
}

static sh_status forward_positions(sh_op *op) {
    sh_embed()->position_forward(op->in[0]->data, op->param[0], (size_t)op->out->shape.dim[0],
                                 (size_t)op->out->shape.dim[1], (size_t)op->out->shape.dim[2],
                                 op->out->data);
    return SH_OK;
}

/* Reads neither input nor output, so that forward may work in place. dx is dy: usually the same
 * memory, copied where another op has its own. */
static sh_status backward_positions(sh_op *op) {
    sh_embed()->position_backward(op->out->grad, (size_t)op->out->shape.dim[0],
                                  (size_t)op->out->shape.dim[1], (size_t)op->out->shape.dim[2],
                                  sh_op_adds(op, 0), op->param_grad[0]);
    if (op->dx[0] != NULL && op->dx[0] != op->out->grad)
        memcpy(op->dx[0], op->out->grad, op->out->count * sizeof(float));
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_positions = {
    .name = "positions",
    .help = "adds a trained vector per position",
    .options = {position_rows, SH_COUNT(position_rows)},
    .options_bytes = sizeof(positions_options),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare_positions,
    .forward = forward_positions,
    .backward = backward_positions,
    .in_place = true,
};
