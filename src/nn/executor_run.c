/* Running an executor. Nothing here allocates. */
#include <string.h>

#include "nn/executor_internal.h"
#include "tensor/kernels/reduce.h"
#include "tensor/kernels/vector.h"

/* The two blocks that buffers lie in. */
typedef struct places {
    void *memory, *gradients;
} places;

static void *at(const places *in, const sh_executor *executor, int index) {
    if (index < 0) return NULL;
    const sh_buffer *buffer = &executor->buffers[index];
    return (char *)(buffer->lent ? in->gradients : in->memory) + buffer->offset;
}

static void bind_op(sh_executor *executor, sh_op *op, const sh_blocks *blocks, const places *in) {
    op->scratch = in->memory;
    op->saved = at(in, executor, op->saved_buffer);
    for (int k = 0; k < op->in_count; k++) {
        op->dx[k] = NULL;
        if (!executor->training || !op->in[k]->needs_grad || !op->out->needs_grad) continue;
        bool aside = op->dx_added[k] && !sh_executor_adds_dx(op, k);
        op->dx[k] = aside ? at(in, executor, op->dx_buffer[k]) : op->in[k]->grad;
    }
    if (op->layer == NULL) return;
    for (int k = 0; k < op->layer->param_count; k++) {
        size_t offset = executor->net->params.items[op->layer->params[k]].offset;
        op->param[k] = blocks->weights + offset;
        op->param_grad[k] = blocks->gradients != NULL ? blocks->gradients + offset : NULL;
    }
    for (int k = 0; k < op->layer->state_count; k++)
        op->state[k] = blocks->states + executor->net->states.items[op->layer->states[k]].offset;
}

void sh_executor_bind(sh_executor *executor, const sh_blocks *blocks, void *memory) {
    const places in = {memory, blocks->gradients};
    for (size_t i = 0; i < executor->value_count; i++) {
        sh_value *value = executor->values[i];
        if (value->data_class >= 0)
            value->data = at(&in, executor, executor->data_buffers[value->data_class]);
        if (value->grad_class >= 0)
            value->grad = at(&in, executor, executor->grad_buffers[value->grad_class]);
    }
    for (size_t i = 0; i < executor->op_count; i++)
        bind_op(executor, executor->ops[i], blocks, &in);
}

/* Decides which paths are dropped in this step, the inner ones inside outer ones included. */
static void decide_skips(sh_executor *executor) {
    for (int i = (int)executor->op_count - 1; i >= 0; i--) {
        const sh_op *op = executor->ops[i];
        executor->skipped[i] =
            op->guard >= 0 &&
            (executor->skipped[op->guard] || ((const bool *)executor->ops[op->guard]->kernel)[0]);
    }
}

static void start_step(sh_executor *executor, const sh_step_context *step, const void *x) {
    executor->step = *step;
    executor->stopped = false;
    // Only the data itself and what is a reshaped view of it have no buffer.
    for (size_t i = 0; i < executor->value_count; i++)
        if (executor->values[i]->data_class < 0) executor->values[i]->data = (void *)(uintptr_t)x;
    bool any_guard = false;
    for (size_t i = 0; i < executor->op_count; i++) {
        sh_op *op = executor->ops[i];
        if (op->kind->begin != NULL) op->kind->begin(op);
        any_guard = any_guard || op->guard >= 0;
    }
    if (any_guard) decide_skips(executor);
}

static bool stops(sh_executor *executor) {
    if (executor->step.stops == NULL) return false;
    executor->stopped = executor->stopped || executor->step.stops(executor->step.stops_self);
    return executor->stopped;
}

sh_status sh_executor_forward(sh_executor *executor, const sh_step_context *step, const void *x) {
    SH_ASSERT(!(executor->gradients_idle && step->accumulate));
    start_step(executor, step, x);
    for (size_t i = 0; i < executor->op_count && !stops(executor); i++) {
        sh_op *op = executor->ops[i];
        if (executor->skipped[i]) continue;
        int64_t begin = sh_trace_begin(executor->trace);
        SH_TRY(op->kind->forward(op));
        sh_trace_end(executor->trace, "forward", sh_op_name(op), step->step, begin);
    }
    return SH_OK;
}

const sh_op *sh_executor_first_bad(sh_executor *executor, const sh_step_context *step,
                                   const void *x) {
    start_step(executor, step, x);
    executor->step.peers = NULL;
    for (size_t i = 0; i < executor->op_count; i++) {
        sh_op *op = executor->ops[i];
        if (executor->skipped[i]) continue;
        if (op->kind->forward(op) != SH_OK) return op;
        if (!sh_reduce()->all_finite(op->out->data, op->out->count)) return op;
    }
    return NULL;
}

sh_loss_result sh_executor_loss(sh_executor *executor, const void *y, double scale) {
    const sh_value *output = executor->output;
    int64_t width = output->shape.dim[output->shape.rank - 1];
    int64_t rows = (int64_t)output->count / width;
    float *gradient = executor->training ? output->grad : NULL;
    return executor->loss->kind->evaluate(executor->loss, output->data, y, rows, width, scale,
                                          gradient);
}

/* The gradient of a skipped op's input must still be whole: zero where it would have come first. */
static void skip_backward(sh_op *op) {
    for (int k = 0; k < op->in_count; k++)
        if (op->dx[k] != NULL && !op->dx_added[k])
            memset(op->dx[k], 0, op->in[k]->count * sizeof(float));
    for (int k = 0; op->layer != NULL && k < op->layer->param_count; k++) {
        size_t param = op->layer->params[k];
        if (sh_op_adds(op, k)) continue;  // what was written before stays
        memset(op->param_grad[k], 0, op->executor->net->params.items[param].count * sizeof(float));
    }
}

static sh_status run_backward(sh_op *op) {
    SH_TRY(op->kind->backward(op));
    for (int k = 0; k < op->in_count; k++)
        if (op->dx[k] != NULL && op->dx_added[k] && !sh_executor_adds_dx(op, k))
            sh_vector()->add_to(op->in[k]->grad, op->dx[k], op->in[k]->count);
    for (int k = 0; op->layer != NULL && k < op->layer->param_count; k++)
        op->executor->param_unused[op->layer->params[k]] = false;
    return SH_OK;
}

sh_status sh_executor_backward(sh_executor *executor, sh_on_grad_ready ready, void *user) {
    for (size_t i = 0; i < executor->net->params.count && !executor->step.accumulate; i++)
        executor->param_unused[i] = true;
    for (int i = (int)executor->op_count - 1; i >= 0 && !stops(executor); i--) {
        sh_op *op = executor->ops[i];
        if (!op->out->needs_grad) continue;
        if (executor->skipped[i]) {
            skip_backward(op);
        } else {
            int64_t begin = sh_trace_begin(executor->trace);
            SH_TRY(run_backward(op));
            sh_trace_end(executor->trace, "backward", sh_op_name(op), executor->step.step, begin);
        }
        if (ready == NULL || op->layer == NULL) continue;
        for (int k = 0; k < op->layer->param_count; k++)
            if (op->param_last[k]) ready(user, op->layer->params[k]);
    }
    return SH_OK;
}
