/* Between the files of the executor: executor.c builds ops, plan_memory.c says what needs memory
 * and when, plan_place.c where it lies, plan_run.c runs. */
#ifndef SH_NN_EXECUTOR_INTERNAL_H
#define SH_NN_EXECUTOR_INTERNAL_H

#include "nn/executor.h"

/* Memory that is live over an interval of the executor's times: forward of op i is time i, the loss
 * is time n, backward of op i is time 2n - i. */
typedef struct sh_buffer {
    size_t bytes, offset;
    int start, end;
    bool lent;  // lies in the block of gradients, in those that are written after `end`
} sh_buffer;

static inline int sh_executor_backward_time(const sh_executor *executor, int op) {
    return 2 * (int)executor->op_count - op;
}

/* Backward passes over ops whose output has no gradient. */
static inline bool sh_executor_runs_backward(const sh_executor *executor, const sh_op *op) {
    return executor->training && op->out->needs_grad;
}

/* The op adds to the gradient of input `k` itself, so that nothing stands aside. */
static inline bool sh_executor_adds_dx(const sh_op *op, int k) {
    return k == 0 && op->kind->adds_dx;
}

/* Decides what shares memory and where everything lies. */
sh_status sh_executor_assign_memory(sh_executor *executor);
/* Gives every buffer its place; sets memory_bytes and unshared_bytes. */
sh_status sh_executor_place(sh_executor *executor);

#endif
