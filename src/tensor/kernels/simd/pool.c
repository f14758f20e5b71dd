/* Max and average pooling. Lanes are channels (blocked layout) or positions; windows at the border
 * have loops of their own, so that the common ones check nothing. Max pooling stores the place of
 * each maximum in a byte, for backward.
 *
 * Results too large for the cache are written past it (streams): the next layer reads them from
 * memory anyway, and the inputs stay. */
#include "tensor/kernels/pool.h"

#include <math.h>
#include <omp.h>

#include "base/status.h"
#include "tensor/kernels/simd/lanes.h"

typedef uint8_t vb __attribute__((vector_size(LANES)));

/* The part of a window that lies inside the image: rows [y0, y1) and columns [x0, x1) of the
 * kernel; `origin` is the input element under its place (0, 0), which may lie outside. */
typedef struct window {
    int y0, y1, x0, x1;
    ptrdiff_t origin;  // in elements of one lane group's image
} window;

/* The window of one output, cut at the border. */
static window window_at(const sh_pool_shape *s, int oy, int ox) {
    int top = oy * s->stride_height - s->pad_top, left = ox * s->stride_width - s->pad_left;
    window w = {
        .y0 = top < 0 ? -top : 0,
        .y1 = s->height - top < s->kernel_height ? s->height - top : s->kernel_height,
        .x0 = left < 0 ? -left : 0,
        .x1 = s->width - left < s->kernel_width ? s->width - left : s->kernel_width,
        .origin = ((ptrdiff_t)top * s->width + left) * (ptrdiff_t)s->lanes,
    };
    return w;
}

/* No part of the window lies outside. */
static bool is_whole(const sh_pool_shape *s, const window *w) {
    return w->y0 == 0 && w->x0 == 0 && w->y1 == s->kernel_height && w->x1 == s->kernel_width;
}

/* Maxima of LANES windows and where they lie in the kernel, as ky * kernel_width + kx. */
typedef struct best {
    vf value;
    vi place;
} best;

/* A NaN wins and stays, so that it reaches the loss. Bounds are constants at the calls for the
 * common windows, which unrolls them. */
LANE_FUNCTION best max_over(const float *x, ptrdiff_t row, ptrdiff_t column, int y0, int y1, int x0,
                            int x1, int kernel_width) {
    best b = {vf_all(-INFINITY), (vi){0} + (y0 * kernel_width + x0)};
    for (int ky = y0; ky < y1; ky++)
        for (int kx = x0; kx < x1; kx++) {
            vf v = vf_load(x + ky * row + kx * column);
            vi better = (v > b.value) | (v != v);
            b.value = vf_select(better, v, b.value);
            b.place = (better & (ky * kernel_width + kx)) | (~better & b.place);
        }
    return b;
}

/* A maximum and its place, for a single lane. */
typedef struct single {
    float value;
    int place;
} single;

/* The maximum of one lane on its own, for lanes that do not fill a vector. */
LANE_FUNCTION single max_single(const float *x, ptrdiff_t row, ptrdiff_t column, int y0, int y1,
                                int x0, int x1, int kernel_width) {
    single b = {-INFINITY, y0 * kernel_width + x0};
    for (int ky = y0; ky < y1; ky++)
        for (int kx = x0; kx < x1; kx++) {
            float v = x[ky * row + kx * column];
            bool better = (v > b.value) | (v != v);
            b.value = better ? v : b.value;
            b.place = better ? ky * kernel_width + kx : b.place;
        }
    return b;
}

/* Stores through the cache or, for results too large for it, past it. */
LANE_FUNCTION void put(float *to, vf v, bool streams) {
    if (streams)
        vf_stream(to, v);
    else
        vf_store(to, v);
}

