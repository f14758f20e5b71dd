/* What needs memory and when. Values that can share memory (in-place and reshaping ops) form
 * classes; a class is live from its first write to its last read; classes whose lives do not meet
 * may overlap (executor_place.c). An op that
 * communicates is under way from its start to its finish, and so long its buffers are live. */
#include "nn/executor_internal.h"

static int loss_time(const sh_executor *executor) { return (int)executor->op_count; }

static int backward_time(const sh_executor *executor, int op) {
    return sh_executor_backward_time(executor, op);
}

static bool runs_backward(const sh_executor *executor, const sh_op *op) {
    return sh_executor_runs_backward(executor, op);
}

/* ---- Ops that communicate ---- */

/* Forward starts once all inputs are written, but not before the communicating op ahead of it: all
 * workers start their exchanges in one order, and the ops in between may differ from worker to
 * worker. An op that works in place starts in its turn, after the other readers of its input. */
static int earliest_start(const sh_op *op, int before) {
    int start = op->kind->in_place ? op->index - 1 : before;
    for (int k = 0; k < op->in_count; k++)
        if (op->in[k]->producer > start) start = op->in[k]->producer;
    return start;
}

static int first_reader(const sh_executor *executor, const sh_op *op) {
    for (size_t i = (size_t)op->index + 1; i < executor->op_count; i++)
        for (int k = 0; k < executor->ops[i]->in_count; k++)
            if (executor->ops[i]->in[k] == op->out) return (int)i;
    return (int)executor->op_count;
}

static void find_flights(sh_executor *executor) {
    int before = -1;
    for (size_t i = 0; i < executor->op_count; i++) {
        sh_op *op = executor->ops[i];
        op->flight.start = op->flight.finish = op->index;
        if (!sh_op_communicates(op)) continue;
        executor->flying.any = true;
        op->flight.start = before = earliest_start(op, before);
        op->flight.finish = first_reader(executor, op);
    }
}

/* The time from which on forward writes the op's output. */
static int written_from(const sh_op *op) { return op->flight.start < 0 ? 0 : op->flight.start; }

/* The op reads or writes gradients of this class in backward. */
static bool touches(const sh_op *op, int class) {
    if (!op->out->needs_grad) return false;
    bool does = op->out->grad_class == class;
    for (int k = 0; k < op->in_count; k++) does = does || op->in[k]->grad_class == class;
    return does;
}

/* Backward is finished before the next op touches a gradient that it writes. */
static int last_finish(const sh_executor *executor, const sh_op *op) {
    for (int i = op->index - 1; i >= 0; i--)
        for (int k = 0; k < op->in_count; k++)
            if (op->in[k]->grad_class >= 0 && touches(executor->ops[i], op->in[k]->grad_class))
                return i;
    return -1;
}

static void find_back_flights(sh_executor *executor) {
    for (size_t i = 0; i < executor->op_count; i++) {
        sh_op *op = executor->ops[i];
        op->flight.back = sh_op_communicates(op) ? last_finish(executor, op) : op->index;
    }
}

/* When backward of the op is complete. */
static int back_done(const sh_executor *executor, const sh_op *op) {
    return backward_time(executor, op->flight.back < 0 ? 0 : op->flight.back);
}

/* ---- Data ---- */

static void read_until(sh_value *value, int time) {
    if (time > value->last_read) value->last_read = time;
}

/* When each value's data is read last: by the ops behind it, by backward of these and of the op
 * that made it, by the loss. */
static void find_last_reads(sh_executor *executor) {
    for (size_t i = 0; i < executor->value_count; i++) executor->values[i]->last_read = -1;
    for (size_t i = 0; i < executor->op_count; i++) {
        sh_op *op = executor->ops[i];
        int back = back_done(executor, op);
        bool backward = runs_backward(executor, op);
        for (int k = 0; k < op->in_count; k++)
            read_until(op->in[k], backward && op->needs_input ? back : op->flight.finish);
        if (backward && op->needs_output) read_until(op->out, back);
    }
    for (size_t i = 0; i < executor->outputs.count; i++)
        read_until(executor->outputs.items[i].value, loss_time(executor));
}

static bool reads_class(const sh_op *op, int class) {
    for (int k = 0; k < op->in_count; k++)
        if (op->in[k]->data_class == class) return true;
    return false;
}

/* `reads`: per class, when it is read last. The op itself reads its input, and that may be the last
 * time. */
