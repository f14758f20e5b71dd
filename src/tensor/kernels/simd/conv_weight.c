/* Weight gradient of a convolution as tiles of a long sum over output pixels.
 *
 *   dw[o][i][kh][kw] = sum over n, r, c of dy[n][o][r][c] * x[n][i][r * stride + kh - pad][...]
 *
 * A *strip* is a string of scalars of x that lie side by side and share their output pixels:
 *
 *   x blocked  the 8 channels of a block at one tap    kh * kw strips per block of channels
 *   x plain    the kw taps of a kernel row             kh strips per channel
 *
 * Pixels are visited in chunks whose dy and x stay in the first cache while all strips of a block
 * pass over them. Rows, and for blocked x also columns, that a tap takes from the padding are left
 * out, so padding costs nothing. Sums stay in scratch, strip after strip, until the last chunk;
 * then they are written to dw.
 *
 * Letters: B block of channels of x (8 or 1), G block of 8 channels of dy, V blocks of dy per tile.
 */
#include "tensor/kernels/conv_weight.h"

#include <string.h>

#include "tensor/kernels/simd/conv_weight_tiling.h"

/* Output positions in `out` whose tap lies inside an input of `size`. */
static range inside(range out, int64_t stride, int64_t pad, int64_t tap, int64_t size) {
    int64_t first = tap < pad ? ceil_div(pad - tap, stride) : 0;
    int64_t last = size - 1 + pad - tap;  // the input position of the last tap, from -pad + tap
    int64_t end = last < 0 ? 0 : last / stride + 1;
    range in = {most(out.from, first), least(out.to, end)};
    if (in.to < in.from) in.to = in.from;
    return in;
}

/* What one thread works on now. */
typedef struct work {
    const tiling *p;
    const float *x, *dy;      // whole inputs
    float *x_pack, *dy_pack;  // this thread's room
    float *sums;            // (B, G, strips, strip, 8); a tile of V blocks fills V of the G as one
    float *bias;            // (G, 8) or NULL
    range xs, dys;          // blocks of x and dy
    int64_t image, images;  // this chunk
    range rows;
    bool fresh;  // the first chunk overwrites the sums
} work;

/* The first input row that the chunk's output rows touch. */
static int64_t first_row(const work *w) {
    return most(0, w->rows.from * w->p->s.stride_h - w->p->s.pad_h);
}

/* Copies the chunk of one block of x: images side by side, plain rows with their padding. */
static void pack_x(const work *w, int64_t block, int64_t slot) {
    const tiling *p = w->p;
    const sh_conv_shape *s = &p->s;
    int64_t width = s->iw * (p->x_blocked ? LANES : 1), left = p->x_blocked ? 0 : s->pad_w;
    int64_t from = first_row(w);
    int64_t rows = least(s->ih, (w->rows.to - 1) * s->stride_h - s->pad_h + s->kh) - from;
    for (int64_t i = 0; i < w->images; i++) {
        const float *in = w->x + ((w->image + i) * p->x_blocks + block) * s->ih * width;
        // Blocked rows are copied as they are, plain ones with their zero columns.
        for (int64_t r = 0; r < rows; r++)
            pad_row(in + (from + r) * width, width, left,
                    w->x_pack + slot * p->x_pack + (i * p->x_rows + r) * p->x_row, p->x_row);
    }
}

/* Copies the chunk of all blocks of dy: (G, images, oh * ow, 8). Images of power-of-two sizes lie
 * at strides that would fall into the same few cache sets. */
static void pack_dy(const work *w) {
    const tiling *p = w->p;
    int64_t floats = p->s.oh * p->s.ow * LANES;
    for (int64_t g = w->dys.from; g < w->dys.to; g++)
        for (int64_t i = 0; i < w->images; i++)
            memcpy(w->dy_pack + ((g - w->dys.from) * p->chunk_images + i) * floats,
                   w->dy + ((w->image + i) * p->dy_blocks + g) * floats,
                   (size_t)floats * sizeof(float));
}

/* dy of block g at the chunk's first pixel, packed or in place. */
static const float *dy_at(const work *w, int64_t g) {
    const tiling *p = w->p;
    int64_t floats = p->s.oh * p->s.ow * LANES;
    if (p->pack_dy) return w->dy_pack + (g - w->dys.from) * p->chunk_images * floats;
    return w->dy + (w->image * p->dy_blocks + g) * floats + w->rows.from * p->s.ow * LANES;
}

/* The rows of a chunk inside one image stand as images of one row: the loop over images looks
 * ahead, the one over rows is kept short for small images. */
