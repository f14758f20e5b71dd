/* Running a plan. Nothing here allocates. */
#include <string.h>

#include "nn/plan_internal.h"
#include "tensor/kernels/reduce.h"
#include "tensor/kernels/vector.h"

/* The two blocks that buffers lie in. */
typedef struct places {
    void *memory, *gradients;
} places;

static void *at(const places *in, const sh_plan *plan, int index) {
    if (index < 0) return NULL;
    const sh_buffer *buffer = &plan->buffers[index];
    return (char *)(buffer->lent ? in->gradients : in->memory) + buffer->offset;
}

static void bind_op(sh_plan *plan, sh_op *op, const sh_blocks *blocks, const places *in) {
    op->scratch = in->memory;
    op->saved = at(in, plan, op->saved_buffer);
    for (int k = 0; k < op->in_count; k++) {
        op->dx[k] = NULL;
        if (!plan->training || !op->in[k]->needs_grad || !op->out->needs_grad) continue;
        bool aside = op->dx_added[k] && !sh_plan_adds_dx(op, k);
        op->dx[k] = aside ? at(in, plan, op->dx_buffer[k]) : op->in[k]->grad;
    }
    if (op->layer == NULL) return;
    for (int k = 0; k < op->layer->param_count; k++) {
        size_t offset = plan->net->params.items[op->layer->params[k]].offset;
        op->param[k] = blocks->weights + offset;
        op->param_grad[k] = blocks->gradients != NULL ? blocks->gradients + offset : NULL;
    }
    for (int k = 0; k < op->layer->state_count; k++)
        op->state[k] = blocks->states + plan->net->states.items[op->layer->states[k]].offset;
}

void sh_plan_bind(sh_plan *plan, const sh_blocks *blocks, void *memory) {
    const places in = {memory, blocks->gradients};
    for (size_t i = 0; i < plan->value_count; i++) {
        sh_value *value = plan->values[i];
        if (value->data_class >= 0)
            value->data = at(&in, plan, plan->data_buffers[value->data_class]);
        if (value->grad_class >= 0)
            value->grad = at(&in, plan, plan->grad_buffers[value->grad_class]);
    }
    for (size_t i = 0; i < plan->op_count; i++) bind_op(plan, plan->ops[i], blocks, &in);
}

/* Decides which paths are dropped in this step, the inner ones inside outer ones included. */
static void decide_skips(sh_plan *plan) {
    for (int i = (int)plan->op_count - 1; i >= 0; i--) {
        const sh_op *op = plan->ops[i];
        plan->skipped[i] = op->guard >= 0 && (plan->skipped[op->guard] ||
                                              ((const bool *)plan->ops[op->guard]->kernel)[0]);
    }
}

static void start_step(sh_plan *plan, const sh_step_context *step, const void *x) {
    plan->step = *step;
    plan->stopped = false;
    // Only the data itself and what is a reshaped view of it have no buffer.
    for (size_t i = 0; i < plan->value_count; i++)
        if (plan->values[i]->data_class < 0) plan->values[i]->data = (void *)(uintptr_t)x;
    bool any_guard = false;
    for (size_t i = 0; i < plan->op_count; i++) {
        sh_op *op = plan->ops[i];
        if (op->kind->begin != NULL) op->kind->begin(op);
        any_guard = any_guard || op->guard >= 0;
    }
    if (any_guard) decide_skips(plan);
}

static bool stops(sh_plan *plan) {
    if (plan->step.stops == NULL) return false;
    plan->stopped = plan->stopped || plan->step.stops(plan->step.stops_self);
    return plan->stopped;
}

sh_status sh_plan_forward(sh_plan *plan, const sh_step_context *step, const void *x) {
    SH_ASSERT(!(plan->gradients_idle && step->accumulate));
    start_step(plan, step, x);
    for (size_t i = 0; i < plan->op_count && !stops(plan); i++) {
        sh_op *op = plan->ops[i];
        if (plan->skipped[i]) continue;
        int64_t begin = sh_trace_begin(plan->trace);
        SH_TRY(op->kind->forward(op));
        sh_trace_end(plan->trace, "forward", sh_op_name(op), step->step, begin);
    }
    return SH_OK;
}

const sh_op *sh_plan_first_bad(sh_plan *plan, const sh_step_context *step, const void *x) {
    start_step(plan, step, x);
    plan->step.peers = NULL;
    for (size_t i = 0; i < plan->op_count; i++) {
        sh_op *op = plan->ops[i];
        if (plan->skipped[i]) continue;
        if (op->kind->forward(op) != SH_OK) return op;
        if (!sh_reduce()->all_finite(op->out->data, op->out->count)) return op;
    }
    return NULL;
}

sh_loss_result sh_plan_loss(sh_plan *plan, const void *y, double scale) {
    const sh_value *output = plan->output;
    int64_t width = output->shape.dim[output->shape.rank - 1];
    int64_t rows = (int64_t)output->count / width;
    float *gradient = plan->training ? output->grad : NULL;
    return plan->loss->kind->evaluate(plan->loss, output->data, y, rows, width, scale, gradient);
}

/* The gradient of a skipped op's input must still be whole: zero where it would have come first. */
static void skip_backward(sh_op *op) {
    for (int k = 0; k < op->in_count; k++)
        if (op->dx[k] != NULL && !op->dx_added[k])
            memset(op->dx[k], 0, op->in[k]->count * sizeof(float));
    for (int k = 0; op->layer != NULL && k < op->layer->param_count; k++) {
        size_t param = op->layer->params[k];
        if (sh_op_adds(op, k)) continue;  // what was written before stays
        memset(op->param_grad[k], 0, op->plan->net->params.items[param].count * sizeof(float));
    }
}

static sh_status run_backward(sh_op *op) {
    SH_TRY(op->kind->backward(op));
    for (int k = 0; k < op->in_count; k++)
        if (op->dx[k] != NULL && op->dx_added[k] && !sh_plan_adds_dx(op, k))
            sh_vector()->add_to(op->in[k]->grad, op->dx[k], op->in[k]->count);
    for (int k = 0; op->layer != NULL && k < op->layer->param_count; k++)
        op->plan->param_unused[op->layer->params[k]] = false;
    return SH_OK;
}

sh_status sh_plan_backward(sh_plan *plan, sh_on_grad_ready ready, void *user) {
    for (size_t i = 0; i < plan->net->params.count && !plan->step.accumulate; i++)
        plan->param_unused[i] = true;
    for (int i = (int)plan->op_count - 1; i >= 0 && !stops(plan); i--) {
        sh_op *op = plan->ops[i];
        if (!op->out->needs_grad) continue;
        if (plan->skipped[i]) {
            skip_backward(op);
        } else {
            int64_t begin = sh_trace_begin(plan->trace);
            SH_TRY(run_backward(op));
            sh_trace_end(plan->trace, "backward", sh_op_name(op), plan->step.step, begin);
        }
        if (ready == NULL || op->layer == NULL) continue;
        for (int k = 0; k < op->layer->param_count; k++)
            if (op->param_last[k]) ready(user, op->layer->params[k]);
    }
    return SH_OK;
}
