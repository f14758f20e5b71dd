/* Convolution as a sum over (output pixel, tap, channel), by three index functions and nothing
 * else: slow and easy to check. */
#include "tensor/kernels/reference_conv.h"

#include <stdbool.h>
#include <stddef.h>

/* One product of the sum: where it lies in x, w and y. */
typedef struct term {
    int64_t n, o, i, r, c, kr, kc;  // i counts the channels inside the group
} term;

/* The index into x, or -1 where the tap lies in the padding. */
static int64_t x_index(const sh_conv_shape *s, const term *t) {
    int64_t row = t->r * s->stride_h - s->pad_h + t->kr * s->dilation_h;
    int64_t col = t->c * s->stride_w - s->pad_w + t->kc * s->dilation_w;
    if (row < 0 || row >= s->ih || col < 0 || col >= s->iw) return -1;
    int64_t channel = t->o / (s->oc / s->groups) * (s->ic / s->groups) + t->i;
    return ((t->n * s->ic + channel) * s->ih + row) * s->iw + col;
}

static int64_t w_index(const sh_conv_shape *s, const term *t) {
    return ((t->o * (s->ic / s->groups) + t->i) * s->kh + t->kr) * s->kw + t->kc;
}

static int64_t y_index(const sh_conv_shape *s, const term *t) {
    return ((t->n * s->oc + t->o) * s->oh + t->r) * s->ow + t->c;
}

/* Steps through (i, kr, kc), the taps of one output. */
static bool next_tap(const sh_conv_shape *s, term *t) {
    if (++t->kc < s->kw) return true;
    t->kc = 0;
    if (++t->kr < s->kh) return true;
    t->kr = 0;
    return ++t->i < s->ic / s->groups;
}

/* Steps through (n, r, c), the pixels of one output channel. */
static bool next_pixel(const sh_conv_shape *s, term *t) {
    if (++t->c < s->ow) return true;
    t->c = 0;
    if (++t->r < s->oh) return true;
    t->r = 0;
    return ++t->n < s->n;
}

void sh_reference_conv_forward(const sh_conv_shape *s, const float *x, const float *w,
                               const float *bias, float *y_out) {
    for (int64_t o = 0; o < s->oc; o++) {
        term pixel = {.o = o};
        do {
            double sum = bias != NULL ? (double)bias[o] : 0;
            term t = pixel;
            do {
                int64_t at = x_index(s, &t);
                if (at >= 0) sum += (double)x[at] * (double)w[w_index(s, &t)];
            } while (next_tap(s, &t));
            y_out[y_index(s, &pixel)] = (float)sum;
        } while (next_pixel(s, &pixel));
    }
}

/* The sum for one element of x: every tap that could have read it. */
static double data_sum(const sh_conv_shape *s, const float *dy, const float *w, int64_t n,
                       int64_t channel, int64_t row, int64_t col) {
    int64_t group = channel / (s->ic / s->groups), outs = s->oc / s->groups;
    double sum = 0;
    term t = {.n = n, .i = channel % (s->ic / s->groups)};
    for (t.o = group * outs; t.o < (group + 1) * outs; t.o++) {
        for (t.kr = 0; t.kr < s->kh; t.kr++) {
            for (t.kc = 0; t.kc < s->kw; t.kc++) {
                int64_t r = row + s->pad_h - t.kr * s->dilation_h;
                int64_t c = col + s->pad_w - t.kc * s->dilation_w;
                if (r < 0 || c < 0 || r % s->stride_h != 0 || c % s->stride_w != 0) continue;
                t.r = r / s->stride_h, t.c = c / s->stride_w;
                if (t.r >= s->oh || t.c >= s->ow) continue;
                sum += (double)dy[y_index(s, &t)] * (double)w[w_index(s, &t)];
            }
        }
    }
    return sum;
}

void sh_reference_conv_data(const sh_conv_shape *s, const float *dy, const float *w,
                            float *dx_out) {
    for (int64_t n = 0; n < s->n; n++)
        for (int64_t channel = 0; channel < s->ic; channel++)
            for (int64_t row = 0; row < s->ih; row++)
                for (int64_t col = 0; col < s->iw; col++)
                    *dx_out++ = (float)data_sum(s, dy, w, n, channel, row, col);
}

void sh_reference_conv_weight(const sh_conv_shape *s, const float *x, const float *dy,
                              float *dw_out, float *db_out) {
    for (int64_t o = 0; o < s->oc; o++) {
        term tap = {.o = o};
        do {
            double sum = 0;
            term t = tap;
            do {
                int64_t at = x_index(s, &t);
                if (at >= 0) sum += (double)x[at] * (double)dy[y_index(s, &t)];
            } while (next_pixel(s, &t));
            dw_out[w_index(s, &tap)] = (float)sum;
        } while (next_tap(s, &tap));
        if (db_out == NULL) continue;
        double sum = 0;
        term t = {.o = o};
        do sum += (double)dy[y_index(s, &t)];
        while (next_pixel(s, &t));
        db_out[o] = (float)sum;
    }
}
