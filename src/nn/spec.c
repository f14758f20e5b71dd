/* Describing a net: adding layers in topological order, with names, connections, shapes and
 * parameters checked as each is added. Nothing here has memory for values; sh_net_build (net.c)
 * gives it. */
#include "nn/spec.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

/* Options may own strings, which their table knows how to free. */
static void layer_destroy(sh_layer *layer) {
    if (layer == NULL) return;
    if (layer->options != NULL) sh_options_fini(layer->kind->options, layer->options);
    sh_free(layer->options);
    sh_free(layer);
}

void sh_net_spec_fini(sh_net_spec *net) {
    for (size_t i = 0; i < net->layer_count; i++) layer_destroy(net->layers[i]);
    sh_free(net->layers);
    sh_index_fini(&net->by_name);
    sh_free(net->groups);
    sh_index_fini(&net->groups_by_name);
    sh_free(net->text);
    *net = (sh_net_spec){0};
}

static const char *layer_name_at(const void *layers, size_t at) {
    return ((sh_layer *const *)layers)[at]->name;
}

static const char *group_name_at(const void *groups, size_t at) {
    return ((const sh_layer_group *)groups)[at].name;
}

/* O(1) by hash index, as descriptions of thousands of layers ask for every `from`. */
int sh_net_spec_find(const sh_net_spec *net, const char *name) {
    if (strcmp(name, "input") == 0) return SH_NET_INPUT;
    size_t at = sh_index_find(&net->by_name, net->layers, layer_name_at, name);
    return at != SH_INDEX_NONE ? (int)at : SH_NOT_FOUND;
}

/* A layer goes before a group of the same name, which would be ambiguous otherwise. */
int sh_net_spec_find_group(const sh_net_spec *net, const char *name) {
    int found = sh_net_spec_find(net, name);
    if (found != SH_NOT_FOUND) return found;
    size_t at = sh_index_find(&net->groups_by_name, net->groups, group_name_at, name);
    return at != SH_INDEX_NONE ? net->groups[at].last : SH_NOT_FOUND;
}

/* Every prefix of a dotted name is a group: "h.0.attn.core" belongs to "h", "h.0" and "h.0.attn".
 * Reading a group means reading the layer of it that was added last. */
static sh_status enter_group(sh_net_spec *net, const char *name, size_t length, int layer) {
    char group[SH_LAYER_NAME];
    snprintf(group, sizeof group, "%.*s", (int)length, name);
    size_t at = sh_index_find(&net->groups_by_name, net->groups, group_name_at, group);
    if (at == SH_INDEX_NONE) {
        at = net->group_count;
        SH_TRY(sh_grow((void **)&net->groups, &net->group_capacity, at + 1, sizeof *net->groups));
        memcpy(net->groups[at].name, group, sizeof group);
        SH_TRY(sh_index_add(&net->groups_by_name, net->groups, group_name_at, at));
        net->group_count++;
    }
    net->groups[at].last = layer;
    return SH_OK;
}

/* Puts the layer at the end of the list: from here on it is found, by the names of its groups too.
 */
static sh_status enter(sh_net_spec *net, sh_layer *layer) {
    const char *name = layer->name;
    net->layers[net->layer_count] = layer;
    for (const char *dot = strchr(name, '.'); dot != NULL; dot = strchr(dot + 1, '.'))
        SH_TRY(enter_group(net, name, (size_t)(dot - name), layer->index));
    SH_TRY(sh_index_add(&net->by_name, net->layers, layer_name_at, net->layer_count));
    net->layer_count++;
    return SH_OK;
}

int sh_net_spec_last(const sh_net_spec *net) { return (int)net->layer_count - 1; }

const sh_shape *sh_net_spec_shape(const sh_net_spec *net, int index) {
    return index == SH_NET_INPUT ? &net->input.sample : &net->layers[index]->out;
}

