/* Convolution between blocked images, as register tiles over images.
 *
 * A tile is one output position of T images and V output blocks: all its images see the same taps,
 * so taps on the padding are skipped and borders need no copy with zeros. That is most of a third
 * of the work for images of 4 x 4. The images of a tile are interleaved, (block, row, column, T,
 * 8), and the weights are copied to (group of V output blocks, input block, kh, kw, 8, V, 8), so a
 * kernel row is one stream of each.
 *
 * A *slab* is the weights of one group and a few input blocks, small enough for the first cache. An
 * *item* is some tiles of images times a chunk of output rows: all its positions pass over a slab
 * before the next one comes, and keep their sums in scratch meanwhile. Every value is summed in
 * the order (input block, kh, kw, channel), however items and tiles are cut.
 *
 * The input gradient is the same with channels swapped, the kernel turned around and, for strides,
 * only the taps that hit a row and column of dy (conv_blocked_tiling.h). */
#include "tensor/kernels/conv_blocked.h"

#include "tensor/kernels/simd/conv_blocked_tiling.h"

/* What one thread works on now. */
typedef struct work {
    const tiling *p;
    const float *in, *weights, *bias;  // weights and bias packed
    float *out;
    const inside *columns;  // of each output column
    float *x_pack;          // (tile, block, row, column, T, 8)
    float *sums;            // (tile, position, T, V, 8)
    bool relu;
    range tiles, rows, reads;  // of this item; rows of the output and of the input
} work;

/* The weights of input blocks `in` and output blocks [g, g + v), and the images of the tile that
 * passes over it. */
typedef struct slab {
    const float *weights;
    range in;
    int64_t g, v, images;
} slab;

/* Images of tile `index`; tiles differ by at most one image. */
static range tile_images(const tiling *p, int64_t index) { return slice(p->n, p->tiles, index); }

/* Packs the weights of V output blocks from g on and of input block b to (kh, kw, 8, V, 8). The
 * steps and `flip` of the tiling turn the same code into that of the input gradient. */
static void pack_weights(const tiling *p, const float *w, int64_t g, int64_t v, int64_t b,
                         float *out) {
    int64_t taps = kernel_taps(p), step = p->out_step;
    for (int64_t o = 0; o < v; o++)
        for (int64_t i = 0; i < LANES; i++) {
            const float *in = w + (g + o) * LANES * step + (b * LANES + i) * p->in_step;
            for (int64_t k = 0; k < taps; k++) {
                const float *f = in + (p->flip ? taps - 1 - k : k);
                v8 lanes = {f[0],        f[step],     f[2 * step], f[3 * step],
                            f[4 * step], f[5 * step], f[6 * step], f[7 * step]};
                *(v8_memory *)(out + ((k * LANES + i) * v + o) * LANES) = lanes;
            }
        }
}

/* Interleaves rows `reads` of the images of one tile, so that a position's T images lie side by
 * side. */
static void pack_tile(const work *w, range images, float *out) {
    const tiling *p = w->p;
    int64_t count = images.to - images.from, area = p->h.in * p->w.in;
    int64_t image = p->in_blocks * area * LANES;
    int64_t pixels = (w->reads.to - w->reads.from) * p->w.in;
    for (int64_t b = 0; b < p->in_blocks; b++) {
        const float *in =
            w->in + images.from * image + (b * area + w->reads.from * p->w.in) * LANES;
        float *block = out + b * p->x_rows * p->w.in * count * LANES;
        for (int64_t i = 0; i < pixels; i++, in += LANES)
            for (int64_t t = 0; t < count; t++, block += LANES)
                *(v8_memory *)block = *(const v8_memory *)(in + t * image);
    }
}

/* Runs the output rows of one tile with one slab. y points at the first of its images and blocks,
 * sums at its first position. Taps on the padding are skipped by `inside`. */
