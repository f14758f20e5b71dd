/* Multi-layer perceptron, by default the 2NN of FedAvg (McMahan et al. 2017): two hidden layers of
 * 200.
 *
 *   x (N, ...) ─ [flatten] ─▶ (N, F) ─ { fc_i ─ activation_i ─ [dropout_i] } ─ fc ─▶ (N, outputs)
 *
 * Hidden weights start by He's rule, made for relu; the last layer, which no relu follows, by
 * Glorot's. On 28 x 28 images the default has 199210 parameters: 784 200 + 200, 200 200 + 200, 200
 * 10 + 10. */
#include "nn/models/common.h"

typedef struct mlp_options {
    sh_ints hidden;
    char *activation;
    double dropout;
} mlp_options;

/* Activations are layer kinds of the same name; these are the ones without a shape of their own. */
static const char *activation_choice(size_t index) {
    static const char *const names[] = {"relu", "gelu", "silu", "tanh", "sigmoid"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

/* `hidden` gives depth and widths at once: one hidden layer per entry. */
static const sh_option rows[] = {
    {.key = "hidden",
     .type = SH_OPTION_INTS,
     .at = offsetof(mlp_options, hidden),
     .initial = "200,200",
     .least = 1,
     .most = 1 << 20,
     .help = "widths of the hidden layers"},
    {.key = "activation",
     .type = SH_OPTION_STRING,
     .at = offsetof(mlp_options, activation),
     .initial = "relu",
     .choices = activation_choice,
     .help = "between the layers"},
    {.key = "dropout",
     .type = SH_OPTION_REAL,
     .at = offsetof(mlp_options, dropout),
     .initial = "0",
     .least = 0,
     .most = 0.99,
     .help = "after each hidden layer"},
};

/* Vectors need no flatten; an op that only renames a shape would still be in the list of layers. */
static void flatten(sh_net_spec *net, sh_status *status) {
    if (net->input.sample.rank > 1)
        sh_model_layer(net, status, &sh_layer_kind_flatten, SH_AFTER, NULL, "flatten");
}

/* Layers are numbered from 1: fc1, relu1, dropout1, fc2, ... A checkpoint finds parameters by these
 * names. */
static sh_status describe_mlp(sh_net_spec *net, const void *options) {
    const mlp_options *o = options;
    const sh_layer_kind *activation = sh_layer_find(o->activation);
    sh_status status = SH_OK;
    flatten(net, &status);
    for (size_t i = 0; i < o->hidden.count; i++) {
        sh_model_layer(net, &status, &sh_layer_kind_dense, SH_AFTER,
                       SH_DENSE(.units = o->hidden.items[i]), "fc%zu", i + 1);
        sh_model_layer(net, &status, activation, SH_AFTER, NULL, "%s%zu", o->activation, i + 1);
        if (o->dropout > 0)
            sh_model_layer(net, &status, &sh_layer_kind_dropout, SH_AFTER,
                           SH_DROPOUT(.p = o->dropout), "dropout%zu", i + 1);
    }
    sh_model_layer(net, &status, &sh_layer_kind_dense, SH_AFTER, SH_DENSE(.init = "xavier"),
                   "fc%zu", o->hidden.count + 1);
    return status;
}

/* The shape of MNIST, where no data says another. */
#define DIGIT_IMAGES \
    { .sample = {.rank = 3, .dim = {1, 28, 28}}, .outputs = 10 }

/* The learner is gradients alone: no solver of src/learn trains hidden layers. */
const sh_model_kind sh_model_kind_mlp = {
    .name = "mlp",
    .help = "fully connected layers (hidden: 200, 200)",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(mlp_options),
    .describe = describe_mlp,
    .typical = DIGIT_IMAGES,
};
