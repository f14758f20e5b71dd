/* Layers as C99: the function of each, and how it is called. The functions are written for their
 * reader and for any compiler: plain loops over plain row-major arrays, sums in float in the order
 * of the loops. */
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "export/export_c.h"
#include "nn/layers/options.h"

/* Parameters of a row's `call`: x are the inputs' expressions, y the output's. */
#define CALL_PARAMETERS \
    sh_c_source *source, const sh_layer *layer, const char *const *x, const char *y

/* Sizes as long, which %ld prints and the helpers take. */
static long dim(const sh_shape *shape, int i) { return (long)shape->dim[i]; }
static long elements(const sh_shape *shape) { return (long)sh_shape_count(shape); }

/* The parameter's identifier, or "0" (a null pointer in C) where the layer has fewer: a layer
 * without bias. */
static const char *param(const sh_c_source *source, const sh_layer *layer, int index,
                         char name[SH_C_NAME]) {
    return index < layer->param_count ? sh_c_param_name(source, layer, index, name) : "0";
}

/* ---- dense ---- */

static const char dense_code[] =
    "/* y (rows, out) = x (rows, in) w^T + bias, w (out, in) */\n"
    "static void dense(const float *x, const float *w, const float *bias, float *y,\n"
    "                  long rows, long in, long out) {\n"
    "    for (long r = 0; r < rows; r++)\n"
    "        for (long o = 0; o < out; o++) {\n"
    "            float sum = bias ? bias[o] : 0.0f;\n"
    "            for (long i = 0; i < in; i++) sum += x[r * in + i] * w[o * in + i];\n"
    "            y[r * out + o] = sum;\n"
    "        }\n"
    "}\n";

/* Rows are all leading dimensions together: tokens are a batch of vectors. */
static void call_dense(CALL_PARAMETERS) {
    char weight[SH_C_NAME], bias[SH_C_NAME];
    long in = dim(&layer->in[0], layer->in[0].rank - 1),
         out = dim(&layer->out, layer->out.rank - 1);
    fprintf(source->file, "    dense(%s, %s, %s, %s, %ld, %ld, %ld);\n", x[0],
            param(source, layer, 0, weight), param(source, layer, 1, bias), y,
            elements(&layer->in[0]) / in, in, out);
}

/* ---- convolution and pooling ---- */

static const char conv_code[] =
    "/* Images (channels, height, width); w (out channels, channels of a group, kh, kw). */\n"
    "static void conv(const float *x, const float *w, const float *bias, float *y,\n"
    "                 const long in[3], const long out[3], long kh, long kw, long stride,\n"
    "                 long padding, long dilation, long groups) {\n"
    "    long part = in[0] / groups, own = out[0] / groups;\n"
    "    for (long o = 0; o < out[0]; o++)\n"
    "        for (long i = 0; i < out[1]; i++)\n"
    "            for (long j = 0; j < out[2]; j++) {\n"
    "                float sum = bias ? bias[o] : 0.0f;\n"
    "                for (long c = 0; c < part; c++)\n"
    "                    for (long a = 0; a < kh; a++) {\n"
    "                        long row = i * stride - padding + a * dilation;\n"
    "                        if (row < 0 || row >= in[1]) continue;\n"
    "                        const float *line = x + ((o / own * part + c) * in[1] + row) * "
    "in[2];\n"
    "                        const float *k = w + ((o * part + c) * kh + a) * kw;\n"
    "                        for (long b = 0; b < kw; b++) {\n"
    "                            long column = j * stride - padding + b * dilation;\n"
    "                            if (column >= 0 && column < in[2]) sum += line[column] * k[b];\n"
    "                        }\n"
    "                    }\n"
    "                y[(o * out[1] + i) * out[2] + j] = sum;\n"
    "            }\n"
    "}\n";

/* Prints both image shapes as compound literals, (channels, height, width). */
static void print_sizes(const sh_c_source *source, const sh_layer *layer) {
    const sh_shape *in = &layer->in[0], *out = &layer->out;
    fprintf(source->file, "(const long[]){%ld, %ld, %ld}, (const long[]){%ld, %ld, %ld}",
            dim(in, 0), dim(in, 1), dim(in, 2), dim(out, 0), dim(out, 1), dim(out, 2));
}

