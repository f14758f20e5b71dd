/* The transforms of Winograd's F(4 x 4, 3 x 3) and F(2 x 2, 5 x 5), on vectors of 8 channels.
 *
 * Weights and outputs are polynomials, a convolution is their product, and a product of degree 5 is
 * known from its values at 6 points (Toom, Cook; Winograd 1980; Lavin, Gray 2015). Ours are 0, +-A,
 * +-B and infinity with A = sqrt(1/2), B = sqrt(2): their powers stay near 1, which loses less to
 * rounding than the usual 1 and 2. In one dimension, for six inputs d, `taps` weights g and `outs`
 * outputs y, taps + outs = 7,
 *
 *         1    0  -5/2   0   1   0           1   0    0  ...         1  1   1    1    1   0
 *         0  -2A   -2    A   1   0           1   A   A^2             0  A  -A    B   -B   0
 *   V  =  0   2A   -2   -A   1   0  d   U =  1  -A   A^2  g/N   y =  0 A^2 A^2  B^2  B^2  0  (UV)
 *         0  -B/2 -1/2   B   1   0           1   B   B^2             ...
 *         0   B/2 -1/2  -B   1   0           1  -B   B^2             and 1 at the last of both
 *         0    1    0  -5/2  0   1           0   0   ...  1
 *
 * with N = (1, -3/2, -3/2, 6, 6, 1). For the weight gradient x stays the input, dy takes the place
 * of the weights and dw that of the outputs. Two dimensions are columns, then rows. */
#ifndef SH_TENSOR_KERNELS_SIMD_WINOGRAD_H
#define SH_TENSOR_KERNELS_SIMD_WINOGRAD_H

#include <stdbool.h>

#include "tensor/kernels/simd/conv_common.h"

enum {
    SIDE = 6,         // inputs of a tile in one dimension, and points
    VALUES_MOST = 5,  // taps, or outputs
    POINTS = SIDE * SIDE,
    SQUARE_MOST = VALUES_MOST * VALUES_MOST,
};

/* Outputs of a tile in one dimension. */
static inline int64_t outs_of(int64_t taps) { return SIDE + 1 - taps; }

/* Floats between two points of `floats` values each: one line more than they take, as points that
 * lie a power of two apart would share cache sets. */
static inline int64_t point_floats(int64_t floats) { return aligned(floats) + ALIGN_FLOATS; }

#define POINT_A 0.70710678118654752440f
#define POINT_B 1.41421356237309504880f
static const float A1 = POINT_A, A2 = 0.5f, A3 = 0.5f * POINT_A, A4 = 0.25f;
static const float B1 = POINT_B, B2 = 2.0f, B3 = 2.0f * POINT_B, B4 = 4.0f;

#define WINOGRAD_FUNCTION static inline __attribute__((always_inline, unused))

/* Macros, since without AVX a vector that is passed by value is worth a warning. */
#define LOAD8(x)     ((v8) * (const v8_memory *)(x))
#define STORE8(x, v) (*(v8_memory *)(x) = (v))

/* Six inputs to six points, matrix V above. Even and odd terms are shared by the points +A and -A,
 * and +B and -B. */
WINOGRAD_FUNCTION void input_points(const v8 d[SIDE], v8 v[SIDE]) {
    v8 even_a = d[4] - B2 * d[2], odd_a = d[3] - B2 * d[1];
    v8 even_b = d[4] - A2 * d[2], odd_b = d[3] - A2 * d[1];
    v[0] = d[0] + d[4] - (A2 + B2) * d[2];
    v[1] = even_a + A1 * odd_a;
    v[2] = even_a - A1 * odd_a;
    v[3] = even_b + B1 * odd_b;
    v[4] = even_b - B1 * odd_b;
    v[5] = d[1] + d[5] - (A2 + B2) * d[3];
}

/* `count` weights (or gradients) to six points, matrix U above without the division by N. */
WINOGRAD_FUNCTION void value_points(const int count, const v8 *g, v8 u[SIDE]) {
    v8 even_a = g[0], odd_a = A1 * g[1], even_b = g[0], odd_b = B1 * g[1];
    if (count > 2) even_a += A2 * g[2], even_b += B2 * g[2];
    if (count > 3) odd_a += A3 * g[3], odd_b += B3 * g[3];
    if (count > 4) even_a += A4 * g[4], even_b += B4 * g[4];
    u[0] = g[0];
    u[1] = even_a + odd_a;
    u[2] = even_a - odd_a;
    u[3] = even_b + odd_b;
    u[4] = even_b - odd_b;
    u[5] = g[count - 1];
}

