/* Token embedding of which a worker holds some rows of the table: tokens of other rows give zeros,
 * so that the embedding is the sum over the workers. */
#include <string.h>

#include "nn/layers/common.h"
#include "parallel/layout.h"

static const sh_option rows[] = {
    {.key = "units",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_split_embedding_spec, split.units),
     .initial = "1",
     .least = 1,
     .most = 1 << 28,
     .help = "rows of the whole table"},
    {.key = "unit",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_split_embedding_spec, split.unit),
     .initial = "1",
     .least = 1,
     .most = 1 << 28,
     .help = "rows that are not cut"},
    {.key = "parts",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_split_embedding_spec, split.parts),
     .initial = "1",
     .least = 1,
     .most = 1 << 20,
     .help = "workers"},
    {.key = "rank",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_split_embedding_spec, split.rank),
     .initial = "0",
     .least = 0,
     .most = 1 << 20,
     .help = "which worker this is"},
    {.key = "width",
     .type = SH_OPTION_INT,
     .at = offsetof(sh_split_embedding_spec, width),
     .initial = "128",
     .least = 1,
     .most = 1 << 20,
     .help = "floats per token"},
    {.key = "std",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_split_embedding_spec, std),
     .initial = "0.02",
     .least = 0,
     .most = 100,
     .help = "initial standard deviation"},
};

static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_split_embedding_spec *o = layer->options;
    layer->out = SH_SHAPE(layer->in[0].dim[0], o->width);
    layer->flops = (double)sh_shape_count(&layer->out);
    return sh_layer_param(layer, "weight", SH_SHAPE(sh_cut_own(&o->split), o->width), true,
                          (sh_init){.rule = SH_INIT_NORMAL, .scale = o->std});
}

static sh_status build(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->needs_input = true;
    return SH_OK;
}

/* The row of this worker's table, or -1. */
static int64_t row_of(const sh_cut *split, int32_t token) {
    int64_t begin = sh_cut_begin(split, split->rank);
    bool own = token >= begin && token < begin + sh_cut_own(split);
    return own ? token - begin : -1;
}

static sh_status forward(sh_op *op) {
    const sh_split_embedding_spec *o = op->layer->options;
    const int32_t *tokens = op->in[0]->data;
    float *y = op->out->data;
    size_t width = (size_t)o->width;
#pragma omp parallel for schedule(static)
    for (size_t i = 0; i < op->in[0]->count; i++) {
        int64_t row = row_of(&o->split, tokens[i]);
        if (row >= 0)
            memcpy(y + i * width, op->param[0] + (size_t)row * width, width * sizeof *y);
        else
            memset(y + i * width, 0, width * sizeof *y);
    }
    return SH_OK;
}

/* In the order of the tokens, so that the sum of a row does not depend on threads. */
static sh_status backward(sh_op *op) {
    const sh_split_embedding_spec *o = op->layer->options;
    const int32_t *tokens = op->in[0]->data;
    size_t width = (size_t)o->width;
    float *gradient = op->param_grad[0];
    if (!sh_op_adds(op, 0))
        memset(gradient, 0, (size_t)sh_cut_own(&o->split) * width * sizeof *gradient);
    for (size_t i = 0; i < op->in[0]->count; i++) {
        int64_t row = row_of(&o->split, tokens[i]);
        if (row >= 0)
            sh_vector()->add_to(gradient + (size_t)row * width, op->out->grad + i * width, width);
    }
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_split_embedding = {
    .name = "split-embedding",
    .help = "some rows of an embedding; the others give zeros",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_split_embedding_spec),
    .inputs_least = 1,
    .inputs_most = 1,
    .takes_tokens = true,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
};
