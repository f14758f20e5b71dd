/* Shapes: at most six dimensions, row-major. Images are (N, C, H, W), tokens (N, T), vectors (N,
 * F). */
#ifndef SH_TENSOR_SHAPE_H
#define SH_TENSOR_SHAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SH_RANK_MOST = 6, SH_SHAPE_TEXT = 96 };

typedef struct sh_shape {
    int rank;
    int64_t dim[SH_RANK_MOST];
} sh_shape;

#define SH_SHAPE(...)                                                              \
    ((sh_shape){.rank = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                .dim = {__VA_ARGS__}})

/* Product of the dimensions; 1 for rank 0. The caller has checked that it cannot overflow. */
size_t sh_shape_count(const sh_shape *shape);
/* The same for shapes from outside: false when a dimension is negative or the product exceeds
 * 2^47 elements. */
bool sh_shape_count_checked(const sh_shape *shape, size_t *count_out);
bool sh_shape_equal(const sh_shape *a, const sh_shape *b);
/* The shape with `n` put before its dimensions. */
sh_shape sh_shape_with(int64_t n, const sh_shape *tail);
/* "64x3x32x32"; "scalar" for rank 0. Returns text_out. */
const char *sh_shape_text(const sh_shape *shape, char text_out[SH_SHAPE_TEXT]);

#endif