/* kernel_w 0 means a square kernel. */
static void call_conv(CALL_PARAMETERS) {
    const sh_conv_spec *o = layer->options;
    char weight[SH_C_NAME], bias[SH_C_NAME];
    fprintf(source->file, "    conv(%s, %s, %s, %s, ", x[0], param(source, layer, 0, weight),
            param(source, layer, 1, bias), y);
    print_sizes(source, layer);
    fprintf(source->file, ", %ld, %ld, %ld, %ld, %ld, %ld);\n", (long)o->kernel,
            (long)(o->kernel_w > 0 ? o->kernel_w : o->kernel), (long)o->stride, (long)o->padding,
            (long)o->dilation, (long)o->groups);
}

static const char maxpool_code[] =
    "/* The largest value of each window; the border is no value. */\n"
    "static void maxpool(const float *x, float *y, const long in[3], const long out[3], long "
    "kernel,\n"
    "                    long stride, long padding) {\n"
    "    for (long c = 0; c < out[0]; c++)\n"
    "        for (long i = 0; i < out[1]; i++)\n"
    "            for (long j = 0; j < out[2]; j++) {\n"
    "                float most = -HUGE_VALF;\n"
    "                for (long a = 0; a < kernel; a++)\n"
    "                    for (long b = 0; b < kernel; b++) {\n"
    "                        long row = i * stride - padding + a, column = j * stride - padding + "
    "b;\n"
    "                        if (row < 0 || row >= in[1] || column < 0 || column >= in[2]) "
    "continue;\n"
    "                        float value = x[(c * in[1] + row) * in[2] + column];\n"
    "                        if (value > most) most = value;\n"
    "                    }\n"
    "                y[(c * out[1] + i) * out[2] + j] = most;\n"
    "            }\n"
    "}\n";

static const char avgpool_code[] =
    "/* The mean of each window; the border counts as zeros. */\n"
    "static void avgpool(const float *x, float *y, const long in[3], const long out[3], long "
    "kernel,\n"
    "                    long stride, long padding) {\n"
    "    for (long c = 0; c < out[0]; c++)\n"
    "        for (long i = 0; i < out[1]; i++)\n"
    "            for (long j = 0; j < out[2]; j++) {\n"
    "                float sum = 0.0f;\n"
    "                for (long a = 0; a < kernel; a++)\n"
    "                    for (long b = 0; b < kernel; b++) {\n"
    "                        long row = i * stride - padding + a, column = j * stride - padding + "
    "b;\n"
    "                        if (row < 0 || row >= in[1] || column < 0 || column >= in[2]) "
    "continue;\n"
    "                        sum += x[(c * in[1] + row) * in[2] + column];\n"
    "                    }\n"
    "                y[(c * out[1] + i) * out[2] + j] = sum / (float)(kernel * kernel);\n"
    "            }\n"
    "}\n";

/* stride 0 means windows side by side, as in the layer's options. */
static void call_pool(const char *function, CALL_PARAMETERS) {
    const sh_pool_spec *o = layer->options;
    fprintf(source->file, "    %s(%s, %s, ", function, x[0], y);
    print_sizes(source, layer);
    fprintf(source->file, ", %ld, %ld, %ld);\n", (long)o->kernel,
            (long)(o->stride > 0 ? o->stride : o->kernel), (long)o->padding);
}

static void call_maxpool(CALL_PARAMETERS) { call_pool("maxpool", source, layer, x, y); }
static void call_avgpool(CALL_PARAMETERS) { call_pool("avgpool", source, layer, x, y); }

static const char globalpool_code[] =
    "/* The mean of each channel over the image. */\n"
    "static void globalpool(const float *x, float *y, long channels, long pixels) {\n"
    "    for (long c = 0; c < channels; c++) {\n"
    "        float sum = 0.0f;\n"
    "        for (long i = 0; i < pixels; i++) sum += x[c * pixels + i];\n"
    "        y[c] = sum / (float)pixels;\n"
    "    }\n"
    "}\n";

/* (C, H, W) to (C). */
static void call_globalpool(CALL_PARAMETERS) {
    long channels = dim(&layer->out, 0);
    fprintf(source->file, "    globalpool(%s, %s, %ld, %ld);\n", x[0], y, channels,
            elements(&layer->in[0]) / channels);
}

/* ---- normalisation ---- */

