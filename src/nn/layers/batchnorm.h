/* Batch normalisation in pieces, shared by the layer `batchnorm` and its synchronised form
 * (parallel/sync_batchnorm.c), which puts a sum over workers between the two halves of a kernel. */
#ifndef SH_NN_LAYERS_BATCHNORM_H
#define SH_NN_LAYERS_BATCHNORM_H

#include "nn/executor.h"
#include "tensor/kernels/norm.h"

enum { SH_BATCHNORM_OPTIONS = 3 };
extern const sh_option sh_batchnorm_rows[SH_BATCHNORM_OPTIONS];

/* declare and build of both forms: the same parameters and states under the same names, so that
 * their checkpoints are interchangeable. */
sh_status sh_batchnorm_declare(const sh_net_spec *net, sh_layer *layer);
sh_status sh_batchnorm_build(sh_op *op, sh_builder *builder);
/* The arguments of the kernels for this op, once it is bound. */
sh_batchnorm_forward sh_batchnorm_forward_args(const sh_op *op);
sh_batchnorm_backward sh_batchnorm_backward_args(const sh_op *op);
/* Forward and backward over this worker's values alone. */
sh_status sh_batchnorm_run_forward(sh_op *op);
sh_status sh_batchnorm_run_backward(sh_op *op);

#endif