static void rows_run(const work *w, tile_job *job, const slab *s, const float *x, float *sums,
                     float *y) {
    const tiling *p = w->p;
    tile_function *run_tile = tiles[s->v][s->images];
    int64_t tap = LANES * s->v * LANES, column = s->images * LANES;
    for (int64_t r = w->rows.from; r < w->rows.to; r++) {
        inside rows = axis_inside(&p->h, r);
        job->rows = rows.count;
        const float *x_row = x + (rows.count > 0 ? rows.at - w->reads.from : 0) * job->x_row;
        const float *w_row = s->weights + rows.first * p->w.taps * tap;
        for (int64_t c = 0; c < p->w.out; c++, sums += column * s->v) {
            inside cols = w->columns[c];
            job->cols = cols.count;
            run_tile(job, x_row + cols.at * column, w_row + cols.first * tap, sums,
                     y + (r * p->w.out + c) * LANES);
        }
    }
}

/* What all positions of an item share for one slab. The first slab starts from the bias, the last
 * one writes y; those between go on from the sums. */
static tile_job job_make(const work *w, const slab *s) {
    const tiling *p = w->p;
    int64_t tap = LANES * s->v * LANES, area = p->h.out * p->w.out * LANES;
    return (tile_job){.blocks = s->in.to - s->in.from,
                      .w_block = kernel_taps(p) * tap,
                      .w_row = p->h.spread * p->w.taps * tap,
                      .w_col = p->w.spread * tap,
                      .y_image = p->out_blocks * area,
                      .y_block = area,
                      .bias = s->in.from == 0 ? w->bias + s->g * LANES : NULL,
                      .to_y = s->in.to == p->in_blocks,
                      .relu = w->relu};
}

/* Passes all positions of the item over one slab, which stays in the first cache meanwhile. */
static void slab_run(const work *w, slab *s) {
    const tiling *p = w->p;
    tile_job job = job_make(w, s);
    for (int64_t t = w->tiles.from, at = 0; t < w->tiles.to; t++, at++) {
        range images = tile_images(p, t);
        s->images = images.to - images.from;
        job.x_row = p->w.in * s->images * LANES;
        job.x_block = p->x_rows * job.x_row;
        rows_run(w, &job, s, w->x_pack + at * p->x_tile + s->in.from * job.x_block,
                 w->sums + at * p->sums_tile,
                 w->out + (images.from * p->out_blocks + s->g) * job.y_block);
    }
}

/* Runs all slabs of one group of V output blocks, input blocks in ascending order. */
static void group_run(const work *w, int64_t g, int64_t v) {
    const tiling *p = w->p;
    int64_t pair = kernel_taps(p) * LANES * LANES;  // weights of two blocks
    for (int64_t b = 0; b < p->in_blocks; b += p->slab_blocks) {
        slab s = {.weights = w->weights + (g * p->in_blocks + b * v) * pair,
                  .in = {b, least(b + p->slab_blocks, p->in_blocks)},
                  .g = g,
                  .v = v};
        slab_run(w, &s);
    }
}

/* Runs one item with groups [from, to) of output blocks. x is packed once for all groups. */
static void run_item(work *w, int64_t item, range groups) {
    const tiling *p = w->p;
    int64_t first = item / p->chunks * p->item_tiles, row = item % p->chunks * p->chunk_rows;
    w->tiles = (range){first, least(first + p->item_tiles, p->tiles)};
    w->rows = (range){row, least(row + p->chunk_rows, p->h.out)};
    w->reads = axis_reads(&p->h, w->rows);
    for (int64_t t = w->tiles.from; t < w->tiles.to; t++)
        pack_tile(w, tile_images(p, t), w->x_pack + (t - w->tiles.from) * p->x_tile);
    int64_t index = 0;
    for (int64_t g = 0, v; g < p->out_blocks; g += v, index++) {
        v = next_v(p->out_blocks - g);
        if (index < groups.from || index >= groups.to) continue;
        group_run(w, g, v);
    }
}

