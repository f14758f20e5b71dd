/* Where everything lies: the scratch first, then every buffer, largest first, each at the lowest
 * place that is free over its whole life.
 *
 * With `gradients_idle` the block of gradients is lent out as well. It is as large as the
 * parameters and empty until backward writes it, last layer first; what lies in the gradients of
 * the early layers has until then to live, and that is long enough for nearly all activations. */
#include <stdlib.h>

#include "nn/executor_internal.h"
#include "nn/executor_occupancy.h"

/* The two blocks, and what is taken of them. In that of the gradients these themselves are taken
 * from their first write on. */
typedef struct placing {
    sh_executor *executor;
    sh_occupancy memory, gradients;
    bool lends;
} placing;

static int by_size_descending(const void *a, const void *b) {
    const sh_buffer *x = *(const sh_buffer *const *)a, *y = *(const sh_buffer *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;  // a total order, so that every run lays memory out alike
}

static int last_time(const sh_executor *executor) { return 2 * (int)executor->op_count; }

/* The op that comes last in forward writes first. A gradient that nobody writes counts as always
 * written. */
static void find_first_writes(const sh_executor *executor, int *written) {
    for (size_t i = 0; i < executor->op_count; i++) {
        const sh_op *op = executor->ops[i];
        if (op->layer == NULL || !sh_executor_runs_backward(executor, op)) continue;
        for (int k = 0; k < op->layer->param_count; k++)
            written[op->layer->params[k]] = sh_executor_backward_time(executor, op->index);
    }
}

/* Buffers begin and end at whole SH_ALIGN, so that a part of one is as good as taken. */
static sh_status take_gradients(placing *p) {
    const sh_param_list *params = &p->executor->net->params;
    int *written = sh_alloc(params->count, sizeof *written);
    if (written == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    find_first_writes(p->executor, written);
    sh_status status = SH_OK;
    for (size_t i = 0; status == SH_OK && i < params->count; i++) {
        const sh_param *param = &params->items[i];
        size_t begin = param->offset * sizeof(float) / SH_ALIGN * SH_ALIGN;
        size_t end = sh_round_up((param->offset + param->count) * sizeof(float), SH_ALIGN);
        status = sh_occupancy_take(&p->gradients, written[i], last_time(p->executor), begin,
                                   end - begin);
    }
    sh_free(written);
    return status;
}

/* Where it fits, in the gradients; else in the executor's own memory. */
static sh_status place(placing *p, sh_buffer *buffer) {
    sh_executor *executor = p->executor;
    size_t block = executor->net->params.total * sizeof(float);
    if (p->lends) {
        size_t offset =
            sh_occupancy_find(&p->gradients, buffer->start, buffer->end, 0, buffer->bytes);
        buffer->lent = offset + buffer->bytes <= block;
        buffer->offset = offset;
        if (buffer->lent)
            return sh_occupancy_take(&p->gradients, buffer->start, buffer->end, offset,
                                     buffer->bytes);
    }
    int start = executor->rules.no_sharing ? 0 : buffer->start;
    int end = executor->rules.no_sharing ? last_time(executor) : buffer->end;
    buffer->offset =
        sh_occupancy_find(&p->memory, start, end, executor->scratch_bytes, buffer->bytes);
    if (buffer->offset + buffer->bytes > executor->memory_bytes)
        executor->memory_bytes = buffer->offset + buffer->bytes;
    return sh_occupancy_take(&p->memory, start, end, buffer->offset, buffer->bytes);
}

static sh_status place_all(placing *p, sh_buffer **order) {
    sh_executor *executor = p->executor;
    SH_TRY(sh_occupancy_init(&p->memory, last_time(executor) + 1));
    if (p->lends) SH_TRY(sh_occupancy_init(&p->gradients, last_time(executor) + 1));
    if (p->lends) SH_TRY(take_gradients(p));
    executor->memory_bytes = executor->unshared_bytes = executor->scratch_bytes;
    for (size_t i = 0; i < executor->buffers.count; i++) {
        SH_TRY(place(p, order[i]));
        executor->unshared_bytes += order[i]->bytes;
    }
    return SH_OK;
}

sh_status sh_executor_place(sh_executor *executor) {
    placing p = {.executor = executor,
                 .lends = executor->rules.gradients_idle && executor->training &&
                          !executor->rules.no_sharing};
    sh_buffer **order = sh_alloc(executor->buffers.count, sizeof *order);
    if (order == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for an executor");
    for (size_t i = 0; i < executor->buffers.count; i++) order[i] = &executor->buffers.items[i];
    qsort(order, executor->buffers.count, sizeof *order, by_size_descending);
    sh_status status = place_all(&p, order);
    sh_occupancy_fini(&p.memory);
    sh_occupancy_fini(&p.gradients);
    sh_free(order);
    return status;
}
