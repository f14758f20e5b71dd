/* Sparse rows in the compressed layout (CSR): starts, indices, values. And rows made from a seed
 * for benchmarks, whose features are as skewed as those of text (Zipf), because the speed of
 * sparse kernels depends on that. */
#include "data/sparse.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/memory.h"
#include "base/rng.h"

/* Allocates the three arrays; on failure nothing stays allocated. */
sh_status sh_sparse_init(sh_sparse *sparse, size_t rows, size_t width, size_t values) {
    *sparse = (sh_sparse){
        .rows = rows,
        .width = width,
        .start = sh_alloc(rows + 1, sizeof *sparse->start),
        .index = sh_alloc(values + 1, sizeof *sparse->index),
        .value = sh_alloc(values + 1, sizeof *sparse->value),
    };
    if (sparse->start != NULL && sparse->index != NULL && sparse->value != NULL) return SH_OK;
    sh_sparse_fini(sparse);
    return SH_FAIL(SH_E_MEMORY, "out of memory for %zu rows with %zu values", rows, values);
}

void sh_sparse_fini(sh_sparse *sparse) {
    sh_free(sparse->start);
    sh_free(sparse->index);
    sh_free(sparse->value);
    *sparse = (sh_sparse){0};
}

/* Writes a row dense, for kernels that want dense rows. */
void sh_sparse_expand(const sh_sparse *sparse, size_t row, float *x_out) {
    memset(x_out, 0, sparse->width * sizeof *x_out);
    for (size_t i = sparse->start[row]; i < sparse->start[row + 1]; i++)
        x_out[sparse->index[i]] = sparse->value[i];
}

/* ---- made from a seed ---- */

/* What draws features, and the hidden linear model that gives labels. */
typedef struct maker {
    const sh_sparse_spec *spec;
    double *below;     // (width): the probability of the k + 1 most frequent; NULL: even
    uint32_t *number;  // (width): of the k-th most frequent feature
    float *model;      // (width)
    uint64_t *seen;    // (width): the row that last used it, from 1
} maker;

/* Prepares cumulative probabilities, the numbering of features and the hidden model. They come
 * from the seed alone, so all streams share them. */
static sh_status maker_init(maker *m, const sh_sparse_spec *spec) {
    *m = (maker){.spec = spec,
                 .below = spec->zipf > 0 ? sh_alloc(spec->width, sizeof *m->below) : NULL,
                 .number = sh_alloc(spec->width, sizeof *m->number),
                 .model = sh_alloc(spec->width, sizeof *m->model),
                 .seen = sh_alloc(spec->width, sizeof *m->seen)};
    bool lacks = spec->zipf > 0 && m->below == NULL;
    if (lacks || m->number == NULL || m->model == NULL || m->seen == NULL)
        return SH_FAIL(SH_E_MEMORY, "out of memory for %zu features", spec->width);
    sh_rng rng = sh_rng_stream(spec->seed, SH_RNG_SYNTHETIC, 0, 0);
    sh_rng_shuffle(&rng, m->number, spec->width);
    for (size_t k = 0; k < spec->width; k++) m->model[k] = sh_rng_normal(&rng);
    double sum = 0;
    for (size_t k = 0; m->below != NULL && k < spec->width; k++) {
        sum += pow((double)(k + 1), -spec->zipf);
        m->below[k] = sum;
    }
    for (size_t k = 0; m->below != NULL && k < spec->width; k++) m->below[k] /= sum;
    return SH_OK;
}

/* Frees the maker's tables, also after a maker_init that failed half way. */
static void maker_fini(maker *m) {
    sh_free(m->below);
    sh_free(m->number);
    sh_free(m->model);
    sh_free(m->seen);
}

/* Draws a feature by inverse transform: a binary search in the cumulative probabilities, O(log
 * width). */
static uint32_t draw_feature(const maker *m, sh_rng *rng) {
    size_t low = 0, high = m->spec->width - 1;
    if (m->below == NULL) return m->number[sh_rng_below(rng, m->spec->width)];
    double at = (double)(sh_rng_u64(rng) >> 11) * 0x1p-53;
    while (low < high) {  // the first whose sum lies above
        size_t middle = (low + high) / 2;
        if (m->below[middle] > at)
            high = middle;
        else
            low = middle + 1;
    }
    return m->number[low];
}

/* Sorts indices ascending, as files have them, so that kernels walk through memory in one
 * direction. Insertion sort: rows have some dozens of entries. */
static void sort(uint32_t *index, size_t count) {
    for (size_t i = 1; i < count; i++) {
        uint32_t moved = index[i];
        size_t k = i;
        for (; k > 0 && index[k - 1] > moved; k--) index[k] = index[k - 1];
        index[k] = moved;
    }
}

/* Makes a row of unit length and returns its label. It depends on (seed, stream, row) alone, so
 * any worker can make any row. */
static int32_t make_row(maker *m, size_t row, uint32_t *index, float *value) {
    size_t nonzeros = m->spec->nonzeros;
    sh_rng rng = sh_rng_stream(m->spec->seed, SH_RNG_SYNTHETIC, 1 + m->spec->stream, row);
    for (size_t i = 0; i < nonzeros;) {
        uint32_t feature = draw_feature(m, &rng);
        if (m->seen[feature] == row + 1) continue;
        m->seen[feature] = row + 1;
        index[i++] = feature;
    }
    sort(index, nonzeros);
    double squares = 0, margin = 0;
    for (size_t i = 0; i < nonzeros; i++) {
        value[i] = 0.1f + fabsf(sh_rng_normal(&rng));  // never 0: a stored zero is no entry
        squares += (double)value[i] * (double)value[i];
        margin += (double)value[i] * (double)m->model[index[i]];
    }
    for (size_t i = 0; i < nonzeros; i++) value[i] *= (float)(1 / sqrt(squares));
    bool turned = sh_rng_below(&rng, 20) == 0;  // label noise: one in twenty
    return (margin > 0) != turned;
}

/* Peak memory: tables per feature plus the rows. */
uint64_t sh_sparse_make_bytes(const sh_sparse_spec *spec) {
    const maker *m = NULL;
    const sh_sparse *s = NULL;
    uint64_t feature = sizeof *m->below + sizeof *m->number + sizeof *m->model + sizeof *m->seen;
    uint64_t row = sizeof *s->start + spec->nonzeros * (sizeof *s->index + sizeof *s->value);
    return spec->width * feature + spec->rows * row;
}

sh_status sh_sparse_make(const sh_sparse_spec *spec, sh_sparse *sparse_out, int32_t *labels_out) {
    // Redrawing what a row has already would take long where it has almost everything.
    if (spec->nonzeros == 0 || spec->nonzeros > spec->width / 4) {
        SH_FAIL(SH_E_USAGE, "%zu non-zeros in %zu features are not sparse", spec->nonzeros,
                spec->width);
        return sh_error_hint("take at most a quarter, as in features=47236,nonzeros=73");
    }
    maker m;
    sh_sparse sparse = {0};
    sh_status status = maker_init(&m, spec);
    if (status == SH_OK)
        status = sh_sparse_init(&sparse, spec->rows, spec->width, spec->rows * spec->nonzeros);
    for (size_t row = 0; status == SH_OK && row < spec->rows; row++) {
        size_t at = row * spec->nonzeros;
        labels_out[row] = make_row(&m, row, sparse.index + at, sparse.value + at);
        sparse.start[row + 1] = at + spec->nonzeros;
    }
    maker_fini(&m);
    if (status != SH_OK) return status;
    *sparse_out = sparse;
    return SH_OK;
}
