/* Synchronised batch normalisation: mean and variance of a channel are those of all peers' values
 * together, and so are the two sums that backward needs.
 *
 *   forward   sum x, sum x^2, count: one all-reduce of 2 C + 1 doubles
 *   backward  sum dy, sum dy x:      one all-reduce of 2 C + 1 doubles
 *
 * The gradients of weight and bias are a worker's own part; their sum over the workers, as of every
 * other gradient, is that of the whole batch. */
#include <string.h>

#include "nn/layers/batchnorm.h"
#include "nn/layers/common.h"
#include "nn/layers/options.h"
#include "parallel/peers.h"

sh_status sh_peers_sum(const sh_peers *peers, double *values, size_t count) {
    sh_call call = {.what = SH_ALLREDUCE,
                    .group = peers->group,
                    .data = values,
                    .count = count,
                    .dtype = SH_DTYPE_F64,
                    .op = SH_SUM,
                    .bucket = -1};
    return sh_engine_run(peers->engine, &call);
}

static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_batchnorm_build(op, builder));
    sh_op_scratch(op, (2 * (size_t)op->in[0]->shape.dim[1] + 1) * sizeof(double));  // the sums
    return SH_OK;
}

/* Sums over the peers; how many elements a channel then has stands behind them. */
static sh_status sum(const sh_op *op, sh_batchnorm_shape shape, double *sums) {
    sh_step_context step = sh_op_step(op);
    sums[2 * shape.channels] = (double)shape.outer * (double)shape.inner;
    if (step.stands_in) memset(sums, 0, (2 * shape.channels + 1) * sizeof *sums);
    return sh_peers_sum(step.peers, sums, 2 * shape.channels + 1);
}

static sh_status forward(sh_op *op) {
    if (sh_op_step(op).peers == NULL || !sh_op_step(op).training)
        return sh_batchnorm_run_forward(op);
    sh_batchnorm_forward args = sh_batchnorm_forward_args(op);
    double *sums = op->scratch;
    sh_batchnorm()->train_sums(&args, sums);
    SH_TRY(sum(op, args.shape, sums));
    sh_batchnorm()->train_rest(&args, sums, sums[2 * args.shape.channels]);
    return SH_OK;
}

static sh_status backward(sh_op *op) {
    if (sh_op_step(op).peers == NULL) return sh_batchnorm_run_backward(op);
    sh_batchnorm_backward args = sh_batchnorm_backward_args(op);
    double *sums = op->scratch;
    sh_batchnorm()->backward_sums(&args, sums);
    SH_TRY(sum(op, args.shape, sums));
    sh_batchnorm()->backward_rest(&args, sums, sums[2 * args.shape.channels]);
    // Its part of the whole batch's means is nobody's gradient.
    if (sh_op_step(op).stands_in) memset(args.dx, 0, op->out->count * sizeof *args.dx);
    return SH_OK;
}

static const sh_layer_kind sync_batchnorm = {
    .name = "sync-batchnorm",
    .help = "batch normalisation with the statistics of all workers' batches together",
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

void sh_sync_batchnorms(sh_net_spec *net) {
    for (size_t i = 0; i < net->layer_count; i++)
        if (net->layers[i]->kind == &sh_layer_kind_batchnorm)
            net->layers[i]->kind = &sync_batchnorm;
}
