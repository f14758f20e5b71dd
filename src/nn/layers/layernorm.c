/* Layer normalisation (Ba et al. 2016) over the last dimension: every row of C features (a vector,
 * or one token) by its own statistics, so that training and inference are the same function.
 *
 *   mean = sum x / C     rstd = 1 / sqrt(sum (x - mean)^2 / C + epsilon)     xhat = (x - mean) rstd
 *   y = gamma xhat + beta
 *
 *   dgamma = sum over rows of dy xhat     dbeta = sum over rows of dy
 *   g = gamma dy
 *   dx = rstd (g - mean(g) - xhat mean(g xhat))
 *
 * Saved for backward are mean and rstd, two floats per row; xhat is computed again from the input.
 */
#include "nn/layers/common.h"
#include "nn/layers/options.h"
#include "tensor/kernels/norm.h"

static const sh_option rows[] = {
    {.key = "epsilon",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_layernorm_spec, epsilon),
     .initial = "1e-5",
     .least = 0,
     .most = 1,
     .help = "added to the variance"},
    {.key = "bias",
     .type = SH_OPTION_BOOL,
     .at = offsetof(sh_layernorm_spec, bias),
     .initial = "true",
     .help = "add a trained bias"},
};

/* gamma "weight" (C), beta "bias" (C), neither of which decays. */
static sh_status declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_layernorm_spec *o = layer->options;
    const sh_shape *in = &layer->in[0];
    if (in->rank > 2) return sh_layer_wrong_shape(layer, "a vector (F) or tokens (T, F)");
    sh_shape features = SH_SHAPE(in->dim[in->rank - 1]);
    layer->out = *in;
    layer->flops = 8.0 * (double)sh_shape_count(in);
    SH_TRY(sh_layer_param(layer, "weight", features, false,
                          (sh_init){.rule = SH_INIT_CONSTANT, .scale = 1.0}));
    if (!o->bias) return SH_OK;
    return sh_layer_param(layer, "bias", features, false, (sh_init){.rule = SH_INIT_CONSTANT});
}

/* C. */
static size_t features_of(const sh_op *op) {
    const sh_shape *x = &op->in[0]->shape;
    return (size_t)x->dim[x->rank - 1];
}

/* N, or N T of tokens. */
static size_t rows_of(const sh_op *op) { return op->in[0]->count / features_of(op); }

/* Threads sum dgamma and dbeta of their own rows; 4 C floats each is what the kernel takes at best.
 */
static size_t scratch_floats(const sh_op *op, int threads) {
    return 4 * features_of(op) * (size_t)threads;
}

/* op->saved is (2, rows): mean, then rstd. */
static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_builder_want(builder, op, 0, 1));
    op->out->block = 1;
    op->needs_input = true;
    op->saved_bytes = 2 * rows_of(op) * sizeof(float);
    op->scratch_bytes =
        scratch_floats(op, sh_tuner_threads(sh_builder_tuner(builder))) * sizeof(float);
    return SH_OK;
}

/* Serves parameters and their gradients alike; NULL: no bias. */
static float *bias_of(float *const *params, const sh_op *op) {
    return op->layer->param_count > 1 ? params[1] : NULL;
}

static sh_status forward(sh_op *op) {
    const sh_layernorm_spec *o = op->layer->options;
    float *mean = op->saved;
    sh_layernorm()->forward(op->in[0]->data, op->param[0], bias_of(op->param, op),
                            (float)o->epsilon, rows_of(op), features_of(op), op->out->data, mean,
                            mean + rows_of(op));
    return SH_OK;
}

/* `adds_dx`: in a transformer the input also feeds the residual sum, whose backward came first and
 * left its gradient in dx. The kernel adds to it in its own pass, where another layer would write
 * aside. Where dx is not wanted it goes over dy, which is not read again. */
static sh_status backward(sh_op *op) {
    const float *mean = op->saved;
    sh_layernorm()->backward(&(sh_layernorm_backward){
        .rows = rows_of(op),
        .C = features_of(op),
        .dy = op->out->grad,
        .x = op->in[0]->data,
        .gamma = op->param[0],
        .mean = mean,
        .rstd = mean + rows_of(op),
        .residual = op->dx_added[0] ? op->dx[0] : NULL,
        .dx = op->dx[0] != NULL ? op->dx[0] : op->out->grad,
        .dgamma = op->param_grad[0],
        .dbeta = bias_of(op->param_grad, op),
        .accumulate = sh_op_adds(op, 0),
        .scratch = op->scratch,
        .scratch_floats = op->scratch_bytes / sizeof(float),
    });
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_layernorm = {
    .name = "layernorm",
    .help = "layer normalisation over the last dimension",
    .options = {rows, SH_COUNT(rows)},
    .options_bytes = sizeof(sh_layernorm_spec),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare,
    .build = build,
    .forward = forward,
    .backward = backward,
    .adds_dx = true,
};
