/* Where everything lies: the scratch first, then every buffer, largest first, each at the lowest
 * place that is free over its whole life.
 *
 * With `gradients_idle` the block of gradients is lent out as well. It is as large as the
 * parameters and empty until backward writes it, last layer first; what lies in the gradients of
 * the early layers has until then to live, and that is long enough for nearly all activations. */
#include <stdlib.h>

#include "nn/plan_internal.h"
#include "nn/plan_room.h"

/* The two blocks, and what is taken of them. In that of the gradients these themselves are taken
 * from their first write on. */
typedef struct placing {
    sh_plan *plan;
    sh_room memory, gradients;
    bool lends;
} placing;

static int by_size_descending(const void *a, const void *b) {
    const sh_buffer *x = *(const sh_buffer *const *)a, *y = *(const sh_buffer *const *)b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : x > y;  // a total order, so that every run lays memory out alike
}

static int last_time(const sh_plan *plan) { return 2 * (int)plan->op_count; }

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

/* Buffers begin and end at whole SH_ALIGN, so that a part of one is as good as taken. */
static sh_status take_gradients(placing *p) {
    const sh_param_list *params = &p->plan->net->params;
    int *written = sh_alloc(params->count, sizeof *written);
    if (written == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    find_first_writes(p->plan, written);
    sh_status status = SH_OK;
    for (size_t i = 0; status == SH_OK && i < params->count; i++) {
        const sh_param *param = &params->items[i];
        size_t begin = param->offset * sizeof(float) / SH_ALIGN * SH_ALIGN;
        size_t end = sh_round_up((param->offset + param->count) * sizeof(float), SH_ALIGN);
        status = sh_room_take(&p->gradients, written[i], last_time(p->plan), begin, end - begin);
    }
    sh_free(written);
    return status;
}

/* Where it fits, in the gradients; else in the plan's own memory. */
static sh_status place(placing *p, sh_buffer *buffer) {
    sh_plan *plan = p->plan;
    size_t block = plan->net->params.total * sizeof(float);
    if (p->lends) {
        size_t offset = sh_room_find(&p->gradients, buffer->start, buffer->end, 0, buffer->bytes);
        buffer->lent = offset + buffer->bytes <= block;
        buffer->offset = offset;
        if (buffer->lent)
            return sh_room_take(&p->gradients, buffer->start, buffer->end, offset, buffer->bytes);
    }
    int start = plan->no_sharing ? 0 : buffer->start;
    int end = plan->no_sharing ? last_time(plan) : buffer->end;
    buffer->offset = sh_room_find(&p->memory, start, end, plan->scratch_bytes, buffer->bytes);
    if (buffer->offset + buffer->bytes > plan->memory_bytes)
        plan->memory_bytes = buffer->offset + buffer->bytes;
    return sh_room_take(&p->memory, start, end, buffer->offset, buffer->bytes);
}

static sh_status place_all(placing *p, sh_buffer **order) {
    sh_plan *plan = p->plan;
    SH_TRY(sh_room_init(&p->memory, last_time(plan) + 1));
    if (p->lends) SH_TRY(sh_room_init(&p->gradients, last_time(plan) + 1));
    if (p->lends) SH_TRY(take_gradients(p));
    plan->memory_bytes = plan->unshared_bytes = plan->scratch_bytes;
    for (size_t i = 0; i < plan->buffer_count; i++) {
        SH_TRY(place(p, order[i]));
        plan->unshared_bytes += order[i]->bytes;
    }
    return SH_OK;
}

sh_status sh_plan_place(sh_plan *plan) {
    placing p = {.plan = plan,
                 .lends = plan->gradients_idle && plan->training && !plan->no_sharing};
    sh_buffer **order = sh_alloc(plan->buffer_count, sizeof *order);
    if (order == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a plan");
    for (size_t i = 0; i < plan->buffer_count; i++) order[i] = &plan->buffers[i];
    qsort(order, plan->buffer_count, sizeof *order, by_size_descending);
    sh_status status = place_all(&p, order);
    sh_room_fini(&p.memory);
    sh_room_fini(&p.gradients);
    sh_free(order);
    return status;
}
