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
    const sh_buffer *buffer = &executor->buffers.items[index];
    return (char *)(buffer->lent ? in->gradients : in->memory) + buffer->offset;
}

/* dx points at the input's gradient, or aside where an earlier reader has written that already. */
static void bind_op(sh_executor *executor, sh_op *op, const sh_blocks *blocks, const places *in) {
    op->scratch = in->memory;
    op->saved = at(in, executor, op->buffers.saved);
    for (int k = 0; k < op->in_count; k++) {
        op->dx[k] = NULL;
        if (!executor->training || !op->in[k]->needs_grad || !op->out->needs_grad) continue;
        bool aside = op->dx_added[k] && !sh_executor_adds_dx(op, k);
        op->dx[k] = aside ? at(in, executor, op->buffers.dx[k]) : op->in[k]->grad;
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
            value->data = at(&in, executor, executor->buffers.of_data[value->data_class]);
        if (value->grad_class >= 0)
            value->grad = at(&in, executor, executor->buffers.of_grad[value->grad_class]);
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

/* Inputs are used where they lie, without a copy. Draws of the step (dropout, paths) are made here,
 * before any op runs. */
static void start_step(sh_executor *executor, const sh_step_context *step,
                       const void *const *inputs) {
    executor->step = *step;
    executor->stopped = false;
    executor->flying.count = 0;
    // Only the inputs themselves and what is a reshaped view of them have no buffer.
    for (size_t i = 0; i < executor->value_count; i++) {
        int class = executor->values[i]->data_class;
        if (class < 0) executor->values[i]->data = (void *)(uintptr_t)inputs[-1 - class];
    }
    bool any_guard = false;
    for (size_t i = 0; i < executor->op_count; i++) {
        sh_op *op = executor->ops[i];
        if (op->kind->begin != NULL) op->kind->begin(op);
        any_guard = any_guard || op->guard >= 0;
    }
    if (any_guard) decide_skips(executor);
}

/* Once true it stays so for the step: the results are incomplete from then on. */
static bool stops(sh_executor *executor) {
    if (executor->step.stops == NULL) return false;
    executor->stopped = executor->stopped || executor->step.stops(executor->step.stops_self);
    return executor->stopped;
}

/* ---- Exchanges under way ---- */

/* Called between kernels, so that exchanges under way advance while the main task computes. */
static void progress(const sh_executor *executor) {
    for (size_t i = 0; i < executor->flying.count; i++) {
        sh_op *op = executor->flying.ops[i];
        op->kind->exchange->progress(op);
    }
}

/* Runs one phase of an op as an event of the trace. A failed phase leaves no event. */
static sh_status timed(sh_executor *executor, sh_op *op, const char *phase,
                       sh_status (*run)(sh_op *op)) {
    int64_t begin = sh_trace_begin(executor->trace);
    SH_TRY(run(op));
    sh_trace_end(executor->trace, phase, sh_op_name(op), executor->step.step, begin);
    return SH_OK;
}

/* Forward of the ops under way that must be finished before op `before`. */
static sh_status finish_forward(sh_executor *executor, int before) {
    size_t kept = 0;
    for (size_t i = 0; i < executor->flying.count; i++) {
        sh_op *op = executor->flying.ops[i];
        if (op->flight.finish > before)
            executor->flying.ops[kept++] = op;
        else
            SH_TRY(timed(executor, op, "forward", op->kind->exchange->finish_forward));
    }
    executor->flying.count = kept;
    return SH_OK;
}

/* Starts the ops that communicate, from `next` on, whose inputs are written when op `after` is
 * done. */
static sh_status start_forward(sh_executor *executor, int after, size_t *next) {
    if (!executor->flying.any) return SH_OK;
    for (; *next < executor->op_count; ++*next) {
        sh_op *op = executor->ops[*next];
        if (!sh_op_communicates(op)) continue;
        if (op->flight.start > after) return SH_OK;
        if (executor->skipped[*next]) continue;
        SH_TRY(timed(executor, op, "forward", op->kind->forward));
        executor->flying.ops[executor->flying.count++] = op;
    }
    return SH_OK;
}

static sh_status forward_op(sh_executor *executor, int i) {
    sh_op *op = executor->ops[i];
    if (executor->flying.count > 0) SH_TRY(finish_forward(executor, i));
    if (executor->skipped[i] || sh_op_communicates(op)) return SH_OK;
    SH_TRY(timed(executor, op, "forward", op->kind->forward));
    progress(executor);
    return SH_OK;
}

sh_status sh_executor_forward_range(sh_executor *executor, const sh_step_context *step,
                                    const void *const *inputs) {
    SH_ASSERT(!(executor->rules.gradients_idle && step->accumulate));
    start_step(executor, step, inputs);
    size_t next = 0;
    for (int i = 0; i < (int)executor->op_count && !stops(executor); i++) {
        SH_TRY(start_forward(executor, i - 1, &next));
        SH_TRY(forward_op(executor, i));
    }
    if (!executor->stopped) SH_TRY(start_forward(executor, (int)executor->op_count, &next));
    return finish_forward(executor, (int)executor->op_count);
}

sh_status sh_executor_forward(sh_executor *executor, const sh_step_context *step, const void *x) {
    SH_ASSERT(executor->inputs.count == 1);
    return sh_executor_forward_range(executor, step, &x);
}

const sh_op *sh_executor_first_bad(sh_executor *executor, const sh_step_context *step,
                                   const void *x) {
    start_step(executor, step, &x);
    executor->step.peers = NULL;
    for (size_t i = 0; i < executor->op_count; i++) {
        sh_op *op = executor->ops[i];
        if (executor->skipped[i]) continue;
        if (op->kind->forward(op) != SH_OK) return op;
        if (op->kind->exchange != NULL && op->kind->exchange->finish_forward(op) != SH_OK)
            return op;
        if (!sh_reduce()->all_finite(op->out->data, op->out->count)) return op;
    }
    return NULL;
}

sh_loss_result sh_executor_loss(sh_executor *executor, const void *y, double scale) {
    const sh_value *output = executor->output;
    int64_t width = output->shape.dim[output->shape.rank - 1];
    int64_t rows = (int64_t)output->count / width;
    float *gradient = executor->training ? output->grad : NULL;
    sh_split_loss *split = executor->loss->split;
    if (split != NULL)
        return split->evaluate(split, executor->loss, executor->step.peers, output->data, y, rows,
                               scale, gradient);
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

/* Who listens to gradients that are ready. */
typedef struct listener {
    sh_on_grad_ready ready;
    void *user;
} listener;

/* A parameter is ready when the last op that writes its gradient is done: tied weights wait for
 * all. */
static void tell(const sh_op *op, const listener *to) {
    if (to->ready == NULL || op->layer == NULL) return;
    for (int k = 0; k < op->layer->param_count; k++)
        if (op->param_last[k]) to->ready(to->user, op->layer->params[k]);
}

/* What backward of an op has written is complete. */
static void complete_backward(sh_op *op, const listener *to) {
    for (int k = 0; k < op->in_count; k++)
        if (op->dx[k] != NULL && op->dx_added[k] && !sh_executor_adds_dx(op, k))
            sh_vector()->add_to(op->in[k]->grad, op->dx[k], op->in[k]->count);
    for (int k = 0; op->layer != NULL && k < op->layer->param_count; k++)
        op->executor->param_unused[op->layer->params[k]] = false;
    tell(op, to);
}

/* Backward of the ops under way that must be finished before backward of op `before`. */
static sh_status finish_backward(sh_executor *executor, int before, const listener *to) {
    size_t kept = 0;
    for (size_t i = 0; i < executor->flying.count; i++) {
        sh_op *op = executor->flying.ops[i];
        if (op->flight.back < before) {
            executor->flying.ops[kept++] = op;
            continue;
        }
        SH_TRY(timed(executor, op, "backward", op->kind->exchange->finish_backward));
        complete_backward(op, to);
    }
    executor->flying.count = kept;
    return SH_OK;
}

static sh_status backward_op(sh_executor *executor, int i, const listener *to) {
    sh_op *op = executor->ops[i];
    if (executor->flying.count > 0) SH_TRY(finish_backward(executor, i, to));
    if (!op->out->needs_grad) return SH_OK;
    if (executor->skipped[i]) {
        skip_backward(op);
        tell(op, to);
        return SH_OK;
    }
    SH_TRY(timed(executor, op, "backward", op->kind->backward));
    progress(executor);
    if (sh_op_communicates(op))
        executor->flying.ops[executor->flying.count++] = op;
    else
        complete_backward(op, to);
    return SH_OK;
}

sh_status sh_executor_backward(sh_executor *executor, sh_on_grad_ready ready, void *user) {
    const listener to = {ready, user};
    for (size_t i = 0; i < executor->net->params.count && !executor->step.accumulate; i++)
        executor->param_unused[i] = true;
    for (int i = (int)executor->op_count - 1; i >= 0 && !stops(executor); i--)
        SH_TRY(backward_op(executor, i, &to));
    return finish_backward(executor, -1, &to);
}
