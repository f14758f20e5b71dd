/* An executor: a net, or a range of its layers, compiled for one batch size. Ops in order, buffers
 * packed by lifetime into one block, kernels created once. After the executor is made, running it
 * allocates nothing.
 *
 *   forward op 0 .. op n-1, loss, backward op n-1 .. op 0, on_grad_ready(param) after each.
 *
 * Executors of one net share the net, the tuner and the blocks of parameters, gradients and states.
 * Everything else is an executor's own: ops, kernels, and the memory it is bound to. So
 *  - executors that take turns (full batch, last batch, evaluation) may be bound to one memory;
 *  - executors in use at once (micro-batches in flight in a pipeline) are bound to one memory each,
 *    made without `gradients_idle`, and called by one thread in any order. The first backward of a
 *    step overwrites the gradients and the others add to them: set executor->step.accumulate
 *    before each sh_executor_backward.
 *
 * A range [first, last) takes the values that cross its lower border through `inputs` and gives
 * those that cross its upper border through `outputs`. A value that passes the range is both. Both
 * sides of a border list the same values in the same order, with the same shape and layout. A
 * range that does not end the net has no loss: its caller writes the gradients of `outputs` between
 * forward and backward. With `input_gradients`, those of `inputs` are complete after backward. */
#ifndef SH_NN_EXECUTOR_H
#define SH_NN_EXECUTOR_H

#include "base/memory.h"
#include "base/trace.h"
#include "nn/loss.h"
#include "nn/net.h"
#include "tensor/kernels/tuner.h"

typedef struct sh_executor sh_executor;

/* An activation. Images are plain (N, C, H, W) or blocked (N, C/8, H, W, 8): `block` is 1 or 8. */
typedef struct sh_value {
    sh_shape shape;  // with the batch
    size_t count;
    int block;
    bool tokens;      // int32
    bool needs_grad;  // a parameter stands before it, or its gradient is handed out
    bool leaves;      // an output of the executor: read, and its gradient written, from outside
    void *data;
    float *grad;  // same layout; NULL without needs_grad
    int readers;  // ops that read it in forward, as often as they do
    // For the memory builder:
    int last_read;    // the last time that its data is read, -1: never
    int producer;     // op index, -1: an input of the executor
    int data_class;   // values that share memory have one class; -1 - i: input i of the executor
    int grad_class;   // likewise for gradients
    int grad_writer;  // op that writes the gradient first; -1: the loss
} sh_value;

struct sh_op {
    const sh_layer *layer;  // NULL for a layout change made by the builder
    const sh_layer_kind *kind;
    sh_executor *executor;
    sh_value *in[SH_INPUTS_MOST], *out;
    int in_count;
    bool relu;                                   // absorbs a following relu
    const struct sh_activation_row *activation;  // absorbed; its slopes are kept in `saved`
    bool slopes_applied;       // the gradient of `out` arrives multiplied by these slopes
    const sh_op *slopes_from;  // the op whose slopes backward multiplies dx[0] by; NULL: none

    // Filled by kind->build:
    void *kernel;                    // the kind's own
    bool needs_input, needs_output;  // backward reads them
    size_t saved_bytes;              // from forward to backward
    size_t scratch_bytes;            // during one call

    // Resolved when memory is assigned:
    int index;  // in the executor
    void *saved, *scratch;
    float *dx[SH_INPUTS_MOST];      // where backward writes; NULL: not wanted
    bool dx_added[SH_INPUTS_MOST];  // dx stands aside and is added to the gradient afterwards
    float *param[SH_LAYER_PARAMS_MOST], *param_grad[SH_LAYER_PARAMS_MOST];
    bool param_added[SH_LAYER_PARAMS_MOST];  // backward adds (tied weights), else overwrites
    bool param_last[SH_LAYER_PARAMS_MOST];   // no op writes this gradient after this one
    float *state[SH_LAYER_PARAMS_MOST];
    struct op_buffers {
        int saved, dx[SH_INPUTS_MOST];  // indices of the executor's buffers, -1: none
    } buffers;
    int guard;  // op index of the drop-path that skips this op, -1: none
    /* Of an op that communicates, as op indices: forward starts after `start` and is finished
     * before forward of `finish`; backward starts in its turn and is finished before that of
     * `back`. */
    struct op_flight {
        int start, finish, back;
    } flight;
};

/* A value at a border of the range: the output of a layer, or SH_NET_INPUT. */
typedef struct sh_port {
    int layer;
    sh_value *value;
} sh_port;

typedef struct sh_ports {
    sh_port *items;
    size_t count;
} sh_ports;

