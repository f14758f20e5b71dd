/* Domain parallelism: every worker of the dimension `space` has some rows of all images (Gholami et
 * al., SPAA 2018; DistConv, arXiv:1903.06681). Windowed layers exchange halos; what treats pixels
 * apart needs nothing; batchnorm and the mean over the image sum over the workers. Where rows end
 * (flatten, dense layers) the image is gathered, and every worker computes the rest alike. An image
 * with too few rows for its halos is gathered before that layer; if that is the first, the layout
 * is refused. Gradients of parameters are summed over the workers before anybody else sees them, so
 * that they are replicated like the parameters. */
#include <string.h>

#include "parallel/rewrite.h"
#include "parallel/space.h"

/* Rows of images, uncut below one row; dimension 1 of (channels, rows, columns). */
static sh_cut cut_of(const sh_rewriting *r, int64_t rows) {
    return (sh_cut){.units = rows,
                    .unit = 1,
                    .parts = r->target.parts,
                    .rank = r->target.rank,
                    .dim = 1,
                    .axis = r->axis};
}

/* Output rows of this worker: readers redistribute what they need whole. */
static void set_split(const sh_rewriting *r, const sh_layer *whole, sh_layer *layer) {
    sh_rewritten *value = sh_rewritten_of(r, whole->index);
    value->placement = SH_SPLIT;
    value->split = cut_of(r, whole->out.dim[1]);
    value->whole = SH_NOT_FOUND;
    layer->slice = sh_cut_slice(&value->split, &whole->out, 1);
}

/* Kinds whose output pixel depends on the same pixel alone: they need no halo. */
static bool keeps_pixels_apart(const sh_layer *layer) {
    static const sh_layer_kind *const kinds[] = {
        &sh_layer_kind_relu,     &sh_layer_kind_gelu,    &sh_layer_kind_silu,
        &sh_layer_kind_tanh,     &sh_layer_kind_sigmoid, &sh_layer_kind_dropout,
        &sh_layer_kind_droppath, &sh_layer_kind_add,     &sh_layer_kind_concat,
    };
    for (size_t i = 0; i < SH_COUNT(kinds); i++)
        if (layer->kind == kinds[i]) return true;
    return false;
}

/* The rows of an input: the data is cut when it is first read. */
static sh_status rows_of(sh_rewriting *r, int layer, int *index_out) {
    sh_rewritten *value = sh_rewritten_of(r, layer);
    if (layer == SH_NET_INPUT && value->placement == SH_REPLICATED) {
        const sh_cut cut = cut_of(r, r->from->input.sample.dim[1]);
        int input = SH_NET_INPUT;
        SH_TRY(sh_net_spec_add(&r->to->net, sh_redistribution(SH_REPLICATED, SH_SPLIT),
                               "input.rows", &input, 1, &cut, &value->index));
        value->placement = SH_SPLIT;
        value->split = cut;
    }
    *index_out = value->index;
    return SH_OK;
}

/* All inputs are images whose rows are spread, or may be. */
static bool has_rows(const sh_rewriting *r, const sh_layer *layer) {
    for (int k = 0; k < layer->input_count; k++) {
        const sh_rewritten *input = sh_rewritten_of(r, layer->inputs[k]);
        bool data = layer->inputs[k] == SH_NET_INPUT;
        if (layer->in[k].rank != 3 || (input->placement != SH_SPLIT && !data)) return false;
        // Every worker needs a row at least.
        if (layer->in[k].dim[1] < r->target.parts) return false;
    }
    return true;
}

/* Rows alone matter, as columns are whole on every worker. */
static sh_window window_of(const sh_layer *layer) {
    if (layer->kind == &sh_layer_kind_conv) {
        const sh_conv_spec *o = layer->options;
        return (sh_window){o->kernel, o->stride, o->dilation, o->padding};
    }
    const sh_pool_spec *o = layer->options;
    // Pools step by their kernel unless told otherwise; no dilation.
    return (sh_window){o->kernel, o->stride > 0 ? o->stride : o->kernel, 1, o->padding};
}

static sh_space_cut space_cut(const sh_rewriting *r, const sh_layer *layer) {
    return (sh_space_cut){.window = window_of(layer),
                          .in_rows = layer->in[0].dim[1],
                          .out_rows = layer->out.dim[1],
                          .parts = r->target.parts,
                          .rank = r->target.rank};
}

static bool is_windowed(const sh_layer *layer) {
    return layer->kind == &sh_layer_kind_conv || layer->kind == &sh_layer_kind_maxpool ||
           layer->kind == &sh_layer_kind_avgpool;
}

static bool reaches_neighbours_only(const sh_rewriting *r, const sh_layer *layer) {
    const sh_space_cut cut = space_cut(r, layer);
    if (cut.out_rows < cut.parts) return false;  // some worker would compute nothing
    return layer->kind == &sh_layer_kind_conv ? sh_space_conv_reaches(&cut)
                                              : sh_space_pool_reaches(&cut);
}