static const char batchnorm_code[] =
    "/* y = x scale + shift, per channel */\n"
    "static void batchnorm(const float *x, const float *scale, const float *shift, float *y,\n"
    "                      long channels, long inner) {\n"
    "    for (long c = 0; c < channels; c++)\n"
    "        for (long i = 0; i < inner; i++)\n"
    "            y[c * inner + i] = x[c * inner + i] * scale[c] + shift[c];\n"
    "}\n";

/* Prints scale and shift folded from the parameters and the running statistics. They take the
 * parameters' names ("bn1_weight", "bn1_bias"), so that calls look as for any layer. */
static void batchnorm_constants(sh_c_source *source, const sh_layer *layer) {
    size_t channels = (size_t)layer->in[0].dim[0];
    float *folded = sh_alloc(2 * channels, sizeof *folded);
    if (folded == NULL) return;  // the file then does not have them, and the caller sees it
    char name[SH_C_NAME];
    sh_export_fold_batchnorm(source->trained, layer, folded, folded + channels);
    sh_c_constant(source, param(source, layer, 0, name), folded, channels);
    sh_c_constant(source, param(source, layer, 1, name), folded + channels, channels);
    sh_free(folded);
}

/* (C) or (C, H, W): `inner` values per channel. */
static void call_batchnorm(CALL_PARAMETERS) {
    char scale[SH_C_NAME], shift[SH_C_NAME];
    long channels = dim(&layer->in[0], 0);
    fprintf(source->file, "    batchnorm(%s, %s, %s, %s, %ld, %ld);\n", x[0],
            param(source, layer, 0, scale), param(source, layer, 1, shift), y, channels,
            elements(&layer->in[0]) / channels);
}

static const char layernorm_code[] =
    "/* Each row of x gets mean 0 and variance 1, then scale and bias. */\n"
    "static void layernorm(const float *x, const float *scale, const float *bias, float *y, long "
    "rows,\n"
    "                      long width, float epsilon) {\n"
    "    for (long r = 0; r < rows; r++, x += width, y += width) {\n"
    "        float mean = 0.0f, square = 0.0f;\n"
    "        for (long i = 0; i < width; i++) mean += x[i];\n"
    "        mean /= (float)width;\n"
    "        for (long i = 0; i < width; i++) square += (x[i] - mean) * (x[i] - mean);\n"
    "        float inverse = 1.0f / sqrtf(square / (float)width + epsilon);\n"
    "        for (long i = 0; i < width; i++)\n"
    "            y[i] = (x[i] - mean) * inverse * scale[i] + (bias ? bias[i] : 0.0f);\n"
    "    }\n"
    "}\n";

/* Normalises along the last dimension. */
static void call_layernorm(CALL_PARAMETERS) {
    const sh_layernorm_spec *o = layer->options;
    char scale[SH_C_NAME], bias[SH_C_NAME];
    long width = dim(&layer->out, layer->out.rank - 1);
    sh_fprintf(source->file, "    layernorm(%s, %s, %s, %s, %ld, %ld, %.9ef);\n", x[0],
               param(source, layer, 0, scale), param(source, layer, 1, bias), y,
               elements(&layer->out) / width, width, o->epsilon);
}

static const char softmax_code[] =
    "/* Each row of x becomes positive and sums to 1. */\n"
    "static void softmax(const float *x, float *y, long rows, long width) {\n"
    "    for (long r = 0; r < rows; r++, x += width, y += width) {\n"
    "        float most = x[0], sum = 0.0f;\n"
    "        for (long i = 1; i < width; i++)\n"
    "            if (x[i] > most) most = x[i];\n"
    "        for (long i = 0; i < width; i++) sum += y[i] = expf(x[i] - most);\n"
    "        for (long i = 0; i < width; i++) y[i] /= sum;\n"
    "    }\n"
    "}\n";

/* Normalises along the last dimension. */
static void call_softmax(CALL_PARAMETERS) {
    long width = dim(&layer->out, layer->out.rank - 1);
    fprintf(source->file, "    softmax(%s, %s, %ld, %ld);\n", x[0], y,
            elements(&layer->out) / width, width);
}

/* ---- text ---- */

static const char embedding_code[] =
    "/* Row token[t] of the table for every token. */\n"
    "static void embedding(const int *token, const float *table, float *y, long tokens, long "
    "width) {\n"
    "    for (long t = 0; t < tokens; t++)\n"
    "        for (long i = 0; i < width; i++) y[t * width + i] = table[token[t] * width + i];\n"
    "}\n";

