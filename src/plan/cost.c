#include "plan/cost.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "nn/layers/options.h"

/* ---- The net --------------------------------------------------------------------------------- */

static bool is_matrix(const sh_layer *layer) {
    return layer->kind == &sh_layer_kind_conv || layer->kind == &sh_layer_kind_dense ||
           layer->kind == &sh_layer_kind_embedding;
}

static bool is_pooling(const sh_layer *layer) {
    return layer->kind == &sh_layer_kind_maxpool || layer->kind == &sh_layer_kind_avgpool;
}

static double weights_of(const sh_layer *layer) {
    double sum = 0;
    for (int i = 0; i < layer->param_count; i++)
        if (!layer->param_specs[i].tied)
            sum += (double)sh_shape_count(&layer->param_specs[i].shape);
    return sum;
}

/* The only layer that reads layer `index`; -1: none or several. */
static int reader_of(const sh_net_spec *spec, int index) {
    int reader = -1;
    for (int i = index + 1; i < (int)spec->layer_count; i++)
        for (int k = 0; k < spec->layers[i]->input_count; k++) {
            if (spec->layers[i]->inputs[k] != index) continue;
            if (reader >= 0) return -1;
            reader = i;
        }
    return reader;
}

/* What travels of a layer's output: what activation and pooling leave of it for the next matrix. */
static double travels(const sh_net_spec *spec, int index) {
    for (;;) {
        int next = reader_of(spec, index);
        if (next < 0 || is_matrix(spec->layers[next])) break;
        index = next;
    }
    return (double)sh_shape_count(&spec->layers[index]->out);
}

static void set_window(const sh_layer *layer, sh_cost_layer *out) {
    out->kernel[0] = out->kernel[1] = out->stride = out->dilation = 1;
    if (layer->kind == &sh_layer_kind_conv) {
        const sh_conv_spec *o = layer->options;
        out->kernel[0] = o->kernel;
        out->kernel[1] = o->kernel_w > 0 ? o->kernel_w : o->kernel;
        out->stride = o->stride;
        out->dilation = o->dilation;
    } else if (is_pooling(layer)) {
        const sh_pool_spec *o = layer->options;
        out->kernel[0] = out->kernel[1] = o->kernel;
        out->stride = o->stride > 0 ? o->stride : o->kernel;
    }
}