/* An options struct of the kind with the same values; NULL stands for the defaults. */
static sh_status copy_options(const sh_layer_kind *kind, const void *options, void **copy_out) {
    if (kind->options_bytes == 0) return SH_OK;
    void *copy = sh_alloc(1, kind->options_bytes);
    if (copy == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for layer options");
    if (options != NULL && kind->options.count == 0) {  // plain data, of a layout's layer
        memcpy(copy, options, kind->options_bytes);
        *copy_out = copy;
        return SH_OK;
    }
    sh_status status = options != NULL ? sh_options_copy(kind->options, options, copy)
                                       : sh_options_init(kind->options, copy);
    if (status != SH_OK) {
        sh_free(copy);
        return status;
    }
    *copy_out = copy;
    return SH_OK;
}

/* Inputs are earlier layers, so that a net has no cycles by construction. Tokens are indices, on
 * which only an embedding can compute. */
static sh_status connect(const sh_net_spec *net, sh_layer *layer, const int *inputs,
                         int input_count) {
    const sh_layer_kind *kind = layer->kind;
    if (input_count < kind->inputs_least || input_count > kind->inputs_most)
        return SH_FAIL(SH_E_USAGE, "layer '%s' (%s) takes %d to %d inputs, found %d", layer->name,
                       kind->name, kind->inputs_least, kind->inputs_most, input_count);
    layer->input_count = input_count;
    for (int i = 0; i < input_count; i++) {
        SH_ASSERT(inputs[i] >= SH_NET_INPUT && inputs[i] < (int)net->layer_count);
        if (inputs[i] == SH_NET_INPUT && net->input.tokens && !kind->takes_tokens)
            return SH_FAIL(SH_E_SHAPE, "layer '%s' (%s) cannot read tokens; put an embedding first",
                           layer->name, kind->name);
        layer->inputs[i] = inputs[i];
        layer->in[i] = *sh_net_spec_shape(net, inputs[i]);
    }
    return SH_OK;
}

/* Names are unique because parameters, checkpoints and random streams are named by them. */
static sh_status check_name(const sh_net_spec *net, const char *name) {
    if (name[0] == '\0' || strlen(name) >= SH_LAYER_NAME)
        return SH_FAIL(SH_E_USAGE, "layer name '%.80s' must have 1 to %d characters", name,
                       SH_LAYER_NAME - 1);
    if (sh_net_spec_find(net, name) != SH_NOT_FOUND)
        return SH_FAIL(SH_E_USAGE, "two layers are called '%s'", name);
    return SH_OK;
}

/* The limit of 2^31 values of a sample keeps products with the batch size far from overflow. */
static sh_status check_output(const sh_layer *layer) {
    size_t count;
    if (!sh_shape_count_checked(&layer->out, &count) || count == 0 || count > (size_t)1 << 31)
        return SH_FAIL(SH_E_SHAPE, "layer '%s' (%s) has an impossible output size", layer->name,
                       layer->kind->name);
    return SH_OK;
}

/* Options, connections, shapes and parameters of a layer that has its kind, name and index. */
static sh_status describe(const sh_net_spec *net, sh_layer *layer, const int *inputs,
                          int input_count, const void *options) {
    SH_TRY(copy_options(layer->kind, options, &layer->options));
    SH_TRY(connect(net, layer, inputs, input_count));
    SH_TRY(layer->kind->declare(net, layer));
    return check_output(layer);
}

/* The expanding kind gets options of its own to read; the layers it adds copy theirs. */
static sh_status expand(sh_net_spec *net, const sh_layer_kind *kind, const char *name,
                        const int *inputs, int input_count, const void *options) {
    void *own = NULL;
    SH_TRY(copy_options(kind, options, &own));
    sh_status status = kind->expand(net, name, inputs, input_count, own);
    sh_options_fini(kind->options, own);
    sh_free(own);
    return status;
}

/* The layer enters the list last, so that a failure leaves the description as it was. */
sh_status sh_net_spec_add(sh_net_spec *net, const sh_layer_kind *kind, const char *name,
                          const int *inputs, int input_count, const void *options, int *index_out) {
    int before = sh_net_spec_last(net);
    if (inputs == NULL) inputs = &before, input_count = 1;
    SH_TRY(check_name(net, name));
    if (kind->expand != NULL) {
        SH_TRY(expand(net, kind, name, inputs, input_count, options));
        if (index_out != NULL) *index_out = sh_net_spec_last(net);
        return SH_OK;
    }
    SH_TRY(sh_grow((void **)&net->layers, &net->layer_capacity, net->layer_count + 1,
                   sizeof *net->layers));
    sh_layer *layer = sh_alloc(1, sizeof *layer);
    if (layer == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for layer '%s'", name);
    layer->kind = kind;
    layer->index = (int)net->layer_count;
    layer->stream = sh_rng_name(name);
    snprintf(layer->name, sizeof layer->name, "%s", name);
    sh_status status = describe(net, layer, inputs, input_count, options);
    if (status == SH_OK) status = enter(net, layer);
    if (status != SH_OK) {
        layer_destroy(layer);
        return status;
    }
    if (index_out != NULL) *index_out = layer->index;
    return SH_OK;
}

/* "LAYER.name", as PyTorch names them. Room is certain: layer names are shorter than SH_LAYER_NAME.
 */
static sh_status name_param(const sh_layer *layer, const char *name, sh_param_spec *spec) {
    int length = snprintf(spec->name, sizeof spec->name, "%s.%s", layer->name, name);
    SH_ASSERT(length > 0 && (size_t)length < sizeof spec->name);
    size_t count;
    if (!sh_shape_count_checked(&spec->shape, &count) || count == 0)
        return SH_FAIL(SH_E_SHAPE, "parameter '%s' has an impossible size", spec->name);
    return SH_OK;
}

sh_status sh_layer_param(sh_layer *layer, const char *name, sh_shape shape, bool decays,
                         sh_init init) {
    SH_ASSERT(layer->param_count < SH_LAYER_PARAMS_MOST);
    sh_param_spec *spec = &layer->param_specs[layer->param_count++];
    *spec = (sh_param_spec){.shape = shape, .decays = decays, .init = init};
    return name_param(layer, name, spec);
}

/* A state is constant at first: it has no gradient, and no rule for drawing. */
sh_status sh_layer_state(sh_layer *layer, const char *name, sh_shape shape, float initial) {
    SH_ASSERT(layer->state_count < SH_LAYER_PARAMS_MOST);
    sh_param_spec *spec = &layer->state_specs[layer->state_count++];
    *spec = (sh_param_spec){.shape = shape,
                            .init = {.rule = SH_INIT_CONSTANT, .scale = (double)initial}};
    return name_param(layer, name, spec);
}

/* A parameter by its full name, which is its layer's, a dot and its own. */
static const sh_param_spec *find_param(const sh_net_spec *net, const char *full_name) {
    const char *dot = strrchr(full_name, '.');
    char name[SH_LAYER_NAME];
    if (dot == NULL || (size_t)(dot - full_name) >= sizeof name) return NULL;
    snprintf(name, sizeof name, "%.*s", (int)(dot - full_name), full_name);
    int index = sh_net_spec_find(net, name);
    for (int k = 0; index >= 0 && k < net->layers[index]->param_count; k++) {
        const sh_param_spec *spec = &net->layers[index]->param_specs[k];
        if (strcmp(spec->name, full_name) == 0) return spec;
    }
    return NULL;
}

/* Copies the declaration, initial rule and decay included, so that a range of the net that holds
 * only this layer can draw the same values. */
sh_status sh_layer_share(const sh_net_spec *net, sh_layer *layer, const char *full_name,
                         sh_shape shape) {
    const sh_param_spec *param = find_param(net, full_name);
    char want[SH_SHAPE_TEXT], have[SH_SHAPE_TEXT];
    if (param == NULL)
        return SH_FAIL(SH_E_USAGE, "layer '%s' ties its weight to '%s', which does not exist",
                       layer->name, full_name);
    if (!sh_shape_equal(&param->shape, &shape))
        return SH_FAIL(SH_E_SHAPE, "layer '%s' wants a weight of %s, but '%s' is %s", layer->name,
                       sh_shape_text(&shape, want), full_name, sh_shape_text(&param->shape, have));
    SH_ASSERT(layer->param_count < SH_LAYER_PARAMS_MOST);
    layer->param_specs[layer->param_count] = *param;
    layer->param_specs[layer->param_count++].tied = true;
    return SH_OK;
}