/* (T) tokens to (T, C). */
static void call_embedding(CALL_PARAMETERS) {
    char table[SH_C_NAME];
    fprintf(source->file, "    embedding(%s, %s, %s, %ld, %ld);\n", x[0],
            param(source, layer, 0, table), y, dim(&layer->out, 0), dim(&layer->out, 1));
}

static const char attention_code[] =
    "/* x (tokens, 3 width): query, key and value of every token side by side, in each of them "
    "one\n"
    " * head after the other. score is room for a row of weights. */\n"
    "static void attention(const float *x, float *y, float *score, long tokens, long width, long "
    "heads,\n"
    "                      int causal) {\n"
    "    long part = width / heads;\n"
    "    float scale = 1.0f / sqrtf((float)part);\n"
    "    for (long h = 0; h < heads; h++)\n"
    "        for (long t = 0; t < tokens; t++) {\n"
    "            long seen = causal ? t + 1 : tokens;\n"
    "            const float *q = x + t * 3 * width + h * part;\n"
    "            float most = -HUGE_VALF, sum = 0.0f;\n"
    "            for (long s = 0; s < seen; s++) {\n"
    "                const float *k = x + s * 3 * width + width + h * part;\n"
    "                float dot = 0.0f;\n"
    "                for (long i = 0; i < part; i++) dot += q[i] * k[i];\n"
    "                score[s] = dot * scale;\n"
    "                if (score[s] > most) most = score[s];\n"
    "            }\n"
    "            for (long s = 0; s < seen; s++) sum += score[s] = expf(score[s] - most);\n"
    "            for (long i = 0; i < part; i++) {\n"
    "                float value = 0.0f;\n"
    "                for (long s = 0; s < seen; s++)\n"
    "                    value += score[s] * x[s * 3 * width + 2 * width + h * part + i];\n"
    "                y[t * width + h * part + i] = value / sum;\n"
    "            }\n"
    "        }\n"
    "}\n";

/* (T, 3C) to (T, C). The front of the working memory holds a row of scores (front_room in
 * export_c.c). */
static void call_attention(CALL_PARAMETERS) {
    const sh_attention_core_spec *o = layer->options;
    fprintf(source->file, "    attention(%s, %s, %s_memory, %ld, %ld, %ld, %d);\n", x[0], y,
            source->name, dim(&layer->out, 0), dim(&layer->out, 1), (long)o->heads, o->causal);
}

/* ---- element by element ---- */

static const char add_code[] =
    "/* y = a + b; y may be a */\n"
    "static void add(const float *a, const float *b, float *y, long count) {\n"
    "    for (long i = 0; i < count; i++) y[i] = a[i] + b[i];\n"
    "}\n";

/* Two inputs at a time; from the third on the sum is taken in place, which `add` allows. */
static void call_add(CALL_PARAMETERS) {
    for (int i = 1; i < layer->input_count; i++)
        fprintf(source->file, "    add(%s, %s, %s, %ld);\n", i == 1 ? x[0] : y, x[i], y,
                elements(&layer->out));
}

/* The table has the shape of the input, (T, C), so this is an addition. */
static void call_positions(CALL_PARAMETERS) {
    char table[SH_C_NAME];
    fprintf(source->file, "    add(%s, %s, %s, %ld);\n", x[0], param(source, layer, 0, table), y,
            elements(&layer->out));
}

static const char concat_code[] =
    "/* Puts rows of one input into their columns of y. */\n"
    "static void concat(const float *x, float *y, long rows, long own, long all, long first) {\n"
    "    for (long r = 0; r < rows; r++)\n"
    "        for (long i = 0; i < own; i++) y[r * all + first + i] = x[r * own + i];\n"
    "}\n";

/* Joins vectors, or (T, C) along C; images lie channel by channel, so they join like vectors. */
static void call_concat(CALL_PARAMETERS) {
    // Only (T, C) is joined row by row; anything else is one row.
    long rows = layer->out.rank == 2 ? dim(&layer->out, 0) : 1, first = 0;
    for (int i = 0; i < layer->input_count; i++) {
        long own = elements(&layer->in[i]) / rows;
        fprintf(source->file, "    concat(%s, %s, %ld, %ld, %ld, %ld);\n", x[i], y, rows, own,
                elements(&layer->out) / rows, first);
        first += own;
    }
}

