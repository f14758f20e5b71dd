#include "nn/layers/common.h"

#include "tensor/kernels/activation.h"

/* Shared by the declare functions, so that every layer refuses a shape in the same words. */
sh_status sh_layer_wrong_shape(const sh_layer *layer, const char *wanted) {
    char found[SH_SHAPE_TEXT];
    return SH_FAIL(SH_E_SHAPE, "layer '%s' (%s) wants %s, found %s", layer->name, layer->kind->name,
                   wanted, sh_shape_text(&layer->in[0], found));
}

/* Scratch is needed by one kernel at a time: the greatest demand counts, not the sum. */
void sh_op_scratch(sh_op *op, size_t bytes) {
    if (bytes > op->scratch_bytes) op->scratch_bytes = bytes;
}

/* Turns the gradient of the fused output into that of the layer proper, in place: dy *= f'(x) of an
 * absorbed activation (slopes that forward saved), or dy = 0 where an absorbed relu gave 0. Every
 * layer that fuses calls it before it uses dy, but for batchnorm and pooling, whose kernels do it
 * on the way. */
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

/* For option tables: index to name, NULL past the end. */
const char *sh_init_choice(size_t index) {
    static const char *const names[] = {"he", "xavier", "normal"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

/* He et al. 2015 suits relu, Glorot and Bengio 2010 symmetric activations and outputs. The names
 * have been checked by the option table (sh_init_choice); he is what remains. */
sh_init sh_init_named(const char *name, double std, int64_t fan_in, int64_t fan_out) {
    if (strcmp(name, "xavier") == 0)
        return (sh_init){.rule = SH_INIT_XAVIER, .fan_in = fan_in, .fan_out = fan_out};
    if (strcmp(name, "normal") == 0) return (sh_init){.rule = SH_INIT_NORMAL, .scale = std};
    return (sh_init){.rule = SH_INIT_HE, .fan_in = fan_in};
}
