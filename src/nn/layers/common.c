#include "nn/layers/common.h"

#include "tensor/kernels/activation.h"

sh_status sh_layer_wrong_shape(const sh_layer *layer, const char *wanted) {
    char found[SH_SHAPE_TEXT];
    return SH_FAIL(SH_E_SHAPE, "layer '%s' (%s) wants %s, found %s", layer->name, layer->kind->name,
                   wanted, sh_shape_text(&layer->in[0], found));
}

void sh_op_scratch(sh_op *op, size_t bytes) {
    if (bytes > op->scratch_bytes) op->scratch_bytes = bytes;
}

void sh_op_mask_relu(sh_op *op) {
    float *dy = op->out->grad;
    if (op->activation != NULL && !op->slopes_applied)
        sh_vector()->multiply_to(dy, op->saved, op->out->count);
    if (!op->relu) return;
    sh_activation()->row[SH_ACTIVATION_RELU].backward(dy, op->out->data, dy, op->out->count);
}

void sh_op_free_kernel(sh_op *op) {
    sh_free(op->kernel);
    op->kernel = NULL;
}

const char *sh_init_choice(size_t index) {
    static const char *const names[] = {"he", "xavier", "normal"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

sh_init sh_init_named(const char *name, double std, int64_t fan_in, int64_t fan_out) {
    if (strcmp(name, "xavier") == 0)
        return (sh_init){.rule = SH_INIT_XAVIER, .fan_in = fan_in, .fan_out = fan_out};
    if (strcmp(name, "normal") == 0) return (sh_init){.rule = SH_INIT_NORMAL, .scale = std};
    return (sh_init){.rule = SH_INIT_HE, .fan_in = fan_in};
}