/* One output position, all lanes: y and, for training, the place of each maximum. ReLU is fused. */
LANE_FUNCTION void max_pixel(const sh_pool_shape *s, const float *x, int y0, int y1, int x0, int x1,
                             int kernel_width, float *y, uint8_t *index, bool streams) {
    ptrdiff_t column = (ptrdiff_t)s->lanes, row = s->width * column;
    size_t lane = 0;
    for (; lane + LANES <= s->lanes; lane += LANES) {
        best b = max_over(x + lane, row, column, y0, y1, x0, x1, kernel_width);
        if (s->relu) b.value = vf_keep(~(b.value <= 0.0f), b.value);
        put(y + lane, b.value, streams);
        if (index == NULL) continue;
        vb place = __builtin_convertvector(b.place, vb);
        memcpy(index + lane, &place, sizeof place);
    }
    for (; lane < s->lanes; lane++) {
        single b = max_single(x + lane, row, column, y0, y1, x0, x1, kernel_width);
        y[lane] = s->relu && b.value <= 0 ? 0.0f : b.value;
        if (index != NULL) index[lane] = (uint8_t)b.place;
    }
}

/* `count` whole windows of one row of outputs; the kernel is a constant at the common calls. */
LANE_FUNCTION void max_span(const sh_pool_shape *s, const float *x, int kernel_height,
                            int kernel_width, size_t count, float *y, uint8_t *index,
                            bool streams) {
    size_t lanes = s->lanes, step = (size_t)s->stride_width * lanes;
    for (size_t i = 0; i < count; i++)
        max_pixel(s, x + i * step, 0, kernel_height, 0, kernel_width, kernel_width, y + i * lanes,
                  index ? index + i * lanes : NULL, streams);
}

/* Passes the common kernels 2 x 2 and 3 x 3 as constants, so that their loops are unrolled. */
LANE_FUNCTION void max_whole(const sh_pool_shape *s, const float *x, size_t count, float *y,
                             uint8_t *index, bool streams) {
    int height = s->kernel_height, width = s->kernel_width;
    if (height == 2 && width == 2)
        max_span(s, x, 2, 2, count, y, index, streams);
    else if (height == 3 && width == 3)
        max_span(s, x, 3, 3, count, y, index, streams);
    else
        max_span(s, x, height, width, count, y, index, streams);
}

/* Sizes that decide about strides and threads. */
typedef struct sizes {
    size_t in, out, all;  // elements per image; of the larger of all images
} sizes;

/* Also asserts what the loops rely on: a place fits a byte below 255, and every window touches the
 * image. */
static sizes sizes_of(const sh_pool_shape *s) {
    SH_ASSERT(s->kernel_height * s->kernel_width <= 255);
    SH_ASSERT(s->pad_top < s->kernel_height && s->pad_left < s->kernel_width);
    SH_ASSERT((s->out_height - 1) * s->stride_height - s->pad_top < s->height);
    SH_ASSERT((s->out_width - 1) * s->stride_width - s->pad_left < s->width);
    sizes z = {.in = (size_t)s->height * (size_t)s->width * s->lanes,
               .out = (size_t)s->out_height * (size_t)s->out_width * s->lanes};
    z.all = s->images * (z.in > z.out ? z.in : z.out);
    return z;
}

/* One image. Outputs [0, first) and [end, out_width) of a row reach over the sides of the image
 * and take the checked loop. */
LANE_FUNCTION void max_image(const sh_pool_shape *s, const float *x, float *y, uint8_t *index,
                             bool streams) {
    // First output whose window begins inside the image.
    int first = (s->pad_left + s->stride_width - 1) / s->stride_width;
    int last = s->width + s->pad_left - s->kernel_width;  // left edge of the last whole window
    int end = last < 0 ? 0 : last / s->stride_width + 1;
    end = end < s->out_width ? end : s->out_width;
    for (int oy = 0; oy < s->out_height; oy++)
        for (int ox = 0; ox < s->out_width;) {
            window w = window_at(s, oy, ox);
            size_t count = 1;
            if (ox == first && ox < end && is_whole(s, &w)) {
                count = (size_t)(end - ox);
                max_whole(s, x + w.origin, count, y, index, streams);
            } else {
                max_pixel(s, x + w.origin, w.y0, w.y1, w.x0, w.x1, s->kernel_width, y, index,
                          streams);
            }
            ox += (int)count;
            y += count * s->lanes;
            if (index != NULL) index += count * s->lanes;
        }
}

/* Through the cache. */
static void max_image_near(const sh_pool_shape *s, const float *x, float *y, uint8_t *index) {
    max_image(s, x, y, index, false);
}

