#include "export/export.h"

#include <math.h>

#include "nn/layers/options.h"
#include "tensor/kernels/reduce.h"

/* Fails with the name of the first parameter (or state) that holds a NaN or an infinity. */
static sh_status check_list(const sh_param_list *list, const float *values) {
    for (size_t i = 0; i < list->count; i++) {
        const sh_param *item = &list->items[i];
        if (sh_reduce()->all_finite(values + item->offset, item->count)) continue;
        SH_FAIL(SH_E_NUMERIC, "'%s' holds values that are not finite", item->name);
        return sh_error_hint("export an earlier checkpoint: runs/NAME/checkpoints");
    }
    return SH_OK;
}

/* Checked before anything is written: a diverged model would pass through every later step and
 * only fail on the device. */
sh_status sh_export_check(const sh_trained *trained) {
    SH_TRY(check_list(&trained->net->params, trained->weights));
    return check_list(&trained->net->states, trained->states);
}

/* Layers that are the identity at inference, on the same row-major values. */
static bool changes_nothing(const sh_layer_kind *kind) {
    return kind == &sh_layer_kind_dropout || kind == &sh_layer_kind_droppath ||
           kind == &sh_layer_kind_flatten;
}

/* Walks back through layers that change nothing, so that no copy is made for them. */
int sh_export_source_of(const sh_net *net, int layer) {
    while (layer != SH_NET_INPUT && changes_nothing(net->layers[layer]->kind))
        layer = net->layers[layer]->inputs[0];
    return layer;
}

/* scale = gamma / sqrt(variance + epsilon), shift = beta - mean scale. In double, since mean and
 * beta may nearly cancel. */
void sh_export_fold_batchnorm(const sh_trained *trained, const sh_layer *layer, float *scale_out,
                              float *shift_out) {
    const sh_batchnorm_spec *o = layer->options;
    const sh_param *params = trained->net->params.items, *states = trained->net->states.items;
    const float *gamma = trained->weights + params[layer->params[0]].offset;
    const float *beta = trained->weights + params[layer->params[1]].offset;
    const float *mean = trained->states + states[layer->states[0]].offset;
    const float *variance = trained->states + states[layer->states[1]].offset;
    for (size_t c = 0; c < params[layer->params[0]].count; c++) {
        double scale = (double)gamma[c] / sqrt((double)variance[c] + o->epsilon);
        scale_out[c] = (float)scale;
        shift_out[c] = (float)((double)beta[c] - (double)mean[c] * scale);
    }
}
