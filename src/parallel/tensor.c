/* Tensor parallelism: matrix products split over the workers of the dimension `tensor`
 * (Shoeybi et al. 2019; Krizhevsky 2014).
 *
 *   replicated ─▶ dense by columns ─▶ split ─▶ dense by rows ─▶ partial sums ─▶ all-reduce
 *
 * A pair costs one all-reduce of its output in forward and one of its input's gradient in backward.
 * Convolutions do the same by output and input channels, attention by heads, an embedding and the
 * logits by vocabulary. In between, layers that treat features or channels apart work on their
 * part. A layer is split by columns only if what follows can use its part; others stay whole, on
 * every worker, and their note says why. The bias of a layer split by rows belongs to worker 0, so
 * that it is added once. */
#include <string.h>

#include "nn/layers/options.h"
#include "parallel/rewrite.h"

static sh_cut split_of(const sh_rewriting *r, int64_t units, int64_t unit, int64_t dim) {
    return (sh_cut){.units = units,
                    .unit = unit,
                    .parts = r->target.parts,
                    .rank = r->target.rank,
                    .dim = dim,
                    .axis = r->axis};
}

/* Channels are cut between blocks of 8 where they can be, as kernels like them. */
static sh_cut channel_split(const sh_rewriting *r, int64_t channels, int64_t dim) {
    bool blocks = channels % 8 == 0 && channels / 8 >= r->target.parts;
    return blocks ? split_of(r, channels / 8, 8, dim) : split_of(r, channels, 1, dim);
}

/* The dimension of a sample that holds features or channels. */
static int feature_dim(const sh_shape *sample) { return sample->rank == 3 ? 0 : sample->rank - 1; }

static bool is_conv_that_splits(const sh_layer *layer) {
    if (layer->kind != &sh_layer_kind_conv) return false;
    const sh_conv_spec *o = layer->options;
    return o->groups == 1;
}

/* Kinds that treat every feature or channel by itself. */
static bool keeps_features_apart(const sh_layer *layer) {
    static const sh_layer_kind *const kinds[] = {
        &sh_layer_kind_relu,     &sh_layer_kind_gelu,       &sh_layer_kind_silu,
        &sh_layer_kind_tanh,     &sh_layer_kind_sigmoid,    &sh_layer_kind_dropout,
        &sh_layer_kind_droppath, &sh_layer_kind_batchnorm,  &sh_layer_kind_maxpool,
        &sh_layer_kind_avgpool,  &sh_layer_kind_globalpool, &sh_layer_kind_flatten,
    };
    for (size_t i = 0; i < SH_COUNT(kinds); i++)
        if (layer->kind == kinds[i]) return true;
    return false;
}

static bool is_dense(const sh_layer *layer) { return layer->kind == &sh_layer_kind_dense; }

static const char *tie_of(const sh_layer *layer) {
    const sh_dense_spec *o = layer->options;
    return is_dense(layer) ? o->tie : NULL;
}

/* Whether all that read a layer's output can use a part of its features. */
static bool parts_are_used(const sh_rewriting *r, int layer) {
    const sh_net_spec *net = r->from;
    if (layer == (int)net->layer_count - 1) return r->target.splits_loss;
    for (size_t i = 0; i < net->layer_count; i++) {
        const sh_layer *reader = net->layers[i];
        for (int k = 0; k < reader->input_count; k++) {
            if (reader->inputs[k] != layer) continue;
            bool takes = (is_dense(reader) && tie_of(reader) == NULL) ||
                         is_conv_that_splits(reader) ||
                         (keeps_features_apart(reader) && parts_are_used(r, (int)i));
            if (!takes) return false;
        }
    }
    return true;
}

/* ---- Layers with weights ---- */

/* The new layer's output is the part `split` of the whole layer's. */
static void set_split(const sh_rewriting *r, const sh_layer *whole, sh_layer *layer,
                      const sh_cut *split) {
    sh_rewritten *value = sh_rewritten_of(r, whole->index);
    value->placement = SH_SPLIT;
    value->split = *split;
    value->whole = SH_NOT_FOUND;
    layer->slice = sh_cut_slice(split, &whole->out, (int)split->dim);
}

static sh_status sum_output(sh_rewriting *r, const sh_layer *whole) {
    sh_rewritten *value = sh_rewritten_of(r, whole->index);
    const sh_cut all = split_of(r, 1, 1, 0);
    int index;
    SH_TRY(sh_rewrite_redistribute(r, whole, SH_PARTIAL_SUM, SH_REPLICATED, &all, &index));
    value->index = value->whole = index;
    return SH_OK;
}