sh_status sh_cost_net_init(sh_cost_net *net, const sh_net_spec *spec) {
    *net = (sh_cost_net){.layers = sh_alloc(spec->layer_count + 1, sizeof *net->layers)};
    if (net->layers == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a net's costs");
    sh_cost_layer *last = NULL;  // the last matrix
    for (size_t i = 0; i < spec->layer_count; i++) {
        const sh_layer *layer = spec->layers[i];
        if (!is_matrix(layer) && last != NULL) last->weights += weights_of(layer);
        if (!is_matrix(layer) && !is_pooling(layer)) continue;
        sh_cost_layer *out = &net->layers[net->count++];
        *out = (sh_cost_layer){.name = layer->name,
                               .image = layer->in[0].rank == 3,
                               .weighted = is_matrix(layer),
                               .dense = layer->kind == &sh_layer_kind_dense,
                               .first = last == NULL,
                               .x = layer->in[0],
                               .y = layer->out};
        set_window(layer, out);
        if (!out->weighted) continue;
        out->weights = weights_of(layer);
        out->in = (double)sh_shape_count(&layer->in[0]);
        out->out = travels(spec, (int)i);
        last = out;
    }
    return SH_OK;
}

void sh_cost_net_fini(sh_cost_net *net) {
    sh_free(net->layers);
    *net = (sh_cost_net){0};
}

/* ---- Terms ----------------------------------------------------------------------------------- */

static double logarithm(int64_t parts) { return ceil(log2((double)parts)); }

double sh_cost_seconds(const sh_cost_term *term, const sh_link *link) {
    double share = term->parts > 0 ? (double)(term->parts - 1) / (double)term->parts : 1;
    double words = term->batch * share * term->words;
    return term->times * (term->alphas * link->alpha_s + words * 4 * link->beta_s);
}

const char *sh_cost_term_text(const sh_cost_term *term, char text_out[SH_COST_TERM_TEXT]) {
    char batch[32] = "", share[64] = "", inside[96];
    if (term->batch != 1) sh_snprintf(batch, sizeof batch, "%.9g * ", term->batch);
    if (term->parts > 0)
        snprintf(share, sizeof share, "%lld/%lld * ", (long long)term->parts - 1,
                 (long long)term->parts);
    sh_snprintf(inside, sizeof inside, "%.9g a + %s%s%.12g b", term->alphas, batch, share,
                term->words);
    if (term->times == 1)
        snprintf(text_out, SH_COST_TERM_TEXT, "%s", inside);
    else
        snprintf(text_out, SH_COST_TERM_TEXT, "%d (%s)", term->times, inside);
    return text_out;
}

/* One halo along dimension `axis` (0 rows, 1 columns) of values with this shape. */
static sh_cost_term halo(const char *what, const sh_cost_grid *grid, int axis, double batch,
                         int64_t crossing, double kernel, const sh_shape *shape) {
    int64_t parts = grid->space[axis];
    double lines = parts == 2 ? floor((double)(crossing + 1) * 0.5) : (double)crossing;
    double across = (double)shape->dim[2 - axis] / (double)grid->space[1 - axis];
    return (sh_cost_term){.what = what,
                          .times = 1,
                          .alphas = parts == 2 ? 1 : 2,
                          .batch = batch / (double)grid->data,
                          .words = lines * across * (double)shape->dim[0],
                          .documents = kernel / 2 * across * (double)shape->dim[0]};
}

static int halo_terms(const sh_cost_layer *l, const sh_cost_grid *grid, double batch,
                      sh_cost_term *out) {
    static const char *const of_x[] = {"halo X, rows", "halo X, columns"};
    static const char *const of_y[] = {"halo dY, rows", "halo dY, columns"};
    int count = 0;
    for (int axis = 0; axis < 2 && l->image; axis++) {
        if (grid->space[axis] == 1) continue;
        double kernel = (double)l->kernel[axis];
        int64_t reach = l->dilation * (l->kernel[axis] - 1);
        int64_t of_input = reach + 1 - l->stride, of_output = reach / l->stride;
        if (l->y.rank != 3) of_output = 0;
        if (of_input > 0)
            out[count++] = halo(of_x[axis], grid, axis, batch, of_input, kernel, &l->x);
        if (of_output > 0 && !l->first)
            out[count++] = halo(of_y[axis], grid, axis, batch, of_output, kernel, &l->y);
    }
    return count;
}

int sh_cost_terms(const sh_cost_layer *l, const sh_cost_grid *grid, double batch,
                  sh_cost_term terms_out[SH_COST_TERMS_MOST]) {
    int count = 0;
    int64_t t = grid->tensor, sums = grid->data;
    double share = batch / (double)grid->data;
    // Dense layers of a grid with space are computed by all of it alike.
    if (l->image) sums *= grid->space[0] * grid->space[1];
    if (l->weighted && t > 1)
        terms_out[count++] = (sh_cost_term){"all-gather Y", 1, logarithm(t), share, l->out, t, 0};
    if (l->weighted && t > 1 && !l->first)
        terms_out[count++] = (sh_cost_term){"all-reduce dX", 2, logarithm(t), share, l->in, t, 0};
    if (l->weighted && sums > 1 && l->weights > 0)
        terms_out[count++] =
            (sh_cost_term){"all-reduce dW", 2, logarithm(sums), 1, l->weights / (double)t, sums, 0};
    return count + halo_terms(l, grid, batch, terms_out + count);
}

double sh_cost_layer_seconds(const sh_cost_layer *layer, const sh_cost_layout *layout, double batch,
                             const sh_link *link) {
    sh_cost_term terms[SH_COST_TERMS_MOST];
    int count = sh_cost_terms(layer, layer->image ? &layout->image : &layout->dense, batch, terms);
    double sum = 0;
    for (int i = 0; i < count; i++) sum += sh_cost_seconds(&terms[i], link);
    return sum;
}

double sh_cost_net_seconds(const sh_cost_net *net, const sh_cost_layout *layout, double batch,
                           const sh_link *link) {
    double sum = 0;
    for (size_t i = 0; i < net->count; i++)
        sum += sh_cost_layer_seconds(&net->layers[i], layout, batch, link);
    return sum;
}

/* A worker has its samples and its part of the image, and needs all values of the samples of its
 * place in the dense grid. */
bool sh_cost_between(const sh_cost_net *net, const sh_cost_layout *layout, double batch,
                     sh_cost_term *term_out) {
    const sh_cost_grid *from = &layout->image, *to = &layout->dense;
    int64_t pieces = from->data * from->space[0] * from->space[1];
    if (pieces <= to->data) return false;
    for (size_t i = 1; i < net->count; i++) {
        const sh_cost_layer *l = &net->layers[i];
        if (l->image || !net->layers[i - 1].image) continue;
        double ratio = (double)pieces / (double)to->data;
        *term_out = (sh_cost_term){.what = "all-gather X",
                                   .times = 1,
                                   .alphas = ceil(log2(ratio)),
                                   .batch = batch / (double)to->data * (1 - 1 / ratio),
                                   .words = l->in};
        return true;
    }
    return false;
}

double sh_cost_model_wins_below(const sh_cost_layer *layer) {
    return 2 * layer->weights / (layer->out + 2 * layer->in);
}
