/* Batch normalisation and pooling as their definitions read. Pooling visits every (output, input)
 * pair through one function, whatever is computed from it. */
#include <math.h>
#include <string.h>

#include "tensor/kernels/reference.h"

/* Element (outer, channel, inner) of [outer][channels/lanes][inner][lanes]. */
static size_t place(const sh_batchnorm_shape *s, size_t o, size_t c, size_t i) {
    return ((o * (s->channels / s->lanes) + c / s->lanes) * s->inner + i) * s->lanes + c % s->lanes;
}

static void normalise(const sh_batchnorm_forward *a, size_t c, double mean, double rstd) {
    for (size_t o = 0; o < a->shape.outer; o++)
        for (size_t i = 0; i < a->shape.inner; i++) {
            size_t at = place(&a->shape, o, c, i);
            double v = ((double)a->x[at] - mean) * rstd * (double)a->gamma[c] + (double)a->beta[c];
            if (a->residual) v += (double)a->residual[at];
            a->y[at] = (float)(a->relu && v < 0 ? 0 : v);
        }
}

void sh_ref_batchnorm_train(const sh_batchnorm_forward *a) {
    const sh_batchnorm_shape *s = &a->shape;
    double count = (double)(s->outer * s->inner), keep = 1.0 - (double)a->momentum;
    for (size_t c = 0; c < s->channels; c++) {
        double mean = 0, squares = 0;
        for (size_t o = 0; o < s->outer; o++)
            for (size_t i = 0; i < s->inner; i++) mean += (double)a->x[place(s, o, c, i)] / count;
        for (size_t o = 0; o < s->outer; o++)
            for (size_t i = 0; i < s->inner; i++)
                squares += pow((double)a->x[place(s, o, c, i)] - mean, 2);
        double rstd = 1.0 / sqrt(squares / count + (double)a->eps);
        double unbiased = count > 1 ? squares / (count - 1) : 0;
        a->mean[c] = (float)mean;
        a->rstd[c] = (float)rstd;
        a->running_mean[c] = (float)(keep * (double)a->running_mean[c] + (1.0 - keep) * mean);
        a->running_var[c] = (float)(keep * (double)a->running_var[c] + (1.0 - keep) * unbiased);
        normalise(a, c, mean, rstd);
    }
}

void sh_ref_batchnorm_infer(const sh_batchnorm_forward *a) {
    for (size_t c = 0; c < a->shape.channels; c++)
        normalise(a, c, (double)a->running_mean[c],
                  1.0 / sqrt((double)a->running_var[c] + (double)a->eps));
}

void sh_ref_batchnorm_backward(const sh_batchnorm_backward *a) {
    const sh_batchnorm_shape *s = &a->shape;
    double count = (double)(s->outer * s->inner);
    for (size_t c = 0; c < s->channels; c++) {
        double sum = 0, sum_hat = 0, mean = (double)a->mean[c], rstd = (double)a->rstd[c];
        for (int pass = 0; pass < 2; pass++)
            for (size_t o = 0; o < s->outer; o++)
                for (size_t i = 0; i < s->inner; i++) {
                    size_t at = place(s, o, c, i);
                    double d = a->y && !(a->y[at] > 0) ? 0 : (double)a->dy[at];
                    double hat = ((double)a->x[at] - mean) * rstd;
                    if (pass == 0) {
                        sum += d;
                        sum_hat += d * hat;
                        continue;
                    }
                    if (a->dresidual) a->dresidual[at] = (float)d;
                    a->dx[at] = (float)((double)a->gamma[c] * rstd *
                                        (d - sum / count - hat * sum_hat / count));
                }
        a->dgamma[c] = (float)(sum_hat + (a->accumulate ? (double)a->dgamma[c] : 0));
        a->dbeta[c] = (float)(sum + (a->accumulate ? (double)a->dbeta[c] : 0));
    }
}

/* Calls `visit` for every (output, input inside the image) pair of every window. */
typedef void (*pool_visit)(void *context, size_t out, size_t in, int position);

static void each_pair(const sh_pool_shape *s, pool_visit visit, void *context) {
    size_t out = 0;
    for (size_t image = 0; image < s->images; image++)
        for (int oy = 0; oy < s->out_height; oy++)
            for (int ox = 0; ox < s->out_width; ox++)
                for (size_t lane = 0; lane < s->lanes; lane++, out++)
                    for (int k = 0; k < s->kernel_height * s->kernel_width; k++) {
                        int y = oy * s->stride_height - s->pad_top + k / s->kernel_width;
                        int x = ox * s->stride_width - s->pad_left + k % s->kernel_width;
                        if (y < 0 || y >= s->height || x < 0 || x >= s->width) continue;
                        size_t row = image * (size_t)s->height + (size_t)y;
                        visit(context, out, (row * (size_t)s->width + (size_t)x) * s->lanes + lane,
                              k);
                    }
}

/* Values of the input. */
static size_t in_count(const sh_pool_shape *s) {
    return s->images * (size_t)s->height * (size_t)s->width * s->lanes;
}

static size_t out_count(const sh_pool_shape *s) {
    return s->images * (size_t)s->out_height * (size_t)s->out_width * s->lanes;
}

typedef struct pool_context {
    const float *from, *y;
    const uint8_t *index;
    float *to, share;
    uint8_t *index_out;
    bool relu;
} pool_context;

static void visit_max(void *context, size_t out, size_t in, int position) {
    pool_context *c = context;
    if (!(c->from[in] > c->to[out])) return;
    c->to[out] = c->from[in];
    c->index_out[out] = (uint8_t)position;
}

void sh_ref_max_forward(const sh_pool_shape *s, const float *x, float *y, uint8_t *index) {
    pool_context c = {.from = x, .to = y, .index_out = index};
    for (size_t i = 0; i < out_count(s); i++) y[i] = -INFINITY;
    each_pair(s, visit_max, &c);
    for (size_t i = 0; i < out_count(s); i++)
        if (s->relu && y[i] < 0) y[i] = 0;
}

static void visit_max_back(void *context, size_t out, size_t in, int position) {
    pool_context *c = context;
    if (position != c->index[out] || (c->relu && !(c->y[out] > 0))) return;
    c->to[in] += c->from[out];
}

void sh_ref_max_backward(const sh_pool_shape *s, const float *dy, const float *y,
                         const uint8_t *index, float *dx) {
    pool_context c = {.from = dy, .y = y, .index = index, .to = dx, .relu = s->relu};
    memset(dx, 0, in_count(s) * sizeof *dx);
    each_pair(s, visit_max_back, &c);
}

static void visit_average(void *context, size_t out, size_t in, int position) {
    (void)position;
    pool_context *c = context;
    c->to[out] += c->from[in] * c->share;
}

void sh_ref_average_forward(const sh_pool_shape *s, const float *x, float *y) {
    pool_context c = {
        .from = x, .to = y, .share = 1.0f / (float)(s->kernel_height * s->kernel_width)};
    memset(y, 0, out_count(s) * sizeof *y);
    each_pair(s, visit_average, &c);
}

static void visit_average_back(void *context, size_t out, size_t in, int position) {
    (void)position;
    pool_context *c = context;
    c->to[in] += c->from[out] * c->share;
}

void sh_ref_average_backward(const sh_pool_shape *s, const float *dy, float *dx) {
    pool_context c = {
        .from = dy, .to = dx, .share = 1.0f / (float)(s->kernel_height * s->kernel_width)};
    memset(dx, 0, in_count(s) * sizeof *dx);
    each_pair(s, visit_average_back, &c);
}
