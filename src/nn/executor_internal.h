/* Between the files of the executor: executor.c builds ops, executor_fuse.c says what ops do for
 * each other, executor_memory.c what needs memory and when, executor_place.c where it lies, and
 * executor_run.c runs. */
#ifndef SH_NN_EXECUTOR_INTERNAL_H
#define SH_NN_EXECUTOR_INTERNAL_H

#include "nn/executor.h"

/* Per layer of the whole net, also of those outside the range. */
struct sh_builder {
    sh_executor *executor;
    sh_tuner *tuner;
    sh_value **of_layer;  // output value per layer, that of the data first
    int *readers;         // layers that read a layer
    int *first_reader;    // the first of them
    bool *into_pool;      // this relu is done by the max pooling after it
};

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

/* ---- executor_fuse.c ---- */

void sh_builder_mark_fusions(sh_builder *builder);
/* This layer does the relu after (or, pooling, before) it; likewise another activation, NULL: none.
 */
bool sh_builder_absorbs_relu(const sh_builder *builder, const sh_layer *layer);
const struct sh_activation_row *sh_builder_activation(const sh_builder *builder,
                                                      const sh_layer *layer);
/* A neighbour does this layer's work: it gets no op. */
bool sh_builder_is_absorbed(const sh_builder *builder, const sh_layer *layer);
void sh_executor_find_slopes(sh_executor *executor);
sh_status sh_executor_mark_guards(sh_executor *executor);

/* The op has a start and a finish (nn/layer.h), and is under way in between. */
static inline bool sh_op_communicates(const sh_op *op) { return op->kind->exchange != NULL; }

/* Decides what shares memory and where everything lies. */
sh_status sh_executor_assign_memory(sh_executor *executor);
/* Gives every buffer its place; sets memory_bytes and unshared_bytes. */
sh_status sh_executor_place(sh_executor *executor);

#endif