/* Past the cache; the fence makes the result visible to the other threads. */
static void max_image_past(const sh_pool_shape *s, const float *x, float *y, uint8_t *index) {
    max_image(s, x, y, index, true);
    vf_stream_end();
}

/* Tells whether a result of `images` times `each` values is streamed: large, with several threads,
 * and aligned. */
static bool does_stream(const sh_pool_shape *s, size_t each, const float *result) {
    return s->images * each >= STREAMED_LEAST && omp_get_max_threads() > 1 &&
           s->lanes % LANES == 0 && (uintptr_t)result % sizeof(vf) == 0;
}

/* Images over threads. index NULL: inference. */
static void max_forward(const sh_pool_shape *s, const float *x, float *y, uint8_t *index) {
    sizes z = sizes_of(s);
    bool streams = does_stream(s, z.out, y);
#pragma omp parallel for schedule(static) if (z.all >= PARALLEL_LEAST)
    for (size_t i = 0; i < s->images; i++)
        (streams ? max_image_past : max_image_near)(s, x + i * z.in, y + i * z.out,
                                                    index ? index + i * z.out : NULL);
}

/* Tells whether 2 x 2 windows side by side cover the image: every input then has one window, so dx
 * is written without being cleared. */
static bool is_tiling(const sh_pool_shape *s) {
    return s->kernel_height == 2 && s->kernel_width == 2 && s->stride_height == 2 &&
           s->stride_width == 2 && s->pad_top == 0 && s->pad_left == 0 &&
           s->height == 2 * s->out_height && s->width == 2 * s->out_width && s->lanes % LANES == 0;
}

/* Gradient of one 2 x 2 window: all four inputs are written, three of them with 0. */
LANE_FUNCTION void max_tile_back(const sh_pool_shape *s, const float *dy, const float *y,
                                 const uint8_t *index, float *dx, bool streams) {
    size_t row = (size_t)s->width * s->lanes;
    for (size_t lane = 0; lane < s->lanes; lane += LANES) {
        vf g = vf_load(dy + lane);
        if (s->relu) g = vf_keep(vf_load(y + lane) > 0.0f, g);
        vb narrow;
        memcpy(&narrow, index + lane, sizeof narrow);
        vi place = __builtin_convertvector(narrow, vi);
        put(dx + lane, vf_keep(place == 0, g), streams);
        put(dx + lane + s->lanes, vf_keep(place == 1, g), streams);
        put(dx + lane + row, vf_keep(place == 2, g), streams);
        put(dx + lane + row + s->lanes, vf_keep(place == 3, g), streams);
    }
}

/* Gradient of one image of tiling windows. */
LANE_FUNCTION void max_tiles_back(const sh_pool_shape *s, const float *dy, const float *y,
                                  const uint8_t *index, float *dx, bool streams) {
    for (int oy = 0; oy < s->out_height; oy++)
        for (int ox = 0; ox < s->out_width; ox++) {
            size_t at = ((size_t)oy * (size_t)s->out_width + (size_t)ox) * s->lanes;
            size_t to = ((size_t)oy * 2 * (size_t)s->width + (size_t)ox * 2) * s->lanes;
            max_tile_back(s, dy + at, s->relu ? y + at : NULL, index + at, dx + to, streams);
        }
}

static void max_image_tiles_back(const sh_pool_shape *s, const float *dy, const float *y,
                                 const uint8_t *index, float *dx) {
    max_tiles_back(s, dy, y, index, dx, false);
}

static void max_image_tiles_back_past(const sh_pool_shape *s, const float *dy, const float *y,
                                      const uint8_t *index, float *dx) {
    max_tiles_back(s, dy, y, index, dx, true);
    vf_stream_end();
}

