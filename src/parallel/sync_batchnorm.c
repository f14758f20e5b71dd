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

static size_t channels_of(const sh_op *op) { return (size_t)op->in[0]->shape.dim[1]; }

/* The sums lie behind what batchnorm saves, the mean and deviation of each channel: memory of the
 * op's own while they travel. */
static double *sums_of(const sh_op *op) {
    return (double *)((float *)op->saved + 2 * channels_of(op));
}

static sh_status build(sh_op *op, sh_builder *builder) {
    SH_TRY(sh_batchnorm_build(op, builder));
    op->saved_bytes += (2 * channels_of(op) + 1) * sizeof(double);
    op->kernel = sh_alloc(1, sizeof(sh_peer_call));
    return op->kernel != NULL ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for batchnorm");
}

/* Starts to sum over the peers; how many elements a channel then has stands behind the sums. */
static sh_status start(const sh_op *op, sh_batchnorm_shape shape) {
    sh_step_context step = sh_op_step(op);
    double *sums = sums_of(op);
    size_t count = 2 * shape.channels + 1;
    sums[count - 1] = (double)shape.outer * (double)shape.inner;
    if (step.stands_in) memset(sums, 0, count * sizeof *sums);
    return sh_peer_call_start(op->kernel, step.peers,
                              &(sh_call){.what = SH_ALLREDUCE,
                                         .group = step.peers->group,
                                         .data = sums,
                                         .count = count,
                                         .dtype = SH_DTYPE_F64,
                                         .op = SH_SUM});
}

/* Without peers the statistics are those of the worker's own values. */
static bool is_alone(const sh_op *op) {
    return sh_op_step(op).peers == NULL || sh_op_step(op).peers->engine == NULL;
}

static sh_status forward(sh_op *op) {
    if (is_alone(op) || !sh_op_step(op).training) return sh_batchnorm_run_forward(op);
    sh_batchnorm_forward args = sh_batchnorm_forward_args(op);
    sh_batchnorm()->train_sums(&args, sums_of(op));
    return start(op, args.shape);
}

static sh_status finish_forward(sh_op *op) {
    if (is_alone(op) || !sh_op_step(op).training) return SH_OK;
    SH_TRY(sh_peer_call_finish(op->kernel, sh_op_step(op).peers));
    sh_batchnorm_forward args = sh_batchnorm_forward_args(op);
    const double *sums = sums_of(op);
    sh_batchnorm()->train_rest(&args, sums, sums[2 * args.shape.channels]);
    return SH_OK;
}

static sh_status backward(sh_op *op) {
    if (is_alone(op)) return sh_batchnorm_run_backward(op);
    sh_batchnorm_backward args = sh_batchnorm_backward_args(op);
    sh_batchnorm()->backward_sums(&args, sums_of(op));
    return start(op, args.shape);
}

static sh_status finish_backward(sh_op *op) {
    if (is_alone(op)) return SH_OK;
    SH_TRY(sh_peer_call_finish(op->kernel, sh_op_step(op).peers));
    sh_batchnorm_backward args = sh_batchnorm_backward_args(op);
    const double *sums = sums_of(op);
    sh_batchnorm()->backward_rest(&args, sums, sums[2 * args.shape.channels]);
    // Its part of the whole batch's means is nobody's gradient.
    if (sh_op_step(op).stands_in) memset(args.dx, 0, op->out->count * sizeof *args.dx);
    return SH_OK;
}

static void progress(sh_op *op) {
    if (!is_alone(op)) sh_peer_call_progress(op->kernel, sh_op_step(op).peers);
}

static const sh_layer_exchange exchange = {finish_forward, finish_backward, progress};

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
    .exchange = &exchange,
    .destroy = sh_op_free_kernel,
    .fuses_relu = true,
};

/* Both kinds have the same options and parameters, so that only the kind changes. */
void sh_sync_batchnorms(sh_net_spec *net) {
    for (size_t i = 0; i < net->layer_count; i++)
        if (net->layers[i]->kind == &sh_layer_kind_batchnorm)
            net->layers[i]->kind = &sync_batchnorm;
}