/* Defines the helper text and the call of an element-wise activation. */
#define ELEMENTWISE(name, comment, expression)                                                  \
    static const char name##_code[] =                                                           \
        "/* " comment                                                                           \
        " */\n"                                                                                 \
        "static void " #name                                                                    \
        "(const float *x, float *y, long count) {\n"                                            \
        "    for (long i = 0; i < count; i++) y[i] = " expression ";\n}\n";                     \
    static void call_##name(CALL_PARAMETERS) {                                                  \
        fprintf(source->file, "    " #name "(%s, %s, %ld);\n", x[0], y, elements(&layer->out)); \
    }

ELEMENTWISE(relu, "max(x, 0)", "x[i] > 0.0f ? x[i] : 0.0f")
ELEMENTWISE(silu, "x sigmoid(x)", "x[i] / (1.0f + expf(-x[i]))")
ELEMENTWISE(hyperbolic, "tanh(x)", "tanhf(x[i])")
ELEMENTWISE(sigmoid, "1 / (1 + exp(-x))", "1.0f / (1.0f + expf(-x[i]))")

static const char gelu_code[] =
    "/* x times the normal distribution's integral up to x; rough: by tanh */\n"
    "static void gelu(const float *x, float *y, long count, int rough) {\n"
    "    for (long i = 0; i < count; i++) {\n"
    "        float v = x[i], inner = 0.7978845608f * (v + 0.044715f * v * v * v);\n"
    "        y[i] = 0.5f * v * (1.0f + (rough ? tanhf(inner) : erff(v * 0.7071067812f)));\n"
    "    }\n"
    "}\n";

/* `approximate` selects the tanh form. */
static void call_gelu(CALL_PARAMETERS) {
    const sh_gelu_spec *o = layer->options;
    fprintf(source->file, "    gelu(%s, %s, %ld, %d);\n", x[0], y, elements(&layer->out),
            o->approximate);
}

/* Kind, helper, whether it needs <math.h>, own constants, call. Layers without helper change
 * nothing at inference. */
static const sh_c_row table[] = {
    {&sh_layer_kind_dense, dense_code, false, NULL, call_dense},
    {&sh_layer_kind_conv, conv_code, false, NULL, call_conv},
    {&sh_layer_kind_maxpool, maxpool_code, true, NULL, call_maxpool},
    {&sh_layer_kind_avgpool, avgpool_code, false, NULL, call_avgpool},
    {&sh_layer_kind_globalpool, globalpool_code, false, NULL, call_globalpool},
    {&sh_layer_kind_batchnorm, batchnorm_code, false, batchnorm_constants, call_batchnorm},
    {&sh_layer_kind_layernorm, layernorm_code, true, NULL, call_layernorm},
    {&sh_layer_kind_dropout, NULL, false, NULL, NULL},
    {&sh_layer_kind_droppath, NULL, false, NULL, NULL},
    {&sh_layer_kind_flatten, NULL, false, NULL, NULL},
    {&sh_layer_kind_embedding, embedding_code, false, NULL, call_embedding},
    {&sh_layer_kind_positions, add_code, false, NULL, call_positions},
    {&sh_layer_kind_attention_core, attention_code, true, NULL, call_attention},
    {&sh_layer_kind_add, add_code, false, NULL, call_add},
    {&sh_layer_kind_concat, concat_code, false, NULL, call_concat},
    {&sh_layer_kind_relu, relu_code, false, NULL, call_relu},
    {&sh_layer_kind_gelu, gelu_code, true, NULL, call_gelu},
    {&sh_layer_kind_silu, silu_code, true, NULL, call_silu},
    {&sh_layer_kind_tanh, hyperbolic_code, true, NULL, call_hyperbolic},
    {&sh_layer_kind_sigmoid, sigmoid_code, true, NULL, call_sigmoid},
    {&sh_layer_kind_softmax, softmax_code, true, NULL, call_softmax},
};

/* Linear search: an export asks a few times per layer. */
const sh_c_row *sh_c_row_of(const sh_layer_kind *kind) {
    for (size_t i = 0; i < SH_COUNT(table); i++)
        if (table[i].kind == kind) return &table[i];
    return NULL;
}