static bool may_overwrite(const sh_executor *executor, const sh_op *op, const int *reads) {
    const sh_value *input = op->in[0];
    for (int i = op->index + 1; i < op->flight.finish; i++)  // while an exchange is under way
        if (reads_class(executor->ops[i], input->data_class)) return false;
    if (executor->rules.no_sharing || !op->kind->in_place || input->data_class < 0 || input->tokens)
        return false;
    for (int k = 1; k < op->in_count; k++)
        if (op->in[k]->data_class == input->data_class) return false;
    bool shared = op->flight.finish > op->index && op->flight.finish < (int)executor->op_count &&
                  reads_class(executor->ops[op->flight.finish], input->data_class);
    return !shared && input->count == op->out->count &&
           reads[input->data_class] == op->flight.finish;
}

static sh_status add_buffer(sh_executor *executor, size_t bytes, int start, int end,
                            int *index_out) {
    SH_TRY(sh_grow((void **)&executor->buffers.items, &executor->buffers.capacity,
                   executor->buffers.count + 1, sizeof *executor->buffers.items));
    executor->buffers.items[executor->buffers.count] =
        (sh_buffer){.bytes = sh_round_up(bytes, SH_ALIGN), .start = start, .end = end};
    *index_out = (int)executor->buffers.count++;
    return SH_OK;
}

/* Values become classes, `reads_out` gets the last read of each. Returns the number of classes. */
static int assign_classes(sh_executor *executor, int *reads_out) {
    int classes = 0;
    for (size_t i = 0; i < executor->op_count; i++) {
        sh_op *op = executor->ops[i];
        bool shared = op->kind->reshapes || may_overwrite(executor, op, reads_out);
        int class = shared ? op->in[0]->data_class : classes++;
        op->out->data_class = class;
        if (class < 0) continue;
        if (!shared || op->out->last_read > reads_out[class]) reads_out[class] = op->out->last_read;
    }
    return classes;
}

