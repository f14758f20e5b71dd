/* GPT-2 (Radford et al. 2019): pre-norm blocks, learned positions, GELU, initial deviation 0.02 and
 * 0.02/sqrt(2 layers) on the projections back into the stream. Names follow GPT-2's. */
#include <math.h>
#include <stdio.h>

#include "base/text.h"
#include "nn/models/common.h"

typedef struct gpt_options {
    int64_t layers, heads, width, vocabulary;
    double dropout;
    bool bias, tied, approximate;
} gpt_options;

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

static const sh_option rows[] = {GPT_ROWS("6", "6", "384", "0", "false")};
static const sh_option gpt2_rows[] = {GPT_ROWS("12", "12", "768", "50257", "true")};

typedef struct builder {
    sh_net *net;
    sh_status status;
    const gpt_options *o;
    double project_std;
} builder;

static int layer(builder *b, int block, const char *kind, const char *part, int input,
                 const char *options) {
    char name[SH_LAYER_NAME];
    if (block < 0)
        snprintf(name, sizeof name, "transformer.%s", part);
    else
        snprintf(name, sizeof name, "transformer.h.%d.%s", block, part);
    return sh_model_layer(b->net, &b->status, kind, name, input, "%s", options);
}

static int dropout(builder *b, int block, const char *part, int input) {
    char text[64];
    if (b->o->dropout <= 0) return input;
    sh_snprintf(text, sizeof text, "{p: %.17g}", b->o->dropout);
    return layer(b, block, "dropout", part, input, text);
}

static int add(builder *b, int block, const char *part, int a, int other) {
    char name[SH_LAYER_NAME];
    snprintf(name, sizeof name, "transformer.h.%d.%s", block, part);
    return sh_model_add(b->net, &b->status, name, a, other);
}

static int add_block(builder *b, int block, int stream) {
    const gpt_options *o = b->o;
    const char *bias = o->bias ? "true" : "false";
    char norm[32], text[160];
    snprintf(norm, sizeof norm, "{bias: %s}", bias);
    int at = layer(b, block, "layernorm", "ln_1", stream, norm);
    sh_snprintf(text, sizeof text, "{heads: %ld, bias: %s, std: 0.02, project_std: %.17g}",
                (long)o->heads, bias, b->project_std);
    at = layer(b, block, "attention", "attn", at, text);
    at = dropout(b, block, "attn.dropout", at);
    stream = add(b, block, "add_1", at, stream);

    at = layer(b, block, "layernorm", "ln_2", stream, norm);
    snprintf(text, sizeof text, "{units: %ld, bias: %s, init: normal, std: 0.02}",
             (long)(4 * o->width), bias);
    at = layer(b, block, "dense", "mlp.c_fc", at, text);
    at = layer(b, block, "gelu", "mlp.gelu", at, o->approximate ? "{approximate: true}" : "");
    sh_snprintf(text, sizeof text, "{units: %ld, bias: %s, init: normal, std: %.17g}",
                (long)o->width, bias, b->project_std);
    at = layer(b, block, "dense", "mlp.c_proj", at, text);
    at = dropout(b, block, "mlp.dropout", at);
    return add(b, block, "add_2", at, stream);
}

static sh_status build(sh_net *net, const void *options) {
    const gpt_options *o = options;
    if (!net->input.tokens)
        return sh_error_set(SH_E_USAGE, __FILE__, __LINE__, "a GPT wants text data");
    builder b = {.net = net, .o = o, .project_std = 0.02 / sqrt(2.0 * (double)o->layers)};
    char text[160];
    snprintf(text, sizeof text, "{width: %ld, vocabulary: %ld}", (long)o->width,
             (long)o->vocabulary);
    layer(&b, -1, "embedding", "wte", SH_NET_INPUT, text);
    int at = layer(&b, -1, "positions", "wpe", SH_AFTER, "");
    at = dropout(&b, -1, "drop", at);
    for (int i = 0; i < o->layers && b.status == SH_OK; i++) at = add_block(&b, i, at);
    layer(&b, -1, "layernorm", "ln_f", at, o->bias ? "{bias: true}" : "{bias: false}");
    snprintf(text, sizeof text, "{units: %ld, bias: false, init: normal, std: 0.02%s}",
             (long)o->vocabulary, o->tied ? ", tie: transformer.wte.weight" : "");
    sh_model_layer(net, &b.status, "dense", "lm_head", SH_AFTER, "%s", text);
    return b.status;
}

const sh_model_kind sh_model_kind_gpt = {
    .name = "gpt",
    .help = "decoder-only transformer of any size",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(gpt_options),
    .build = build,
    .typical = {.sample = {.rank = 1, .dim = {256}}, .tokens = true, .outputs = 65},
};

const sh_model_kind sh_model_kind_gpt2 = {
    .name = "gpt2",
    .help = "GPT-2 124M: 12 layers, 12 heads, 768 wide, 50257 tokens, tied head",
    .options = {gpt2_rows, SH_COUNT(gpt2_rows)},
    .options_bytes = sizeof(gpt_options),
    .build = build,
    .typical = {.sample = {.rank = 1, .dim = {1024}}, .tokens = true, .outputs = 50257},
};
