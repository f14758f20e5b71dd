/* Multi-layer perceptrons. */
#include "nn/models/common.h"

typedef struct mlp_options {
    sh_ints hidden;
    char *activation;
    double dropout;
} mlp_options;

static const char *activation_choice(size_t index) {
    static const char *const names[] = {"relu", "gelu", "silu", "tanh", "sigmoid"};
    return index < SH_COUNT(names) ? names[index] : NULL;
}

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

static void flatten(sh_net_spec *net, sh_status *status) {
    if (net->input.sample.rank > 1)
        sh_model_layer(net, status, &sh_layer_kind_flatten, SH_AFTER, NULL, "flatten");
}

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

#define DIGIT_IMAGES \
    { .sample = {.rank = 3, .dim = {1, 28, 28}}, .outputs = 10 }

const sh_model_kind sh_model_kind_mlp = {
    .name = "mlp",
    .help = "fully connected layers (hidden: 200, 200)",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(mlp_options),
    .describe = describe_mlp,
    .typical = DIGIT_IMAGES,
};
