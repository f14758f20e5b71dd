/* GPT-2 (Radford et al. 2019), a decoder-only transformer with pre-norm blocks. B samples, T
 * tokens, C width, L blocks, V words; x is the residual stream:
 *
 *   tokens (B, T) ─ wte ─ wpe ─ [drop] ─▶ x (B, T, C) ─ h.0 ─ ... ─ h.L-1 ─ ln_f ─ lm_head ─▶
 *                                                                        scores (B, T, V)
 *
 *   block    x ─┬─ ln_1 ─ attn ─ [dropout] ─ + ─┬─ ln_2 ─ c_fc ─ gelu ─ c_proj ─ [dropout] ─ + ─▶
 *               └────────────────────────────┘  └────────────────────────────────────────────┘
 *                                                         (B, T, 4C)
 *
 * Weights start with deviation 0.02, the two projections back into the stream with 0.02 / sqrt(2
 * L): 2 L of them are summed, and the stream's variance would grow with depth otherwise.
 * Parameters: V C + T C + L (12 C^2 + 13 C) + 2 C, with the head tied to wte; for gpt2 with T =
 * 1024 that is 124439808.
 *
 * Differences: no dropout on the attention weights; `gpt` has exact GELU by default, `gpt2` the
 * tanh formula; T is that of the data, not always 1024. Names follow GPT-2's, but weights are (out,
 * in) as everywhere in Shoal, where GPT-2's own files have (in, out). */
#include <math.h>
#include "nn/models/common.h"

typedef struct gpt_options {
    int64_t layers, heads, width, vocabulary;
    double dropout;
    bool bias, tied, approximate;
} gpt_options;

/* Both models have the same options with other defaults, so that either can be made the other.
 * `bias: false` is nanoGPT's variant; biases matter little here and cost time. */
#define GPT_ROWS(default_layers, default_heads, default_width, default_words, default_tanh) \
    {.key = "layers",                                                                       \
     .type = SH_OPTION_INT,                                                                 \
     .at = offsetof(gpt_options, layers),                                                   \
     .initial = default_layers,                                                             \
     .least = 1,                                                                            \
     .most = 1000,                                                                          \
     .help = "blocks"},                                                                     \
        {.key = "heads",                                                                    \
         .type = SH_OPTION_INT,                                                             \
         .at = offsetof(gpt_options, heads),                                                \
         .initial = default_heads,                                                          \
         .least = 1,                                                                        \
         .most = 4096,                                                                      \
         .help = "attention heads per block"},                                              \
        {.key = "width",                                                                    \
         .type = SH_OPTION_INT,                                                             \
         .at = offsetof(gpt_options, width),                                                \
         .initial = default_width,                                                          \
         .least = 1,                                                                        \
         .most = 1 << 20,                                                                   \
         .help = "floats per token"},                                                       \
        {.key = "vocabulary",                                                               \
         .type = SH_OPTION_INT,                                                             \
         .at = offsetof(gpt_options, vocabulary),                                           \
         .initial = default_words,                                                          \
         .least = 0,                                                                        \
         .most = 1 << 28,                                                                   \
         .help = "tokens; 0: what the data has"},                                           \
        {.key = "dropout",                                                                  \
         .type = SH_OPTION_REAL,                                                            \
         .at = offsetof(gpt_options, dropout),                                              \
         .initial = "0",                                                                    \
         .least = 0,                                                                        \
         .most = 0.99,                                                                      \
         .help = "after embedding, attention and MLP"},                                     \
        {.key = "bias",                                                                     \
         .type = SH_OPTION_BOOL,                                                            \
         .at = offsetof(gpt_options, bias),                                                 \
         .initial = "true",                                                                 \
         .help = "biases of dense layers and norms"},                                       \
        {.key = "tied",                                                                     \
         .type = SH_OPTION_BOOL,                                                            \
         .at = offsetof(gpt_options, tied),                                                 \
         .initial = "true",                                                                 \
         .help = "the head shares the embedding's weight"},                                 \
        {.key = "approximate",                                                              \
         .type = SH_OPTION_BOOL,                                                            \
         .at = offsetof(gpt_options, approximate),                                          \
         .initial = default_tanh,                                                           \
         .help = "GELU by tanh, as GPT-2 has it"},

/* gpt: the size of nanoGPT's character model. gpt2: the smallest of the GPT-2 family ("124M"). */
static const sh_option rows[] = {GPT_ROWS("6", "6", "384", "0", "false")};
static const sh_option gpt2_rows[] = {GPT_ROWS("12", "12", "768", "50257", "true")};

/* A model being described: the first failure stays in `status`. */
typedef struct builder {
    sh_net_spec *net;
    sh_status status;
    const gpt_options *o;
    double project_std;
} builder;

