/* Building a net: every parameter gets its range of one block, in the order of layers, and its
 * initial values, which are a function of (seed, name, element) alone. So any worker can draw any
 * part of any parameter, and a split net starts as the whole one. */
#include "nn/net.h"

#include <math.h>

#include "base/memory.h"

/* A tied parameter is the one of its name, unless the layer that has it is outside the range. */
static sh_status place_param(sh_net *net, sh_param_spec *spec, size_t *index_out) {
    const sh_param *param = spec->tied ? sh_param_list_find(&net->params, spec->name) : NULL;
    if (param != NULL) {
        *index_out = (size_t)(param - net->params.items);
        return SH_OK;
    }
    spec->tied = false;
    SH_TRY(sh_param_list_add(&net->params, spec->name, spec->shape, spec->decays, index_out));
    net->params.items[*index_out].slice = spec->slice;
    return SH_OK;
}

/* States have a block of their own: optimizers and all-reduces of gradients do not touch it. */
static sh_status place_layer(sh_net *net, sh_layer *layer) {
    for (int k = 0; k < layer->param_count; k++)
        SH_TRY(place_param(net, &layer->param_specs[k], &layer->params[k]));
    for (int k = 0; k < layer->state_count; k++) {
        const sh_param_spec *spec = &layer->state_specs[k];
        SH_TRY(sh_param_list_add(&net->states, spec->name, spec->shape, false, &layer->states[k]));
        net->states.items[layer->states[k]].slice = spec->slice;
    }
    return SH_OK;
}

sh_status sh_net_build(sh_net_spec *spec, sh_net **net_out) {
    return sh_net_build_range(spec, 0, (int)spec->layer_count, net_out);
}

/* Layers outside [first, last) stay in the list, for their shapes and connections, without
 * parameters. */
sh_status sh_net_build_range(sh_net_spec *spec, int first, int last, sh_net **net_out) {
    SH_ASSERT(0 <= first && first <= last && (size_t)last <= spec->layer_count);
    sh_net *net = sh_alloc(1, sizeof *net);
    if (net == NULL) {
        sh_net_spec_fini(spec);
        return SH_FAIL(SH_E_MEMORY, "out of memory for a net");
    }
    net->input = spec->input;
    net->layers = spec->layers;
    net->layer_count = spec->layer_count;
    net->first = first;
    net->last = last;
    net->text = spec->text;
    spec->layers = NULL;
    spec->layer_count = 0;
    spec->text = NULL;
    sh_net_spec_fini(spec);
    sh_status status = SH_OK;
    for (int i = first; status == SH_OK && i < last; i++) status = place_layer(net, net->layers[i]);
    if (status != SH_OK)
        sh_net_destroy(net);
    else
        *net_out = net;
    return status;
}

/* A failed sh_net_spec_read has freed what it made. */
sh_status sh_net_from_node(const sh_node *node, const sh_net_input *input, sh_net **net_out) {
    sh_net_spec spec;
    SH_TRY(sh_net_spec_read(node, input, &spec));
    return sh_net_build(&spec, net_out);
}

void sh_net_destroy(sh_net *net) {
    if (net == NULL) return;
    sh_net_spec spec = {.layers = net->layers, .layer_count = net->layer_count, .text = net->text};
    sh_net_spec_fini(&spec);
    sh_param_list_fini(&net->params);
    sh_param_list_fini(&net->states);
    sh_free(net);
}

const sh_shape *sh_net_output(const sh_net *net) {
    return net->layer_count > 0 ? &net->layers[net->layer_count - 1]->out : &net->input.sample;
}

/* Elements [first, first + count) of the whole parameter by its rule. Deviations are computed in
 * doubles and rounded once, so that every part of a parameter has the bits of the whole. */
static void draw(const sh_param_spec *spec, uint64_t seed, size_t first, size_t count,
                 float *values_out) {
    const sh_init *init = &spec->init;
    sh_rng rng = sh_rng_stream(seed, SH_RNG_INIT, 0, sh_rng_name(spec->name));
    double deviation = init->scale, reach;
    switch (init->rule) {
        case SH_INIT_CONSTANT:
            for (size_t i = 0; i < count; i++) values_out[i] = (float)init->scale;
            return;
        case SH_INIT_XAVIER:
            reach = sqrt(6.0 / (double)(init->fan_in + init->fan_out));
            sh_rng_uniforms(&rng, first, count, values_out);
            for (size_t i = 0; i < count; i++)
                values_out[i] = (float)(reach * (2.0 * (double)values_out[i] - 1.0));
            return;
        case SH_INIT_HE:
            deviation = sqrt(2.0 / (double)init->fan_in);
            break;
        case SH_INIT_NORMAL:
            break;
    }
    sh_rng_normals(&rng, first, count, values_out);
    for (size_t i = 0; i < count; i++) values_out[i] = (float)(deviation * (double)values_out[i]);
}

/* A slice is runs of neighbouring elements of the whole: each is drawn at its place there. */
void sh_param_spec_init(const sh_param_spec *spec, uint64_t seed, size_t first, size_t count,
                        float *values_out) {
    if (!sh_slice_is_split(&spec->slice)) {
        draw(spec, seed, first, count, values_out);
        return;
    }
    size_t run = sh_slice_run_count(&spec->slice);
    for (size_t done = 0; done < count;) {
        size_t at = first + done, skip = at % run, take = run - skip;
        if (take > count - done) take = count - done;
        draw(spec, seed, sh_slice_run_begin(&spec->slice, at / run) + skip, take,
             values_out + done);
        done += take;
    }
}

/* A tied parameter is drawn by the layer that declares it. */
static void init_layer(const sh_net *net, const sh_layer *layer, uint64_t seed, float *weights,
                       float *states) {
    for (int k = 0; k < layer->param_count; k++) {
        const sh_param *param = &net->params.items[layer->params[k]];
        if (!layer->param_specs[k].tied)
            sh_param_spec_init(&layer->param_specs[k], seed, 0, param->count,
                               weights + param->offset);
    }
    for (int k = 0; k < layer->state_count; k++) {
        const sh_param *state = &net->states.items[layer->states[k]];
        sh_param_spec_init(&layer->state_specs[k], seed, 0, state->count, states + state->offset);
    }
}

/* Layers differ in size by orders of magnitude, hence the dynamic schedule; draws depend on names,
 * not on threads. */
void sh_net_init(const sh_net *net, uint64_t seed, float *weights, float *states) {
#pragma omp parallel for schedule(dynamic)
    for (int i = net->first; i < net->last; i++)
        init_layer(net, net->layers[i], seed, weights, states);
}