/* Six points back to `count` values, the last matrix above. */
WINOGRAD_FUNCTION void values_of(const int count, const v8 m[SIDE], v8 *y) {
    v8 sum_a = m[1] + m[2], difference_a = m[1] - m[2];
    v8 sum_b = m[3] + m[4], difference_b = m[3] - m[4];
    y[0] = m[0] + sum_a + sum_b;
    y[1] = A1 * difference_a + B1 * difference_b;
    if (count > 2) y[2] = A2 * sum_a + B2 * sum_b;
    if (count > 3) y[3] = A3 * difference_a + B3 * difference_b;
    if (count > 4) y[4] = A4 * sum_a + B4 * sum_b;
    y[count - 1] += m[5];
}

/* Points lie far apart, each a stream of its own that no hardware looks ahead on: what comes two
 * vectors of the stream later is fetched now. */
WINOGRAD_FUNCTION void store_point(float *out, const v8 *v, int64_t ahead) {
    STORE8(out, *v);
    __builtin_prefetch(out + ahead, 1);
}

/* x (6, 6, 8), rows `row` floats apart, to 36 points `point` floats apart: columns first, then
 * rows. */
WINOGRAD_FUNCTION void transform_input(const float *x, int64_t row, float *out, int64_t point) {
    v8 half[SIDE][SIDE];
    for (int c = 0; c < SIDE; c++) {
        v8 d[SIDE], v[SIDE];
        UNROLL
        for (int r = 0; r < SIDE; r++) d[r] = LOAD8(x + r * row + c * LANES);
        input_points(d, v);
        UNROLL
        for (int r = 0; r < SIDE; r++) half[r][c] = v[r];
    }
    for (int r = 0; r < SIDE; r++) {
        v8 v[SIDE];
        input_points(half[r], v);
        UNROLL
        for (int c = 0; c < SIDE; c++) store_point(out + (r * SIDE + c) * point, &v[c], 2 * LANES);
    }
}

/* dy (outs, outs, 8), rows `row` floats apart, to 36 points `point` floats apart. */
WINOGRAD_FUNCTION void transform_gradient(const int outs, const float *dy, int64_t row, float *out,
                                          int64_t point) {
    v8 half[SIDE][VALUES_MOST];
    for (int c = 0; c < outs; c++) {
        v8 d[VALUES_MOST], u[SIDE];
        UNROLL
        for (int r = 0; r < outs; r++) d[r] = LOAD8(dy + r * row + c * LANES);
        value_points(outs, d, u);
        UNROLL
        for (int r = 0; r < SIDE; r++) half[r][c] = u[r];
    }
    for (int r = 0; r < SIDE; r++) {
        v8 u[SIDE];
        value_points(outs, half[r], u);
        UNROLL
        for (int c = 0; c < SIDE; c++) STORE8(out + (r * SIDE + c) * point, u[c]);
    }
}

/* 1 / N of the head, for both dimensions in turn. */
static const float point_scale[SIDE] = {1.0f,        -2.0f / 3.0f, -2.0f / 3.0f,
                                        1.0f / 6.0f, 1.0f / 6.0f,  1.0f};

/* Weights (taps, taps) of 8 output channels to 36 points, divided by N here, once per weight,
 * instead of once per product. */
WINOGRAD_FUNCTION void transform_weights(const int taps, const v8 *g, float *out, int64_t point) {
    v8 half[SIDE][VALUES_MOST];
    for (int c = 0; c < taps; c++) {
        v8 column[VALUES_MOST], u[SIDE];
        UNROLL
        for (int r = 0; r < taps; r++) column[r] = g[r * taps + c];
        value_points(taps, column, u);
        UNROLL
        for (int r = 0; r < SIDE; r++) half[r][c] = u[r] * point_scale[r];
    }
    for (int r = 0; r < SIDE; r++) {
        v8 u[SIDE];
        value_points(taps, half[r], u);
        UNROLL
        for (int c = 0; c < SIDE; c++) {
            u[c] *= point_scale[c];
            store_point(out + (r * SIDE + c) * point, &u[c], 4 * LANES);
        }
    }
}

