#include "nn/net.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/memory.h"

sh_status sh_net_create(const sh_net_input *input, sh_net **net_out) {
    sh_net *net = sh_alloc(1, sizeof *net);
    if (net == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a net");
    net->input = *input;
    *net_out = net;
    return SH_OK;
}

static void layer_destroy(sh_layer *layer) {
    if (layer == NULL) return;
    if (layer->options != NULL) sh_options_fini(layer->kind->options, layer->options);
    sh_free(layer->options);
    sh_free(layer);
}

void sh_net_destroy(sh_net *net) {
    if (net == NULL) return;
    for (size_t i = 0; i < net->layer_count; i++) layer_destroy(net->layers[i]);
    sh_free(net->layers);
    sh_param_list_fini(&net->params);
    sh_param_list_fini(&net->states);
    sh_free(net->inits);
    sh_free(net->state_initials);
    sh_free(net->text);
    sh_free(net);
}

int sh_net_find(const sh_net *net, const char *name) {
    if (strcmp(name, "input") == 0) return SH_NET_INPUT;
    for (size_t i = 0; i < net->layer_count; i++)
        if (strcmp(net->layers[i]->name, name) == 0) return (int)i;
    return -2;
}

int sh_net_last(const sh_net *net) { return (int)net->layer_count - 1; }

const sh_shape *sh_net_shape(const sh_net *net, int index) {
    return index == SH_NET_INPUT ? &net->input.sample : &net->layers[index]->out;
}

/* Options are copied through their own printer and reader, so that strings have one owner. */
static sh_status copy_options(sh_layer *layer, const void *options) {
    const sh_layer_kind *kind = layer->kind;
    if (kind->options_bytes == 0) return SH_OK;
    layer->options = sh_alloc(1, kind->options_bytes);
    if (layer->options == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for layer options");
    SH_TRY(sh_options_init(kind->options, layer->options));
    if (options == NULL) return SH_OK;
    char *text = sh_options_print(kind->options, options);
    sh_node *node = NULL;
    sh_status status = text == NULL ? SH_FAIL(SH_E_MEMORY, "out of memory for layer options")
                                    : sh_node_parse(layer->name, text, strlen(text), &node);
    if (status == SH_OK) status = sh_options_apply(kind->options, node, layer->options, NULL);
    sh_node_destroy(node);
    sh_free(text);
    return status;
}

static sh_status connect(sh_net *net, sh_layer *layer, const int *inputs, int input_count) {
    const sh_layer_kind *kind = layer->kind;
    int before = sh_net_last(net);
    if (inputs == NULL) {
        inputs = &before;
        input_count = 1;
    }
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
        layer->in[i] = *sh_net_shape(net, inputs[i]);
    }
    return SH_OK;
}

static sh_status check_name(const sh_net *net, const char *name) {
    if (name[0] == '\0' || strlen(name) >= SH_LAYER_NAME)
        return SH_FAIL(SH_E_USAGE, "layer name '%.80s' must have 1 to %d characters", name,
                       SH_LAYER_NAME - 1);
    if (sh_net_find(net, name) != -2)
        return SH_FAIL(SH_E_USAGE, "two layers are called '%s'", name);
    return SH_OK;
}

static sh_status check_output(const sh_layer *layer) {
    size_t count;
    if (!sh_shape_count_checked(&layer->out, &count) || count == 0 || count > (size_t)1 << 31)
        return SH_FAIL(SH_E_SHAPE, "layer '%s' (%s) has an impossible output size", layer->name,
                       layer->kind->name);
    return SH_OK;
}

sh_status sh_net_add(sh_net *net, const char *kind_name, const char *name, const int *inputs,
                     int input_count, const void *options, int *index_out) {
    const sh_layer_kind *kind = sh_layer_find(kind_name);
    if (kind == NULL) return SH_FAIL(SH_E_USAGE, "there is no layer '%s'", kind_name);
    SH_TRY(check_name(net, name));
    if (kind->expand != NULL) {
        int before = sh_net_last(net);
        if (inputs == NULL) inputs = &before, input_count = 1;
        SH_TRY(options == NULL ? sh_net_add_text(net, kind_name, name, inputs, input_count, "{}")
                               : kind->expand(net, name, inputs, input_count, options));
        if (index_out != NULL) *index_out = sh_net_last(net);
        return SH_OK;
    }
    SH_TRY(sh_grow((void **)&net->layers, &net->layer_capacity, net->layer_count + 1,
                   sizeof *net->layers));
    sh_layer *layer = sh_alloc(1, sizeof *layer);
    if (layer == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for layer '%s'", name);
    layer->kind = kind;
    layer->index = (int)net->layer_count;
    snprintf(layer->name, sizeof layer->name, "%s", name);
    sh_status status = copy_options(layer, options);
    if (status == SH_OK) status = connect(net, layer, inputs, input_count);
    if (status == SH_OK) status = kind->build(net, layer);
    if (status == SH_OK) status = check_output(layer);
    if (status != SH_OK) {
        layer_destroy(layer);
        return status;
    }
    net->layers[net->layer_count++] = layer;
    if (index_out != NULL) *index_out = layer->index;
    return SH_OK;
}

sh_status sh_layer_param(sh_net *net, sh_layer *layer, const char *name, sh_shape shape,
                         bool decays, sh_init init) {
    SH_ASSERT(layer->param_count < SH_LAYER_PARAMS_MOST);
    char full[SH_LAYER_NAME + 32];
    snprintf(full, sizeof full, "%s.%s", layer->name, name);
    size_t index;
    SH_TRY(sh_grow((void **)&net->inits, &net->init_capacity, net->params.count + 1,
                   sizeof *net->inits));
    SH_TRY(sh_param_list_add(&net->params, full, shape, decays, &index));
    net->inits[index] = init;
    layer->params[layer->param_count] = index;
    layer->owns_param[layer->param_count++] = true;
    return SH_OK;
}

sh_status sh_layer_share(sh_net *net, sh_layer *layer, const char *full_name, sh_shape shape) {
    const sh_param *param = sh_param_list_find(&net->params, full_name);
    char want[SH_SHAPE_TEXT], have[SH_SHAPE_TEXT];
    if (param == NULL)
        return SH_FAIL(SH_E_USAGE, "layer '%s' ties its weight to '%s', which does not exist",
                       layer->name, full_name);
    if (!sh_shape_equal(&param->shape, &shape))
        return SH_FAIL(SH_E_SHAPE, "layer '%s' wants a weight of %s, but '%s' is %s", layer->name,
                       sh_shape_text(&shape, want), full_name, sh_shape_text(&param->shape, have));
    layer->params[layer->param_count++] = (size_t)(param - net->params.items);
    return SH_OK;
}

sh_status sh_layer_state(sh_net *net, sh_layer *layer, const char *name, sh_shape shape,
                         float initial) {
    SH_ASSERT(layer->state_count < SH_LAYER_PARAMS_MOST);
    char full[SH_LAYER_NAME + 32];
    snprintf(full, sizeof full, "%s.%s", layer->name, name);
    size_t index;
    SH_TRY(sh_grow((void **)&net->state_initials, &net->state_capacity, net->states.count + 1,
                   sizeof *net->state_initials));
    SH_TRY(sh_param_list_add(&net->states, full, shape, false, &index));
    net->state_initials[index] = initial;
    layer->states[layer->state_count++] = index;
    return SH_OK;
}

static void init_param(const sh_param *param, const sh_init *init, sh_rng rng, float *values) {
    double uniform = 0, deviation = 0;
    switch (init->rule) {
        case SH_INIT_CONSTANT:
            for (size_t i = 0; i < param->count; i++) values[i] = (float)init->scale;
            return;
        case SH_INIT_NORMAL:
            deviation = init->scale;
            break;
        case SH_INIT_HE:
            deviation = sqrt(2.0 / (double)init->fan_in);
            break;
        case SH_INIT_XAVIER:
            uniform = sqrt(6.0 / (double)(init->fan_in + init->fan_out));
            break;
    }
    for (size_t i = 0; i < param->count; i++)
        values[i] = uniform > 0 ? (float)(uniform * (2.0 * (double)sh_rng_uniform(&rng) - 1.0))
                                : (float)(deviation * (double)sh_rng_normal(&rng));
}

void sh_net_init(const sh_net *net, uint64_t seed, float *weights, float *states) {
#pragma omp parallel for schedule(dynamic)
    for (size_t i = 0; i < net->params.count; i++) {
        const sh_param *param = &net->params.items[i];
        sh_rng rng = sh_rng_stream(seed, SH_RNG_INIT, (uint32_t)i, 0);
        init_param(param, &net->inits[i], rng, weights + param->offset);
    }
    for (size_t i = 0; i < net->states.count; i++) {
        const sh_param *state = &net->states.items[i];
        for (size_t j = 0; j < state->count; j++)
            states[state->offset + j] = net->state_initials[i];
    }
}
