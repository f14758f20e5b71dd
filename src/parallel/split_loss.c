#include "parallel/split_loss.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"

enum { EXPONENTIALS, AT_LABEL, LOGITS, BEFORE, SUMS };  // a row's sums

/* One worker's part of all rows. */
typedef struct part {
    const float *logits;
    const int32_t *labels;
    size_t rows, width;
    int64_t begin;  // the first class of the part
    int32_t ignored;
} part;

static void find_largest(const part *p, float *most_out) {
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < p->rows; r++) {
        const float *x = p->logits + r * p->width;
        float most = x[0];
        for (size_t j = 1; j < p->width; j++)
            if (!(x[j] <= most)) most = x[j];  // NaN wins, so that it shows
        most_out[r] = most;
    }
}

static void sum_row(const part *p, size_t r, float most, double *sums) {
    const float *x = p->logits + r * p->width;
    int64_t label = p->labels[r] - p->begin;
    memset(sums, 0, SUMS * sizeof *sums);
    for (size_t j = 0; j < p->width; j++) {
        sums[EXPONENTIALS] += (double)expf(x[j] - most);
        sums[LOGITS] += (double)x[j];
        if ((int64_t)j < label && x[j] == most) sums[BEFORE]++;
    }
    if (label >= 0 && label < (int64_t)p->width) sums[AT_LABEL] = (double)x[label];
}

static void sum_rows(const part *p, const float *most, double *sums) {
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < p->rows; r++) sum_row(p, r, most[r], sums + r * SUMS);
}

/* grad = scale (softmax - (1 - s) [j = label] - s / classes). `gradient` may be the logits. */
static void write_gradient(const part *p, const float *most, const double *sums, double smoothing,
                           int64_t classes, double scale, float *gradient) {
#pragma omp parallel for schedule(static)
    for (size_t r = 0; r < p->rows; r++) {
        float *g = gradient + r * p->width;
        if (p->labels[r] == p->ignored) {
            memset(g, 0, p->width * sizeof *g);
            continue;
        }
        const float *x = p->logits + r * p->width;
        float factor = (float)(scale / sums[r * SUMS + EXPONENTIALS]);
        float spread = (float)(scale * smoothing / (double)classes);
        for (size_t j = 0; j < p->width; j++) g[j] = expf(x[j] - most[r]) * factor - spread;
        int64_t label = p->labels[r] - p->begin;
        if (label >= 0 && label < (int64_t)p->width) g[label] -= (float)(scale * (1 - smoothing));
    }
}

static sh_loss_result total(const part *p, const float *most, const double *sums, double smoothing,
                            int64_t classes) {
    sh_loss_result result = {0};
    for (size_t r = 0; r < p->rows; r++) {
        if (p->labels[r] == p->ignored) continue;
        const double *s = sums + r * SUMS;
        double target = (1 - smoothing) * s[AT_LABEL] + smoothing * s[LOGITS] / (double)classes;
        result.sum += (double)most[r] + log(s[EXPONENTIALS]) - target;
        result.counted++;
        result.correct += s[AT_LABEL] == (double)most[r] && s[BEFORE] == 0;
    }
    return result;
}

static sh_status reduce(const sh_split_cross_entropy *self, const sh_peers *peers, void *data,
                        size_t count, sh_dtype dtype, sh_reduce_op op) {
    if (peers == NULL || peers->engine == NULL) return SH_OK;
    sh_call call = {.what = SH_ALLREDUCE,
                    .group = peers->along[self->split.axis],
                    .data = data,
                    .count = count,
                    .dtype = dtype,
                    .op = op,
                    .bucket = -1};
    return sh_engine_run(peers->engine, &call);
}

static sh_status reserve(sh_split_cross_entropy *self, size_t rows) {
    if (rows <= self->capacity) return SH_OK;
    sh_free(self->most);
    sh_free(self->sums);
    self->most = sh_alloc(rows, sizeof *self->most);
    self->sums = sh_alloc(rows * SUMS, sizeof *self->sums);
    self->capacity = self->most != NULL && self->sums != NULL ? rows : 0;
    return self->capacity > 0 ? SH_OK : SH_FAIL(SH_E_MEMORY, "out of memory for a split loss");
}

static sh_status meet(sh_split_cross_entropy *self, const sh_peers *peers, const part *p) {
    SH_TRY(reserve(self, p->rows));
    find_largest(p, self->most);
    SH_TRY(reduce(self, peers, self->most, p->rows, SH_DTYPE_F32, SH_MAX));
    sum_rows(p, self->most, self->sums);
    return reduce(self, peers, self->sums, p->rows * SUMS, SH_DTYPE_F64, SH_SUM);
}

static sh_loss_result evaluate(sh_split_loss *base, const sh_loss *loss,
                               const struct sh_peers *peers, const float *prediction,
                               const int32_t *target, int64_t rows, double scale, float *gradient) {
    sh_split_cross_entropy *self = (sh_split_cross_entropy *)base;
    const part p = {.logits = prediction,
                    .labels = target,
                    .rows = (size_t)rows,
                    .width = (size_t)sh_cut_own(&self->split),
                    .begin = sh_cut_begin(&self->split, self->split.rank),
                    .ignored = (int32_t)loss->options.ignore_index};
    int64_t classes = self->split.units * self->split.unit;
    double smoothing = loss->options.smoothing;
    sh_status status = meet(self, peers, &p);
    if (status != SH_OK) return (sh_loss_result){.status = status};
    sh_loss_result result = total(&p, self->most, self->sums, smoothing, classes);
    if (gradient != NULL)
        write_gradient(&p, self->most, self->sums, smoothing, classes, scale, gradient);
    return result;
}

void sh_split_cross_entropy_init(sh_split_cross_entropy *loss, const sh_cut *split) {
    *loss = (sh_split_cross_entropy){.base = {.evaluate = evaluate}, .split = *split};
}

void sh_split_cross_entropy_fini(sh_split_cross_entropy *loss) {
    sh_free(loss->most);
    sh_free(loss->sums);
    *loss = (sh_split_cross_entropy){0};
}
