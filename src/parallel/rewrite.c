/* What layouts share: the rewritten net grows layer by layer beside the whole one, with the
 * placement of every value, and layers that redistribute a value are put in when a reader first
 * needs them. */
#include "parallel/rewrite.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

void sh_layout_result_fini(sh_layout_result *result) {
    sh_net_spec_fini(&result->net);
    sh_free(result->notes);
    *result = (sh_layout_result){0};
}

/* NULL stays NULL. */
static sh_status copy_text(const char *text, char **copy_out) {
    if (text == NULL) return SH_OK;
    size_t bytes = strlen(text) + 1;
    *copy_out = sh_alloc(bytes, 1);
    if (*copy_out == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a layout");
    memcpy(*copy_out, text, bytes);
    return SH_OK;
}

sh_status sh_rewriting_init(sh_rewriting *r, const sh_net_spec *from,
                            const sh_layout_target *target, sh_axis axis, sh_layout_result *to) {
    *to = (sh_layout_result){.net = {.input = from->input}};
    *r = (sh_rewriting){.from = from, .target = *target, .axis = axis, .to = to};
    r->values = sh_alloc(from->layer_count + 1, sizeof *r->values);
    to->notes = sh_alloc(from->layer_count, sizeof *to->notes);
    if (r->values == NULL || to->notes == NULL)
        return sh_rewriting_fini(r, SH_FAIL(SH_E_MEMORY, "out of memory for a layout"));
    r->values[0] =  // the data is whole on every worker
        (sh_rewritten){.index = SH_NET_INPUT, .whole = SH_NET_INPUT, .summed = SH_NOT_FOUND};
    sh_status status = copy_text(from->text, &to->net.text);
    return status == SH_OK ? SH_OK : sh_rewriting_fini(r, status);
}

/* Frees what rewriting needs; on failure the result, too, which is then zero. */
sh_status sh_rewriting_fini(sh_rewriting *r, sh_status status) {
    sh_free(r->values);
    r->values = NULL;
    if (status != SH_OK) sh_layout_result_fini(r->to);
    return status;
}

void sh_note(const sh_rewriting *r, const sh_layer *layer, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    // Cut off at the end of the note, never beyond.
    sh_vsnprintf(sh_note_of(r, layer)->text, sizeof sh_note_of(r, layer)->text, format, arguments);
    va_end(arguments);
}

/* A value without parameters before it has no gradient to exchange. */
static bool is_trained(const sh_rewriting *r, const sh_layer *layer) {
    bool trained = layer->param_count > 0;
    for (int k = 0; k < layer->input_count; k++)
        trained = trained || sh_rewritten_of(r, layer->inputs[k])->trained;
    return trained;
}

/* A tied weight keeps the part of the layer that has it. */
static void keep_starts(const sh_layer *whole, sh_layer *layer) {
    int own = 0;
    for (int k = 0; k < whole->param_count && own < layer->param_count; k++) {
        if (strcmp(whole->param_specs[k].name, layer->param_specs[own].name) != 0) continue;
        layer->param_specs[own++].init = whole->param_specs[k].init;
    }
}

/* Names stay, so that parameters, random streams and checkpoints are those of the whole net. */
sh_status sh_rewrite_layer(sh_rewriting *r, const sh_layer *layer, const sh_layer_kind *kind,
                           const int *inputs, const void *options, sh_layer **layer_out) {
    int index;
    SH_TRY(sh_net_spec_add(&r->to->net, kind, layer->name, inputs, layer->input_count, options,
                           &index));
    *layer_out = r->to->net.layers[index];
    keep_starts(layer, *layer_out);
    *sh_rewritten_of(r, layer->index) = (sh_rewritten){
        .index = index, .whole = index, .summed = SH_NOT_FOUND, .trained = is_trained(r, layer)};
    return SH_OK;
}

/* Every worker computes the whole layer: inputs are replicated first. */
sh_status sh_rewrite_whole(sh_rewriting *r, const sh_layer *layer) {
    int inputs[SH_INPUTS_MOST];
    sh_layer *added;
    for (int k = 0; k < layer->input_count; k++)
        // False: gradients are equal on all workers already.
        SH_TRY(sh_rewrite_replicated(r, layer->inputs[k], false, &inputs[k]));
    return sh_rewrite_layer(r, layer, layer->kind, inputs, layer->options, &added);
}

/* The declared shape must be that of the slice: the layer was given options of its part. */
void sh_rewrite_slice(const sh_rewriting *r, const sh_layer *whole, sh_layer *layer, int index,
                      const sh_slice *part) {
    (void)r;
    (void)whole;
    sh_param_spec *spec = &layer->param_specs[index];
    spec->slice = *part;
    sh_shape expected = sh_slice_shape(part, &part->whole);
    SH_ASSERT(sh_shape_equal(&spec->shape, &expected));
}

/* Bytes per sample that a worker sends in an all-reduce, or an all-gather, of a value. */
static double sent_bytes(const sh_rewriting *r, const sh_shape *sample, bool reduce) {
    double parts = r->target.parts, bytes = (double)sh_shape_count(sample) * sizeof(float);
    // Ring: a share (parts - 1) / parts leaves each worker, twice for a sum.
    return (reduce ? 2 : 1) * bytes * (parts - 1) / parts;
}

/* Adds a layer called LAYER.SUFFIX; its name says which value it redistributes. */
static sh_status add_after(sh_rewriting *r, int layer, const char *suffix,
                           const sh_layer_kind *kind, int input, const sh_cut *split,
                           int *index_out) {
    char name[2 * SH_LAYER_NAME];
    const char *of = layer == SH_NET_INPUT ? "input" : r->from->layers[layer]->name;
    snprintf(name, sizeof name, "%s.%s", of, suffix);
    return sh_net_spec_add(&r->to->net, kind, name, &input, 1, split, index_out);
}

/* Notes what it sends, for explain and the planner. */
sh_status sh_rewrite_redistribute(sh_rewriting *r, const sh_layer *layer, sh_placement from,
                                  sh_placement to, const sh_cut *split, int *index_out) {
    sh_rewritten *value = sh_rewritten_of(r, layer->index);
    const sh_layer_kind *kind = sh_redistribution(from, to);
    SH_ASSERT(kind != NULL);
    const char *suffix = from == SH_PARTIAL_SUM ? "sum" : from == SH_SPLIT ? "gather" : "take";
    SH_TRY(add_after(r, layer->index, suffix, kind, value->index, split, index_out));
    sh_layout_note *note = sh_note_of(r, layer);
    if (from != SH_REPLICATED)
        note->forward_bytes += sent_bytes(r, &layer->out, from == SH_PARTIAL_SUM);
    else if (value->trained)
        note->backward_bytes += sent_bytes(r, &layer->out, false);
    return SH_OK;
}

/* Both versions are made once and shared by all readers. */
sh_status sh_rewrite_replicated(sh_rewriting *r, int layer, bool sums, int *index_out) {
    sh_rewritten *value = sh_rewritten_of(r, layer);
    if (value->whole == SH_NOT_FOUND)
        SH_TRY(sh_rewrite_redistribute(r, r->from->layers[layer], value->placement, SH_REPLICATED,
                                       &value->split, &value->whole));
    *index_out = value->whole;
    if (!sums || !value->trained) return SH_OK;  // without gradient there is nothing to sum
    if (value->summed == SH_NOT_FOUND) {
        const sh_cut all = {.units = 1,  // the sum is of whole values: one unit
                            .unit = 1,
                            .parts = r->target.parts,
                            .rank = r->target.rank,
                            .axis = r->axis};
        SH_TRY(add_after(r, layer, "sum_gradients", &sh_layer_kind_sum_gradients, value->whole,
                         &all, &value->summed));
        r->to->notes[layer].backward_bytes += sent_bytes(r, &r->from->layers[layer]->out, true);
    }
    *index_out = value->summed;
    return SH_OK;
}

/* Readers of a layer's output, each input counted; `*first_out` is the first in layer order. */
int sh_readers(const sh_net_spec *net, int layer, const sh_layer **first_out) {
    int readers = 0;
    *first_out = NULL;
    for (size_t i = 0; i < net->layer_count; i++)
        for (int k = 0; k < net->layers[i]->input_count; k++) {
            if (net->layers[i]->inputs[k] != layer) continue;
            if (readers++ == 0) *first_out = net->layers[i];
        }
    return readers;
}
