/* Weight gradient of a convolution by Winograd's algorithm, simd/winograd.h.
 *
 *   V[p] = tiles of x at point p      (block of 8 input channels, tile, 8)
 *   Z[p] = tiles of dy at point p     (group of WIDE output channels, tile, WIDE)
 *   S[p] = sum over tiles of V' Z     (group, input channel, WIDE), then back to weights
 *
 * Tiles are taken in chunks; S keeps the sums until the last. Threads split the channels and share
 * nothing (dy is transformed by all that split the input channels), so every value is summed over
 * the tiles in order at any thread count. */
#include "tensor/kernels/conv_winograd.h"

#include "tensor/kernels/simd/winograd_product.h"

#if defined(__AVX512F__)
enum { ROWS = 8, GROUPS_MOST = 2 };
#elif defined(__AVX__)
enum { ROWS = 4, GROUPS_MOST = 3 };
#else
enum { ROWS = 4, GROUPS_MOST = 1 };
#endif

enum { CHUNK_TILES = 64 };  // their V and Z are near the second cache's size for 64 channels

/* S (groups, ROWS, WIDE) (+)= A' B over `tiles`. */
WINOGRAD_FUNCTION void sum_tiles(const int groups, int64_t tiles, const float *a, const float *b,
                                 int64_t b_group, bool adds, float *s, int64_t s_group) {
    wide sum[ROWS][GROUPS_MOST];
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
        for (int g = 0; g < groups; g++)
            sum[i][g] = adds ? LOAD_WIDE(s + g * s_group + i * WIDE) : (wide){0};
    for (int64_t t = 0; t < tiles; t++, a += LANES, b += WIDE) {
        wide row[GROUPS_MOST];
#pragma GCC unroll 3
        for (int g = 0; g < groups; g++) row[g] = LOAD_WIDE(b + g * b_group);
#pragma GCC unroll 8
        for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
            for (int g = 0; g < groups; g++) sum[i][g] += a[i] * row[g];
    }
#pragma GCC unroll 8
    for (int i = 0; i < ROWS; i++)
#pragma GCC unroll 3
        for (int g = 0; g < groups; g++) STORE_WIDE(s + g * s_group + i * WIDE, sum[i][g]);
}

/* Groups in the next tile: two and two rather than three and a single one. */
static int64_t next_groups(int64_t left) {
    return least(left == GROUPS_MOST + 1 && GROUPS_MOST > 2 ? 2 : GROUPS_MOST, left);
}

typedef struct plan {
    sh_conv_shape s;
    int64_t x_blocks, dy_blocks, groups;
    grid tiles;
    int64_t tile_count, chunk_most;
    int64_t x_parts, dy_parts;          // threads
    int64_t v_point, z_point, s_point;  // floats of one point
} plan;

static int64_t point_floats(int64_t floats) { return aligned(floats) + ALIGN_FLOATS; }

static plan plan_make(const sh_conv_shape *s, int threads) {
    plan p = {.s = *s, .x_blocks = s->ic / LANES, .dy_blocks = s->oc / LANES};
    p.groups = ceil_div(s->oc, WIDE);
    p.tiles = grid_make(s->kh, s->oh, s->ow);
    p.tile_count = s->n * p.tiles.rows * p.tiles.columns;
    p.chunk_most = least(CHUNK_TILES, p.tile_count);
    if (s->ic > s->oc) {
        p.x_parts = least(threads, p.x_blocks);
        p.dy_parts = least(ceil_div(threads, p.x_parts), p.groups);
    } else {
        p.dy_parts = least(threads, p.groups);
        p.x_parts = least(ceil_div(threads, p.dy_parts), p.x_blocks);
    }
    p.v_point = point_floats(ceil_div(p.x_blocks, p.x_parts) * p.chunk_most * LANES);
    p.z_point = point_floats(ceil_div(p.groups, p.dy_parts) * p.chunk_most * WIDE);
    p.s_point = point_floats(p.groups * s->ic * WIDE);
    return p;
}

