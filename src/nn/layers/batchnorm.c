/* Batch normalisation (Ioffe, Szegedy 2015) over images (N, C, H, W), plain or blocked, or vectors
 * (N, F), with running statistics for inference. Per channel, over m = N H W values (or N):
 *
 *   mean = sum x / m     var = sum (x - mean)^2 / m     rstd = 1 / sqrt(var + epsilon)
 *   xhat = (x - mean) rstd
 *   y = gamma xhat + beta
 *
 *   dbeta = sum dy     dgamma = sum dy xhat
 *   dx = gamma rstd (dy - dbeta / m - xhat dgamma / m)
 *
 *   running = (1 - momentum) running + momentum batch      (the variance times m / (m - 1))
 *
 * Conventions are PyTorch's: momentum weighs the new batch, the running variance is unbiased. A
 * following relu is done in the same pass: y = max(0, y), and backward takes dy as 0 where y <= 0.
 */
#include "nn/layers/batchnorm.h"

#include "nn/layers/common.h"
#include "nn/layers/options.h"

/* Shared with the synchronised form, which must train the same model with the same run file. */
const sh_option sh_batchnorm_rows[SH_BATCHNORM_OPTIONS] = {
    {.key = "epsilon",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_batchnorm_spec, epsilon),
     .initial = "1e-5",
     .least = 0,
     .most = 1,
     .help = "added to the variance"},
    {.key = "momentum",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_batchnorm_spec, momentum),
     .initial = "0.1",
     .least = 0,
     .most = 1,
     .help = "weight of a batch in the running statistics"},
    {.key = "init",
     .type = SH_OPTION_REAL,
     .at = offsetof(sh_batchnorm_spec, init),
     .initial = "1",
     .least = 0,
     .most = 1,
     .help = "initial weight; 0 starts a residual branch as identity"},
};

enum { GAMMA, BETA };  // parameters, each (C): "weight" and "bias", as PyTorch names them
enum {
    RUNNING_MEAN,
    RUNNING_VAR
};  // states, each (C): changed by forward in training, without gradients

/* Neither gamma nor beta decays, as is usual for normalisations. Running statistics start at mean 0
 * and variance 1, so that inference before any training step normalises nothing. */
sh_status sh_batchnorm_declare(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    const sh_batchnorm_spec *o = layer->options;
    const sh_shape *in = &layer->in[0];
    if (in->rank != 1 && in->rank != 3)
        return sh_layer_wrong_shape(layer, "an image (C, H, W) or a vector (F)");
    layer->out = *in;
    layer->flops = 8.0 * (double)sh_shape_count(in);
    sh_shape channels = SH_SHAPE(in->dim[0]);
    SH_TRY(sh_layer_param(layer, "weight", channels, false,
                          (sh_init){.rule = SH_INIT_CONSTANT, .scale = o->init}));
    SH_TRY(sh_layer_param(layer, "bias", channels, false, (sh_init){.rule = SH_INIT_CONSTANT}));
    SH_TRY(sh_layer_state(layer, "running_mean", channels, 0.0f));
    return sh_layer_state(layer, "running_var", channels, 1.0f);
}

/* The kernel's view of the input, [outer][channels/lanes][inner][lanes]: a row of features is one
 * pixel whose lanes are all its channels. */
static sh_batchnorm_shape shape_of(const sh_op *op) {
    const sh_shape *x = &op->in[0]->shape;
    size_t n = (size_t)x->dim[0], channels = (size_t)x->dim[1];
    if (x->rank == 2) return (sh_batchnorm_shape){n, channels, 1, channels};
    return (sh_batchnorm_shape){n, channels, (size_t)(x->dim[2] * x->dim[3]),
                                (size_t)op->in[0]->block};
}

/* xhat is not saved: backward computes it again from the input and 2 C floats, which costs two
 * flops per value and spares a buffer as large as the activation. */
sh_status sh_batchnorm_build(sh_op *op, sh_builder *builder) {
    (void)builder;
    size_t channels = (size_t)op->in[0]->shape.dim[1];
    op->needs_input = true;
    op->saved_bytes = 2 * channels * sizeof(float);  // mean and 1/deviation of the batch
    return SH_OK;
}

/* op->saved is (2, C): the mean of the batch, then rstd. */
sh_batchnorm_forward sh_batchnorm_forward_args(const sh_op *op) {
    const sh_batchnorm_spec *o = op->layer->options;
    sh_batchnorm_shape shape = shape_of(op);
    float *mean = op->saved;
    return (sh_batchnorm_forward){
        .shape = shape,
        .x = op->in[0]->data,
        .gamma = op->param[GAMMA],
        .beta = op->param[BETA],
        .y = op->out->data,
        .mean = mean,
        .rstd = mean + shape.channels,
        .running_mean = op->state[RUNNING_MEAN],
        .running_var = op->state[RUNNING_VAR],
        .eps = (float)o->epsilon,
        .momentum = (float)o->momentum,
        .relu = op->relu,
    };
}

/* The kernel always writes dx. Where nobody wants it (the layer is the first that is trained), it
 * goes over dy, which is not read again. With an absorbed relu the kernel masks dy by `y` itself.
 */
sh_batchnorm_backward sh_batchnorm_backward_args(const sh_op *op) {
    sh_batchnorm_shape shape = shape_of(op);
    const float *mean = op->saved;
    return (sh_batchnorm_backward){
        .shape = shape,
        .dy = op->out->grad,
        .x = op->in[0]->data,
        .gamma = op->param[GAMMA],
        .mean = mean,
        .rstd = mean + shape.channels,
        .y = op->relu ? op->out->data : NULL,
        .dx = op->dx[0] != NULL ? op->dx[0] : op->out->grad,
        .dgamma = op->param_grad[GAMMA],
        .dbeta = op->param_grad[BETA],
        .accumulate = sh_op_adds(op, GAMMA),
    };
}

/* Training or inference is asked of the step, not of the executor: only a training step may change
 * the running statistics. */
sh_status sh_batchnorm_run_forward(sh_op *op) {
    sh_batchnorm_forward args = sh_batchnorm_forward_args(op);
    (sh_op_step(op).training ? sh_batchnorm()->train : sh_batchnorm()->infer)(&args);
    return SH_OK;
}

/* Backward of a training step only: mean and rstd of the batch are valid then. */
sh_status sh_batchnorm_run_backward(sh_op *op) {
    sh_batchnorm_backward args = sh_batchnorm_backward_args(op);
    sh_batchnorm()->backward(&args);
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_batchnorm = {
    .name = "batchnorm",
    .help = "batch normalisation of images or vectors, with running statistics",
    .options = {sh_batchnorm_rows, SH_BATCHNORM_OPTIONS},
    .options_bytes = sizeof(sh_batchnorm_spec),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = sh_batchnorm_declare,
    .build = sh_batchnorm_build,
    .forward = sh_batchnorm_run_forward,
    .backward = sh_batchnorm_run_backward,
    .fuses_relu = true,
};
