/* What needs memory and when. Values that can share memory (in-place and reshaping ops) form
 * classes; a class is live from its first write to its last read; classes whose lives do not meet
 * may overlap (plan_place.c). */
#include "nn/plan_internal.h"

static int loss_time(const sh_plan *plan) { return (int)plan->op_count; }

static int backward_time(const sh_plan *plan, int op) { return sh_plan_backward_time(plan, op); }

static bool runs_backward(const sh_plan *plan, const sh_op *op) {
    return sh_plan_runs_backward(plan, op);
}

static void read_until(sh_value *value, int time) {
    if (time > value->last_read) value->last_read = time;
}

/* When each value's data is read last: by the ops behind it, by backward of these and of the op
 * that made it, by the loss. */
static void find_last_reads(sh_plan *plan) {
    for (size_t i = 0; i < plan->value_count; i++) plan->values[i]->last_read = -1;
    for (size_t i = 0; i < plan->op_count; i++) {
        sh_op *op = plan->ops[i];
        int back = backward_time(plan, op->index);
        bool backward = runs_backward(plan, op);
        for (int k = 0; k < op->in_count; k++)
            read_until(op->in[k], backward && op->needs_input ? back : op->index);
        if (backward && op->needs_output) read_until(op->out, back);
    }
    read_until(plan->output, loss_time(plan));
}

/* `reads`: per class, when it is read last. The op itself reads its input, and that may be the last
 * time. */
static bool may_overwrite(const sh_plan *plan, const sh_op *op, const int *reads) {
    const sh_value *input = op->in[0];
    if (plan->no_sharing || !op->kind->in_place || input->data_class < 0 || input->tokens)
        return false;
    for (int k = 1; k < op->in_count; k++)
        if (op->in[k]->data_class == input->data_class) return false;
    return input->count == op->out->count && reads[input->data_class] == op->index;
}

static sh_status add_buffer(sh_plan *plan, size_t bytes, int start, int end, int *index_out) {
    SH_TRY(sh_grow((void **)&plan->buffers, &plan->buffer_capacity, plan->buffer_count + 1,
                   sizeof *plan->buffers));
    plan->buffers[plan->buffer_count] =
        (sh_buffer){.bytes = sh_round_up(bytes, SH_ALIGN), .start = start, .end = end};
    *index_out = (int)plan->buffer_count++;
    return SH_OK;
}

/* Values become classes, `reads_out` gets the last read of each. Returns the number of classes. */
static int assign_classes(sh_plan *plan, int *reads_out) {
    int classes = 0;
    for (size_t i = 0; i < plan->op_count; i++) {
        sh_op *op = plan->ops[i];
        bool shared = op->kind->reshapes || may_overwrite(plan, op, reads_out);
        int class = shared ? op->in[0]->data_class : classes++;
        op->out->data_class = class;
        if (class < 0) continue;
        if (!shared || op->out->last_read > reads_out[class]) reads_out[class] = op->out->last_read;
    }
    return classes;
}

