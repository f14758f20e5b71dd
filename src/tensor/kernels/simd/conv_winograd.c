/* Forward pass and input gradient of a convolution by Winograd's algorithm, simd/winograd.h.
 *
 *   U[p] = the weights at point p     (panel of NR output channels, input block, 8, NR)
 *   V[p] = the tiles at point p       (input block, tile, 8)
 *   M[p] = V[p] U[p]                  (panel, tile, NR), then back to outputs
 *
 * Whichever of U and V is small is made once, by all threads, and the other as it is used:
 *
 *   many tiles   U is kept. Tiles are taken in chunks whose V and M stay near the second cache; a
 *                *unit* is one chunk and a part of the panels.
 *   few tiles    V is kept. A unit is all tiles and one panel, whose U is made for some input
 *                channels at a time and multiplied while it is in the second cache: 36 points of
 *                512 x 512 weights would go to memory and back.
 *
 * Threads take units and share nothing but what is kept. Every value is summed over the input
 * channels in order, however units are cut.
 *
 * The input gradient is the same with channels swapped and the kernel turned around. */
#include "tensor/kernels/conv_winograd.h"

#include "tensor/kernels/simd/transpose.h"
#include "tensor/kernels/simd/winograd_product.h"

PRODUCTS(PRODUCT_DEFINE)
static product_function *const products[MR + 1] = {PRODUCTS(PRODUCT_ROW)};

enum {
    CHUNK_BYTES = 768 << 10,  // of V and M; the second cache has 512 KiB or more
    CHUNK_LEAST = 56,         // tiles that pay for fetching U once more
    FEW_TILES = 128,          // V of 256 channels takes 4.5 MiB
    STEP_BLOCKS = 8,          // of input, whose U is made at a time: 144 KiB at NR = 16
};

/* Cut of one convolution; the head of this file explains the words. */
typedef struct tiling {
    int64_t n, in_blocks, out_blocks, panels, taps;  // taps of one dimension
    int64_t in_h, in_w, out_h, out_w, pad_h, pad_w;
    int64_t out_step, in_step;  // floats between the weights of two output or two input channels
    bool flip;                  // taps from the last to the first
    bool few;                   // tiles: V is kept
    grid tiles;
    int64_t tile_count, chunks, parts;  // parts of the panels
    int64_t chunk_most;                 // tiles
    int64_t u_point, v_point, m_point;  // floats of one point
} tiling;

/* Chooses which of U and V is kept, and cuts the tiles into chunks and the panels into parts so
 * that every thread has a unit. */
static void choose_units(tiling *p, int threads) {
    int64_t tile_bytes = POINTS * (p->in_blocks * LANES + p->panels * NR) * (int64_t)sizeof(float);
    int64_t most_tiles = most(CHUNK_LEAST, CHUNK_BYTES / tile_bytes);
    p->tile_count = p->n * p->tiles.rows * p->tiles.columns;
    p->few = p->tile_count <= FEW_TILES && p->panels >= threads;
    p->chunks = p->few ? 1 : ceil_div(p->tile_count, most_tiles);
    p->parts = 1;
    if (p->few)
        p->parts = p->panels;
    else if (p->chunks >= threads)
        p->chunks = ceil_div(p->chunks, threads) * threads;
    else
        p->parts = least(p->panels, ceil_div(threads, p->chunks));
    p->chunks = least(p->tile_count, most(p->chunks, ceil_div(threads, p->parts)));
    p->chunk_most = ceil_div(p->tile_count, p->chunks);
}

