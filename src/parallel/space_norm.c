/* Layers over whole images whose rows are spread over workers: batch normalisation with the
 * statistics of all rows, and the mean over the image. */
#include <string.h>

#include "base/memory.h"
#include "nn/layers/batchnorm.h"
#include "nn/layers/common.h"
#include "parallel/space.h"
#include "tensor/kernels/pool.h"

static const sh_space_cut *cut_of(const sh_op *op) {
    return &((const sh_space_mean_spec *)op->layer->options)->cut;
}

/* ---- The mean over the image: a worker's part of it, a partial sum ---- */

static sh_status declare_mean(const sh_net_spec *net, sh_layer *layer) {
    (void)net;
    layer->out = SH_SHAPE(layer->in[0].dim[0]);
    layer->flops = (double)sh_shape_count(&layer->in[0]);
    return SH_OK;
}

static sh_status build_mean(sh_op *op, sh_builder *builder) {
    (void)builder;
    op->out->block = 1;
    sh_op_scratch(op, op->out->count * sizeof(float));
    return SH_OK;
}

/* The part of the image that this worker's rows are. */
static float share_of(const sh_op *op) {
    const sh_space_cut *cut = cut_of(op);
    sh_rows own = sh_rows_owned(cut->in_rows, cut->parts, cut->rank);
    return (float)((double)sh_rows_count(own) / (double)cut->in_rows);
}

/* The mean over own rows times their share of the image: these parts add up to the whole mean. */
static sh_status forward_mean(sh_op *op) {
    const sh_value *x = op->in[0];
    sh_pool()->global_forward(op->out->count / (size_t)x->block, x->count / op->out->count,
                              (size_t)x->block, x->data, op->out->data);
    sh_vector()->scale(op->out->data, share_of(op), op->out->count);
    return SH_OK;
}

/* dx = dy / (H W) for every pixel of the image, whoever has it. */
static sh_status backward_mean(sh_op *op) {
    const sh_value *x = op->in[0];
    if (op->dx[0] == NULL) return SH_OK;
    memcpy(op->scratch, op->out->grad, op->out->count * sizeof(float));
    sh_vector()->scale(op->scratch, share_of(op), op->out->count);
    sh_pool()->global_backward(op->out->count / (size_t)x->block, x->count / op->out->count,
                               (size_t)x->block, op->scratch, op->dx[0]);
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_space_mean = {
    .name = "space-mean",
    .help = "part of the mean over an image whose rows are spread over workers",
    .options_bytes = sizeof(sh_space_mean_spec),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = declare_mean,
    .build = build_mean,
    .forward = forward_mean,
    .backward = backward_mean,
};

/* ---- Batch normalisation ---- */

enum { GAMMA, BETA };

static size_t channels_of(const sh_op *op) { return (size_t)op->in[0]->shape.dim[1]; }

/* Behind the mean and deviation that batchnorm saves: the sums, then this worker's gradients. */
static double *sums_of(const sh_op *op) {
    return (double *)((float *)op->saved + 2 * channels_of(op));
}
static float *gradients_of(const sh_op *op) {
    return (float *)(sums_of(op) + 2 * channels_of(op) + 1);
}

static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_batchnorm_build(op, builder));
    size_t channels = channels_of(op);
    op->saved_bytes += (2 * channels + 1) * sizeof(double) + 2 * channels * sizeof(float);
    return SH_OK;
}

static sh_status reduce(const sh_op *op, void *data, size_t count, sh_dtype dtype) {
    const sh_peers *peers = sh_space_peers(op);
    if (peers == NULL) return SH_OK;
    sh_call call = {.what = SH_ALLREDUCE,
                    .group = peers->along[SH_AXIS_SPACE],
                    .data = data,
                    .count = count,
                    .dtype = dtype,
                    .op = SH_SUM,
                    .step = sh_op_step(op).step + 1,
                    .bucket = -1};
    return sh_engine_run(peers->engine, &call);
}

/* The count travels with the sums: workers may have different numbers of rows. */
static sh_status sum(const sh_op *op, sh_batchnorm_shape shape, double *sums) {
    sums[2 * shape.channels] = (double)shape.outer * (double)shape.inner;
    return reduce(op, sums, 2 * shape.channels + 1, SH_DTYPE_F64);
}

static sh_status forward(sh_op *op) {
    if (!sh_op_step(op).training) return sh_batchnorm_run_forward(op);
    sh_batchnorm_forward args = sh_batchnorm_forward_args(op);
    double *sums = sums_of(op);
    sh_batchnorm()->train_sums(&args, sums);
    SH_TRY(sum(op, args.shape, sums));
    sh_batchnorm()->train_rest(&args, sums, sums[2 * args.shape.channels]);
    return SH_OK;
}

static void take(const sh_op *op, int index, const float *from, size_t count) {
    if (sh_op_adds(op, index))
        sh_vector()->add_to(op->param_grad[index], from, count);
    else
        memcpy(op->param_grad[index], from, count * sizeof *from);
}

/* The gradients of weight and bias are those of this worker's rows, until they are summed. */
static sh_status backward(sh_op *op) {
    sh_batchnorm_backward args = sh_batchnorm_backward_args(op);
    size_t channels = channels_of(op);
    double *sums = sums_of(op);
    float *gradients = gradients_of(op);
    args.dgamma = gradients;
    args.dbeta = gradients + channels;
    args.accumulate = false;
    sh_batchnorm()->backward_sums(&args, sums);
    SH_TRY(sum(op, args.shape, sums));
    sh_batchnorm()->backward_rest(&args, sums, sums[2 * args.shape.channels]);
    SH_TRY(reduce(op, gradients, 2 * channels, SH_DTYPE_F32));
    take(op, GAMMA, gradients, channels);
    take(op, BETA, gradients + channels, channels);
    return SH_OK;
}

const sh_layer_kind sh_layer_kind_space_batchnorm = {
    .name = "space-batchnorm",
    .help = "batch normalisation of images whose rows are spread over workers",
    .options = {sh_batchnorm_rows, SH_BATCHNORM_OPTIONS},
    .options_bytes = sizeof(sh_batchnorm_spec),
    .inputs_least = 1,
    .inputs_most = 1,
    .declare = sh_batchnorm_declare,
    .build = build,
    .forward = forward,
    .backward = backward,
    .fuses_relu = true,
};