/* `reads`: memory for a number per op. */
static sh_status assign_data(sh_plan *plan, int *reads) {
    size_t classes = (size_t)assign_classes(plan, reads);
    plan->data_buffers = sh_alloc(classes, sizeof *plan->data_buffers);
    if (plan->data_buffers == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    for (size_t i = 0; i < classes; i++) plan->data_buffers[i] = -1;
    for (size_t i = 0; i < plan->op_count; i++) {  // the first value of a class opens its buffer
        const sh_op *op = plan->ops[i];
        int class = op->out->data_class;
        if (class < 0 || plan->data_buffers[class] >= 0) continue;
        int end = reads[class];
        SH_TRY(add_buffer(plan, op->out->count * sizeof(float), op->index,
                          end > op->index ? end : op->index, &plan->data_buffers[class]));
    }
    return SH_OK;
}

/* The consumer that comes last in forward writes the gradient first; the loss that of the output.
 */
static void find_grad_writers(sh_plan *plan) {
    for (size_t i = 0; i < plan->op_count; i++)
        for (int k = 0; k < plan->ops[i]->in_count; k++)
            if (plan->ops[i]->out->needs_grad) plan->ops[i]->in[k]->grad_writer = (int)i;
    plan->output->grad_writer = -1;
}

/* Going backward: an op that only passes gradients on lets its input's share its output's memory.
 */
static void assign_grad_classes(sh_plan *plan, int *classes_out) {
    int classes = 0;
    if (plan->output->needs_grad) plan->output->grad_class = classes++;
    for (int i = (int)plan->op_count - 1; i >= 0; i--) {
        sh_op *op = plan->ops[i];
        if (!op->out->needs_grad) continue;
        for (int k = 0; k < op->in_count; k++) {
            sh_value *input = op->in[k];
            if (!input->needs_grad) continue;
            bool writes_first = input->grad_writer == i && input->grad_class < 0;
            op->dx_added[k] = !writes_first;
            if (!writes_first) continue;
            bool passes_on = op->kind->in_place || op->kind->reshapes;
            bool shares = k == 0 && passes_on && !plan->no_sharing;
            input->grad_class = shares ? op->out->grad_class : classes++;
        }
    }
    *classes_out = classes;
}

/* A loss reads each prediction before it writes its gradient, so where backward does not ask for
 * the output, its gradient takes its place. */
static bool loss_overwrites(const sh_plan *plan, int grad_class, const int *reads) {
    const sh_value *output = plan->output;
    return !plan->no_sharing && output->grad_class == grad_class && output->data_class >= 0 &&
           reads[output->data_class] == loss_time(plan);
}

/* The life of a gradient class: from its first write to the backward of the first producer. */
static void find_grad_lives(const sh_plan *plan, int classes, sh_buffer *lives_out) {
    for (int class = 0; class < classes; class ++)
        lives_out[class] = (sh_buffer){.start = INT32_MAX, .end = -1};
    for (size_t i = 0; i < plan->value_count; i++) {
        const sh_value *value = plan->values[i];
        if (value->grad_class < 0) continue;
        sh_buffer *life = &lives_out[value->grad_class];
        int written =
            value->grad_writer < 0 ? loss_time(plan) : backward_time(plan, value->grad_writer);
        int read = backward_time(plan, value->producer);
        if (written < life->start) life->start = written;
        if (read > life->end) life->end = read;
        life->bytes = value->count * sizeof(float);
    }
}

static sh_status assign_grad_buffers(sh_plan *plan, int classes, const sh_buffer *lives,
                                     const int *reads) {
    for (int class = 0; class < classes; class ++) {
        const sh_buffer *life = &lives[class];
        if (loss_overwrites(plan, class, reads)) {
            plan->grad_buffers[class] = plan->data_buffers[plan->output->data_class];
            plan->buffers[plan->grad_buffers[class]].end = life->end;
        } else {
            SH_TRY(
                add_buffer(plan, life->bytes, life->start, life->end, &plan->grad_buffers[class]));
        }
    }
    return SH_OK;
}

static sh_status assign_grads(sh_plan *plan, const int *reads) {
    find_grad_writers(plan);
    int classes = 0;
    assign_grad_classes(plan, &classes);
    plan->grad_buffers = sh_alloc((size_t)classes, sizeof *plan->grad_buffers);
    sh_buffer *lives = sh_alloc((size_t)classes, sizeof *lives);
    sh_status status = SH_OK;
    if (plan->grad_buffers == NULL || lives == NULL) {
        status = SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    } else {
        find_grad_lives(plan, classes, lives);
        status = assign_grad_buffers(plan, classes, lives, reads);
    }
    sh_free(lives);
    return status;
}

static sh_status assign_op_buffers(sh_plan *plan, sh_op *op) {
    int back = backward_time(plan, op->index);
    bool backward = runs_backward(plan, op);
    op->saved_buffer = -1;
    if (op->scratch_bytes > plan->scratch_bytes)
        plan->scratch_bytes = sh_round_up(op->scratch_bytes, SH_ALIGN);
    if (op->saved_bytes > 0)
        SH_TRY(add_buffer(plan, op->saved_bytes, op->index, backward ? back : op->index,
                          &op->saved_buffer));
    for (int k = 0; k < op->in_count; k++) {
        op->dx_buffer[k] = -1;
        if (backward && op->dx_added[k] && !sh_plan_adds_dx(op, k))
            SH_TRY(
                add_buffer(plan, op->in[k]->count * sizeof(float), back, back, &op->dx_buffer[k]));
    }
    return SH_OK;
}

static sh_status assign_buffers(sh_plan *plan, int *reads) {
    find_last_reads(plan);
    SH_TRY(assign_data(plan, reads));
    if (plan->training) SH_TRY(assign_grads(plan, reads));
    for (size_t i = 0; i < plan->op_count; i++) SH_TRY(assign_op_buffers(plan, plan->ops[i]));
    return SH_OK;
}

sh_status sh_plan_assign_memory(sh_plan *plan) {
    int *reads = sh_alloc(plan->op_count, sizeof *reads);
    if (reads == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    sh_status status = assign_buffers(plan, reads);
    sh_free(reads);
    return status == SH_OK ? sh_plan_place(plan) : status;
}