/* Conv or pool with halos. Reads the rows of its input, gives those of its output. */
static sh_status rewrite_windowed(sh_rewriting *r, const sh_layer *layer) {
    int input;
    sh_layer *added;
    SH_TRY(rows_of(r, layer->inputs[0], &input));
    const sh_space_cut cut = space_cut(r, layer);
    sh_halo halo = sh_halo_of(&cut.window, cut.in_rows, cut.out_rows, cut.parts, cut.rank);
    if (layer->kind == &sh_layer_kind_conv) {
        sh_space_conv_spec o = {.conv = *(const sh_conv_spec *)layer->options, .cut = cut};
        o.conv.init = NULL;  // parameters start as those of the whole layer
        SH_TRY(sh_rewrite_layer(r, layer, &sh_layer_kind_space_conv, &input, &o, &added));
    } else {
        const sh_space_pool_spec o = {.pool = *(const sh_pool_spec *)layer->options, .cut = cut};
        const sh_layer_kind *kind = layer->kind == &sh_layer_kind_maxpool
                                        ? &sh_layer_kind_space_maxpool
                                        : &sh_layer_kind_space_avgpool;
        SH_TRY(sh_rewrite_layer(r, layer, kind, &input, &o, &added));
    }
    set_split(r, layer, added);
    sh_note(r, layer, "%ld of %ld rows, halo %ld above and %ld below", (long)halo.own,
            (long)cut.in_rows, (long)halo.top, (long)halo.bottom);
    return SH_OK;
}

/* Mean over the image: workers' shares are partial sums, added by an all-reduce. */
static sh_status rewrite_mean(sh_rewriting *r, const sh_layer *layer) {
    int input, index;
    sh_layer *added;
    SH_TRY(rows_of(r, layer->inputs[0], &input));
    const sh_space_mean_spec o = {
        // No window: rows alone.
        .cut = {.in_rows = layer->in[0].dim[1], .parts = r->target.parts, .rank = r->target.rank}};
    SH_TRY(sh_rewrite_layer(r, layer, &sh_layer_kind_space_mean, &input, &o, &added));
    const sh_cut all = {
        .units = 1, .unit = 1, .parts = r->target.parts, .rank = r->target.rank, .axis = r->axis};
    SH_TRY(sh_rewrite_redistribute(r, layer, SH_PARTIAL_SUM, SH_REPLICATED, &all, &index));
    sh_rewritten *value = sh_rewritten_of(r, layer->index);
    value->index = value->whole = index;  // readers see the sum
    sh_note(r, layer, "mean of the workers' rows");
    return SH_OK;
}

/* Layers without a halo: the output is split by rows like the inputs. */
static sh_status rewrite_alike(sh_rewriting *r, const sh_layer *layer, const sh_layer_kind *kind) {
    int inputs[SH_INPUTS_MOST];
    sh_layer *added;
    for (int k = 0; k < layer->input_count; k++) SH_TRY(rows_of(r, layer->inputs[k], &inputs[k]));
    SH_TRY(sh_rewrite_layer(r, layer, kind, inputs, layer->options, &added));
    set_split(r, layer, added);
    return SH_OK;
}

static sh_status refuse(const sh_rewriting *r, const sh_layer *layer) {
    SH_FAIL(SH_E_USAGE,
            "the images of %ld rows are too small for space=%d: layer '%s' would need more than "
            "its neighbours' rows",
            (long)r->from->input.sample.dim[1], r->target.parts, layer->name);
    return sh_error_hint("use fewer workers along space, or larger images");
}

static sh_status rewrite_layer(sh_rewriting *r, const sh_layer *layer) {
    bool rows = has_rows(r, layer);
    bool first = layer->inputs[0] == SH_NET_INPUT;
    if (is_windowed(layer)) {
        bool fits = rows && reaches_neighbours_only(r, layer);
        if (fits) return rewrite_windowed(r, layer);
        if (first) return refuse(r, layer);
    }
    // Images end here: features are replicated from now on.
    if (rows && layer->kind == &sh_layer_kind_globalpool) return rewrite_mean(r, layer);
    if (rows && layer->kind == &sh_layer_kind_batchnorm)
        return rewrite_alike(r, layer, &sh_layer_kind_space_batchnorm);
    if (rows && keeps_pixels_apart(layer)) return rewrite_alike(r, layer, layer->kind);
    if (layer->param_count > 0) sh_note(r, layer, "whole: its input is gathered");
    return sh_rewrite_whole(r, layer);
}

/* The output is replicated: the loss is computed alike on every worker. */
static sh_status rewrite_all(sh_rewriting *r) {
    int index;
    for (size_t i = 0; i < r->from->layer_count; i++) SH_TRY(rewrite_layer(r, r->from->layers[i]));
    return sh_rewrite_replicated(r, (int)r->from->layer_count - 1, false, &index);
}

/* Needs images, samples of (channels, rows, columns). */
static sh_status rewrite(const sh_net_spec *whole, const sh_layout_target *target,
                         sh_layout_result *result_out) {
    if (whole->input.sample.rank != 3) {
        SH_FAIL(SH_E_USAGE, "space splits images, and this data has none");
        return sh_error_hint("use --layout tensor=%d, or data=%d", target->parts, target->parts);
    }
    sh_rewriting r;
    SH_TRY(sh_rewriting_init(&r, whole, target, SH_AXIS_SPACE, result_out));
    return sh_rewriting_fini(&r, rewrite_all(&r));
}

const sh_layout_kind sh_layout_kind_space = {
    .name = "space",
    .help = "images split by rows, with exchange of halos",
    .axis = SH_AXIS_SPACE,
    .rewrite = rewrite,
};
