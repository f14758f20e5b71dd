/* How the convolution weight gradient is cut: into strips, tiles, chunks and one part per thread.
 * A pure function of the shape and the thread count; conv_weight.c explains the words. */
#ifndef SH_TENSOR_KERNELS_SIMD_CONV_WEIGHT_TILING_H
#define SH_TENSOR_KERNELS_SIMD_CONV_WEIGHT_TILING_H

#include "tensor/kernels/conv_shape.h"
#include "tensor/kernels/simd/conv_weight_tile.h"

enum {
    CHUNK_BYTES = 24 << 10,  // of dy and x together; the first cache has 32 KiB or more
    X_GROUP = 8,             // blocks of x that the second cache holds
    CHAINS = 10,             // accumulators that hide the latency of a multiply-add
};

typedef struct tiling {
    sh_conv_shape s;
    bool x_blocked;
    int64_t x_blocks, dy_blocks;  // B, G
    int64_t strips, strip;        // per block of x; scalars in a strip
    int v;                        // blocks of dy per tile where so many are left
    int64_t chunk_images, chunk_rows;
    bool pack_x, pack_dy;
    int64_t x_rows, x_row;                   // of one packed image: rows, floats per row
    int64_t parts_x, parts_dy, parts_image;  // their product is the number of threads
    int64_t sums, x_pack, dy_pack;           // floats: of one image part, of one thread
} tiling;

/* Blocks of dy in the next tile: never a single one left over after wider tiles. */
static int tile_v(int v, int64_t left) {
    if (left >= v && !(left == v + 1 && v == 3)) return v;
    return left == v + 1 ? 2 : (int)left;
}

/* What one pixel of all strips costs, in quarters of an issue slot (two slots a cycle): the
 * multiply-adds, the loads or the latency of a chain, whichever is longest; fewer loads break ties.
 */
static int64_t tile_cost(int64_t strip, int v) {
    int64_t pieces = ceil_div(strip, tile_most[v]), cost = 0;
    for (int64_t i = 0; i < pieces; i++) {
        range r = slice(strip, pieces, i);
        int64_t t = r.to - r.from;
        cost += 4 * most(CHAINS, most(t * v, t + v)) + t + v;
    }
    return cost;
}

static int choose_v(int64_t strip, int64_t dy_blocks) {
    int best = 1;
    int64_t best_cost = INT64_MAX;
    for (int v = 1; v <= V_MOST; v++) {
        int64_t cost = 0;
        for (int64_t at = 0, now; at < dy_blocks; at += now) {
            now = tile_v(v, dy_blocks - at);
            cost += tile_cost(strip, (int)now);
        }
        if (cost < best_cost) best = v, best_cost = cost;
    }
    return best;
}

/* Cuts the threads into a grid over blocks of x, blocks of dy and images, so that the largest part
 * is smallest; parts over images need partial sums, so they come last. */
static void choose_parts(tiling *p, int threads) {
    int64_t best = INT64_MAX;
    for (int64_t image = 1; image <= threads; image++) {
        for (int64_t x = 1; x * image <= threads; x++) {
            int64_t dy = threads / (x * image);
            if (image > p->s.n || x > p->x_blocks || dy > p->dy_blocks) continue;
            int64_t cost =
                ceil_div(p->s.n, image) * ceil_div(p->x_blocks, x) * ceil_div(p->dy_blocks, dy);
            if (cost >= best) continue;
            best = cost;
            p->parts_image = image, p->parts_x = x, p->parts_dy = dy;
        }
    }
    if (best == INT64_MAX) p->parts_image = p->parts_x = p->parts_dy = 1;
}

static void choose_chunk(tiling *p) {
    const sh_conv_shape *s = &p->s;
    int64_t pixels = s->oh * s->ow, x_floats = s->ih * s->iw * (p->x_blocked ? LANES : 1);
    int64_t image_bytes = (pixels * p->v * LANES + x_floats) * (int64_t)sizeof(float);
    if (image_bytes <= CHUNK_BYTES) {
        p->chunk_images = least(CHUNK_BYTES / image_bytes, s->n);
        p->chunk_rows = s->oh;
    } else {
        int64_t pieces = least(ceil_div(image_bytes, CHUNK_BYTES), s->oh);
        p->chunk_images = 1;
        p->chunk_rows = ceil_div(s->oh, pieces);
    }
    p->pack_dy = p->chunk_images > 1;
    p->pack_x = p->pack_dy || !p->x_blocked;
    p->x_rows = least((p->chunk_rows - 1) * s->stride_h + s->kh, s->ih);
    p->x_row = p->x_blocked ? s->iw * LANES : (s->ow - 1) * s->stride_w + s->kw;
    p->x_pack = p->pack_x ? aligned(p->chunk_images * p->x_rows * p->x_row) : 0;
    p->dy_pack =
        p->pack_dy ? aligned(p->chunk_images * pixels * LANES * ceil_div(p->dy_blocks, p->parts_dy))
                   : 0;
}

static int64_t weight_sums(const tiling *p) { return p->x_blocks * p->strips * p->strip * p->s.oc; }

static tiling tiling_make(const sh_conv_shape *shape, bool x_blocked, int threads) {
    tiling p = {.s = *shape, .x_blocked = x_blocked};
    p.x_blocks = x_blocked ? shape->ic / LANES : shape->ic;
    p.dy_blocks = shape->oc / LANES;
    p.strips = x_blocked ? shape->kh * shape->kw : shape->kh;
    p.strip = x_blocked ? LANES : shape->kw;
    p.v = choose_v(p.strip, p.dy_blocks);
    p.sums = aligned(weight_sums(&p)) + aligned(shape->oc);
    choose_parts(&p, threads);
    choose_chunk(&p);
    return p;
}

#endif
