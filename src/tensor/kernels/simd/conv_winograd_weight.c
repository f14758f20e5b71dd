/* Weight gradient of a convolution by Winograd's algorithm, simd/winograd.h.
 *
 *   V[p] = tiles of x at point p      (block of 8 input channels, tile, 8)
 *   Z[p] = tiles of dy at point p     (group of WIDE output channels, tile, WIDE)
 *   S[p] = sum over tiles of V' Z     (group, input channel, WIDE), then back to weights
 *
 * Tiles are taken in chunks, and S in *strips*: a few groups and a few input blocks, all points of
 * which fit into the second cache. S keeps the sums until the last chunk; where there is only one,
 * a strip goes back to weights at once, and the next takes its place.
 *
 * Threads split the channels and share nothing (dy is transformed by all that split the input
 * channels), so every value is summed over the tiles in order at any thread count. */
#include "tensor/kernels/conv_winograd.h"

#include "tensor/kernels/simd/transpose.h"
#include "tensor/kernels/simd/winograd_product.h"

#if defined(__AVX512F__)
enum { ROWS = 8, GROUPS_MOST = 2 };
#elif defined(__AVX__)
enum { ROWS = 4, GROUPS_MOST = 3 };
#else
enum { ROWS = 4, GROUPS_MOST = 1 };
#endif

enum {
    CHUNK_TILES = 64,  // their V and Z are near the second cache's size for 64 channels
    FEW_TILES = 128,   // are one chunk: V and Z of 256 channels take 4.5 MiB each
    STRIP_BLOCKS = 8,  // of input
};

/* S (groups, ROWS, WIDE) = or += A' B over `tiles`: ROWS x groups sums stay in registers. `groups`
 * is a constant at every use. */
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

typedef struct tiling {
    sh_conv_shape s;
    int64_t x_blocks, groups;  // blocks of 8 input channels; groups of WIDE output channels
    grid tiles;
    int64_t tile_count, chunk_most;  // tiles in all, and in the largest chunk
    int64_t x_parts, dy_parts;       // threads
    int64_t v_point, z_point;        // floats of one point
    int64_t s_floats;                // of one thread
} tiling;

/* What one thread works on now. */
typedef struct work {
    const tiling *p;
    const sh_conv_weight_call *call;
    float *s, *v, *z;  // this thread's S, V and Z
    range xs, groups, tiles;
    int64_t count;  // of tiles
} work;

/* One strip of S; the head of this file explains the word. */
typedef struct strip {
    range xs, groups;  // blocks of input, groups of output
    int64_t from;      // floats of S before its own, (point, group, input channel, WIDE)
    int64_t point;     // floats of one point
} strip;

/* Groups of the next strip: 4 are cut into 2 and 2, since a single group uses few registers. */
static int64_t next_groups(int64_t left) {
    return least(left == GROUPS_MOST + 1 && GROUPS_MOST > 2 ? 2 : GROUPS_MOST, left);
}

/* Sets the end of a strip that begins at xs.from and groups.from. */
static void strip_size(strip *at, const work *w) {
    at->groups.to = at->groups.from + next_groups(w->groups.to - at->groups.from);
    at->xs.to = least(at->xs.from + STRIP_BLOCKS, w->xs.to);
    at->point =
        point_floats((at->groups.to - at->groups.from) * (at->xs.to - at->xs.from) * LANES * WIDE);
}

/* First strip of a thread's channels. */
static strip strip_first(const work *w) {
    strip at = {.xs = {w->xs.from, 0}, .groups = {w->groups.from, 0}};
    strip_size(&at, w);
    return at;
}

/* Next strip: all of x passes some groups before the next groups come. With several chunks every
 * strip has its own place in S, otherwise all use the same. False after the last. */