/* Layout of the scratch of one call: what all threads read, then the room of each thread. */
typedef struct room {
    float *weights, *bias;
    inside *columns;
    float *packs;  // (thread, x_pack + sums)
} room;

/* Cuts the scratch; sizes come from the tiling, as in scratch_bytes. */
static room room_make(const tiling *p, void *scratch) {
    float *weights = scratch, *bias = weights + p->weights;
    return (room){.weights = weights,
                  .bias = bias,
                  .columns = (inside *)(void *)(bias + p->bias),
                  .packs = bias + p->bias + p->columns};
}

/* Packs the weights of one input block for all groups; input blocks are independent, so threads
 * share this work. */
static void prepare_block(const sh_conv_blocked_call *call, const tiling *p, int64_t b,
                          float *weights) {
    int64_t pair = kernel_taps(p) * LANES * LANES;
    for (int64_t g = 0, v; g < p->out_blocks; g += v) {
        v = next_v(p->out_blocks - g);
        pack_weights(p, call->w, g, v, b, weights + (g * p->in_blocks + b * v) * pair);
    }
}

/* Runs part `part` of `parts` of all units. A unit is an item with a part of its output blocks, so
 * that few items still occupy all threads. */
static void run_part(const sh_conv_blocked_call *call, const tiling *p, const room *shared,
                     int64_t part, int64_t parts) {
    float *pack = shared->packs + part * (p->x_pack + p->sums);
    work w = {.p = p,
              .in = call->in,
              .weights = shared->weights,
              .bias = shared->bias,
              .out = call->out,
              .columns = shared->columns,
              .x_pack = pack,
              .sums = pack + p->x_pack,
              .relu = call->relu};
    range units = slice(p->items * p->out_parts, parts, part);
    for (int64_t u = units.from; u < units.to; u++)
        run_item(&w, u / p->out_parts, slice(p->groups, p->out_parts, u % p->out_parts));
}

/* Entry: tables and bias, then the weights, then the units. The barrier between the two loops
 * makes the packed weights visible to all. */
static void run(const sh_conv_blocked_call *call) {
    const tiling p = tiling_make(call->shape, call->input_gradient, call->threads);
    const room shared = room_make(&p, call->scratch);
    const int64_t parts = least(call->threads, p.items * p.out_parts);
    for (int64_t c = 0; c < p.w.out; c++) shared.columns[c] = axis_inside(&p.w, c);
    for (int64_t o = 0; o < p.out_blocks * LANES; o++)
        shared.bias[o] = call->bias != NULL ? call->bias[o] : 0.0f;
#pragma omp parallel num_threads(call->threads) if (parts > 1)
    {
#pragma omp for schedule(static)
        for (int64_t b = 0; b < p.in_blocks; b++) prepare_block(call, &p, b, shared.weights);
#pragma omp for schedule(static)
        for (int64_t part = 0; part < parts; part++) run_part(call, &p, &shared, part, parts);
    }
}

/* Bytes of scratch for this shape, direction and thread count. */
static size_t scratch_bytes(const sh_conv_shape *shape, bool input_gradient, int threads) {
    const tiling p = tiling_make(shape, input_gradient, threads);
    return (size_t)(p.weights + p.bias + p.columns + threads * (p.x_pack + p.sums)) * sizeof(float);
}

/* Neither groups nor dilation; channels in whole blocks of 8. */
static bool supports(const sh_conv_shape *s) {
    if (s->groups != 1 || s->dilation_h != 1 || s->dilation_w != 1) return false;
    if (s->oc % LANES != 0 || s->ic % LANES != 0) return false;
    return s->n > 0 && s->ic > 0 && s->oc > 0 && s->oh > 0 && s->ow > 0 && s->kh > 0 && s->kw > 0;
}

const sh_conv_blocked_kernels SH_SIMD(sh_conv_blocked_table) = {
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