/* Adds layer transformer.h.BLOCK.PART, the name that GPT-2 checkpoints have. Returns its index. */
static int layer(builder *b, int block, const char *part, const sh_layer_kind *kind, int input,
                 const void *options) {
    return sh_model_layer(b->net, &b->status, kind, input, options, "transformer.h.%d.%s", block,
                          part);
}

/* Without dropout there is no layer, not one that does nothing: fewer ops, and fusions reach
 * further. */
static int dropout(builder *b, int block, const char *part, int input) {
    if (b->o->dropout <= 0) return input;
    return layer(b, block, part, &sh_layer_kind_dropout, input, SH_DROPOUT(.p = b->o->dropout));
}

/* `a` is the branch, whose memory the sum may take; `other` the stream. */
static int add(builder *b, int block, const char *part, int a, int other) {
    return sh_model_add(b->net, &b->status, a, other, "transformer.h.%d.%s", block, part);
}

/* Adds one block; takes and returns the layer index of the residual stream. Pre-norm: the norm is
 * in the branch, so that the stream itself is only ever added to. */
static int add_block(builder *b, int block, int stream) {
    const gpt_options *o = b->o;
    const sh_layernorm_spec *norm = SH_LAYERNORM(.bias = o->bias);
    int at = layer(b, block, "ln_1", &sh_layer_kind_layernorm, stream, norm);
    at = layer(b, block, "attn", &sh_layer_kind_attention, at,
               SH_ATTENTION(.heads = o->heads, .bias = o->bias, .project_std = b->project_std));
    at = dropout(b, block, "attn.dropout", at);
    stream = add(b, block, "add_1", at, stream);

    at = layer(b, block, "ln_2", &sh_layer_kind_layernorm, stream, norm);
    at = layer(b, block, "mlp.c_fc", &sh_layer_kind_dense, at,
               SH_DENSE(.units = 4 * o->width, .bias = o->bias, .init = "normal"));
    at = layer(b, block, "mlp.gelu", &sh_layer_kind_gelu, at,
               SH_GELU(.approximate = o->approximate));
    at = layer(
        b, block, "mlp.c_proj", &sh_layer_kind_dense, at,
        SH_DENSE(.units = o->width, .bias = o->bias, .init = "normal", .std = b->project_std));
    at = dropout(b, block, "mlp.dropout", at);
    return add(b, block, "add_2", at, stream);
}

/* The head has no bias and, unless `tied` is off, no weight of its own (Press, Wolf 2017): V C
 * floats less, 31 % of GPT-2 124M. Its gradient and the embedding's are added in one place. */
static sh_status describe(sh_net_spec *net, const void *options) {
    const gpt_options *o = options;
    if (!net->input.tokens) return SH_FAIL(SH_E_USAGE, "a GPT wants text data");
    builder b = {.net = net, .o = o, .project_std = 0.02 / sqrt(2.0 * (double)o->layers)};
    sh_model_layer(net, &b.status, &sh_layer_kind_embedding, SH_NET_INPUT,
                   SH_EMBEDDING(.width = o->width, .vocabulary = o->vocabulary), "transformer.wte");
    int at =
        sh_model_layer(net, &b.status, &sh_layer_kind_positions, SH_AFTER, NULL, "transformer.wpe");
    if (o->dropout > 0)
        at = sh_model_layer(net, &b.status, &sh_layer_kind_dropout, at, SH_DROPOUT(.p = o->dropout),
                            "transformer.drop");
    for (int i = 0; i < o->layers && b.status == SH_OK; i++) at = add_block(&b, i, at);
    sh_model_layer(net, &b.status, &sh_layer_kind_layernorm, at, SH_LAYERNORM(.bias = o->bias),
                   "transformer.ln_f");
    sh_model_layer(net, &b.status, &sh_layer_kind_dense, SH_AFTER,
                   SH_DENSE(.units = o->vocabulary, .bias = false, .init = "normal",
                            .tie = o->tied ? "transformer.wte.weight" : NULL),
                   "lm_head");
    return b.status;
}

/* Typical: 256 tokens of 65 characters, the size of tiny Shakespeare. */
const sh_model_kind sh_model_kind_gpt = {
    .name = "gpt",
    .help = "decoder-only transformer of any size",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(gpt_options),
    .describe = describe,
    .typical = {.sample = {.rank = 1, .dim = {256}}, .tokens = true, .outputs = 65},
};

/* Typical: the context of GPT-2 and its byte-pair vocabulary. */
const sh_model_kind sh_model_kind_gpt2 = {
    .name = "gpt2",
    .help = "GPT-2 124M: 12 layers, 12 heads, 768 wide, 50257 tokens, tied head",
    .options = {gpt2_rows, SH_COUNT(gpt2_rows)},
    .options_bytes = sizeof(gpt_options),
    .describe = describe,
    .typical = {.sample = {.rank = 1, .dim = {1024}}, .tokens = true, .outputs = 50257},
};
