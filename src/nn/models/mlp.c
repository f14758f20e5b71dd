/* Multi-layer perceptrons, and the two degenerate ones: linear regression and logistic regression.
 */
#include <stdio.h>

#include "base/memory.h"
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

static void flatten(sh_net *net, sh_status *status) {
    if (net->input.sample.rank > 1)
        sh_model_layer(net, status, "flatten", "flatten", SH_AFTER, "%s", "");
}

static sh_status build_mlp(sh_net *net, const void *options) {
    const mlp_options *o = options;
    sh_status status = SH_OK;
    char name[32];
    flatten(net, &status);
    for (size_t i = 0; i < o->hidden.count; i++) {
        snprintf(name, sizeof name, "fc%zu", i + 1);
        sh_model_layer(net, &status, "dense", name, SH_AFTER, "{units: %ld}",
                       (long)o->hidden.items[i]);
        snprintf(name, sizeof name, "%s%zu", o->activation, i + 1);
        sh_model_layer(net, &status, o->activation, name, SH_AFTER, "%s", "");
        snprintf(name, sizeof name, "dropout%zu", i + 1);
        if (o->dropout > 0)
            sh_model_layer(net, &status, "dropout", name, SH_AFTER, "{p: %.17g}", o->dropout);
    }
    snprintf(name, sizeof name, "fc%zu", o->hidden.count + 1);
    sh_model_layer(net, &status, "dense", name, SH_AFTER, "{init: xavier}");
    return status;
}

static sh_status build_single(sh_net *net, const void *options) {
    (void)options;
    sh_status status = SH_OK;
    flatten(net, &status);
    sh_model_layer(net, &status, "dense", "fc", SH_AFTER, "{init: xavier}");
    return status;
}

#define DIGIT_IMAGES \
    { .sample = {.rank = 3, .dim = {1, 28, 28}}, .outputs = 10 }

const sh_model_kind sh_model_kind_mlp = {
    .name = "mlp",
    .help = "fully connected layers (hidden: 200, 200)",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(mlp_options),
    .build = build_mlp,
    .typical = DIGIT_IMAGES,
};

const sh_model_kind sh_model_kind_linear = {
    .name = "linear",
    .help = "one dense layer; with loss mse: linear regression",
    .build = build_single,
    .typical = {.sample = {.rank = 1, .dim = {13}}, .outputs = 1},
};

const sh_model_kind sh_model_kind_logistic = {
    .name = "logistic",
    .help = "one dense layer with cross-entropy: logistic regression",
    .build = build_single,
    .typical = DIGIT_IMAGES,
};