/* The whole cut; the input gradient swaps channels and turns the kernel around. */
static tiling tiling_make(const sh_conv_shape *s, bool input_gradient, int threads) {
    const int64_t taps = s->kh * s->kw;
    tiling p = {.n = s->n, .in_blocks = s->ic / LANES, .out_blocks = s->oc / LANES, .taps = s->kh};
    p.in_h = s->ih, p.in_w = s->iw, p.out_h = s->oh, p.out_w = s->ow;
    p.pad_h = s->pad_h, p.pad_w = s->pad_w;
    p.out_step = s->ic * taps, p.in_step = taps;
    if (input_gradient) {
        p.in_blocks = s->oc / LANES, p.out_blocks = s->ic / LANES;
        p.in_h = s->oh, p.in_w = s->ow, p.out_h = s->ih, p.out_w = s->iw;
        p.pad_h = s->kh - 1 - s->pad_h, p.pad_w = s->kw - 1 - s->pad_w;
        p.out_step = taps, p.in_step = s->ic * taps;
        p.flip = true;
    }
    p.panels = ceil_div(p.out_blocks * LANES, NR);
    p.tiles = grid_make(p.taps, p.out_h, p.out_w);
    choose_units(&p, threads);
    p.u_point = point_floats((p.few ? STEP_BLOCKS : p.panels * p.in_blocks) * LANES * NR);
    p.v_point = point_floats(p.in_blocks * p.chunk_most * LANES);
    p.m_point = point_floats(ceil_div(p.panels, p.parts) * p.chunk_most * NR);
    return p;
}

/* Transposes 8 rows of `columns` values to (columns, 8). The last square may overlap the one
 * before, so columns >= 8. */
static void turn_rows(const float *rows, int64_t step, int64_t columns, float *out) {
    for (int64_t c = 0; c < columns; c += LANES) {
        int64_t at = least(c, columns - LANES);
        transpose8(LANES, rows + at, step, out + at * LANES, LANES);
    }
}

/* Gathers the weights of 8 output channels and one input block as (input channel, tap, output
 * channel). */
static void gather_weights(const tiling *p, const float *w, int64_t out, int64_t block, float *g) {
    const int64_t taps = p->taps * p->taps;
    w += out * LANES * p->out_step + block * LANES * p->in_step;
    if (p->in_step == taps) {
        turn_rows(w, p->out_step, LANES * taps, g);
        return;
    }
    for (int64_t i = 0; i < LANES; i++, w += p->in_step, g += taps * LANES) {
        turn_rows(w, p->out_step, taps, g);
        for (int64_t at = 0; at < taps * LANES; at += ALIGN_FLOATS)  // the next block's
            __builtin_prefetch(w + LANES * p->in_step + at);
    }
}

/* Transforms the weights of 8 output channels and one input channel to all points. */
WINOGRAD_FUNCTION void weight_points(const int taps, const tiling *p, const float *g, float *u) {
    v8 values[SQUARE_MOST];
    for (int k = 0; k < taps * taps; k++)
        values[k] = LOAD8(g + (p->flip ? taps * taps - 1 - k : k) * LANES);
    transform_weights(taps, values, u, p->u_point);
}

/* Makes U of one input block and one panel. Channels that only fill up the panel become zeros, so
 * that their products are harmless. */
static void prepare(const tiling *p, const float *w, int64_t block, int64_t panel, float *u) {
    float g[LANES * SQUARE_MOST * LANES];
    for (int64_t o = 0; o < NR; o += LANES) {
        int64_t out = (panel * NR + o) / LANES;
        if (out < p->out_blocks)
            gather_weights(p, w, out, block, g);
        else
            memset(g, 0, sizeof g);
        for (int64_t i = 0; i < LANES; i++) {
            if (p->taps == 3)
                weight_points(3, p, g + i * 9 * LANES, u + i * NR + o);
            else
                weight_points(5, p, g + i * 25 * LANES, u + i * NR + o);
        }
    }
}

/* The unit that a thread works on, and where its values are. */
typedef struct work {
    const tiling *p;
    const sh_conv_blocked_call *call;
    float *u, *v, *m;
    range tiles, panels;
    int64_t count;  // of tiles
} work;

