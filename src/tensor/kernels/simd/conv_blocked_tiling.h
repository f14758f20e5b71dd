/* How the blocked convolution is cut. A pure function of the shape, the direction and the thread
 * count; conv_blocked.c explains the words. */
#ifndef SH_TENSOR_KERNELS_SIMD_CONV_BLOCKED_TILING_H
#define SH_TENSOR_KERNELS_SIMD_CONV_BLOCKED_TILING_H

#include "tensor/kernels/conv_shape.h"
#include "tensor/kernels/simd/conv_blocked_tile.h"

enum {
    SLAB_BYTES = 21 << 10,  // of weights; the first cache has 32 KiB or more
    POSITIONS = 192,        // tiles that share a slab, so that fetching it costs little
};

/* Rows or columns. Tap k of output r reads input (r * stride - pad + k) / spread, where that is
 * whole and inside: the forward pass has spread 1, the input gradient has stride 1. */
typedef struct axis {
    int64_t in, out, taps, stride, pad, spread;
} axis;

/* The taps of one output that lie inside: `count` from `first` on, `spread` apart, which read the
 * input from `at` on. */
typedef struct inside {
    int64_t first, count, at;
} inside;

/* Taps of output r that read inside the input, and (with spread > 1) hit a row that exists. */
static inside axis_inside(const axis *a, int64_t r) {
    int64_t origin = r * a->stride - a->pad;
    int64_t past = origin < 0 ? 0 : origin % a->spread;
    int64_t first = origin < 0 ? -origin : past == 0 ? 0 : a->spread - past;
    int64_t last = least(a->taps - 1, (a->in - 1) * a->spread - origin);
    if (last < first) return (inside){0, 0, 0};
    return (inside){first, (last - first) / a->spread + 1, (origin + first) / a->spread};
}

/* The inputs that a range of outputs may read; perhaps none. */
static range axis_reads(const axis *a, range out) {
    int64_t low = ceil_div(most(0, out.from * a->stride - a->pad), a->spread);
    int64_t high = most(-1, (out.to - 1) * a->stride - a->pad + a->taps - 1);
    int64_t end = least(a->in, high < 0 ? 0 : high / a->spread + 1);
    return (range){low, most(low, end)};
}

/* Cut of one convolution; lengths in floats unless a comment says otherwise. */
typedef struct tiling {
    int64_t n;                      // images
    int64_t in_blocks, out_blocks;  // blocks of 8 channels
    axis h, w;                      // rows, columns
    /* Floats between the weights of two output channels, and of two input channels. */
    int64_t out_step, in_step;
    bool flip;                       // taps from the last to the first
    int64_t slab_blocks;             // input blocks of a slab
    int64_t groups;                  // of V output blocks
    int64_t tiles, item_tiles;       // of T images: in all, per item
    int64_t chunk_rows, chunks;      // output rows per item, chunks per image
    int64_t items, out_parts;        // in all; parts of the output blocks
    int64_t x_rows;                  // input rows of a chunk
    int64_t x_tile, sums_tile;       // floats of one tile
    int64_t x_pack, sums;            // floats of one thread
    int64_t weights, bias, columns;  // floats
} tiling;

/* kh * kw. */
static int64_t kernel_taps(const tiling *p) { return p->h.taps * p->w.taps; }

/* Chooses items with about POSITIONS output positions each, but at least one item per thread if
 * possible; if not, the output blocks are split too. */
static void choose_items(tiling *p, int threads) {
    int64_t area = p->h.out * p->w.out;
    p->tiles = ceil_div(p->n, T_MOST);
    p->item_tiles = most(1, least(POSITIONS / area, ceil_div(p->tiles, threads)));
    int64_t tile_groups = ceil_div(p->tiles, p->item_tiles);
    int64_t wanted = most(ceil_div(area, POSITIONS), ceil_div(threads, tile_groups));
    p->chunk_rows = ceil_div(p->h.out, least(wanted, p->h.out));
    p->chunks = ceil_div(p->h.out, p->chunk_rows);
    p->items = tile_groups * p->chunks;
    p->out_parts = least(ceil_div(threads, p->items), p->groups);
}

/* Sizes of the packed buffers, each rounded to whole cache lines, so that threads do not share a
 * line. */
static void choose_sizes(tiling *p) {
    p->x_rows =
        least(p->h.in, ((p->chunk_rows - 1) * p->h.stride + p->h.taps - 1) / p->h.spread + 1);
    p->x_tile = aligned(p->in_blocks * p->x_rows * p->w.in * T_MOST * LANES);
    p->x_pack = p->item_tiles * p->x_tile;
    p->sums_tile = p->chunk_rows * p->w.out * T_MOST * V_MOST * LANES;
    p->sums = aligned(p->item_tiles * p->sums_tile);
    p->weights = aligned(p->in_blocks * p->out_blocks * kernel_taps(p) * LANES * LANES);
    p->bias = aligned(p->out_blocks * LANES);
    p->columns = aligned(p->w.out * (int64_t)(sizeof(inside) / sizeof(float)));
}

/* The whole cut. For the input gradient the channels change places, the padding becomes k - 1 -
 * pad and the stride becomes the spread of dy. */
static tiling tiling_make(const sh_conv_shape *s, bool input_gradient, int threads) {
    int64_t taps = s->kh * s->kw;
    tiling p = {.n = s->n, .in_blocks = s->ic / LANES, .out_blocks = s->oc / LANES};
    p.h = (axis){s->ih, s->oh, s->kh, s->stride_h, s->pad_h, 1};
    p.w = (axis){s->iw, s->ow, s->kw, s->stride_w, s->pad_w, 1};
    p.out_step = s->ic * taps, p.in_step = taps;
    if (input_gradient) {
        p.in_blocks = s->oc / LANES, p.out_blocks = s->ic / LANES;
        p.h = (axis){s->oh, s->ih, s->kh, 1, s->kh - 1 - s->pad_h, s->stride_h};
        p.w = (axis){s->ow, s->iw, s->kw, 1, s->kw - 1 - s->pad_w, s->stride_w};
        p.out_step = taps, p.in_step = s->ic * taps;
        p.flip = true;
    }
    int64_t block_bytes = taps * LANES * V_MOST * LANES * (int64_t)sizeof(float);
    int64_t slabs = ceil_div(p.in_blocks, most(1, SLAB_BYTES / block_bytes));
    p.slab_blocks = ceil_div(p.in_blocks, slabs);
    for (int64_t g = 0; g < p.out_blocks; g += next_v(p.out_blocks - g)) p.groups++;
    choose_items(&p, threads);
    choose_sizes(&p);
    return p;
}

#endif