/* Gradient of one image of any windows. They may overlap, so dx is cleared and added to. */
static void max_image_back(const sh_pool_shape *s, const float *dy, const float *y,
                           const uint8_t *index, float *dx) {
    ptrdiff_t step[255];  // from a window's origin to each of its places
    for (int i = 0; i < s->kernel_height * s->kernel_width; i++)
        step[i] = ((ptrdiff_t)(i / s->kernel_width) * s->width + i % s->kernel_width) *
                  (ptrdiff_t)s->lanes;
    memset(dx, 0, (size_t)s->height * (size_t)s->width * s->lanes * sizeof *dx);
    size_t at = 0;
    for (int oy = 0; oy < s->out_height; oy++)
        for (int ox = 0; ox < s->out_width; ox++) {
            ptrdiff_t to = window_at(s, oy, ox).origin;
            for (size_t lane = 0; lane < s->lanes; lane++, at++) {
                float g = s->relu && !(y[at] > 0) ? 0.0f : dy[at];
                dx[to + step[index[at]] + (ptrdiff_t)lane] += g;
            }
        }
}

typedef void (*max_back)(const sh_pool_shape *s, const float *dy, const float *y,
                         const uint8_t *index, float *dx);

/* Images over threads, by the cheapest method that fits the windows. */
static void max_backward(const sh_pool_shape *s, const float *dy, const float *y,
                         const uint8_t *index, float *dx) {
    sizes z = sizes_of(s);
    max_back back = !is_tiling(s)              ? max_image_back
                    : does_stream(s, z.in, dx) ? max_image_tiles_back_past
                                               : max_image_tiles_back;
#pragma omp parallel for schedule(static) if (z.all >= PARALLEL_LEAST)
    for (size_t i = 0; i < s->images; i++)
        back(s, dy + i * z.out, s->relu ? y + i * z.out : NULL, index + i * z.out, dx + i * z.in);
}

/* One output of average pooling. Padding counts as zeros, so the divisor is the whole window. */
static void average_pixel(const sh_pool_shape *s, const window *w, const float *x, float *y) {
    ptrdiff_t column = (ptrdiff_t)s->lanes, row = s->width * column;
    float share = 1.0f / (float)(s->kernel_height * s->kernel_width);
    size_t lane = 0;
    for (; lane + LANES <= s->lanes; lane += LANES) {
        vf sum = {0};
        for (int ky = w->y0; ky < w->y1; ky++)
            for (int kx = w->x0; kx < w->x1; kx++)
                sum += vf_load(x + w->origin + ky * row + kx * column + lane);
        vf_store(y + lane, sum * share);
    }
    for (; lane < s->lanes; lane++) {
        float sum = 0;
        for (int ky = w->y0; ky < w->y1; ky++)
            for (int kx = w->x0; kx < w->x1; kx++)
                sum += x[w->origin + ky * row + kx * column + (ptrdiff_t)lane];
        y[lane] = sum * share;
    }
}

/* Adds one output's gradient, divided by the window's size, to each input of the window. */
static void average_pixel_back(const sh_pool_shape *s, const window *w, const float *dy,
                               float *dx) {
    ptrdiff_t column = (ptrdiff_t)s->lanes, row = s->width * column;
    float share = 1.0f / (float)(s->kernel_height * s->kernel_width);
    for (int ky = w->y0; ky < w->y1; ky++)
        for (int kx = w->x0; kx < w->x1; kx++) {
            float *to = dx + w->origin + ky * row + kx * column;
            size_t lane = 0;
            for (; lane + LANES <= s->lanes; lane += LANES)
                vf_store(to + lane, vf_load(to + lane) + vf_load(dy + lane) * share);
            for (; lane < s->lanes; lane++) to[lane] += dy[lane] * share;
        }
}

/* Images over threads. */
static void average_forward(const sh_pool_shape *s, const float *x, float *y) {
    sizes z = sizes_of(s);
#pragma omp parallel for schedule(static) if (z.all >= PARALLEL_LEAST)
    for (size_t i = 0; i < s->images; i++) {
        float *to = y + i * z.out;
        for (int oy = 0; oy < s->out_height; oy++)
            for (int ox = 0; ox < s->out_width; ox++, to += s->lanes) {
                window w = window_at(s, oy, ox);
                average_pixel(s, &w, x + i * z.in, to);
            }
    }
}

