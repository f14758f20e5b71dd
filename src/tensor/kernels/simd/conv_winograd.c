/* Forward pass and input gradient of a convolution by Winograd's algorithm, simd/winograd.h.
 *
 *   U[p] = the weights at point p     (panel of NR output channels, input block, 8, NR)
 *   V[p] = the tiles at point p       (input block, tile, 8)
 *   M[p] = V[p] U[p]                  (panel, tile, NR), then back to outputs
 *
 * U is made once per call by all threads. Tiles are taken in chunks whose V and M stay near the
 * second cache; a *unit* is one chunk and a part of the panels, and threads share nothing but U.
 * Every value is summed over the input channels in order, however units are cut.
 *
 * The input gradient is the same with channels swapped and the kernel turned around. */
#include "tensor/kernels/conv_winograd.h"

#include "tensor/kernels/simd/winograd_product.h"

PRODUCTS(PRODUCT_DEFINE)
static product_function *const products[MR + 1] = {PRODUCTS(PRODUCT_ROW)};

enum {
    CHUNK_BYTES = 768 << 10,  // of V and M; the second cache has 512 KiB or more
    CHUNK_LEAST = 56,         // tiles that pay for fetching U once more
};

typedef struct plan {
    int64_t n, in_blocks, out_blocks, panels, taps;
    int64_t in_h, in_w, out_h, out_w, pad_h, pad_w;
    int64_t out_step, in_step;  // floats between the weights of two output or two input channels
    bool flip;                  // taps from the last to the first
    grid tiles;
    int64_t tile_count, chunks, parts;  // parts of the panels
    int64_t chunk_most;                 // tiles
    int64_t u_point, v_point, m_point;  // floats of one point
} plan;

static void choose_units(plan *p, int threads) {
    int64_t tile_bytes = POINTS * (p->in_blocks * LANES + p->panels * NR) * (int64_t)sizeof(float);
    int64_t most_tiles = most(CHUNK_LEAST, CHUNK_BYTES / tile_bytes);
    p->tile_count = p->n * p->tiles.rows * p->tiles.columns;
    p->chunks = ceil_div(p->tile_count, most_tiles);
    p->parts = 1;
    if (p->chunks >= threads)
        p->chunks = ceil_div(p->chunks, threads) * threads;
    else
        p->parts = least(p->panels, ceil_div(threads, p->chunks));
    p->chunks = least(p->tile_count, most(p->chunks, ceil_div(threads, p->parts)));
    p->chunk_most = ceil_div(p->tile_count, p->chunks);
}

/* One line more than whole rows: points that lie a power of two apart would share cache sets. */
static int64_t point_floats(int64_t floats) { return aligned(floats) + ALIGN_FLOATS; }

static plan plan_make(const sh_conv_shape *s, bool input_gradient, int threads) {
    const int64_t taps = s->kh * s->kw;
    plan p = {.n = s->n, .in_blocks = s->ic / LANES, .out_blocks = s->oc / LANES, .taps = s->kh};
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
    p.u_point = point_floats(p.panels * p.in_blocks * LANES * NR);
    p.v_point = point_floats(p.in_blocks * p.chunk_most * LANES);
    p.m_point = point_floats(p.panels * p.chunk_most * NR);
    return p;
}

/* The weights of 8 output channels and one input channel, a vector per tap. */
static inline void gather_weights(const plan *p, const float *w, int64_t out, int64_t in,
                                  v8 g[SQUARE_MOST]) {
    const int64_t taps = p->taps * p->taps, step = p->out_step;
    const float *from = w + out * LANES * step + in * p->in_step;
    for (int64_t k = 0; k < taps; k++) {
        const float *f = from + (p->flip ? taps - 1 - k : k);
        g[k] = (v8){f[0],        f[step],     f[2 * step], f[3 * step],
                    f[4 * step], f[5 * step], f[6 * step], f[7 * step]};
    }
}

/* U of one input block and one panel. Channels that only fill up a panel become zeros. */
static void prepare(const plan *p, const float *w, int64_t block, int64_t panel, float *u) {
    u += (panel * p->in_blocks + block) * LANES * NR;
    for (int64_t i = 0; i < LANES; i++)
        for (int64_t o = 0; o < NR; o += LANES) {
            int64_t out = (panel * NR + o) / LANES;
            v8 g[SQUARE_MOST] = {0};
            if (out < p->out_blocks) gather_weights(p, w, out, block * LANES + i, g);
            if (p->taps == 3)
                transform_weights(3, g, u + i * NR + o, p->u_point);
            else
                transform_weights(5, g, u + i * NR + o, p->u_point);
        }
}