/* `reads`: memory for a number per op. */
static sh_status assign_data(sh_executor *executor, int *reads) {
    size_t classes = (size_t)assign_classes(executor, reads);
    executor->buffers.of_data = sh_alloc(classes, sizeof *executor->buffers.of_data);
    if (executor->buffers.of_data == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    for (size_t i = 0; i < classes; i++) executor->buffers.of_data[i] = -1;
    for (size_t i = 0; i < executor->op_count;
         i++) {  // the first value of a class opens its buffer
        const sh_op *op = executor->ops[i];
        int class = op->out->data_class;
        if (class < 0 || executor->buffers.of_data[class] >= 0) continue;
        int end = reads[class];
        SH_TRY(add_buffer(executor, op->out->count * sizeof(float), written_from(op),
                          end > op->index ? end : op->index, &executor->buffers.of_data[class]));
    }
    return SH_OK;
}

/* The consumer that comes last in forward writes the gradient first; the loss, or the caller of a
 * range, those of the outputs. */
static void find_grad_writers(sh_executor *executor) {
    for (size_t i = 0; i < executor->op_count; i++)
        for (int k = 0; k < executor->ops[i]->in_count; k++)
            if (executor->ops[i]->out->needs_grad) executor->ops[i]->in[k]->grad_writer = (int)i;
    for (size_t i = 0; i < executor->outputs.count; i++)
        executor->outputs.items[i].value->grad_writer = -1;
}

/* Going backward: an op that only passes gradients on lets its input's share its output's memory.
 */
static void assign_grad_classes(sh_executor *executor, int *classes_out) {
    int classes = 0;
    for (size_t i = 0; i < executor->outputs.count; i++) {
        sh_value *output = executor->outputs.items[i].value;
        if (output->needs_grad) output->grad_class = classes++;
    }
    for (int i = (int)executor->op_count - 1; i >= 0; i--) {
        sh_op *op = executor->ops[i];
        if (!op->out->needs_grad) continue;
        for (int k = 0; k < op->in_count; k++) {
            sh_value *input = op->in[k];
            if (!input->needs_grad) continue;
            bool writes_first = input->grad_writer == i && input->grad_class < 0;
            op->dx_added[k] = !writes_first;
            if (!writes_first) continue;
            bool passes_on = op->kind->in_place || op->kind->reshapes;
            bool shares = k == 0 && passes_on && !executor->rules.no_sharing;
            input->grad_class = shares ? op->out->grad_class : classes++;
        }
    }
    *classes_out = classes;
}

/* A loss (not the caller of a range) reads each prediction before it writes its gradient, so where
 * backward does not ask for the output, its gradient takes its place. */
static bool loss_overwrites(const sh_executor *executor, int grad_class, const int *reads) {
    const sh_value *output = executor->output;
    bool has_loss = executor->layers.last == (int)executor->net->layer_count;
    return has_loss && !executor->rules.no_sharing && output->grad_class == grad_class &&
           output->data_class >= 0 && reads[output->data_class] == loss_time(executor);
}

/* The life of a gradient class: from its first write to the end of backward of the first producer;
 * to the end of all for an input's, which is handed out. */
static void find_grad_lives(const sh_executor *executor, int classes, sh_buffer *lives_out) {
    for (int class = 0; class < classes; class ++)
        lives_out[class] = (sh_buffer){.start = INT32_MAX, .end = -1};
    for (size_t i = 0; i < executor->value_count; i++) {
        const sh_value *value = executor->values[i];
        if (value->grad_class < 0) continue;
        sh_buffer *life = &lives_out[value->grad_class];
        int written = value->grad_writer < 0 ? loss_time(executor)
                                             : backward_time(executor, value->grad_writer);
        int read = backward_time(executor, value->producer < 0 ? 0 : value->producer);
        if (value->producer >= 0 && back_done(executor, executor->ops[value->producer]) > read)
            read = back_done(executor, executor->ops[value->producer]);
        if (written < life->start) life->start = written;
        if (read > life->end) life->end = read;
        life->bytes = value->count * sizeof(float);
    }
}

static sh_status assign_grad_buffers(sh_executor *executor, int classes, const sh_buffer *lives,
                                     const int *reads) {
    for (int class = 0; class < classes; class ++) {
        const sh_buffer *life = &lives[class];
        if (loss_overwrites(executor, class, reads)) {
            executor->buffers.of_grad[class] =
                executor->buffers.of_data[executor->output->data_class];
            executor->buffers.items[executor->buffers.of_grad[class]].end = life->end;
        } else {
            SH_TRY(add_buffer(executor, life->bytes, life->start, life->end,
                              &executor->buffers.of_grad[class]));
        }
    }
    return SH_OK;
}

static sh_status assign_grads(sh_executor *executor, int classes, const int *reads) {
    executor->buffers.of_grad = sh_alloc((size_t)classes, sizeof *executor->buffers.of_grad);
    sh_buffer *lives = sh_alloc((size_t)classes, sizeof *lives);
    sh_status status = SH_OK;
    if (executor->buffers.of_grad == NULL || lives == NULL) {
        status = SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    } else {
        find_grad_lives(executor, classes, lives);
        status = assign_grad_buffers(executor, classes, lives, reads);
    }
    sh_free(lives);
    return status;
}

static sh_status assign_op_buffers(sh_executor *executor, sh_op *op) {
    int back = backward_time(executor, op->index);
    bool backward = runs_backward(executor, op);
    int done = backward ? back_done(executor, op) : op->flight.finish;
    op->buffers.saved = -1;
    if (op->scratch_bytes > executor->scratch_bytes)
        executor->scratch_bytes = sh_round_up(op->scratch_bytes, SH_ALIGN);
    if (op->saved_bytes > 0)
        SH_TRY(add_buffer(executor, op->saved_bytes, written_from(op), done, &op->buffers.saved));
    for (int k = 0; k < op->in_count; k++) {
        op->buffers.dx[k] = -1;
        if (backward && op->dx_added[k] && !sh_executor_adds_dx(op, k))
            SH_TRY(add_buffer(executor, op->in[k]->count * sizeof(float), back, done,
                              &op->buffers.dx[k]));
    }
    return SH_OK;
}

static sh_status assign_buffers(sh_executor *executor, int *reads) {
    int grad_classes = 0;
    find_flights(executor);
    if (executor->training) {
        find_grad_writers(executor);
        assign_grad_classes(executor, &grad_classes);
    }
    find_back_flights(executor);
    find_last_reads(executor);
    SH_TRY(assign_data(executor, reads));
    if (executor->training) SH_TRY(assign_grads(executor, grad_classes, reads));
    for (size_t i = 0; i < executor->op_count; i++)
        SH_TRY(assign_op_buffers(executor, executor->ops[i]));
    return SH_OK;
}

sh_status sh_executor_assign_memory(sh_executor *executor) {
    int *reads = sh_alloc(executor->op_count, sizeof *reads);
    if (reads == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    sh_status status = assign_buffers(executor, reads);
    sh_free(reads);
    return status == SH_OK ? sh_executor_place(executor) : status;
}
