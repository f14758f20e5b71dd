/* Batch normalisation (Ioffe and Szegedy 2015). Training reads x twice, for the moments and to
 * write y; backward reads x and dy twice. Sums run in float within a chunk and in double over
 * chunks, so the error does not grow with the batch.
 *
 * Each strip belongs to one thread, hence the bits do not depend on the thread count. The `_sums`
 * and `_rest` halves let several workers add their sums in between (synchronised batch
 * normalisation). */
#include <math.h>

#include "base/status.h"
#include "tensor/kernels/norm.h"
#include "tensor/kernels/simd/lanes.h"

/* Work is done strip by strip, one thread each. In blocked data a strip is up to LANES channels
 * that lie side by side, one vector per position. In plain data (lanes 1) it is one channel, and a
 * vector is LANES positions of it: its lanes are added up wherever a channel has one value.
 *
 * A strip is read in chunks of at most CHUNK vectors, all of `width` valid lanes. */
enum { CHUNK = 512 };

typedef struct strip {
    size_t first;             // channel
    size_t channels;          // 1: lanes are positions; else lanes are channels
    size_t base;              // element of the first run
    size_t runs, run_stride;  // runs of vectors, one per image
    size_t vectors, step;     // per run, and elements from one to the next
    size_t width;             // valid lanes of these vectors
    size_t tail;              // valid lanes of one vector more at the end of a run, or 0
    size_t chunks;            // per run, with the tail
    double count;             // elements per channel
    bool by_position;
} strip;

/* Part of a strip that is summed in float: `vectors` vectors, `step` floats apart, from element
 * `at`. */
typedef struct chunk {
    size_t at, vectors, step, width;
    size_t count;  // elements per channel
} chunk;

/* Rows of features are one run of positions: their runs would have length 1. */
static sh_batchnorm_shape tidy(sh_batchnorm_shape s) {
    SH_ASSERT(s.lanes > 0 && s.channels % s.lanes == 0);
    if (s.inner != 1) return s;
    return (sh_batchnorm_shape){.outer = 1, .channels = s.channels, .inner = s.outer, s.channels};
}

/* How many strips a block of channels has. */
static size_t strips_per_block(const sh_batchnorm_shape *s) {
    return (s->lanes + LANES - 1) / LANES;
}

/* Strips of the whole tensor. */
static size_t strip_count(const sh_batchnorm_shape *s) {
    return s->channels / s->lanes * strips_per_block(s);
}

/* Strip `index`: which channels, where its runs lie, how they are cut. */
static strip strip_at(const sh_batchnorm_shape *s, size_t index) {
    size_t block = index / strips_per_block(s), lane = index % strips_per_block(s) * LANES;
    strip t = {
        .first = block * s->lanes + lane,
        .base = block * s->inner * s->lanes + lane,
        .runs = s->outer,
        .run_stride = s->channels * s->inner,  // elements of one image
        .count = (double)s->outer * (double)s->inner,
        .by_position = s->lanes == 1,
    };
    t.channels = t.by_position ? 1 : least(LANES, s->lanes - lane);
    t.width = t.by_position ? LANES : t.channels;
    t.vectors = t.by_position ? s->inner / LANES : s->inner;
    t.step = t.by_position ? LANES : s->lanes;
    t.tail = t.by_position ? s->inner % LANES : 0;
    t.chunks = (t.vectors + CHUNK - 1) / CHUNK + (t.tail > 0);
    return t;
}

/* Chunk `index` of a strip, counted run by run; the last chunk of a run may be its part vector. */
static chunk chunk_at(const strip *t, size_t index) {
    size_t at = t->base + index / t->chunks * t->run_stride, first = index % t->chunks * CHUNK;
    chunk c = {.at = at + first * t->step, .step = t->step, .width = t->width};
    if (first < t->vectors) {
        c.vectors = least(CHUNK, t->vectors - first);
    } else {
        c.at = at + t->vectors * t->step;
        c.vectors = 1;
        c.width = t->tail;
    }
    c.count = t->by_position ? c.vectors * c.width : c.vectors;
    return c;
}