/* What one thread works on now. */
typedef struct work {
    const plan *p;
    const sh_conv_weight_call *call;
    float *s, *v, *z;
    range xs, groups, tiles;
    int64_t count;  // of tiles
} work;

static void inputs(const work *w) {
    const sh_conv_shape *s = &w->p->s;
    float edge[POINTS * LANES];
    for (int64_t b = w->xs.from; b < w->xs.to; b++) {
        float *v = w->v + (b - w->xs.from) * w->count * LANES;
        place at = place_of(&w->p->tiles, w->tiles.from);
        for (int64_t t = 0; t < w->count; t++, place_next(&w->p->tiles, &at)) {
            plane image = {w->call->x + (at.image * w->p->x_blocks + b) * s->ih * s->iw * LANES,
                           s->ih, s->iw};
            int64_t top = at.row * w->p->tiles.outs - s->pad_h;
            int64_t left = at.column * w->p->tiles.outs - s->pad_w, row;
            const float *x = window(&image, top, left, SIDE, edge, &row);
            look_ahead(&image, top, left, w->p->tiles.outs);
            transform_input(x, row, v + t * LANES, w->p->v_point);
        }
    }
}

/* Lanes that only fill up a group are zeros. */
static void clear_lanes(const work *w, int64_t channel) {
    for (int64_t point = 0; point < POINTS; point++)
        for (int64_t t = 0; t < w->count; t++)
            STORE8(w->z + point * w->p->z_point +
                       ((channel / WIDE - w->groups.from) * w->count + t) * WIDE + channel % WIDE,
                   (v8){0});
}

/* The tiles of 8 channels of dy. */
WINOGRAD_FUNCTION void block_gradients(const int outs, const work *w, int64_t channel) {
    const sh_conv_shape *s = &w->p->s;
    float edge[POINTS * LANES];
    float *z = w->z + (channel / WIDE - w->groups.from) * w->count * WIDE + channel % WIDE;
    place at = place_of(&w->p->tiles, w->tiles.from);
    for (int64_t t = 0; t < w->count; t++, place_next(&w->p->tiles, &at)) {
        plane image = {w->call->dy + (at.image * s->oc + channel) * s->oh * s->ow, s->oh, s->ow};
        int64_t row;
        const float *dy = window(&image, at.row * outs, at.column * outs, outs, edge, &row);
        transform_gradient(outs, dy, row, z + t * WIDE, w->p->z_point);
    }
}

static void gradients(const work *w) {
    for (int64_t o = w->groups.from * WIDE; o < w->groups.to * WIDE; o += LANES) {
        if (o >= w->p->s.oc)
            clear_lanes(w, o);
        else if (w->p->s.kh == 3)
            block_gradients(4, w, o);
        else
            block_gradients(2, w, o);
    }
}

#define SUM_DEFINE(groups)                                                                   \
    static void sum_##groups(int64_t tiles, const float *a, const float *b, int64_t b_group, \
                             bool adds, float *s, int64_t s_group) {                         \
        sum_tiles(groups, tiles, a, b, b_group, adds, s, s_group);                           \
    }
#define SUM_ROW(groups) [groups] = sum_##groups,
#if defined(__AVX512F__)
#define SUMS(X) X(1) X(2)
#elif defined(__AVX__)
#define SUMS(X) X(1) X(2) X(3)
#else
#define SUMS(X) X(1)
#endif

typedef void sum_function(int64_t tiles, const float *a, const float *b, int64_t b_group, bool adds,
                          float *s, int64_t s_group);
SUMS(SUM_DEFINE)
static sum_function *const sums[GROUPS_MOST + 1] = {SUMS(SUM_ROW)};

