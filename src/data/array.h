/* Arrays as IDX, NPY and NPZ files hold them: a type, a byte order, a shape, and bytes in place. */
#ifndef SH_DATA_ARRAY_H
#define SH_DATA_ARRAY_H

#include "data/source.h"

typedef enum sh_array_type {
    SH_ARRAY_U8,
    SH_ARRAY_I8,
    SH_ARRAY_U16,
    SH_ARRAY_I16,
    SH_ARRAY_U32,
    SH_ARRAY_I32,
    SH_ARRAY_U64,
    SH_ARRAY_I64,
    SH_ARRAY_F32,
    SH_ARRAY_F64,
} sh_array_type;

typedef struct sh_array {
    sh_array_type type;
    bool big_endian;
    sh_shape shape;       // the first dimension counts samples
    const uint8_t *data;  // borrowed; any alignment
} sh_array;

static inline bool sh_array_is_float(const sh_array *array) { return array->type >= SH_ARRAY_F32; }

/* One element as a double. */
double sh_array_at(const sh_array *array, size_t index);

/* The bytes of the elements; fails where the product of the shape is absurd. */
sh_status sh_array_bytes(const sh_array *array, const char *name, uint64_t *bytes_out);

/* Checks that the product of the shape is sane and that the elements fill exactly `bytes`;
 * otherwise says how far the file goes. `offset` is where the elements start, for messages. */
sh_status sh_array_check(const sh_array *array, const char *name, size_t offset, size_t bytes);

/* Makes x the samples and y (NULL: none) the targets of a source, which owns the bytes both point
 * into. U8 and aligned little-endian F32 stay where they are; the rest becomes F32. Ranks: (N) and
 * (N, F) are vectors, (N, H, W) and (N, C, H, W) images. */
sh_status sh_source_take_arrays(sh_source *source, const sh_array *x, const sh_array *y,
                                const struct sh_read *read);

#endif