/* Weights (out, in, ...) cut along `dim`; a bias along its only dimension, or whole on worker 0. */
static void cut_params(const sh_rewriting *r, const sh_layer *whole, sh_layer *layer,
                       const sh_cut *split, int dim) {
    sh_slice weight = sh_cut_slice(split, &whole->param_specs[0].shape, dim);
    sh_rewrite_slice(r, whole, layer, 0, &weight);
    if (layer->param_count < 2) return;
    const sh_shape *shape = &whole->param_specs[1].shape;
    sh_slice bias = sh_cut_slice(split, shape, 0);
    if (dim != 0) bias.begin = 0, bias.end = shape->dim[0];
    sh_rewrite_slice(r, whole, layer, 1, &bias);
}

static void note_range(const sh_rewriting *r, const sh_layer *layer, const char *what,
                       const sh_cut *split) {
    sh_note(r, layer, "%s %ld-%ld of %ld", what, (long)sh_cut_begin(split, split->rank),
            (long)sh_cut_begin(split, split->rank + 1) - 1, (long)(split->units * split->unit));
}

/* The options of a dense layer or a convolution with another number of outputs. */
typedef union weight_options {
    sh_dense_spec dense;
    sh_conv_spec conv;
} weight_options;

static weight_options options_with(const sh_layer *layer, int64_t outputs, bool bias) {
    weight_options o;
    if (is_dense(layer)) {
        o.dense = *(const sh_dense_spec *)layer->options;
        o.dense.units = outputs;
        o.dense.bias = o.dense.bias && bias;
    } else {
        o.conv = *(const sh_conv_spec *)layer->options;
        o.conv.channels = outputs;
        o.conv.bias = o.conv.bias && bias;
    }
    return o;
}

static int64_t outputs_of(const sh_layer *layer) {
    return layer->out.dim[feature_dim(&layer->out)];
}

static sh_status split_rows(sh_rewriting *r, const sh_layer *layer) {
    const sh_rewritten *input = sh_rewritten_of(r, layer->inputs[0]);
    const sh_cut split = input->split;
    weight_options o = options_with(layer, outputs_of(layer), r->target.rank == 0);
    sh_layer *added;
    SH_TRY(sh_rewrite_layer(r, layer, layer->kind, &input->index, &o, &added));
    cut_params(r, layer, added, &split, 1);
    note_range(r, layer, is_dense(layer) ? "rows" : "input channels", &split);
    return sum_output(r, layer);
}

static sh_status split_columns(sh_rewriting *r, const sh_layer *layer, const sh_cut *split) {
    weight_options o = options_with(layer, sh_cut_own(split), true);
    int input;
    sh_layer *added;
    SH_TRY(sh_rewrite_replicated(r, layer->inputs[0], true, &input));
    SH_TRY(sh_rewrite_layer(r, layer, layer->kind, &input, &o, &added));
    if (tie_of(layer) == NULL) cut_params(r, layer, added, split, 0);
    set_split(r, layer, added, split);
    note_range(r, layer, is_dense(layer) ? "columns" : "output channels", split);
    return SH_OK;
}

static sh_status keep_whole(sh_rewriting *r, const sh_layer *layer, const char *why) {
    if (layer->param_count > 0) sh_note(r, layer, "whole: %s", why);
    return sh_rewrite_whole(r, layer);
}

/* The layer whose weight a dense layer uses, if that is split by vocabulary. */
static const sh_layer *split_owner(const sh_rewriting *r, const char *weight) {
    for (size_t i = 0; i < r->to->net.layer_count; i++) {
        const sh_layer *layer = r->to->net.layers[i];
        if (layer->param_count > 0 && strcmp(layer->param_specs[0].name, weight) == 0)
            return layer->kind == &sh_layer_kind_split_embedding ? layer : NULL;
    }
    return NULL;
}

static sh_status rewrite_tied(sh_rewriting *r, const sh_layer *layer) {
    const sh_layer *owner = split_owner(r, tie_of(layer));
    if (owner == NULL) return keep_whole(r, layer, "its weight is another layer's");
    const sh_cut *table = &((const sh_split_embedding_spec *)owner->options)->split;
    sh_cut split = split_of(r, table->units, table->unit, feature_dim(&layer->out));
    return split_columns(r, layer, &split);
}

