/* One token at a time through a net of text. Each layer is a stage that computes one row; attention
 * appends the token's key and value to those of earlier tokens (the KV cache of transformers).
 * Memory: 2 T C floats per attention layer, allocated once. */
#include "nn/decoder.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "nn/layers/options.h"
#include "tensor/kernels/activation.h"
#include "tensor/kernels/norm.h"

/* A layer, for one token: x are its inputs' rows, y its output's. */
typedef struct stage {
    const sh_layer *layer;
    void (*run)(sh_decoder *decoder, const struct stage *stage, const float *const *x, float *y);
    float *row;            // (width) its output
    int64_t in, width;     // numbers in a row of the first input, and of the output
    float *keys, *values;  // attention: (T, width) of the tokens so far
} stage;

struct sh_decoder {
    const sh_net *net;
    const float *weights;
    stage *stages;
    float *memory;  // all rows, keys and values, and scores
    float *score;   // (T): attention's weights of one head
    int64_t read, room;
    int32_t token;
};

/* Weights are read at each token: the caller may have changed them in between. */
static const float *param(const sh_decoder *d, const stage *s, int index) {
    return d->weights + d->net->params.items[s->layer->params[index]].offset;
}

/* ---- layers ---- */

/* y (C) is a row of the table (V, C). */
static void run_embedding(sh_decoder *d, const stage *s, const float *const *x, float *y) {
    (void)x;
    memcpy(y, param(d, s, 0) + d->token * s->width, (size_t)s->width * sizeof *y);
}

/* The position of the token is the number of tokens read before it. */
static void run_positions(sh_decoder *d, const stage *s, const float *const *x, float *y) {
    const float *position = param(d, s, 0) + d->read * s->width;
    for (int64_t i = 0; i < s->width; i++) y[i] = x[0][i] + position[i];
}

/* The kernel of training with one row; mean and rstd are of no further use. */
static void run_layernorm(sh_decoder *d, const stage *s, const float *const *x, float *y) {
    const sh_layernorm_spec *o = s->layer->options;
    float mean, rstd;
    sh_layernorm()->forward(x[0], param(d, s, 0), s->layer->param_count > 1 ? param(d, s, 1) : NULL,
                            (float)o->epsilon, 1, (size_t)s->width, y, &mean, &rstd);
}

/* One row times a matrix reads each weight once, so memory is its limit, and a plain loop serves.
 */
static void run_dense(sh_decoder *d, const stage *s, const float *const *x, float *y) {
    const float *weight = param(d, s, 0);
    const float *bias = s->layer->param_count > 1 ? param(d, s, 1) : NULL;
    bool large = s->width * s->in >= 1 << 17;  // else the threads' meeting costs more than it gives
#pragma omp parallel for schedule(static) if (large)
    for (int64_t o = 0; o < s->width; o++) {
        const float *w = weight + o * s->in;
        float sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int64_t i = 0; i < s->in; i++) sum += x[0][i] * w[i];
        y[o] = sum + (bias != NULL ? bias[o] : 0);
    }
}

/* One head of attention: softmax(q K^T / sqrt(D)) V for one query (D) against the keys and values
 * (seen, D) of all tokens so far, itself included. Later tokens do not exist yet, which is the
 * causal mask. The greatest score is subtracted before the exponential, against overflow. O(seen
 * D). */
static void attend(const sh_decoder *d, const stage *s, const float *query, int64_t first,
                   int64_t part, float *y) {
    int64_t seen = d->read + 1;
    float *score = d->score, most = -INFINITY, sum = 0, scale = 1 / sqrtf((float)part);
    for (int64_t t = 0; t < seen; t++) {
        const float *key = s->keys + t * s->width + first;
        float dot = 0;
        for (int64_t i = 0; i < part; i++) dot += query[i] * key[i];
        score[t] = dot * scale;
        if (score[t] > most) most = score[t];
    }
    for (int64_t t = 0; t < seen; t++) sum += score[t] = expf(score[t] - most);
    memset(y, 0, (size_t)part * sizeof *y);
    for (int64_t t = 0; t < seen; t++) {
        const float *value = s->values + t * s->width + first;
        for (int64_t i = 0; i < part; i++) y[i] += score[t] / sum * value[i];
    }
}