static tile_box box_make(const work *w) {
    const tiling *p = w->p;
    bool single = p->chunk_images == 1;
    int64_t dy_image = p->s.oh * p->s.ow * LANES, dy_row = p->s.ow * LANES;
    int64_t x_row = p->x_row * p->s.stride_h;
    return (tile_box){
        .images = w->images,
        .x_image = single ? x_row : p->x_rows * p->x_row,
        .x_row = x_row,
        .x_col = p->s.stride_w * (p->x_blocked ? LANES : 1),
        .dy_image = single ? dy_row : dy_image,
        .dy_row = dy_row,
        .dy_block = dy_image * (p->pack_dy ? p->chunk_images : 1),
    };
}

/* Runs all tiles of one strip over the pixels whose taps lie inside x. */
static void strip_sum(const work *w, tile_box *box, const float *x, const float *dy, int64_t strip,
                      int v, float *sums) {
    const tiling *p = w->p;
    const sh_conv_shape *s = &p->s;
    int64_t kh = p->x_blocked ? strip / s->kw : strip, kw = p->x_blocked ? strip % s->kw : 0;
    range rows = inside(w->rows, s->stride_h, s->pad_h, kh, s->ih), cols = {0, s->ow};
    if (p->x_blocked) cols = inside(cols, s->stride_w, s->pad_w, kw, s->iw);
    box->rows = rows.to - rows.from, box->cols = cols.to - cols.from;
    if (p->chunk_images == 1) box->images = box->rows, box->rows = 1;
    if (rows.to > rows.from && cols.to > cols.from) {  // otherwise the offsets would point outside
        x += (rows.from * s->stride_h - s->pad_h + kh - (p->pack_x ? first_row(w) : 0)) * p->x_row;
        if (p->x_blocked) x += (cols.from * s->stride_w - s->pad_w + kw) * LANES;
        dy += ((rows.from - w->rows.from) * s->ow + cols.from) * LANES;
    }
    int64_t pieces = ceil_div(p->strip, tile_most[v]);
    for (int64_t i = 0; i < pieces; i++) {
        range t = slice(p->strip, pieces, i);
        tiles[v][t.to - t.from](box, x + t.from, dy, sums + t.from * v * LANES, w->fresh);
    }
}

enum { PIXELS_TOGETHER = 256 };

/* Sum of `pixels` vectors of dy. Four chains hide the latency of an add. Every PIXELS_TOGETHER
 * vectors the partial sums join a total, which keeps the rounding error of large images small. */
static void pixel_sum(const float *dy, int64_t pixels, v8 *sum_out) {
    const v8_memory *in = (const v8_memory *)dy;
    v8 total = {0};
    for (int64_t at = 0; at < pixels;) {
        int64_t end = least(pixels, at + PIXELS_TOGETHER);
        v8 a[4] = {0};
        for (; at + 4 <= end; at += 4) {
            a[0] += in[at], a[1] += in[at + 1];
            a[2] += in[at + 2], a[3] += in[at + 3];
        }
        for (; at < end; at++) a[0] += in[at];
        total += (a[0] + a[1]) + (a[2] + a[3]);
    }
    *sum_out = total;
}

/* Adds the chunk's share of the bias gradient for v blocks from g on. */
static void bias_sum(const work *w, int64_t g, int v) {
    int64_t pixels = (w->rows.to - w->rows.from) * w->p->s.ow * w->images;
    for (int64_t i = g; i < g + v; i++) {
        v8 sum;
        pixel_sum(dy_at(w, i), pixels, &sum);
        v8_memory *out = (v8_memory *)(w->bias + i * LANES);
        // The first chunk overwrites what an earlier call left in the scratch.
        if (!w->fresh) sum += *out;
        *out = sum;
    }
}

/* Runs all strips of one block of x with v blocks of dy from g on. */
static void pair_sum(const work *w, tile_box *box, int64_t b, int64_t slot, int64_t g, int v) {
    const tiling *p = w->p;
    int64_t group = p->strips * p->strip * LANES;  // sums of one pair of blocks
    const float *x = p->pack_x ? w->x_pack + slot * p->x_pack
                               : w->x + (w->image * p->x_blocks + b) * p->s.ih * p->x_row;
    float *sums = w->sums + (b * p->dy_blocks + g) * group;
    for (int64_t k = 0; k < p->strips; k++)
        strip_sum(w, box, x, dy_at(w, g), k, v, sums + k * p->strip * v * LANES);
}

/* Lets the tiles of (g, v) fetch the blocks of dy that follow: those of the next tile, or the first
 * ones of the next chunk. dy is read from memory once, and reading it would otherwise be waited
 * for. */