/* ---- Attention: q, k and v of some heads ---- */

static const sh_layer *core_after(const sh_rewriting *r, const sh_layer *layer) {
    const sh_layer *reader;
    int readers = sh_readers(r->from, layer->index, &reader);
    return readers == 1 && reader->kind == &sh_layer_kind_attention_core ? reader : NULL;
}

static sh_status split_heads(sh_rewriting *r, const sh_layer *layer, const sh_layer *core) {
    const sh_attention_core_spec *o = core->options;
    int64_t width = core->out.dim[1];
    sh_cut split = split_of(r, o->heads, width / o->heads, 1);
    weight_options dense = options_with(layer, 3 * sh_cut_own(&split), true);
    int input;
    sh_layer *added;
    SH_TRY(sh_rewrite_replicated(r, layer->inputs[0], true, &input));
    SH_TRY(sh_rewrite_layer(r, layer, layer->kind, &input, &dense, &added));
    for (int k = 0; k < added->param_count; k++) {
        sh_slice part = sh_cut_slice(&split, &layer->param_specs[k].shape, 0);
        part.groups = 3;
        sh_rewrite_slice(r, layer, added, k, &part);
    }
    set_split(r, layer, added, &split);
    sh_note(r, layer, "q, k and v of heads %ld-%ld of %ld",
            (long)(sh_cut_begin(&split, split.rank) / split.unit),
            (long)(sh_cut_begin(&split, split.rank + 1) / split.unit) - 1, (long)o->heads);
    return SH_OK;
}

static sh_status rewrite_core(sh_rewriting *r, const sh_layer *layer) {
    const sh_rewritten *input = sh_rewritten_of(r, layer->inputs[0]);
    if (input->placement != SH_SPLIT) return sh_rewrite_whole(r, layer);
    const sh_cut split = input->split;
    sh_attention_core_spec o = *(const sh_attention_core_spec *)layer->options;
    o.heads = sh_cut_own(&split) / split.unit;
    sh_layer *added;
    SH_TRY(sh_rewrite_layer(r, layer, layer->kind, &input->index, &o, &added));
    set_split(r, layer, added, &split);
    return SH_OK;
}

/* ---- Every kind ---- */

static sh_status rewrite_weights(sh_rewriting *r, const sh_layer *layer) {
    int64_t outputs = outputs_of(layer), parts = r->target.parts;
    if (tie_of(layer) != NULL) return rewrite_tied(r, layer);
    if (sh_rewritten_of(r, layer->inputs[0])->placement == SH_SPLIT) return split_rows(r, layer);
    const sh_layer *core = is_dense(layer) ? core_after(r, layer) : NULL;
    if (core != NULL) {
        const sh_attention_core_spec *o = core->options;
        return o->heads >= parts ? split_heads(r, layer, core)
                                 : keep_whole(r, layer, "fewer heads than workers");
    }
    if (outputs < parts) return keep_whole(r, layer, "fewer outputs than workers");
    if (!parts_are_used(r, layer->index)) return keep_whole(r, layer, "its output is read whole");
    int dim = feature_dim(&layer->out);
    sh_cut split = is_dense(layer) ? split_of(r, outputs, 1, dim) : channel_split(r, outputs, dim);
    return split_columns(r, layer, &split);
}

static sh_status rewrite_embedding(sh_rewriting *r, const sh_layer *layer) {
    const sh_shape *table = &layer->param_specs[0].shape;
    if (table->dim[0] < r->target.parts) return keep_whole(r, layer, "fewer tokens than workers");
    const sh_embedding_spec *o = layer->options;
    const sh_cut split = split_of(r, table->dim[0], 1, 0);
    const sh_split_embedding_spec own = {.split = split, .width = o->width, .std = o->std};
    sh_layer *added;
    SH_TRY(sh_rewrite_layer(r, layer, &sh_layer_kind_split_embedding, layer->inputs, &own, &added));
    cut_params(r, layer, added, &split, 0);
    note_range(r, layer, "tokens", &split);
    return sum_output(r, layer);
}

/* The split of the output of a layer that keeps features apart: flattened, a channel is as many
 * features as it has pixels. */