/* Images over threads; windows may overlap, so dx is cleared and added to. */
static void average_backward(const sh_pool_shape *s, const float *dy, float *dx) {
    sizes z = sizes_of(s);
#pragma omp parallel for schedule(static) if (z.all >= PARALLEL_LEAST)
    for (size_t i = 0; i < s->images; i++) {
        const float *from = dy + i * z.out;
        memset(dx + i * z.in, 0, z.in * sizeof *dx);
        for (int oy = 0; oy < s->out_height; oy++)
            for (int ox = 0; ox < s->out_width; ox++, from += s->lanes) {
                window w = window_at(s, oy, ox);
                average_pixel_back(s, &w, from, dx + i * z.in);
            }
    }
}

/* Sums over an image: in float lanes over AREA_BLOCK vectors, over blocks in double. */
enum { AREA_BLOCK = 256 };

/* Of `count` vectors, `step` floats apart. Four sums hide the latency of additions. */
LANE_FUNCTION vf sum_block(const float *x, size_t count, size_t step) {
    vf sum[4] = {{0}};
    size_t i = 0;
    for (; i + 4 <= count; i += 4)
        for (size_t k = 0; k < 4; k++) sum[k] += vf_load(x + (i + k) * step);
    for (; i < count; i++) sum[0] += vf_load(x + i * step);
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Sum of at most AREA_BLOCK * LANES neighbouring values of one channel, in float lanes. */
LANE_FUNCTION float run_sum(const float *x, size_t count) {
    vf sum = {0};
    size_t i = 0;
    for (; i + LANES <= count; i += LANES) sum += vf_load(x + i);
    float total = vf_sum(sum);
    for (; i < count; i++) total += x[i];
    return total;
}

/* Mean of one plain channel: float within a block, double over blocks. */
static float mean_of(const float *x, size_t area) {
    const size_t run = (size_t)AREA_BLOCK * LANES;
    if (area <= run) return run_sum(x, area) / (float)area;
    double total = 0;
    for (size_t at = 0; at < area; at += run)
        total += (double)run_sum(x + at, least(run, area - at));
    return (float)(total / (double)area);
}

/* Means of one group of blocked channels. */
static void global_image(size_t area, size_t lanes, const float *x, float *y) {
    size_t lane = 0;
    for (; lane + LANES <= lanes; lane += LANES) {
        double total[LANES] = {0};
        for (size_t at = 0; at < area; at += AREA_BLOCK) {
            vf sum = sum_block(x + at * lanes + lane, least(AREA_BLOCK, area - at), lanes);
            for (size_t i = 0; i < LANES; i++) total[i] += (double)sum[i];
        }
        for (size_t i = 0; i < LANES; i++) y[lane + i] = (float)(total[i] / (double)area);
    }
    for (; lane < lanes; lane++) {
        double total = 0;
        for (size_t i = 0; i < area; i++) total += (double)x[i * lanes + lane];
        y[lane] = (float)(total / (double)area);
    }
}

/* (N, area, lanes) to (N, lanes): the mean over each image. */
static void global_forward(size_t images, size_t area, size_t lanes, const float *x, float *y) {
#pragma omp parallel for schedule(static) if (images * area * lanes >= PARALLEL_LEAST)
    for (size_t i = 0; i < images; i++) {
        if (lanes == 1)
            y[i] = mean_of(x + i * area, area);
        else
            global_image(area, lanes, x + i * area * lanes, y + i * lanes);
    }
}

/* Every input gets an equal share of its channel's gradient. */
static void global_backward(size_t images, size_t area, size_t lanes, const float *dy, float *dx) {
    float share = 1.0f / (float)area;
#pragma omp parallel for schedule(static) if (images * area * lanes >= PARALLEL_LEAST)
    for (size_t i = 0; i < images; i++)
        for (size_t at = 0; at < area; at++)
            for (size_t lane = 0; lane < lanes; lane++)
                dx[(i * area + at) * lanes + lane] = dy[i * lanes + lane] * share;
}

const sh_pool_kernels SH_SIMD(sh_pool_table) = {
    .max_forward = max_forward,
    .max_backward = max_backward,
    .average_forward = average_forward,
    .average_backward = average_backward,
    .global_forward = global_forward,
    .global_backward = global_backward,
};
