/* The list of parameters (or states) of a net, as ranges of one block, and the arithmetic of
 * slices, the parts that workers of a split net hold. */
#include "nn/param.h"

#include <stdio.h>
#include <string.h>

#include "base/memory.h"

static const char *name_at(const void *items, size_t at) {
    return ((const sh_param *)items)[at].name;
}

/* No padding between ranges: the whole block is one array, which optimizers, all-reduces and
 * checkpoints treat as such. */
sh_status sh_param_list_add(sh_param_list *list, const char *name, sh_shape shape, bool decays,
                            size_t *index_out) {
    if (strlen(name) >= SH_PARAM_NAME)
        return SH_FAIL(SH_E_USAGE, "parameter name '%s' is longer than %d characters", name,
                       SH_PARAM_NAME - 1);
    if (sh_param_list_find(list, name) != NULL)
        return SH_FAIL(SH_E_USAGE, "two parameters are called '%s'", name);
    size_t count;
    if (!sh_shape_count_checked(&shape, &count) || count == 0)
        return SH_FAIL(SH_E_SHAPE, "parameter '%s' has an impossible size", name);
    SH_TRY(sh_grow((void **)&list->items, &list->capacity, list->count + 1, sizeof *list->items));
    sh_param *param = &list->items[list->count];
    *param = (sh_param){.shape = shape, .offset = list->total, .count = count, .decays = decays};
    snprintf(param->name, sizeof param->name, "%s", name);
    SH_TRY(sh_index_add(&list->by_name, list->items, name_at, list->count));
    if (index_out != NULL) *index_out = list->count;
    list->total += count;
    list->count++;
    return SH_OK;
}

const sh_param *sh_param_list_find(const sh_param_list *list, const char *name) {
    size_t at = sh_index_find(&list->by_name, list->items, name_at, name);
    return at != SH_INDEX_NONE ? &list->items[at] : NULL;
}

void sh_param_list_fini(sh_param_list *list) {
    sh_free(list->items);
    sh_index_fini(&list->by_name);
    *list = (sh_param_list){0};
}

/* Only the split dimension shrinks: by `groups` stretches of (end - begin). */
sh_shape sh_slice_shape(const sh_slice *part, const sh_shape *whole) {
    sh_shape shape = *whole;
    if (sh_slice_is_split(part)) shape.dim[part->dim] = part->groups * (part->end - part->begin);
    return shape;
}

/* Elements of the dimensions in [from, to). */
static size_t extent(const sh_shape *shape, int from, int to) {
    size_t count = 1;
    for (int i = from; i < to; i++) count *= (size_t)shape->dim[i];
    return count;
}

size_t sh_slice_runs(const sh_slice *part) {
    return extent(&part->whole, 0, part->dim) * (size_t)part->groups;
}

size_t sh_slice_run_count(const sh_slice *part) {
    return (size_t)(part->end - part->begin) *
           extent(&part->whole, part->dim + 1, part->whole.rank);
}

/* Runs are numbered by (outer index, group); each group is a stretch of dim / groups elements. */
size_t sh_slice_run_begin(const sh_slice *part, size_t index) {
    size_t inner = extent(&part->whole, part->dim + 1, part->whole.rank);
    size_t stretch = (size_t)(part->whole.dim[part->dim] / part->groups);
    return (index * stretch + (size_t)part->begin) * inner;
}