/* Makes V of one input block: all tiles of the unit, in order. */
static void inputs(const work *w, int64_t block) {
    const tiling *p = w->p;
    float edge[POINTS * LANES];
    float *v = w->v + block * w->count * LANES;
    place at = place_of(&p->tiles, w->tiles.from);
    for (int64_t t = 0; t < w->count; t++, place_next(&p->tiles, &at)) {
        plane image = {w->call->in + (at.image * p->in_blocks + block) * p->in_h * p->in_w * LANES,
                       p->in_h, p->in_w};
        int64_t top = at.row * p->tiles.outs - p->pad_h;
        int64_t left = at.column * p->tiles.outs - p->pad_w, row;
        const float *x = window(&image, top, left, SIDE, edge, &row);
        look_ahead(&image, top, left, p->tiles.outs);
        transform_input(x, row, v + t * LANES, p->v_point);
    }
}

/* M += V U over some input blocks; the first blocks overwrite M. `u` points at the unit's first
 * panel at the first of the blocks. A panel passes over all tiles before the next one comes, so it
 * is fetched once. */
static void multiply(const work *w, range blocks, const float *u) {
    const tiling *p = w->p;
    const int64_t pieces = ceil_div(w->count, MR), panels = w->panels.to - w->panels.from;
    for (int64_t point = 0; point < POINTS; point++) {
        const float *v = w->v + point * p->v_point + blocks.from * w->count * LANES;
        for (int64_t j = 0; j < panels; j++)
            for (int64_t i = 0; i < pieces; i++) {
                range rows = slice(w->count, pieces, i);
                products[rows.to - rows.from](
                    blocks.to - blocks.from, v + rows.from * LANES, w->count * LANES,
                    u + point * p->u_point + j * p->in_blocks * LANES * NR,
                    w->m + point * p->m_point + (j * w->count + rows.from) * NR, blocks.from > 0);
            }
    }
}

/* Adds bias, applies ReLU and writes the part of a tile that lies inside the image. */
WINOGRAD_FUNCTION void write_tile(const int outs, const work *w, const place *at, int64_t block,
                                  const v8 *y, v8 bias) {
    const tiling *p = w->p;
    int64_t top = at->row * outs, left = at->column * outs;
    int64_t rows = least(outs, p->out_h - top), columns = least(outs, p->out_w - left);
    int64_t above = (at->image * p->out_blocks + block) * p->out_h + top;
    float *out = w->call->out + (above * p->out_w + left) * LANES;
    bool relu = w->call->relu;
    for (int64_t r = 0; r < rows; r++, out += p->out_w * LANES)
        for (int64_t c = 0; c < columns; c++) {
            v8 value = y[r * outs + c] + bias;
            v8_mask keep = relu ? ~(value <= 0.0f) : (v8_mask){0} - 1;  // NaN stays
            STORE8(out + c * LANES, (v8)(keep & (v8_mask)value));
        }
}

/* Transforms the tiles of one output block from M back to outputs. */
WINOGRAD_FUNCTION void block_outputs(const int outs, const work *w, int64_t block) {
    const tiling *p = w->p;
    const float *m =
        w->m + (block * LANES / NR - w->panels.from) * w->count * NR + block * LANES % NR;
    v8 bias = w->call->bias != NULL ? LOAD8(w->call->bias + block * LANES) : (v8){0};
    place at = place_of(&p->tiles, w->tiles.from);
    for (int64_t t = 0; t < w->count; t++, place_next(&p->tiles, &at)) {
        v8 y[SQUARE_MOST];
        transform_output(outs, m + t * NR, p->m_point, y);
        write_tile(outs, w, &at, block, y, bias);
    }
}

/* Output blocks of the unit's panels; outs = 7 - taps is a constant for each kernel. */
static void outputs(const work *w) {
    int64_t end = least(w->panels.to * NR / LANES, w->p->out_blocks);
    for (int64_t b = w->panels.from * NR / LANES; b < end; b++) {
        if (w->p->taps == 3)
            block_outputs(4, w, b);
        else
            block_outputs(2, w, b);
    }
}

/* A unit of the case of many tiles: U is kept. */
static void unit_with_all_weights(const work *w) {
    const tiling *p = w->p;
    for (int64_t b = 0; b < p->in_blocks; b++) inputs(w, b);
    multiply(w, (range){0, p->in_blocks}, w->u + w->panels.from * p->in_blocks * LANES * NR);
    outputs(w);
}