/* All heads for one token: x (3C) is q|k|v, each one head after the other. Key and value are stored
 * before any head reads them. */
static void run_attention(sh_decoder *d, const stage *s, const float *const *x, float *y) {
    const sh_attention_core_spec *o = s->layer->options;
    int64_t part = s->width / o->heads;
    size_t bytes = (size_t)s->width * sizeof *y;
    memcpy(s->keys + d->read * s->width, x[0] + s->width, bytes);
    memcpy(s->values + d->read * s->width, x[0] + 2 * s->width, bytes);
    for (int64_t h = 0; h < o->heads; h++)
        attend(d, s, x[0] + h * part, h * part, part, y + h * part);
}

static void run_add(sh_decoder *d, const stage *s, const float *const *x, float *y) {
    (void)d;
    memcpy(y, x[0], (size_t)s->width * sizeof *y);
    for (int k = 1; k < s->layer->input_count; k++)
        for (int64_t i = 0; i < s->width; i++) y[i] += x[k][i];
}

/* Features of the inputs one after the other, as tokens are joined. */
static void run_concat(sh_decoder *d, const stage *s, const float *const *x, float *y) {
    (void)d;
    for (int k = 0; k < s->layer->input_count; k++) {
        size_t width = (size_t)s->layer->in[k].dim[1];
        memcpy(y, x[k], width * sizeof *y);
        y += width;
    }
}

/* dropout and droppath are the identity in inference. */
static void run_nothing(sh_decoder *d, const stage *s, const float *const *x, float *y) {
    (void)d;
    memcpy(y, x[0], (size_t)s->width * sizeof *y);
}

static void run_activation(const stage *s, sh_activation_kind kind, const float *x, float *y) {
    sh_activation()->row[kind].forward(x, y, (size_t)s->width);
}

#define RUN_ACTIVATION(name, kind)                                                           \
    static void run_##name(sh_decoder *d, const stage *s, const float *const *x, float *y) { \
        (void)d;                                                                             \
        run_activation(s, kind, x[0], y);                                                    \
    }

RUN_ACTIVATION(relu, SH_ACTIVATION_RELU)
RUN_ACTIVATION(silu, SH_ACTIVATION_SILU)
RUN_ACTIVATION(tanh, SH_ACTIVATION_TANH)
RUN_ACTIVATION(sigmoid, SH_ACTIVATION_SIGMOID)

static void run_gelu(sh_decoder *d, const stage *s, const float *const *x, float *y) {
    (void)d;
    const sh_gelu_spec *o = s->layer->options;
    run_activation(s, o->approximate ? SH_ACTIVATION_GELU_TANH : SH_ACTIVATION_GELU, x[0], y);
}

/* Layers whose output at a token needs nothing of other tokens, and attention. */
static const struct {
    const sh_layer_kind *kind;
    void (*run)(sh_decoder *decoder, const stage *stage, const float *const *x, float *y);
} table[] = {
    {&sh_layer_kind_embedding, run_embedding},
    {&sh_layer_kind_positions, run_positions},
    {&sh_layer_kind_layernorm, run_layernorm},
    {&sh_layer_kind_dense, run_dense},
    {&sh_layer_kind_attention_core, run_attention},
    {&sh_layer_kind_add, run_add},
    {&sh_layer_kind_concat, run_concat},
    {&sh_layer_kind_dropout, run_nothing},
    {&sh_layer_kind_droppath, run_nothing},
    {&sh_layer_kind_relu, run_relu},
    {&sh_layer_kind_gelu, run_gelu},
    {&sh_layer_kind_silu, run_silu},
    {&sh_layer_kind_tanh, run_tanh},
    {&sh_layer_kind_sigmoid, run_sigmoid},
};

/* ---- making one ---- */