static bool strip_next(strip *at, const work *w) {
    if (w->p->chunk_most < w->p->tile_count) at->from += POINTS * at->point;
    at->xs.from = at->xs.to;
    if (at->xs.from == w->xs.to) at->xs.from = w->xs.from, at->groups.from = at->groups.to;
    if (at->groups.from == w->groups.to) return false;
    strip_size(at, w);
    return true;
}

/* Floats of S: the sum over strips with several chunks, the largest strip with one. */
static int64_t sums_floats(const work *w) {
    strip at = strip_first(w);
    int64_t end = 0;
    do end = most(end, at.from + POINTS * at.point);
    while (strip_next(&at, w));
    return end;
}

/* The cut. Threads first split the side with more channels. */
static tiling tiling_make(const sh_conv_shape *s, int threads) {
    tiling p = {.s = *s, .x_blocks = s->ic / LANES};
    p.groups = ceil_div(s->oc, WIDE);
    p.tiles = grid_make(s->kh, s->oh, s->ow);
    p.tile_count = s->n * p.tiles.rows * p.tiles.columns;
    p.chunk_most = p.tile_count <= FEW_TILES ? p.tile_count : CHUNK_TILES;
    if (s->ic > s->oc) {
        p.x_parts = least(threads, p.x_blocks);
        p.dy_parts = least(ceil_div(threads, p.x_parts), p.groups);
    } else {
        p.dy_parts = least(threads, p.groups);
        p.x_parts = least(ceil_div(threads, p.dy_parts), p.x_blocks);
    }
    int64_t x_most = ceil_div(p.x_blocks, p.x_parts), group_most = ceil_div(p.groups, p.dy_parts);
    p.v_point = point_floats(x_most * p.chunk_most * LANES);
    p.z_point = point_floats(group_most * p.chunk_most * WIDE);
    p.s_floats = sums_floats(&(work){.p = &p, .xs = {0, x_most}, .groups = {0, group_most}});
    return p;
}

/* V of the thread's input blocks for one chunk of tiles. */
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

/* Zeroes lanes of Z that only fill up a group, so that their sums are harmless. */
static void clear_lanes(const work *w, int64_t channel) {
    for (int64_t point = 0; point < POINTS; point++)
        for (int64_t t = 0; t < w->count; t++)
            STORE8(w->z + point * w->p->z_point +
                       ((channel / WIDE - w->groups.from) * w->count + t) * WIDE + channel % WIDE,
                   (v8){0});
}

/* Z of 8 channels of dy. */
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

/* Z of the thread's groups; outs = 7 - taps is a constant for each kernel. */
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

/* sum_tiles compiled for every count of groups, and the table of them. */
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

/* Adds one chunk of tiles to the sums of one strip, point by point; the first chunk overwrites. */
static void multiply(const work *w, const strip *at) {
    const tiling *p = w->p;
    const int64_t groups = at->groups.to - at->groups.from;
    const int64_t channels = (at->xs.to - at->xs.from) * LANES;
    for (int64_t point = 0; point < POINTS; point++) {
        const float *v = w->v + point * p->v_point + (at->xs.from - w->xs.from) * w->count * LANES;
        const float *z =
            w->z + point * p->z_point + (at->groups.from - w->groups.from) * w->count * WIDE;
        float *s = w->s + at->from + point * at->point;
        for (int64_t i = 0; i < channels; i += ROWS)
            sums[groups](w->count, v + i / LANES * w->count * LANES + i % LANES, z, w->count * WIDE,
                         w->tiles.from > 0, s + i * WIDE, channels * WIDE);
    }
}

/* Transforms the sums of 8 input and 8 output channels back to weights. In dw the weights of an
 * output channel lie side by side, hence the transposition. */