static void look_ahead(const work *w, tile_box *box, int64_t g, int v, int64_t blocks) {
    const tiling *p = w->p;
    const sh_conv_shape *s = &p->s;
    int64_t chunk = (w->rows.to - w->rows.from) * s->ow * LANES;
    if (g + v < w->dys.to)
        box->ahead = dy_at(w, g + v);
    else if (w->rows.to < s->oh)
        box->ahead = dy_at(w, w->dys.from) + chunk;
    else
        box->ahead = w->dy + ((w->image + 1) * p->dy_blocks + w->dys.from) * s->oh * s->ow * LANES;
    box->ahead_end = box->ahead + chunk;
    int64_t tile_rows = p->strips * ceil_div(p->strip, tile_most[v]) * blocks;
    box->ahead_step = aligned(ceil_div(s->ow * LANES, tile_rows));
}

/* The tile's blocks of dy stay in the first cache while a group of blocks of x, held by the second,
 * passes over them. */
static void chunk_sum(const work *w) {
    const tiling *p = w->p;
    tile_box box = box_make(w);
    if (p->pack_dy) pack_dy(w);
    for (int64_t first = w->xs.from; first < w->xs.to; first += X_GROUP) {
        int64_t end = least(first + X_GROUP, w->xs.to);
        for (int64_t b = first; p->pack_x && b < end; b++) pack_x(w, b, b - first);
        for (int64_t g = w->dys.from, v; g < w->dys.to; g += v) {
            v = tile_v(p->v, w->dys.to - g);
            if (w->bias != NULL && first == w->xs.from) bias_sum(w, g, (int)v);
            if (!p->pack_dy && first == w->xs.from) look_ahead(w, &box, g, (int)v, end - first);
            for (int64_t b = first; b < end; b++) pair_sum(w, &box, b, b - first, g, (int)v);
        }
    }
}

/* Runs all chunks of a part's images. The first chunk overwrites the sums, so they need no
 * clearing. */
static void part_sum(work *w, range images) {
    const tiling *p = w->p;
    w->fresh = true;
    for (int64_t n = images.from; n < images.to; n += p->chunk_images) {
        w->image = n, w->images = least(p->chunk_images, images.to - n);
        for (int64_t r = 0; r < p->s.oh; r += p->chunk_rows) {
            w->rows = (range){r, least(r + p->chunk_rows, p->s.oh)};
            chunk_sum(w);
            w->fresh = false;
        }
    }
}

/* Adds the sums of the other image parts in ascending order; the first part's sums receive them. */
static void join(const tiling *p, float *sums, int64_t count) {
    for (int64_t part = 1; part < p->parts_image; part++) {
        const float *more = sums + part * p->sums;
#pragma omp simd
        for (int64_t i = 0; i < count; i++) sums[i] += more[i];
    }
}

/* Transposes eight vectors of sums, one per weight, into eight rows of dw, one per output
 * channel. */
static void write_8x8(const float *const sums[LANES], float *dw, int64_t step, bool accumulate) {
    float square[LANES][LANES];
    for (int i = 0; i < LANES; i++)
        for (int o = 0; o < LANES; o++) square[o][i] = sums[i][o];
    for (int o = 0; o < LANES; o++) {
        v8_memory *out = (v8_memory *)(dw + o * step);
        v8 row = *(v8_memory *)square[o];
        if (accumulate) row += *out;
        *out = row;
    }
}

/* Writes the sums of block b of x and v blocks of dy from g on to dw. In a row of dw the weights of
 * a block of x lie side by side: weight i is scalar `i / taps` of strip `i % taps` where x is
 * blocked; where it is plain, the order is that of the sums. */
static void finish_tile(const sh_conv_weight_call *call, const tiling *p, int64_t b, int64_t g,
                        int v, const float *sums) {
    int64_t taps = p->s.kh * p->s.kw, weights = p->strips * p->strip, row = p->s.ic * taps;
    float *dw = call->dw + g * LANES * row + b * weights;
    const float *from[LANES];
    int64_t i = 0, got = 0;
    for (int64_t w = 0; w < weights; w++) {
        int64_t at = p->x_blocked ? w % taps * LANES + w / taps : w;
        from[got++] = sums + at * v * LANES;
        if (got < LANES) continue;
        for (int o = 0; o < v; o++) {
            write_8x8(from, dw + o * LANES * row + i, row, call->accumulate);
            for (int k = 0; k < LANES; k++) from[k] += LANES;
        }
        i += LANES, got = 0;
    }
    for (; i < weights; i++) {  // what is left of a plain strip: the order of the sums
        for (int64_t o = 0; o < v * LANES; o++) {
            float *out = dw + o * row + i, sum = sums[i * v * LANES + o];
            *out = call->accumulate ? *out + sum : sum;
        }
    }
}

/* Joins and writes one block of x with the blocks of dy of one part, grouped into tiles as
 * part_sum grouped them. */