/* What one thread works on now. */
typedef struct work {
    const plan *p;
    const sh_conv_blocked_call *call;
    const float *u;
    float *v, *m;
    range tiles, panels;
    int64_t count;  // of tiles
} work;

static void inputs(const work *w) {
    const plan *p = w->p;
    float edge[POINTS * LANES];
    for (int64_t b = 0; b < p->in_blocks; b++) {
        float *v = w->v + b * w->count * LANES;
        place at = place_of(&p->tiles, w->tiles.from);
        for (int64_t t = 0; t < w->count; t++, place_next(&p->tiles, &at)) {
            plane image = {w->call->in + (at.image * p->in_blocks + b) * p->in_h * p->in_w * LANES,
                           p->in_h, p->in_w};
            int64_t top = at.row * p->tiles.outs - p->pad_h;
            int64_t left = at.column * p->tiles.outs - p->pad_w, row;
            const float *x = window(&image, top, left, SIDE, edge, &row);
            look_ahead(&image, top, left, p->tiles.outs);
            transform_input(x, row, v + t * LANES, p->v_point);
        }
    }
}

/* The products of one point. A panel of U passes over all tiles before the next comes. */
static void multiply(const work *w, int64_t point) {
    const plan *p = w->p;
    const float *u = w->u + point * p->u_point, *v = w->v + point * p->v_point;
    float *m = w->m + point * p->m_point;
    int64_t pieces = ceil_div(w->count, MR);
    for (int64_t j = w->panels.from; j < w->panels.to; j++)
        for (int64_t i = 0; i < pieces; i++) {
            range rows = slice(w->count, pieces, i);
            products[rows.to - rows.from](p->in_blocks, v + rows.from * LANES, w->count * LANES,
                                          u + j * p->in_blocks * LANES * NR,
                                          m + (j * w->count + rows.from) * NR);
        }
}

/* Writes the part of a tile that lies inside the image. */
WINOGRAD_FUNCTION void write_tile(const int outs, const work *w, const place *at, int64_t block,
                                  const v8 *y, v8 bias) {
    const plan *p = w->p;
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

/* The tiles of one output block. */
WINOGRAD_FUNCTION void block_outputs(const int outs, const work *w, int64_t block) {
    const plan *p = w->p;
    const float *m = w->m + block * LANES / NR * w->count * NR + block * LANES % NR;
    v8 bias = w->call->bias != NULL ? LOAD8(w->call->bias + block * LANES) : (v8){0};
    place at = place_of(&p->tiles, w->tiles.from);
    for (int64_t t = 0; t < w->count; t++, place_next(&p->tiles, &at)) {
        v8 y[SQUARE_MOST];
        transform_output(outs, m + t * NR, p->m_point, y);
        write_tile(outs, w, &at, block, y, bias);
    }
}

static void outputs(const work *w) {
    int64_t end = least(w->panels.to * NR / LANES, w->p->out_blocks);
    for (int64_t b = w->panels.from * NR / LANES; b < end; b++) {
        if (w->p->taps == 3)
            block_outputs(4, w, b);
        else
            block_outputs(2, w, b);
    }
}

static void run_part(const sh_conv_blocked_call *call, const plan *p, int64_t part, int64_t parts) {
    float *u = call->scratch;
    work w = {.p = p, .call = call, .u = u};
    w.v = u + POINTS * p->u_point + part * POINTS * (p->v_point + p->m_point);
    w.m = w.v + POINTS * p->v_point;
    range units = slice(p->chunks * p->parts, parts, part);
    for (int64_t unit = units.from; unit < units.to; unit++) {
        w.tiles = slice(p->tile_count, p->chunks, unit / p->parts);
        w.count = w.tiles.to - w.tiles.from;
        w.panels = slice(p->panels, p->parts, unit % p->parts);
        inputs(&w);
        for (int64_t point = 0; point < POINTS; point++) multiply(&w, point);
        outputs(&w);
    }
}

static void run(const sh_conv_blocked_call *call) {
    const plan p = plan_make(call->shape, call->input_gradient, call->threads);
    const int64_t parts = least(call->threads, p.chunks * p.parts);
#pragma omp parallel num_threads(call->threads) if (parts > 1)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < p.in_blocks * p.panels; i++)
            prepare(&p, call->w, i % p.in_blocks, i / p.in_blocks, call->scratch);
#pragma omp for schedule(static)
        for (int64_t part = 0; part < parts; part++) run_part(call, &p, part, parts);
    }
}

static size_t scratch_bytes(const sh_conv_shape *shape, bool input_gradient, int threads) {
    const plan p = plan_make(shape, input_gradient, threads);
    return (size_t)(POINTS * (p.u_point + threads * (p.v_point + p.m_point))) * sizeof(float);
}

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