static void finish_block(const work *w, int64_t point, const float *s, float *dw) {
    const tiling *p = w->p;
    const int64_t taps = p->s.kh * p->s.kw, row = p->s.ic * taps;
    float square[LANES * SQUARE_MOST][LANES], rows[LANES][LANES * SQUARE_MOST];
    for (int64_t i = 0; i < LANES; i++) {
        v8 weights[SQUARE_MOST];
        if (p->s.kh == 3)
            transform_weight_sums(3, s + i * WIDE, point, weights);
        else
            transform_weight_sums(5, s + i * WIDE, point, weights);
        for (int64_t k = 0; k < taps; k++) STORE8(square[i * taps + k], weights[k]);
    }
    for (int64_t c = 0; c < LANES * taps; c += LANES)
        transpose8(LANES, square[c], LANES, rows[0] + c, LANES * SQUARE_MOST);
    for (int64_t o = 0; o < LANES; o++, dw += row)
        for (int64_t i = 0; i < LANES * taps; i++)
            dw[i] = w->call->accumulate ? dw[i] + rows[o][i] : rows[o][i];
}

/* Writes one strip to dw; channels that only fill up a group are left out. */
static void finish(const work *w, const strip *at) {
    const tiling *p = w->p;
    const int64_t taps = p->s.kh * p->s.kw, channels = (at->xs.to - at->xs.from) * LANES;
    const int64_t first = at->groups.from * WIDE, end = least(at->groups.to * WIDE, p->s.oc);
    const float *s = w->s + at->from;
    for (int64_t o = first; o < end; o += LANES)
        for (int64_t i = 0; i < channels; i += LANES)
            finish_block(w, at->point,
                         s + ((o - first) / WIDE * channels + i) * WIDE + (o - first) % WIDE,
                         w->call->dw + (o * p->s.ic + at->xs.from * LANES + i) * taps);
}

/* All chunks of tiles for one part of the channels. */
static void run_part(const sh_conv_weight_call *call, const tiling *p, int64_t part) {
    work w = {.p = p, .call = call};
    w.s = (float *)call->scratch + part * (p->s_floats + POINTS * (p->v_point + p->z_point));
    w.v = w.s + p->s_floats;
    w.z = w.v + POINTS * p->v_point;
    w.xs = slice(p->x_blocks, p->x_parts, part / p->dy_parts);
    w.groups = slice(p->groups, p->dy_parts, part % p->dy_parts);
    for (int64_t t = 0; t < p->tile_count; t += p->chunk_most) {
        w.tiles = (range){t, least(t + p->chunk_most, p->tile_count)};
        w.count = w.tiles.to - w.tiles.from;
        inputs(&w);
        gradients(&w);
        strip at = strip_first(&w);
        do {
            multiply(&w, &at);
            if (w.tiles.to == p->tile_count) finish(&w, &at);
        } while (strip_next(&at, &w));
    }
}

extern const sh_conv_weight_kernels SH_SIMD(sh_conv_weight_table);

/* Entry. Parts share nothing, so there is no barrier. The bias gradient is conv_weight.c's. */
static void run(const sh_conv_weight_call *call) {
    const tiling p = tiling_make(call->shape, call->threads);
    const int64_t parts = p.x_parts * p.dy_parts;
#pragma omp parallel for schedule(static) num_threads(call->threads) if (parts > 1)
    for (int64_t part = 0; part < parts; part++) run_part(call, &p, part);
    if (call->db != NULL)
        SH_SIMD(sh_conv_weight_table)
            .bias(call->dy, p.s.n, p.s.oc, p.s.oh * p.s.ow, call->db, call->accumulate);
}

/* Bytes of scratch for this shape and thread count. */
static size_t scratch_bytes(const sh_conv_shape *shape, int threads) {
    const tiling p = tiling_make(shape, threads);
    return (size_t)(p.x_parts * p.dy_parts * (p.s_floats + POINTS * (p.v_point + p.z_point))) *
           sizeof(float);
}

const sh_conv_winograd_weight_kernels SH_SIMD(sh_conv_winograd_weight_table) = {
    .scratch_bytes = scratch_bytes,
    .run = run,
};
