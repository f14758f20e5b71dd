/* The mesh as users write it: "data=2,pipe=4". */
#include <string.h>

#include "parallel/mesh.h"

enum { SIZE_MOST = 1 << 20 };  // bound of a size, far from overflow of an int

/* Quotes 64 bytes at most: the text comes from users. */
static sh_status refuse(const char *text, const char *wrong) {
    SH_FAIL(SH_E_USAGE, "layout '%.64s': %s", text, wrong);
    return sh_error_hint("such as data=2,tensor=2,pipe=2");
}

/* The dimension that is named in [at, end); SH_AXES: none. */
static sh_axis find_axis(const char *at, const char *end) {
    sh_axis axis = 0;
    for (; axis < SH_AXES; axis++) {
        const char *name = sh_axis_name(axis);
        if (strlen(name) == (size_t)(end - at) && strncmp(name, at, (size_t)(end - at)) == 0) break;
    }
    return axis;
}

/* A number of workers, and nothing else, in [at, end). */
static int take_size(const char *at, const char *end) {
    int size = 0;
    for (; at < end && *at >= '0' && *at <= '9' && size <= SIZE_MOST; at++)
        size = size * 10 + *at - '0';
    return at == end && size <= SIZE_MOST ? size : 0;
}

/* One "DIMENSION=WORKERS" of the list. */
static sh_status take_entry(const char *text, const char *at, const char *end,
                            sh_mesh_shape *shape) {
    const char *equals = memchr(at, '=', (size_t)(end - at));
    if (equals == NULL) return refuse(text, "it is a list of DIMENSION=WORKERS");
    sh_axis axis = find_axis(at, equals);
    if (axis == SH_AXES) return refuse(text, "dimensions are data, tensor, pipe and space");
    // 0 stands for "not named".
    if (shape->size[axis] != 0) return refuse(text, "a dimension is named twice");
    shape->size[axis] = take_size(equals + 1, end);
    if (shape->size[axis] >= 1) return SH_OK;
    return refuse(text, "sizes are whole numbers from 1");
}

/* Dimensions that are left out are 1, but data takes what is left of the workers. */
static sh_status fill(const char *text, int64_t workers, sh_mesh_shape *shape) {
    bool open = shape->size[SH_AXIS_DATA] == 0;  // data was not named
    int64_t product = 1;
    for (int axis = 0; axis < SH_AXES; axis++) {
        if (shape->size[axis] == 0) shape->size[axis] = 1;
        product *= shape->size[axis];
        // Sizes are at most 2^20: the product stays within 2^40.
        if (product > SIZE_MOST) return refuse(text, "that is too many workers");
    }
    if (workers == 0 || product == workers) return SH_OK;  // 0 workers: any number will do
    if (open && workers % product == 0) {
        shape->size[SH_AXIS_DATA] = (int)(workers / product);
        return SH_OK;
    }
    SH_FAIL(SH_E_USAGE, "layout '%.64s' is for %s%ld workers, not %ld", text,
            open ? "a multiple of " : "", (long)product, (long)workers);
    return sh_error_hint("-n %ld, or another layout",
                         (long)(open && workers > product ? workers / product * product : product));
}

/* Entries in any order; the sizes are checked against the workers once all are known. */
sh_status sh_mesh_parse(const char *text, int64_t workers, sh_mesh_shape *shape_out) {
    sh_mesh_shape shape = {0};
    for (const char *at = text;; at++) {
        const char *end = at + strcspn(at, ",");
        SH_TRY(take_entry(text, at, end, &shape));
        at = end;
        if (*end == '\0') break;
    }
    SH_TRY(fill(text, workers, &shape));
    *shape_out = shape;
    return SH_OK;
}