/* The sums of one point. Some groups of dy stay in the first cache while all of x passes. */
static void multiply(const work *w, int64_t point) {
    const plan *p = w->p;
    const float *v = w->v + point * p->v_point, *z = w->z + point * p->z_point;
    float *s = w->s + point * p->s_point;
    bool adds = w->tiles.from > 0;
    for (int64_t g = w->groups.from, count; g < w->groups.to; g += count) {
        count = next_groups(w->groups.to - g);
        for (int64_t i = w->xs.from * LANES; i < w->xs.to * LANES; i += ROWS)
            sums[count](w->count, v + (i / LANES - w->xs.from) * w->count * LANES + i % LANES,
                        z + (g - w->groups.from) * w->count * WIDE, w->count * WIDE, adds,
                        s + (g * p->s.ic + i) * WIDE, p->s.ic * WIDE);
    }
}

/* Weights of 8 input and 8 output channels: in dw those of an output channel lie side by side. */
static void finish_block(const work *w, int64_t x_block, int64_t dy_block) {
    const plan *p = w->p;
    const int64_t taps = p->s.kh * p->s.kw, row = p->s.ic * taps;
    const float *sums_at = w->s + (dy_block * LANES / WIDE * p->s.ic + x_block * LANES) * WIDE +
                           dy_block * LANES % WIDE;
    float square[LANES * SQUARE_MOST][LANES];
    for (int64_t i = 0; i < LANES; i++) {
        v8 weights[SQUARE_MOST];
        if (p->s.kh == 3)
            transform_weight_sums(3, sums_at + i * WIDE, p->s_point, weights);
        else
            transform_weight_sums(5, sums_at + i * WIDE, p->s_point, weights);
        for (int64_t k = 0; k < taps; k++) STORE8(square[i * taps + k], weights[k]);
    }
    float *dw = w->call->dw + dy_block * LANES * row + x_block * LANES * taps;
    for (int64_t o = 0; o < LANES; o++, dw += row)
        for (int64_t i = 0; i < LANES * taps; i++)
            dw[i] = w->call->accumulate ? dw[i] + square[i][o] : square[i][o];
}

static void run_part(const sh_conv_weight_call *call, const plan *p, int64_t part) {
    float *s = call->scratch;
    work w = {.p = p, .call = call, .s = s};
    w.v = s + POINTS * p->s_point + part * POINTS * (p->v_point + p->z_point);
    w.z = w.v + POINTS * p->v_point;
    w.xs = slice(p->x_blocks, p->x_parts, part / p->dy_parts);
    w.groups = slice(p->groups, p->dy_parts, part % p->dy_parts);
    for (int64_t t = 0; t < p->tile_count; t += p->chunk_most) {
        w.tiles = (range){t, least(t + p->chunk_most, p->tile_count)};
        w.count = w.tiles.to - w.tiles.from;
        inputs(&w);
        gradients(&w);
        for (int64_t point = 0; point < POINTS; point++) multiply(&w, point);
    }
    for (int64_t g = w.groups.from; g < w.groups.to; g++)
        for (int64_t b = w.xs.from; b < w.xs.to; b++)
            for (int64_t o = g * WIDE; o < least((g + 1) * WIDE, p->s.oc); o += LANES)
                finish_block(&w, b, o / LANES);
}

extern const sh_conv_weight_kernels SH_SIMD(sh_conv_weight_table);

static void run(const sh_conv_weight_call *call) {
    const plan p = plan_make(call->shape, call->threads);
    const int64_t parts = p.x_parts * p.dy_parts;
#pragma omp parallel for schedule(static) num_threads(call->threads) if (parts > 1)
    for (int64_t part = 0; part < parts; part++) run_part(call, &p, part);
    if (call->db != NULL)
        SH_SIMD(sh_conv_weight_table)
            .bias(call->dy, p.s.n, p.s.oc, p.s.oh * p.s.ow, call->db, call->accumulate);
}

static size_t scratch_bytes(const sh_conv_shape *shape, int threads) {
    const plan p = plan_make(shape, threads);
    return (size_t)(POINTS * (p.s_point + p.x_parts * p.dy_parts * (p.v_point + p.z_point))) *
           sizeof(float);
}

const sh_conv_winograd_weight_kernels SH_SIMD(sh_conv_winograd_weight_table) = {
    .scratch_bytes = scratch_bytes,
    .run = run,
};