/* Full attention reads later tokens, so that one more token would change all earlier outputs. */
static sh_status find_run(const sh_layer *layer, stage *stage_out) {
    for (size_t i = 0; i < SH_COUNT(table); i++)
        if (table[i].kind == layer->kind) stage_out->run = table[i].run;
    if (stage_out->run == NULL)
        return SH_FAIL(SH_E_USAGE, "layer '%s' (%s) cannot read one token at a time", layer->name,
                       layer->kind->name);
    if (layer->kind == &sh_layer_kind_attention_core) {
        const sh_attention_core_spec *o = layer->options;
        if (!o->causal)
            return SH_FAIL(SH_E_USAGE,
                           "layer '%s' looks at later tokens: it cannot continue a text",
                           layer->name);
    }
    return SH_OK;
}

/* Row (C), and of attention also keys and values (T, C) each. */
static size_t stage_floats(const sh_decoder *d, const stage *s) {
    bool keeps = s->layer->kind == &sh_layer_kind_attention_core;
    return (size_t)(s->width * (keeps ? 1 + 2 * d->room : 1));
}

/* Layers other than attention have no keys and values; their pointers are never read. */
static void place(const sh_decoder *d, stage *s, float **at) {
    s->row = *at;
    s->keys = s->row + s->width;
    s->values = s->keys + d->room * s->width;
    *at += stage_floats(d, s);
}

/* One allocation: scores (T), then the stages in order. */
static sh_status make_stages(sh_decoder *d) {
    size_t floats = (size_t)d->room;
    for (size_t i = 0; i < d->net->layer_count; i++) {
        const sh_layer *layer = d->net->layers[i];
        stage *s = &d->stages[i];
        *s = (stage){.layer = layer,
                     .in = layer->in[0].dim[layer->in[0].rank - 1],
                     .width = layer->out.dim[layer->out.rank - 1]};
        SH_TRY(find_run(layer, s));
        floats += stage_floats(d, s);
    }
    d->memory = sh_alloc(floats, sizeof *d->memory);
    if (d->memory == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for keys and values");
    float *at = d->memory + d->room;
    d->score = d->memory;
    for (size_t i = 0; i < d->net->layer_count; i++) place(d, &d->stages[i], &at);
    return SH_OK;
}

sh_status sh_decoder_create(const sh_net *net, const float *weights, sh_decoder **decoder_out) {
    if (!net->input.tokens || net->input.sample.rank != 1)
        return SH_FAIL(SH_E_USAGE, "the model reads no text");
    sh_decoder *d = sh_alloc(1, sizeof *d);
    if (d == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a decoder");
    *d = (sh_decoder){.net = net, .weights = weights, .room = net->input.sample.dim[0]};
    d->stages = sh_alloc(net->layer_count, sizeof *d->stages);
    sh_status status =
        d->stages != NULL ? make_stages(d) : SH_FAIL(SH_E_MEMORY, "out of memory for a decoder");
    if (status == SH_OK)
        *decoder_out = d;
    else
        sh_decoder_destroy(d);
    return status;
}

void sh_decoder_destroy(sh_decoder *decoder) {
    if (decoder == NULL) return;
    sh_free(decoder->stages);
    sh_free(decoder->memory);
    sh_free(decoder);
}

int64_t sh_decoder_room(const sh_decoder *decoder) { return decoder->room - decoder->read; }

/* Keys and values need not be cleared: only those of tokens read are looked at. */
void sh_decoder_restart(sh_decoder *decoder) { decoder->read = 0; }

/* Layers are in topological order, so that every input row is of this token. */
void sh_decoder_read(sh_decoder *decoder, int32_t token, const float **scores_out) {
    SH_ASSERT(decoder->read < decoder->room);
    SH_ASSERT(token >= 0 && token < decoder->net->input.outputs);
    decoder->token = token;
    for (size_t i = 0; i < decoder->net->layer_count; i++) {
        const stage *s = &decoder->stages[i];
        const float *x[SH_INPUTS_MOST] = {NULL};
        for (int k = 0; k < s->layer->input_count; k++) {
            int from = s->layer->inputs[k];
            x[k] = from == SH_NET_INPUT ? NULL : decoder->stages[from].row;
        }
        s->run(decoder, s, x, s->row);
    }
    decoder->read++;
    *scores_out = decoder->stages[decoder->net->layer_count - 1].row;
}