static void finish(const sh_conv_weight_call *call, const tiling *p, int64_t b, range dys) {
    int64_t group = p->strips * p->strip * LANES;
    for (int64_t g = dys.from, v; g < dys.to; g += v) {
        v = tile_v(p->v, dys.to - g);
        float *sums = (float *)call->scratch + (b * p->dy_blocks + g) * group;
        join(p, sums, v * group);
        finish_tile(call, p, b, g, (int)v, sums);
    }
}

/* Joins the bias sums and writes db. */
static void finish_bias(const sh_conv_weight_call *call, const tiling *p) {
    float *bias = (float *)call->scratch + aligned(weight_sums(p));
    join(p, bias, p->s.oc);
    for (int64_t o = 0; o < p->s.oc; o++)
        call->db[o] = call->accumulate ? call->db[o] + bias[o] : bias[o];
}

/* One part: some images, some blocks of x and some blocks of dy. The first x part of each also
 * sums the bias. */
static void run_part(const sh_conv_weight_call *call, const tiling *p, int64_t part) {
    int64_t dy_part = part % p->parts_dy, x_part = part / p->parts_dy % p->parts_x;
    int64_t image_part = part / (p->parts_dy * p->parts_x);
    float *sums = (float *)call->scratch + image_part * p->sums;
    float *packs = (float *)call->scratch + p->parts_image * p->sums;
    work w = {
        .p = p,
        .x = call->x,
        .dy = call->dy,
        .x_pack = packs + part * (X_GROUP * p->x_pack + p->dy_pack),
        .sums = sums,
        .bias = call->db != NULL && x_part == 0 ? sums + aligned(weight_sums(p)) : NULL,
        .xs = slice(p->x_blocks, p->parts_x, x_part),
        .dys = slice(p->dy_blocks, p->parts_dy, dy_part),
    };
    w.dy_pack = w.x_pack + X_GROUP * p->x_pack;
    part_sum(&w, slice(p->s.n, p->parts_image, image_part));
}

/* Entry: sums of all parts, a barrier, then the joined sums are written to dw. */
static void run(const sh_conv_weight_call *call) {
    const tiling p = tiling_make(call->shape, call->x_blocked, call->threads);
    const int64_t parts = p.parts_image * p.parts_x * p.parts_dy;
#pragma omp parallel num_threads(call->threads) if (parts > 1)
    {
#pragma omp for schedule(static)
        for (int64_t part = 0; part < parts; part++) run_part(call, &p, part);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < p.x_blocks * p.parts_dy; i++)
            finish(call, &p, i / p.parts_dy, slice(p.dy_blocks, p.parts_dy, i % p.parts_dy));
    }
    if (call->db != NULL) finish_bias(call, &p);
}

/* Bytes of scratch for this shape and thread count. */
static size_t scratch_bytes(const sh_conv_shape *shape, bool x_blocked, int threads) {
    const tiling p = tiling_make(shape, x_blocked, threads);
    int64_t parts = p.parts_image * p.parts_x * p.parts_dy;
    return (size_t)(p.parts_image * p.sums + parts * (X_GROUP * p.x_pack + p.dy_pack)) *
           sizeof(float);
}

/* Neither groups nor dilation; channels of dy, and of blocked x, in whole blocks of 8. */
static bool supports(const sh_conv_shape *s, bool x_blocked) {
    if (s->groups != 1 || s->dilation_h != 1 || s->dilation_w != 1) return false;
    if (s->oc % LANES != 0 || (x_blocked && s->ic % LANES != 0)) return false;
    return s->n > 0 && s->ic > 0 && s->oc > 0 && s->oh > 0 && s->ow > 0 && s->kh > 0 && s->kw > 0;
}

/* Bias gradient alone, for weight-gradient algorithms that do not sum it on the way. Image by
 * image, so that the error stays that of one image's sum. */
static void bias(const float *dy, int64_t n, int64_t oc, int64_t pixels, float *db,
                 bool accumulate) {
    int64_t blocks = oc / LANES;
#pragma omp parallel for schedule(static) if (n * oc * pixels >= 1 << 15)
    for (int64_t g = 0; g < blocks; g++) {
        v8 sum = {0};
        for (int64_t i = 0; i < n; i++) {
            v8 image = {0};
            pixel_sum(dy + (i * blocks + g) * pixels * LANES, pixels, &image);
            sum += image;
        }
        for (int64_t o = 0; o < LANES; o++)
            db[g * LANES + o] = accumulate ? db[g * LANES + o] + sum[o] : sum[o];
    }
}

const sh_conv_weight_kernels SH_SIMD(sh_conv_weight_table) = {
    .supports = supports,
    .scratch_bytes = scratch_bytes,
    .run = run,
    .bias = bias,
};