/* Loads `width` lanes; the others get `rest`, chosen by the caller so that the sum is not
 * changed. */
LANE_FUNCTION vf load(const float *x, size_t width, vf rest) {
    if (width == LANES) return vf_load(x);
    for (size_t i = 0; i < width; i++) rest[i] = x[i];
    return rest;
}

/* Stores the valid lanes only: those behind belong to another strip. */
LANE_FUNCTION void store(float *x, vf v, size_t width) {
    if (width == LANES)
        vf_store(x, v);
    else
        vf_store_part(x, v, width);
}

/* Per-channel values as a vector, one per lane or one for all. */
static vf channel_values(const strip *t, const float *values) {
    return t->by_position ? vf_all(values[t->first])
                          : load(values + t->first, t->channels, (vf){0});
}

/* In plain data all lanes belong to one channel, so their sum goes to every lane; in blocked data
 * each lane keeps its own. */
static vf over_lanes(const strip *t, vf sum) { return t->by_position ? vf_all(vf_sum(sum)) : sum; }

/* Sum of (x - centre)^power, power 1 or 2 and constant at the calls. Four sums hide the latency. */
LANE_FUNCTION vf power_sum(const float *x, const chunk *c, size_t width, vf centre, int power) {
    vf sum[4] = {{0}};
    size_t i = 0;
    for (; i + 4 <= c->vectors; i += 4)
        for (int k = 0; k < 4; k++) {
            vf d = load(x + (i + (size_t)k) * c->step, width, centre) - centre;
            sum[k] += power == 1 ? d : d * d;
        }
    for (; i < c->vectors; i++) {
        vf d = load(x + i * c->step, width, centre) - centre;
        sum[0] += power == 1 ? d : d * d;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

/* Sum of a chunk. The full width is passed as a constant, so that the compiler unrolls without
 * lane checks. */
static vf sum_of(const float *x, const chunk *c) {
    return c->width == LANES ? power_sum(x, c, LANES, (vf){0}, 1)
                             : power_sum(x, c, c->width, (vf){0}, 1);
}

/* Sum of squared deviations of a chunk from `mean`. */
static vf squares_of(const float *x, const chunk *c, vf mean) {
    return c->width == LANES ? power_sum(x, c, LANES, mean, 2) : power_sum(x, c, c->width, mean, 2);
}

typedef struct moments {
    double count, mean[LANES], squares[LANES];  // squares: sum of (x - mean)^2
} moments;

/* Moments of a strip. Each chunk gives mean and squares about its own mean (its second reading
 * hits the cache); they are joined in double by the rule of Chan, Golub and LeVeque. No
 * cancellation, however large the mean is. */
static void take_moments(const strip *t, const float *x, moments *m) {
    for (size_t k = 0; k < t->runs * t->chunks; k++) {
        chunk c = chunk_at(t, k);
        vf mean = over_lanes(t, sum_of(x + c.at, &c)) / (float)c.count;
        vf squares = over_lanes(t, squares_of(x + c.at, &c, mean));
        double n = (double)c.count, all = m->count + n;
        for (int lane = 0; lane < LANES; lane++) {
            double d = (double)mean[lane] - m->mean[lane];
            m->mean[lane] += d * n / all;
            m->squares[lane] += (double)squares[lane] + d * d * m->count * n / all;
        }
        m->count = all;
    }
}

/* y = gamma (x - mean) rstd + beta, then residual and ReLU where they are fused. `scale` is gamma
 * rstd. */
LANE_FUNCTION void normalise_chunk(const sh_batchnorm_forward *a, const chunk *c, size_t width,
                                   vf mean, vf scale, vf beta) {
    const float *x = a->x + c->at, *residual = a->residual ? a->residual + c->at : NULL;
    float *y = a->y + c->at;
    for (size_t i = 0; i < c->vectors; i++) {
        vf v = (load(x + i * c->step, width, mean) - mean) * scale + beta;
        if (residual) v += load(residual + i * c->step, width, beta);
        if (a->relu) v = vf_keep(~(v <= 0.0f), v);
        store(y + i * c->step, v, width);
    }
}

/* Second pass over a strip: writes y from the statistics. */
static void normalise(const sh_batchnorm_forward *a, const strip *t, vf mean, vf rstd) {
    vf scale = rstd * channel_values(t, a->gamma), beta = channel_values(t, a->beta);
    for (size_t k = 0; k < t->runs * t->chunks; k++) {
        chunk c = chunk_at(t, k);
        if (c.width == LANES)
            normalise_chunk(a, &c, LANES, mean, scale, beta);
        else
            normalise_chunk(a, &c, c.width, mean, scale, beta);
    }
}

/* Sets batch and running statistics of channel c. `squares`: sum of (x - mean)^2 over `count`
 * elements. The batch uses the biased variance, the running average the unbiased one, as PyTorch
 * does. */
static void set_statistics(const sh_batchnorm_forward *a, size_t c, double mean, double squares,
                           double count) {
    double momentum = (double)a->momentum, unbiased = count > 1 ? squares / (count - 1) : 0;
    a->mean[c] = (float)mean;
    a->rstd[c] = (float)(1.0 / sqrt(squares / count + (double)a->eps));
    a->running_mean[c] += (float)(momentum * (mean - (double)a->running_mean[c]));
    a->running_var[c] += (float)(momentum * (unbiased - (double)a->running_var[c]));
}

/* Moments, statistics and output of one strip, while it is still in the cache. */
static void train_strip(const sh_batchnorm_forward *a, const strip *t) {
    moments m = {0};
    take_moments(t, a->x, &m);
    for (size_t i = 0; i < least(t->channels, LANES); i++)
        set_statistics(a, t->first + i, m.mean[i], m.squares[i], t->count);
    normalise(a, t, channel_values(t, a->mean), channel_values(t, a->rstd));
}

/* Training step on one worker: strips over threads. */
static void train(const sh_batchnorm_forward *a) {
    sh_batchnorm_shape s = tidy(a->shape);
#pragma omp parallel for schedule(static) if (s.outer * s.inner * s.channels >= PARALLEL_LEAST)
    for (size_t i = 0; i < strip_count(&s); i++) {
        strip t = strip_at(&s, i);
        train_strip(a, &t);
    }
}

/* First half of synchronised training: this worker's sum and sum of squares per channel, (2,
 * channels), in double. The caller adds them over workers. */
static void train_sums(const sh_batchnorm_forward *a, double *sums_out) {
    sh_batchnorm_shape s = tidy(a->shape);
#pragma omp parallel for schedule(static) if (s.outer * s.inner * s.channels >= PARALLEL_LEAST)
    for (size_t i = 0; i < strip_count(&s); i++) {
        strip t = strip_at(&s, i);
        moments m = {0};
        take_moments(&t, a->x, &m);
        for (size_t k = 0; k < t.channels; k++) {
            sums_out[t.first + k] = m.mean[k] * t.count;
            sums_out[s.channels + t.first + k] = m.squares[k] + m.mean[k] * m.mean[k] * t.count;
        }
    }
}

/* Second half: statistics from the sums of all workers, then y. In double E[x^2] - mean^2 loses
 * nothing that counts: a float has less than half of its digits. */
static void train_rest(const sh_batchnorm_forward *a, const double *sums, double count) {
    sh_batchnorm_shape s = tidy(a->shape);
#pragma omp parallel for schedule(static) if (s.outer * s.inner * s.channels >= PARALLEL_LEAST)
    for (size_t i = 0; i < strip_count(&s); i++) {
        strip t = strip_at(&s, i);
        for (size_t k = 0; k < t.channels; k++) {
            double mean = sums[t.first + k] / count;
            double squares = sums[s.channels + t.first + k] - mean * mean * count;
            set_statistics(a, t.first + k, mean, squares > 0 ? squares : 0, count);
        }
        normalise(a, &t, channel_values(&t, a->mean), channel_values(&t, a->rstd));
    }
}

/* Inference with the running statistics: one pass. */
static void infer(const sh_batchnorm_forward *a) {
    sh_batchnorm_shape s = tidy(a->shape);
#pragma omp parallel for schedule(static) if (s.outer * s.inner * s.channels >= PARALLEL_LEAST)
    for (size_t i = 0; i < strip_count(&s); i++) {
        strip t = strip_at(&s, i);
        vf variance = channel_values(&t, a->running_var), rstd;
        for (int lane = 0; lane < LANES; lane++) rstd[lane] = 1.0f / sqrtf(variance[lane] + a->eps);
        normalise(a, &t, channel_values(&t, a->running_mean), rstd);
    }
}

typedef struct back_sums {
    double d[LANES], dx[LANES];  // sums of dy and dy (x - mean), lane by lane
} back_sums;

/* First pass of backward over a chunk: adds dy and dy (x - mean). With a fused ReLU dy is masked
 * by y > 0; the masked gradient is also the residual's, and is kept in dresidual for the second
 * pass. */
LANE_FUNCTION void gather_chunk(const sh_batchnorm_backward *a, const chunk *c, size_t width,
                                vf mean, back_sums *into) {
    const float *dy = a->dy + c->at, *x = a->x + c->at, *y = a->y ? a->y + c->at : NULL;
    float *dresidual = a->dresidual ? a->dresidual + c->at : NULL;
    vf sum = {0}, sum_x = {0};
    for (size_t i = 0; i < c->vectors; i++) {
        size_t at = i * c->step;
        vf d = load(dy + at, width, (vf){0});
        if (y) d = vf_keep(load(y + at, width, (vf){0}) > 0.0f, d);
        if (dresidual) store(dresidual + at, d, width);
        sum += d;
        sum_x += d * (load(x + at, width, mean) - mean);
    }
    for (int lane = 0; lane < LANES; lane++) {
        into->d[lane] += (double)sum[lane];
        into->dx[lane] += (double)sum_x[lane];
    }
}

/* Second pass: dx = scale (dy - mean(dy) - (x - mean) slope), with scale = gamma rstd and slope =
 * rstd^2 mean(dy (x - mean)). */
LANE_FUNCTION void scatter_chunk(const sh_batchnorm_backward *a, const chunk *c, size_t width,
                                 vf mean, vf scale, vf mean_d, vf slope) {
    const float *dy = (a->dresidual ? a->dresidual : a->dy) + c->at, *x = a->x + c->at;
    const float *y = a->y && !a->dresidual ? a->y + c->at : NULL;
    float *dx = a->dx + c->at;
    for (size_t i = 0; i < c->vectors; i++) {
        size_t at = i * c->step;
        vf d = load(dy + at, width, (vf){0});
        if (y) d = vf_keep(load(y + at, width, (vf){0}) > 0.0f, d);
        d -= mean_d + (load(x + at, width, mean) - mean) * slope;
        store(dx + at, d * scale, width);
    }
}

/* Sums of one strip over positions; lane i is channel i. Also writes (or adds to) dgamma and dbeta
 * of this worker's samples. */
static back_sums gather_strip(const sh_batchnorm_backward *a, const strip *t) {
    vf mean = channel_values(t, a->mean), rstd = channel_values(t, a->rstd);
    back_sums s = {0};
    for (size_t k = 0; k < t->runs * t->chunks; k++) {
        chunk c = chunk_at(t, k);
        if (c.width == LANES)
            gather_chunk(a, &c, LANES, mean, &s);
        else
            gather_chunk(a, &c, c.width, mean, &s);
    }
    for (int lane = 1; t->by_position && lane < LANES; lane++) {
        s.d[0] += s.d[lane];
        s.dx[0] += s.dx[lane];
    }
    for (size_t i = 0; i < t->channels; i++) {
        size_t c = t->first + i;
        a->dgamma[c] = (a->accumulate ? a->dgamma[c] : 0) + (float)(s.dx[i] * (double)rstd[i]);
        a->dbeta[c] = (a->accumulate ? a->dbeta[c] : 0) + (float)s.d[i];
    }
    return s;
}

/* dx of one strip from its sums. `count`: elements per channel over all workers. */
static void scatter_strip(const sh_batchnorm_backward *a, const strip *t, const back_sums *s,
                          double count) {
    vf mean = channel_values(t, a->mean), rstd = channel_values(t, a->rstd);
    vf mean_d = {0}, slope = {0};
    for (size_t lane = 0; lane < LANES; lane++) {
        size_t from = t->by_position ? 0 : lane;
        double r = (double)rstd[lane];
        mean_d[lane] = (float)(s->d[from] / count);
        slope[lane] = (float)(s->dx[from] * r * r / count);
    }
    vf scale = rstd * channel_values(t, a->gamma);
    for (size_t k = 0; k < t->runs * t->chunks; k++) {
        chunk c = chunk_at(t, k);
        if (c.width == LANES)
            scatter_chunk(a, &c, LANES, mean, scale, mean_d, slope);
        else
            scatter_chunk(a, &c, c.width, mean, scale, mean_d, slope);
    }
}

/* Backward on one worker. Each strip does both passes on its own, so there is no barrier between
 * them. */
static void backward(const sh_batchnorm_backward *a) {
    SH_ASSERT(a->dresidual == NULL || a->dresidual != a->dx);
    sh_batchnorm_shape s = tidy(a->shape);
#pragma omp parallel for schedule(static) if (s.outer * s.inner * s.channels >= PARALLEL_LEAST)
    for (size_t i = 0; i < strip_count(&s); i++) {
        strip t = strip_at(&s, i);
        back_sums sums = gather_strip(a, &t);
        scatter_strip(a, &t, &sums, t.count);
    }
}

/* First half of synchronised backward: this worker's two sums per channel, (2, channels). */
static void backward_sums(const sh_batchnorm_backward *a, double *sums_out) {
    sh_batchnorm_shape s = tidy(a->shape);
#pragma omp parallel for schedule(static) if (s.outer * s.inner * s.channels >= PARALLEL_LEAST)
    for (size_t i = 0; i < strip_count(&s); i++) {
        strip t = strip_at(&s, i);
        back_sums sums = gather_strip(a, &t);
        for (size_t k = 0; k < t.channels; k++) {
            sums_out[t.first + k] = sums.d[k];
            sums_out[s.channels + t.first + k] = sums.dx[k];
        }
    }
}

/* Second half: dx from the sums of all workers. */
static void backward_rest(const sh_batchnorm_backward *a, const double *sums, double count) {
    sh_batchnorm_shape s = tidy(a->shape);
#pragma omp parallel for schedule(static) if (s.outer * s.inner * s.channels >= PARALLEL_LEAST)
    for (size_t i = 0; i < strip_count(&s); i++) {
        strip t = strip_at(&s, i);
        back_sums all = {0};
        for (size_t k = 0; k < t.channels; k++) {
            all.d[k] = sums[t.first + k];
            all.dx[k] = sums[s.channels + t.first + k];
        }
        scatter_strip(a, &t, &all, count);
    }
}

const sh_batchnorm_kernels SH_SIMD(sh_batchnorm_table) = {
    .train = train,
    .infer = infer,
    .backward = backward,
    .train_sums = train_sums,
    .train_rest = train_rest,
    .backward_sums = backward_sums,
    .backward_rest = backward_rest,
};
