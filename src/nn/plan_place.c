/* Where everything lies: the scratch first, then every buffer, largest first, each at the lowest
 * place that is free over its whole life.
 *
 * With `gradients_idle` the block of gradients is lent out as well. It is as large as the
 * parameters and empty until backward writes it, last layer first; what lies in the gradients of
 * the early layers has until then to live, and that is long enough for nearly all activations. */
#include <stdlib.h>

#include "nn/plan_internal.h"

typedef struct placing {
    sh_plan *plan;
    sh_buffer **order;  // those before `placed` have their place
    size_t placed;
    int *written;  // per parameter: when its gradient is first written
} placing;

static int by_size_descending(const void *a, const void *b) {
    const sh_buffer *x = *(const sh_buffer *const *)a, *y = *(const sh_buffer *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;  // a total order, so that every run lays memory out alike
}

static bool lives_meet(const sh_buffer *a, const sh_buffer *b) {
    return a->start <= b->end && b->start <= a->end;
}

static bool overlap(size_t a, size_t a_bytes, size_t b, size_t b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
}

/* The end of a buffer in the way of `buffer` at `offset`, or `offset` when there is none. */
static size_t past_buffers(const placing *p, const sh_buffer *buffer, bool lent, size_t offset) {
    for (size_t j = 0; j < p->placed; j++) {
        const sh_buffer *other = p->order[j];
        if (other->lent != lent || !overlap(offset, buffer->bytes, other->offset, other->bytes))
            continue;
        if (p->plan->no_sharing || lives_meet(buffer, other)) return other->offset + other->bytes;
    }
    return offset;
}

/* Likewise for gradients that are written while the buffer still lives. */
static size_t past_gradients(const placing *p, const sh_buffer *buffer, size_t offset) {
    const sh_param_list *params = &p->plan->net->params;
    for (size_t i = 0; i < params->count; i++) {
        size_t begin = params->items[i].offset * sizeof(float);
        size_t bytes = params->items[i].count * sizeof(float);
        if (p->written[i] <= buffer->end && overlap(offset, buffer->bytes, begin, bytes))
            return sh_round_up(begin + bytes, SH_ALIGN);
    }
    return offset;
}

static bool place_in_gradients(const placing *p, sh_buffer *buffer) {
    size_t block = p->plan->net->params.total * sizeof(float), offset = 0, next;
    for (;; offset = next) {
        if (offset + buffer->bytes > block) return false;
        next = past_gradients(p, buffer, past_buffers(p, buffer, true, offset));
        if (next == offset) break;
    }
    buffer->lent = true;
    buffer->offset = offset;
    return true;
}

static void place_in_memory(const placing *p, sh_buffer *buffer) {
    size_t offset = p->plan->scratch_bytes, next;
    while ((next = past_buffers(p, buffer, false, offset)) != offset) offset = next;
    buffer->offset = offset;
    if (offset + buffer->bytes > p->plan->memory_bytes)
        p->plan->memory_bytes = offset + buffer->bytes;
}

/* The op that comes last in forward writes first. A gradient that nobody writes counts as always
 * written. */
static void find_first_writes(const sh_plan *plan, int *written) {
    for (size_t i = 0; i < plan->op_count; i++) {
        const sh_op *op = plan->ops[i];
        if (op->layer == NULL || !sh_plan_runs_backward(plan, op)) continue;
        for (int k = 0; k < op->layer->param_count; k++)
            written[op->layer->params[k]] = sh_plan_backward_time(plan, op->index);
    }
}

sh_status sh_plan_place(sh_plan *plan) {
    placing p = {.plan = plan,
                 .order = sh_alloc(plan->buffer_count, sizeof *p.order),
                 .written = sh_alloc(plan->net->params.count, sizeof *p.written)};
    if (p.order == NULL || p.written == NULL) {
        sh_free(p.order);
        sh_free(p.written);
        return SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    }
    for (size_t i = 0; i < plan->buffer_count; i++) p.order[i] = &plan->buffers[i];
    qsort(p.order, plan->buffer_count, sizeof *p.order, by_size_descending);
    find_first_writes(plan, p.written);
    bool lends = plan->gradients_idle && plan->training && !plan->no_sharing;
    plan->memory_bytes = plan->unshared_bytes = plan->scratch_bytes;
    for (; p.placed < plan->buffer_count; p.placed++) {
        sh_buffer *buffer = p.order[p.placed];
        if (!lends || !place_in_gradients(&p, buffer)) place_in_memory(&p, buffer);
        plan->unshared_bytes += buffer->bytes;
    }
    sh_free(p.order);
    sh_free(p.written);
    return SH_OK;
}
