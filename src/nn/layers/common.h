/* Helpers of layer files: refusing a shape, scratch, absorbed activations, initial values. */
#ifndef SH_NN_LAYERS_COMMON_H
#define SH_NN_LAYERS_COMMON_H

#include <string.h>

#include "nn/executor.h"
#include "tensor/kernels/vector.h"

/* Fails with "layer 'x' (kind) wants WANTED, found 3x32x32". */
sh_status sh_layer_wrong_shape(const sh_layer *layer, const char *wanted);

/* Raises the op's scratch to at least `bytes`. */
void sh_op_scratch(sh_op *op, size_t bytes);

/* Backward of an absorbed activation, in place on the output's gradient: zero where an absorbed
 * relu gave zero; times the saved slope of another activation, unless the op that wrote the
 * gradient has multiplied already (op->slopes_applied). */
void sh_op_mask_relu(sh_op *op);

/* kind->destroy for kernels that are one plain allocation. */
void sh_op_free_kernel(sh_op *op);

/* The names of the rules for weights, for option tables, and the rule of a name. Biases start at 0,
 * as in the papers. */
const char *sh_init_choice(size_t index);
sh_init sh_init_named(const char *name, double std, int64_t fan_in, int64_t fan_out);

#endif
