/* Forward convolution as register tiles: T output pixels of a row times V blocks of 8 channels.
 *
 * A tile holds its T * V <= 12 sums in registers over all taps (kh, ic, kw); a tap costs V loads of
 * weights and T broadcasts of x. T = 6, V = 2 is 8 loads per 12 multiply-adds, so the multipliers
 * are the limit. Weights are copied to (group of V blocks, taps, V, 8); rows of x to a chunk with
 * zero columns left and right, so that nothing is checked inside. A table turns a tap into its
 * distance in the chunk: one flat loop, whatever the kernel. Taps are ordered by their kernel row,
 * so those that see only padding above or below x are a prefix or a suffix, and are left out.
 *
 * Letters: G blocks of 8 channels of y, V blocks per tile, T pixels per tile. */
#include "tensor/kernels/conv_plain.h"

#include "tensor/kernels/simd/conv_common.h"

enum {
    CHUNK_BYTES = 16 << 10,  // of x; weights of one group share the first cache with it
    V_MOST = 3,
    T_MOST = 8,
    TILE_MOST = 12,
};

/* Most pixels of a tile beside V blocks: T * V <= 12 sums. */
static const int tile_most[V_MOST + 1] = {0, 8, 6, 4};

/* What all tiles of a row share. */
typedef struct tile_row {
    const int64_t *offsets;  // of a tap in the chunk
    int64_t taps, stride;    // taps of this row; floats between two pixels of x
    int64_t y_block;         // floats between two blocks of y
    const float *bias;       // (V, 8), zeros where there is none
    bool relu;
} tile_row;

/* A tile compiled for one T and V; x points at the tile's first pixel. */
typedef void tile_function(const tile_row *row, const float *x, const float *w, float *y);

/* T pixels times V blocks over all taps in one flat loop. Inlined with constant T and V, so that
 * the sums stay in registers. */
__attribute__((always_inline)) static inline void tile(const tile_row *row, const float *x,
                                                       const float *w, float *y, const int T,
                                                       const int V) {
    v8 a[TILE_MOST];
    UNROLL
    for (int i = 0; i < T * V; i++) a[i] = *(const v8_memory *)(row->bias + i % V * LANES);
    const int64_t taps = row->taps, stride = row->stride;
    for (int64_t tap = 0; tap < taps; tap++, w += V * LANES) {
        const float *xp = x + row->offsets[tap];
        v8 f[V_MOST];
        UNROLL
        for (int v = 0; v < V; v++) f[v] = *(const v8_memory *)(w + v * LANES);
        UNROLL
        for (int t = 0; t < T; t++) {
            float s = xp[t * stride];
            v8 b = {s, s, s, s, s, s, s, s};
            UNROLL
            for (int v = 0; v < V; v++) a[t * V + v] += b * f[v];
        }
    }
    UNROLL
    for (int i = 0; i < T * V; i++) {
        v8_mask keep = row->relu ? ~(a[i] <= 0.0f) : (v8_mask){0} - 1;  // NaN stays
        *(v8_memory *)(y + i % V * row->y_block + i / V * LANES) = (v8)(keep & (v8_mask)a[i]);
    }
}

// clang-format off
#define SH_TILES(X)                                                         \
    X(1, 1) X(2, 1) X(3, 1) X(4, 1) X(5, 1) X(6, 1) X(7, 1) X(8, 1)         \
    X(1, 2) X(2, 2) X(3, 2) X(4, 2) X(5, 2) X(6, 2)                         \
    X(1, 3) X(2, 3) X(3, 3) X(4, 3)
// clang-format on

#define SH_TILE_DEFINE(T, V)                                                                    \
    static void tile_##T##x##V(const tile_row *row, const float *x, const float *w, float *y) { \
        tile(row, x, w, y, T, V);                                                               \
    }
SH_TILES(SH_TILE_DEFINE)

/* Table of tile functions by V and T. */
#define SH_TILE_ROW(T, V) [V][T] = tile_##T##x##V,
static tile_function *const tiles[V_MOST + 1][T_MOST + 1] = {SH_TILES(SH_TILE_ROW)};

/* Blocks in the next tile: three rather than two and a single one, which starves the multipliers.
 * Without registers of 8 floats, compilers keep arrays of such vectors in memory, and wider tiles
 * run ten times slower. */
static int64_t next_v(int64_t left) {
#if defined(__AVX__)
    return left == 3 ? 3 : least(left, 2);
#else
    return least(left, 1);
#endif
}