/* A unit of the case of few tiles: V is kept, and U of one panel is made for STEP_BLOCKS input
 * blocks at a time. */
static void unit_with_all_inputs(const work *w) {
    const tiling *p = w->p;
    for (int64_t from = 0; from < p->in_blocks; from += STEP_BLOCKS) {
        range blocks = {from, least(from + STEP_BLOCKS, p->in_blocks)};
        for (int64_t b = blocks.from; b < blocks.to; b++)
            prepare(p, w->call->w, b, w->panels.from, w->u + (b - from) * LANES * NR);
        multiply(w, blocks, w->u);
    }
    outputs(w);
}

/* Floats that are kept for all threads; they lie first in the scratch, before each thread's own. */
static int64_t kept_floats(const tiling *p) { return POINTS * (p->few ? p->v_point : p->u_point); }

/* Floats of one thread: the transform that is not kept, and M. */
static int64_t own_floats(const tiling *p) {
    return POINTS * ((p->few ? p->u_point : p->v_point) + p->m_point);
}

/* Units of one thread. */
static void run_part(const sh_conv_blocked_call *call, const tiling *p, int64_t part,
                     int64_t parts) {
    float *kept = call->scratch, *own = kept + kept_floats(p) + part * own_floats(p);
    work w = {.p = p, .call = call, .u = p->few ? own : kept, .v = p->few ? kept : own};
    w.m = own + POINTS * (p->few ? p->u_point : p->v_point);
    range units = slice(p->chunks * p->parts, parts, part);
    for (int64_t unit = units.from; unit < units.to; unit++) {
        w.tiles = slice(p->tile_count, p->chunks, unit / p->parts);
        w.count = w.tiles.to - w.tiles.from;
        w.panels = slice(p->panels, p->parts, unit % p->parts);
        (p->few ? unit_with_all_inputs : unit_with_all_weights)(&w);
    }
}

/* Makes one piece of what is kept: with few tiles V of input block i, otherwise U of one input
 * block and one panel. */
static void keep(const sh_conv_blocked_call *call, const tiling *p, int64_t i) {
    float *kept = call->scratch;
    if (p->few)
        inputs(&(work){.p = p, .call = call, .v = kept, .count = p->tile_count}, i);
    else
        prepare(p, call->w, i % p->in_blocks, i / p->in_blocks, kept + i * LANES * NR);
}

/* Entry: makes what is kept, a barrier, then the units. */
static void run(const sh_conv_blocked_call *call) {
    const tiling p = tiling_make(call->shape, call->input_gradient, call->threads);
    const int64_t parts = least(call->threads, p.chunks * p.parts);
    const int64_t pieces = p.few ? p.in_blocks : p.in_blocks * p.panels;
#pragma omp parallel num_threads(call->threads) if (parts > 1)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < pieces; i++) keep(call, &p, i);
#pragma omp for schedule(static)
        for (int64_t part = 0; part < parts; part++) run_part(call, &p, part, parts);
    }
}

/* Bytes of scratch for this shape, direction and thread count. */
static size_t scratch_bytes(const sh_conv_shape *shape, bool input_gradient, int threads) {
    const tiling p = tiling_make(shape, input_gradient, threads);
    return (size_t)(kept_floats(&p) + threads * own_floats(&p)) * sizeof(float);
}

/* Square kernels of 3 or 5 with stride 1; neither groups nor dilation; channels in whole blocks of
 * 8. */
static bool supports(const sh_conv_shape *s) {
    if (s->groups != 1 || s->dilation_h != 1 || s->dilation_w != 1) return false;
    if ((s->kh != 3 && s->kh != 5) || s->kw != s->kh) return false;
    if (s->stride_h != 1 || s->stride_w != 1) return false;
    if (s->oc % LANES != 0 || s->ic % LANES != 0) return false;
    return s->n > 0 && s->ic > 0 && s->oc > 0 && s->oh > 0 && s->ow > 0;
}

const sh_conv_winograd_kernels SH_SIMD(sh_conv_winograd_table) = {
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
