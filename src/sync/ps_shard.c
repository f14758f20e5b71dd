#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "sync/ps.h"

static sh_status out_of_memory(void) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for a server's part of the parameters");
}

/* Elements [low, high) of a parameter. A part of a matrix is a vector. */
static sh_status add_piece(sh_ps_shard *shard, const sh_param *param, size_t low, size_t high) {
    if (low >= high) return SH_OK;
    sh_shape shape = param->shape;
    if (high - low < param->count) shape = SH_SHAPE((int64_t)(high - low));
    size_t index;
    SH_TRY(sh_param_list_add(&shard->params, param->name, shape, param->decays, &index));
    shard->origin[index] = param->offset + low;
    return SH_OK;
}

static size_t clamp(size_t value, size_t low, size_t high) {
    return value < low ? low : value > high ? high : value;
}

static sh_status take_range(sh_ps_shard *shard, const sh_param_list *params, size_t low,
                            size_t high) {
    for (size_t i = 0; i < params->count; i++) {
        const sh_param *param = &params->items[i];
        size_t end = param->offset + param->count;
        SH_TRY(add_piece(shard, param, clamp(low, param->offset, end) - param->offset,
                         clamp(high, param->offset, end) - param->offset));
    }
    return SH_OK;
}

/* Larger ones first; of equal ones the first. */
static int by_size(const void *a, const void *b) {
    const sh_param *x = *(const sh_param *const *)a, *y = *(const sh_param *const *)b;
    if (x->count != y->count) return x->count > y->count ? -1 : 1;
    return x->offset < y->offset ? -1 : 1;
}

static int least_loaded(const size_t *load, int count) {
    int best = 0;
    for (int i = 1; i < count; i++)
        if (load[i] < load[best]) best = i;
    return best;
}

/* Greedy: at most 4/3 of the best placement's largest load (Graham 1969). */
static void place(const sh_param_list *params, const sh_param **order, size_t *load, int *server,
                  int count) {
    for (size_t i = 0; i < params->count; i++) order[i] = &params->items[i];
    qsort(order, params->count, sizeof(const sh_param *), by_size);
    for (size_t i = 0; i < params->count; i++) {
        int best = least_loaded(load, count);
        load[best] += order[i]->count;
        server[order[i] - params->items] = best;
    }
}

static sh_status take_whole(sh_ps_shard *shard, const sh_param_list *params, int index, int count) {
    const sh_param **order = sh_alloc(params->count + 1, sizeof(const sh_param *));
    size_t *load = sh_alloc((size_t)count, sizeof *load);
    int *server = sh_alloc(params->count + 1, sizeof *server);
    sh_status status = SH_OK;
    if (order == NULL || load == NULL || server == NULL)
        status = out_of_memory();
    else
        place(params, order, load, server, count);
    for (size_t i = 0; status == SH_OK && i < params->count; i++)
        if (server[i] == index)
            status = add_piece(shard, &params->items[i], 0, params->items[i].count);
    sh_free(server);
    sh_free(load);
    sh_free((void *)order);
    return status;
}

static bool is_straight(const sh_ps_shard *shard) {
    for (size_t i = 1; i < shard->params.count; i++)
        if (shard->origin[i] != shard->origin[i - 1] + shard->params.items[i - 1].count)
            return false;
    return true;
}

sh_status sh_ps_shard_init(sh_ps_shard *shard, const sh_param_list *params, const char *placement,
                           int index, int count) {
    *shard = (sh_ps_shard){.origin = sh_alloc(params->count + 1, sizeof *shard->origin)};
    if (shard->origin == NULL) return out_of_memory();
    size_t s = (size_t)index, n = (size_t)count, part = params->total / n, rest = params->total % n;
    size_t low = s * part + (s < rest ? s : rest);
    sh_status status = strcmp(placement, "variable") == 0
                           ? take_whole(shard, params, index, count)
                           : take_range(shard, params, low, low + part + (s < rest ? 1 : 0));
    shard->straight = is_straight(shard);
    if (status != SH_OK) sh_ps_shard_fini(shard);
    return status;
}

void sh_ps_shard_fini(sh_ps_shard *shard) {
    sh_param_list_fini(&shard->params);
    sh_free(shard->origin);
    *shard = (sh_ps_shard){0};
}

void sh_ps_shard_take(const sh_ps_shard *shard, const float *whole, float *part_out) {
    for (size_t i = 0; i < shard->params.count; i++) {
        const sh_param *item = &shard->params.items[i];
        memcpy(part_out + item->offset, whole + shard->origin[i], item->count * sizeof(float));
    }
}

void sh_ps_shard_give(const sh_ps_shard *shard, const float *part, float *whole_out) {
    for (size_t i = 0; i < shard->params.count; i++) {
        const sh_param *item = &shard->params.items[i];
        memcpy(whole_out + shard->origin[i], part + item->offset, item->count * sizeof(float));
    }
}