/* Cut of one convolution. A chunk is some output rows of one image and the input rows they read. */
typedef struct tiling {
    sh_conv_shape s;
    int64_t blocks, taps;                    // G; ic * kh * kw
    int64_t chunk_rows, chunks;              // output rows per chunk, chunks per image
    int64_t x_rows, x_row;                   // of a chunk of one channel: rows, floats per row
    int64_t weights, bias, offsets, x_pack;  // floats; x_pack of one thread
} tiling;

/* Input rows that a kernel spans, dilation included. */
static int64_t reach_h(const sh_conv_shape *s) { return (s->kh - 1) * s->dilation_h + 1; }

/* Chunks hold about CHUNK_BYTES of x; they are smaller where the images alone do not occupy all
 * threads. */
static tiling tiling_make(const sh_conv_shape *shape, int threads) {
    tiling p = {.s = *shape, .blocks = shape->oc / LANES};
    const sh_conv_shape *s = &p.s;
    p.taps = s->ic * s->kh * s->kw;
    p.x_row = (s->ow - 1) * s->stride_w + (s->kw - 1) * s->dilation_w + 1;
    int64_t fit = CHUNK_BYTES / (s->ic * p.x_row * (int64_t)sizeof(float));
    int64_t rows = fit < reach_h(s) ? 1 : (fit - reach_h(s)) / s->stride_h + 1;
    int64_t parts = most(ceil_div(s->oh, rows), least(s->oh, ceil_div(threads, s->n)));
    p.chunk_rows = ceil_div(s->oh, parts);
    p.chunks = ceil_div(s->oh, p.chunk_rows);
    p.x_rows = least((p.chunk_rows - 1) * s->stride_h + reach_h(s), s->ih);
    p.weights = aligned(p.taps * s->oc);
    p.bias = aligned(s->oc);
    p.offsets = aligned(p.taps * (int64_t)(sizeof(int64_t) / sizeof(float)));
    p.x_pack = aligned(s->ic * p.x_rows * p.x_row);
    return p;
}

/* Distance of every tap from the first one in the packed chunk. Taps are ordered (kh, ic, kw), as
 * the weights are. */
static void fill_offsets(const tiling *p, int64_t *offsets) {
    const sh_conv_shape *s = &p->s;
    for (int64_t r = 0; r < s->kh; r++)
        for (int64_t i = 0; i < s->ic; i++)
            for (int64_t c = 0; c < s->kw; c++)
                *offsets++ = (i * p->x_rows + r * s->dilation_h) * p->x_row + c * s->dilation_w;
}

/* Packs the weights of V blocks from g on, (oc, ic, kh, kw) to (kh, ic, kw, V, 8). */
static void pack_weights(const tiling *p, const float *w, int64_t g, int64_t v, float *out) {
    const sh_conv_shape *s = &p->s;
    for (int64_t o = 0; o < v * LANES; o++) {
        const float *in = w + (g * LANES + o) * p->taps;
        for (int64_t i = 0; i < s->ic; i++)
            for (int64_t r = 0; r < s->kh; r++)
                for (int64_t c = 0; c < s->kw; c++)
                    out[((r * s->ic + i) * s->kw + c) * v * LANES + o] = *in++;
    }
}

/* What one thread works on now. */
typedef struct work {
    const tiling *p;
    const float *weights, *bias;  // packed
    const int64_t *offsets;
    float *x_pack;  // (ic, x_rows, x_row)
    bool relu;
    range rows;  // of the output
} work;

/* The first input row that the chunk's output rows touch. */
static int64_t first_row(const work *w) {
    return most(0, w->rows.from * w->p->s.stride_h - w->p->s.pad_h);
}

/* Packs the chunk's input rows, each with its zero columns; rows outside the image are left out,
 * as their taps are. */
static void pack_x(const work *w, const float *image) {
    const tiling *p = w->p;
    const sh_conv_shape *s = &p->s;
    int64_t from = first_row(w);
    int64_t to = least(s->ih, (w->rows.to - 1) * s->stride_h - s->pad_h + reach_h(s));
    for (int64_t i = 0; i < s->ic; i++)
        for (int64_t r = from; r < to; r++)
            pad_row(image + (i * s->ih + r) * s->iw, s->iw, s->pad_w,
                    w->x_pack + (i * p->x_rows + r - from) * p->x_row, p->x_row);
}

/* Kernel rows that lie inside x for an output row whose first tap lies in input row `top`; empty
 * if none does. */
static range kernel_rows(const sh_conv_shape *s, int64_t top) {
    int64_t from = top < 0 ? ceil_div(-top, s->dilation_h) : 0;
    int64_t to = top < s->ih ? least(s->kh, ceil_div(s->ih - top, s->dilation_h)) : 0;
    return (range){from, most(from, to)};
}