/* Where a step is, for the random draws and batchnorm. */
typedef struct sh_step_context {
    bool training;
    uint64_t seed;
    int64_t step;
    uint64_t position;  // of the batch's first sample in the epoch
    uint32_t shard;     // which part of the batch this is: paths are dropped part by part
    bool accumulate;    // add to the gradients instead of overwriting them
    /* The workers that compute parts of this batch, for ops that exchange values with them
     * (parallel/peers.h). All of them start such ops in the same order. NULL: these compute alone.
     */
    const struct sh_peers *peers;
    /* The worker has no sample of this batch. It takes the step with a sample of zeros, so that all
     * start the same exchanges, and adds nothing to any sum. */
    bool stands_in;
    /* Asked before every op: true, from then on, when nobody wants the results any more. The rest
     * is left out, and executor->stopped says so. NULL: never. */
    bool (*stops)(void *self);
    void *stops_self;
} sh_step_context;

struct sh_executor {
    const sh_net *net;
    struct executor_range {
        int first, last;  // layers [first, last) of the net
    } layers;
    int64_t batch;
    bool training;
    struct executor_rules {
        bool no_sharing, gradients_idle, input_gradients;  // as in the options
    } rules;
    sh_op **ops;
    size_t op_count, op_capacity;
    sh_value **values;
    size_t value_count, value_capacity;
    sh_ports inputs, outputs;
    sh_value *input, *output;  // the first input (NULL: none); what the last layer gives
    const sh_loss *loss;
    sh_step_context step;
    bool stopped;        // in this step: there is no output, or no gradient
    bool *skipped;       // per op, this step: behind a dropped path
    bool *param_unused;  // per parameter: no op used it in this step
    const sh_trace *trace;
    struct executor_flying {
        sh_op **ops;  // whose exchange is under way, oldest first
        size_t count;
        bool any;  // an op of the executor communicates
    } flying;
    size_t scratch_bytes;   // shared by all ops, at the start of the memory
    size_t memory_bytes;    // of the shared block that this executor uses
    size_t unshared_bytes;  // the sum without reuse, for explain
    struct executor_buffers {
        struct sh_buffer *items;
        size_t count, capacity;
        int *of_data, *of_grad;  // per class
    } buffers;
};

/* The blocks an executor works on; plain memory of the net's sizes. */
typedef struct sh_blocks {
    float *weights, *gradients, *states;
} sh_blocks;

typedef struct sh_executor_options {
    int64_t batch;
    bool training;
    const sh_loss *loss;  // NULL: forward only
    sh_tuner *tuner;
    const sh_trace *trace;
    bool no_sharing;  // every buffer has memory of its own: for tests and for hunting faults
    /* From a step's forward to its backward nobody but the executor touches the gradients, and
     * backward overwrites them (step.accumulate stays false): activations may lie there until it
     * does. */
    bool gradients_idle;
    int first, last;       // layers [first, last); 0, 0: all that the net holds
    bool input_gradients;  // training: hands out the gradients of inputs that are not tokens
} sh_executor_options;

/* Borrows net, loss, tuner. */
sh_status sh_executor_create(const sh_net *net, const sh_executor_options *options,
                             sh_executor **executor_out);
void sh_executor_destroy(sh_executor *executor);
/* Resolves every pointer; `memory` has at least memory_bytes. It and the gradients are 64-byte
 * aligned. */
void sh_executor_bind(sh_executor *executor, const sh_blocks *blocks, void *memory);

/* Forward on `x`; the output is executor->output->data, plain. */
sh_status sh_executor_forward(sh_executor *executor, const sh_step_context *step, const void *x);
/* The same of a range: one pointer per input, borrowed until backward is done. Outputs stay as they
 * are until backward or the next forward. */
sh_status sh_executor_forward_range(sh_executor *executor, const sh_step_context *step,
                                    const void *const *inputs);
/* A net may be cut before every layer. Here the cut separates nothing that the whole net computes
 * in one op or skips as one branch, so that ranges give the bits of the whole. */
sh_status sh_net_cut_is_exact(const sh_net *net, int layer, bool *exact_out);
/* The loss of the last forward against `y`; with training, also its gradient times `scale`, which
 * may take the place of the output. */
sh_loss_result sh_executor_loss(sh_executor *executor, const void *y, double scale);

typedef void (*sh_on_grad_ready)(void *user, size_t param);
sh_status sh_executor_backward(sh_executor *executor, sh_on_grad_ready ready, void *user);

/* Runs forward op by op, without other workers, and returns the first whose output is not finite
 * (NULL: none). */
const sh_op *sh_executor_first_bad(sh_executor *executor, const sh_step_context *step,
                                   const void *x);
const char *sh_op_name(const sh_op *op);

/* For kind->build: converts input `index` to plain or blocked by 8 if it is not so already. Blocked
 * asks for rank 4 and channels divisible by 8. */
sh_status sh_builder_want(sh_builder *builder, sh_op *op, int index, int block);
sh_tuner *sh_builder_tuner(sh_builder *builder);
static inline sh_step_context sh_op_step(const sh_op *op) { return op->executor->step; }
/* Gradients of parameter `i` are added to what is there. */
static inline bool sh_op_adds(const sh_op *op, int i) {
    return op->executor->step.accumulate || op->param_added[i];
}

#endif
