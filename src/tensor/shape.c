#include "tensor/shape.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/status.h"

size_t sh_shape_count(const sh_shape *shape) {
    size_t count = 1;
    for (int i = 0; i < shape->rank; i++) count *= (size_t)shape->dim[i];
    return count;
}

bool sh_shape_count_checked(const sh_shape *shape, size_t *count_out) {
    const uint64_t most = (uint64_t)1 << 47;
    uint64_t count = 1;
    bool has_zero = false;
    for (int i = 0; i < shape->rank; i++) {
        int64_t dim = shape->dim[i];
        if (dim < 0 || (uint64_t)dim > most) return false;
        if (dim == 0) {
            has_zero = true;
            continue;
        }
        if (count > most / (uint64_t)dim) return false;
        count *= (uint64_t)dim;
    }
    *count_out = has_zero ? 0 : (size_t)count;
    return true;
}

bool sh_shape_equal(const sh_shape *a, const sh_shape *b) {
    if (a->rank != b->rank) return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

sh_shape sh_shape_with(int64_t n, const sh_shape *tail) {
    SH_ASSERT(tail->rank < SH_RANK_MOST);
    sh_shape shape = {.rank = tail->rank + 1, .dim = {n}};
    for (int i = 0; i < tail->rank; i++) shape.dim[i + 1] = tail->dim[i];
    return shape;
}

const char *sh_shape_text(const sh_shape *shape, char text_out[SH_SHAPE_TEXT]) {
    if (shape->rank == 0) return "scalar";
    int at = 0;
    for (int i = 0; i < shape->rank; i++)
        at += snprintf(text_out + at, (size_t)(SH_SHAPE_TEXT - at), "%s%" PRId64, i ? "x" : "",
                       shape->dim[i]);
    return text_out;
}