/* Runs one output row of V blocks; y points at its first pixel. Weights and x are moved to the
 * first kernel row inside x, so offsets begin at 0 again. */
static void row_run(const work *w, tile_row *row, int64_t r, const float *weights, int v,
                    float *y) {
    const tiling *p = w->p;
    const sh_conv_shape *s = &p->s;
    int64_t top = r * s->stride_h - s->pad_h, row_taps = s->ic * s->kw;
    range k = kernel_rows(s, top);
    row->taps = (k.to - k.from) * row_taps;
    row->offsets = w->offsets;  // the first kernel row inside x is where the sums begin
    const float *x = w->x_pack;
    if (row->taps > 0) x += (top + k.from * s->dilation_h - first_row(w)) * p->x_row;
    weights += k.from * row_taps * v * LANES;
    int64_t pieces = ceil_div(s->ow, tile_most[v]);
    for (int64_t i = 0; i < pieces; i++) {
        range t = slice(s->ow, pieces, i);
        tiles[v][t.to - t.from](row, x + t.from * s->stride_w, weights, y + t.from * LANES);
    }
}

/* Runs one chunk with all output blocks; x is packed once for them. */
static void chunk_run(const work *w, const float *image, float *y) {
    const tiling *p = w->p;
    int64_t area = p->s.oh * p->s.ow * LANES;
    pack_x(w, image);
    tile_row row = {.stride = p->s.stride_w, .y_block = area, .relu = w->relu};
    for (int64_t g = 0, v; g < p->blocks; g += v) {
        v = next_v(p->blocks - g);
        row.bias = w->bias + g * LANES;
        for (int64_t r = w->rows.from; r < w->rows.to; r++)
            row_run(w, &row, r, w->weights + g * LANES * p->taps, (int)v,
                    y + g * area + r * p->s.ow * LANES);
    }
}

/* Item to image and chunk of rows. */
static void run_item(const sh_conv_plain_call *call, work *w, int64_t item) {
    const tiling *p = w->p;
    const sh_conv_shape *s = &p->s;
    int64_t n = item / p->chunks, from = item % p->chunks * p->chunk_rows;
    w->rows = (range){from, least(from + p->chunk_rows, s->oh)};
    chunk_run(w, call->x + n * s->ic * s->ih * s->iw, call->y + n * s->oc * s->oh * s->ow);
}

/* Entry. Scratch holds weights, bias and offsets, which all threads read, then the chunk of each
 * thread. Images and chunks over threads; each output is summed by one thread in one order. */
static void run(const sh_conv_plain_call *call) {
    const tiling p = tiling_make(call->shape, call->threads);
    float *weights = call->scratch, *bias = weights + p.weights;
    int64_t *offsets = (int64_t *)(void *)(bias + p.bias);
    float *packs = bias + p.bias + p.offsets;
    const int64_t parts = least(call->threads, p.s.n * p.chunks);
    fill_offsets(&p, offsets);
    for (int64_t o = 0; o < p.s.oc; o++) bias[o] = call->bias != NULL ? call->bias[o] : 0.0f;
    for (int64_t g = 0, v; g < p.blocks; g += v) {
        v = next_v(p.blocks - g);
        pack_weights(&p, call->w, g, v, weights + g * LANES * p.taps);
    }
#pragma omp parallel for schedule(static) num_threads(call->threads) if (parts > 1)
    for (int64_t part = 0; part < parts; part++) {
        work w = {.p = &p,
                  .weights = weights,
                  .bias = bias,
                  .offsets = offsets,
                  .x_pack = packs + part * p.x_pack,
                  .relu = call->relu};
        range items = slice(p.s.n * p.chunks, parts, part);
        for (int64_t item = items.from; item < items.to; item++) run_item(call, &w, item);
    }
}

/* Bytes of scratch for this shape and thread count. */
static size_t scratch_bytes(const sh_conv_shape *shape, int threads) {
    const tiling p = tiling_make(shape, threads);
    return (size_t)(p.weights + p.bias + p.offsets + threads * p.x_pack) * sizeof(float);
}

/* No groups; output channels in whole blocks of 8. Input channels may be any number. */
static bool supports(const sh_conv_shape *s) {
    if (s->groups != 1 || s->oc % LANES != 0) return false;
    return s->n > 0 && s->ic > 0 && s->oc > 0 && s->oh > 0 && s->ow > 0 && s->kh > 0 && s->kw > 0;
}

const sh_conv_plain_kernels SH_SIMD(sh_conv_plain_table) = {
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