static sh_cut split_after(const sh_layer *layer, const sh_cut *before) {
    sh_cut split = *before;
    const sh_shape *in = &layer->in[0];
    if (layer->kind == &sh_layer_kind_flatten && in->rank > 1)
        split.unit *= (int64_t)sh_shape_count(in) / in->dim[feature_dim(in)];
    split.dim = feature_dim(&layer->out);
    return split;
}

static sh_status rewrite_apart(sh_rewriting *r, const sh_layer *layer) {
    const sh_rewritten *input = sh_rewritten_of(r, layer->inputs[0]);
    bool flattens_tokens = layer->kind == &sh_layer_kind_flatten && layer->in[0].rank == 2;
    if (input->placement != SH_SPLIT || flattens_tokens) return sh_rewrite_whole(r, layer);
    const sh_cut before = input->split, after = split_after(layer, &before);
    sh_layer *added;
    SH_TRY(sh_rewrite_layer(r, layer, layer->kind, &input->index, layer->options, &added));
    for (int k = 0; k < added->param_count; k++) {
        sh_slice part = sh_cut_slice(&before, &layer->param_specs[k].shape, 0);
        sh_rewrite_slice(r, layer, added, k, &part);
    }
    for (int k = 0; k < added->state_count; k++)
        added->state_specs[k].slice = sh_cut_slice(&before, &layer->state_specs[k].shape, 0);
    set_split(r, layer, added, &after);
    if (layer->param_count > 0) note_range(r, layer, "channels", &before);
    return SH_OK;
}

static bool same_split(const sh_cut *a, const sh_cut *b) {
    return a->units == b->units && a->unit == b->unit && a->dim == b->dim;
}

/* Branches that are split alike are added part by part. */
static sh_status rewrite_add(sh_rewriting *r, const sh_layer *layer) {
    int inputs[SH_INPUTS_MOST];
    const sh_rewritten *first = sh_rewritten_of(r, layer->inputs[0]);
    const sh_cut split = first->split;
    for (int k = 0; k < layer->input_count; k++) {
        const sh_rewritten *input = sh_rewritten_of(r, layer->inputs[k]);
        if (input->placement != SH_SPLIT || !same_split(&input->split, &split))
            return sh_rewrite_whole(r, layer);
        inputs[k] = input->index;
    }
    sh_layer *added;
    SH_TRY(sh_rewrite_layer(r, layer, layer->kind, inputs, layer->options, &added));
    set_split(r, layer, added, &split);
    return SH_OK;
}

static sh_status rewrite_layer(sh_rewriting *r, const sh_layer *layer) {
    if (is_dense(layer) || is_conv_that_splits(layer)) return rewrite_weights(r, layer);
    if (layer->kind == &sh_layer_kind_embedding) return rewrite_embedding(r, layer);
    if (layer->kind == &sh_layer_kind_attention_core) return rewrite_core(r, layer);
    if (layer->kind == &sh_layer_kind_add) return rewrite_add(r, layer);
    if (keeps_features_apart(layer)) return rewrite_apart(r, layer);
    return keep_whole(r, layer,
                      layer->kind == &sh_layer_kind_conv ? "its channels are in groups"
                                                         : "its kind is not split");
}

/* What the loss reads: split logits where it can take them. */
static sh_status rewrite_output(sh_rewriting *r) {
    int last = (int)r->from->layer_count - 1, index;
    const sh_rewritten *output = sh_rewritten_of(r, last);
    if (output->placement == SH_SPLIT && r->target.splits_loss) {
        r->to->loss_is_split = true;
        r->to->outputs = output->split;
        return SH_OK;
    }
    return sh_rewrite_replicated(r, last, false, &index);
}

static sh_status rewrite_all(sh_rewriting *r) {
    for (size_t i = 0; i < r->from->layer_count; i++) SH_TRY(rewrite_layer(r, r->from->layers[i]));
    return r->from->layer_count > 0 ? rewrite_output(r) : SH_OK;
}

static sh_status rewrite(const sh_net_spec *whole, const sh_layout_target *target,
                         sh_layout_result *result_out) {
    sh_rewriting r;
    SH_TRY(sh_rewriting_init(&r, whole, target, SH_AXIS_TENSOR, result_out));
    return sh_rewriting_fini(&r, rewrite_all(&r));
}

const sh_layout_kind sh_layout_kind_tensor = {
    .name = "tensor",
    .help = "matrix products split by columns and rows, heads and vocabulary",
    .axis = SH_AXIS_TENSOR,
    .rewrite = rewrite,
};