/* 36 points to outputs (outs, outs, 8). */
WINOGRAD_FUNCTION void transform_output(const int outs, const float *m, int64_t point, v8 *y) {
    v8 half[VALUES_MOST][SIDE];
    for (int c = 0; c < SIDE; c++) {
        v8 column[SIDE], v[VALUES_MOST];
        UNROLL
        for (int r = 0; r < SIDE; r++) column[r] = LOAD8(m + (r * SIDE + c) * point);
        values_of(outs, column, v);
        UNROLL
        for (int r = 0; r < outs; r++) half[r][c] = v[r];
    }
    for (int r = 0; r < outs; r++) values_of(outs, half[r], y + r * outs);
}

/* 36 points of summed products to the (taps, taps) of a weight gradient; the division by N comes
 * here, as neither factor had it. */
WINOGRAD_FUNCTION void transform_weight_sums(const int taps, const float *m, int64_t point, v8 *w) {
    v8 half[VALUES_MOST][SIDE];
    for (int c = 0; c < SIDE; c++) {
        v8 column[SIDE], v[VALUES_MOST];
        UNROLL
        for (int r = 0; r < SIDE; r++) {
            const float *at = m + (r * SIDE + c) * point;
            column[r] = LOAD8(at) * (point_scale[r] * point_scale[c]);
            __builtin_prefetch(at + ALIGN_FLOATS);
        }
        values_of(taps, column, v);
        UNROLL
        for (int r = 0; r < taps; r++) half[r][c] = v[r];
    }
    for (int r = 0; r < taps; r++) values_of(taps, half[r], w + r * taps);
}

/* Position of a tile. Tiles are counted along rows, then down, then from image to image. */
typedef struct place {
    int64_t image, row, column;
} place;

typedef struct grid {
    int64_t outs;           // of a tile in one dimension
    int64_t rows, columns;  // of tiles in an image
} grid;

/* Tiles that cover h x w outputs; those at the right and lower edge may reach over them. */
static inline grid grid_make(int64_t taps, int64_t h, int64_t w) {
    int64_t outs = outs_of(taps);
    return (grid){outs, ceil_div(h, outs), ceil_div(w, outs)};
}

/* Position of tile `tile`. */
static inline place place_of(const grid *g, int64_t tile) {
    int64_t row = tile / g->columns;
    return (place){row / g->rows, row % g->rows, tile % g->columns};
}

/* Moves to the next tile, without the divisions of place_of. */
static inline void place_next(const grid *g, place *at) {
    if (++at->column < g->columns) return;
    at->column = 0;
    if (++at->row < g->rows) return;
    at->row = 0, at->image++;
}

/* One block of channels of an image. */
typedef struct plane {
    const float *x;  // (h, w, 8)
    int64_t h, w;
} plane;

/* Prefetches the rows that the tile below, or the first tile of the next block, adds to this
 * window's. */
WINOGRAD_FUNCTION void look_ahead(const plane *p, int64_t top, int64_t left, int64_t outs) {
    const float *x = p->x + ((top + SIDE - 1) * p->w + left + 1) * LANES;
    for (int64_t r = 0; r <= outs; r++, x += p->w * LANES) {
        __builtin_prefetch(x);
        if (outs > 2) __builtin_prefetch(x + ALIGN_FLOATS);
    }
}

/* The window of side x side pixels whose first is (top, left): in place if it lies inside the
 * image, else a copy in `edge` with zeros outside. `*row_out`: floats between its rows. */
WINOGRAD_FUNCTION const float *window(const plane *p, int64_t top, int64_t left, const int64_t side,
                                      float edge[POINTS * LANES], int64_t *row_out) {
    if (top >= 0 && left >= 0 && top + side <= p->h && left + side <= p->w) {
        *row_out = p->w * LANES;
        return p->x + (top * p->w + left) * LANES;
    }
    int64_t first = most(0, -left), count = least(side, p->w - left) - first;
    memset(edge, 0, (size_t)(side * side * LANES) * sizeof(float));
    for (int64_t r = most(0, -top); count > 0 && r < least(side, p->h - top); r++)
        for (int64_t c = first; c < first + count; c++)
            STORE8(edge + (r * side + c) * LANES,
                   LOAD8(p->x + ((top + r) * p->w + left + c) * LANES));
    *row_out = side * LANES;
    return edge;
}

#endif
