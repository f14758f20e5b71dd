/* The rows of one worker, copied from a data set, dense or sparse, and the operations on a row
 * whose order of additions is fixed. */
#include "learn/rows.h"

#include <math.h>
#include <string.h>

#include "base/memory.h"
#include "data/view.h"

static sh_status no_memory(size_t count) {
    return SH_FAIL(SH_E_MEMORY, "out of memory for %zu rows", count);
}

/* The view may skip or permute rows of its source, so rows are copied one by one. */
static sh_status copy_sparse(const sh_dataset *dataset, size_t from, sh_rows *rows) {
    const sh_sparse *source = &sh_view_source(dataset)->sparse;
    size_t values = 0, at = 0;
    for (size_t i = 0; i < rows->count; i++) {
        size_t row = sh_view_at(dataset, from + i);
        values += source->start[row + 1] - source->start[row];
    }
    // An empty matrix still has room for one.
    SH_TRY(sh_sparse_init(&rows->sparse, rows->count > 0 ? rows->count : 1, rows->width,
                          values > 0 ? values : 1));
    for (size_t i = 0; i < rows->count; i++) {
        size_t row = sh_view_at(dataset, from + i), start = source->start[row];
        size_t stored = source->start[row + 1] - start;
        memcpy(rows->sparse.index + at, source->index + start, stored * sizeof *source->index);
        memcpy(rows->sparse.value + at, source->value + start, stored * sizeof *source->value);
        rows->sparse.start[i] = at;
        at += stored;
        rows->sparse.start[i + 1] = at;
    }
    return SH_OK;
}

static sh_status copy_dense(const sh_dataset *dataset, size_t from, sh_rows *rows) {
    rows->x = sh_alloc(rows->count > 0 ? rows->count * rows->width : 1, sizeof *rows->x);
    if (rows->x == NULL) return no_memory(rows->count);
    for (size_t i = 0; i < rows->count; i++)  // NULL target: values alone are read
        dataset->get(dataset, from + i, rows->x + i * rows->width, NULL);
    return SH_OK;
}

/* Labels and values become doubles alike: learners compute with them. */
static sh_status copy_targets(const sh_dataset *dataset, size_t from, sh_rows *rows) {
    const sh_data_info *info = &dataset->info;
    if (info->target == SH_TARGET_NONE) return SH_OK;
    if (info->target == SH_TARGET_VALUES && info->values != 1)
        return SH_FAIL(SH_E_UNSUPPORTED, "a target of %ld values: this model learns one",
                       (long)info->values);
    rows->classes = info->target == SH_TARGET_CLASS ? info->classes : 0;
    rows->target = sh_alloc(rows->count > 0 ? rows->count : 1, sizeof *rows->target);
    if (rows->target == NULL) return no_memory(rows->count);
    for (size_t i = 0; i < rows->count; i++) {
        // The data set writes whichever its kind of target is.
        union {
            int32_t label;
            float value;
        } y;
        dataset->get(dataset, from + i, NULL, &y);
        rows->target[i] = rows->classes > 0 ? (double)y.label : (double)y.value;
    }
    return SH_OK;
}

/* Bounds of exact sums follow from it. NaN counts as infinite, and is refused by all workers. */
static double greatest_here(const sh_rows *rows) {
    const float *values = rows->x != NULL ? rows->x : rows->sparse.value;
    size_t count = rows->x != NULL ? rows->count * rows->width : rows->sparse.start[rows->count];
    double most = 0;
    for (size_t i = 0; i < count; i++) {
        double size = fabs((double)values[i]);
        // Negated: NaN is not below anything.
        if (!(size <= most)) most = isfinite(size) ? size : INFINITY;
    }
    return most;
}

/* A sparse view with a normalisation is dense in all but its memory. */
static bool stays_sparse(const sh_dataset *dataset) {
    return sh_view_source(dataset)->sparse.rows > 0;
}

static sh_status copy_rows(const sh_dataset *dataset, size_t from, sh_rows *rows) {
    if (dataset->info.tokens)
        return SH_FAIL(SH_E_UNSUPPORTED, "samples of tokens: this model learns from numbers");
    rows->width = (size_t)sh_shape_count(&dataset->info.sample);
    SH_TRY(stays_sparse(dataset) ? copy_sparse(dataset, from, rows)
                                 : copy_dense(dataset, from, rows));
    SH_TRY(copy_targets(dataset, from, rows));
    rows->greatest = greatest_here(rows);
    return SH_OK;
}

/* Every worker fails alike: the maximum over workers is infinite. */
static sh_status not_finite(void) {
    SH_FAIL(SH_E_NUMERIC, "the data holds values that are not finite");
    return sh_error_hint("shoal data check FILE names the first");
}

/* Data in parts by file: each worker takes its own. Else whole tiles in rank order, so that tiles
 * do not depend on the number of workers. */
sh_status sh_rows_open(const sh_dataset *dataset, sh_learn_team *team, sh_rows *rows_out) {
    sh_rows rows = {.count = dataset->info.count, .total = dataset->info.count};
    const sh_parts *parts = &dataset->parts;
    size_t from = 0;
    if (parts->ranks > 0) {
        rows.total = 0;
        for (int rank = 0; rank < parts->ranks; rank++) {
            // Global number of this worker's first row.
            if (rank == parts->rank) rows.first = rows.total;
            rows.total += parts->sizes[rank];
        }
    } else {
        size_t tiles = (rows.total + SH_TILE_ROWS - 1) / SH_TILE_ROWS, rank = (size_t)team->rank;
        size_t begin = tiles * rank / (size_t)team->ranks * SH_TILE_ROWS;
        // Whole tiles, shares that differ by one at most.
        size_t end = tiles * (rank + 1) / (size_t)team->ranks * SH_TILE_ROWS;
        if (end > rows.total) end = rows.total;
        from = rows.first = begin;  // without parts, all see the same data set
        rows.count = end - begin;
    }
    sh_status status = sh_learn_agree(team, copy_rows(dataset, from, &rows));
    if (status == SH_OK) status = sh_learn_max(team, &rows.greatest, 1);
    if (status == SH_OK && isinf(rows.greatest)) status = not_finite();
    if (status != SH_OK) {
        sh_rows_fini(&rows);
        return status;
    }
    *rows_out = rows;
    return SH_OK;
}

/* All rows on this worker, without a message: not collective. */
sh_status sh_rows_open_all(const sh_dataset *dataset, sh_rows *rows_out) {
    sh_rows rows = {.count = dataset->info.count, .total = dataset->info.count};
    sh_status status = copy_rows(dataset, 0, &rows);
    if (status == SH_OK && isinf(rows.greatest)) status = not_finite();
    if (status != SH_OK) {
        sh_rows_fini(&rows);
        return status;
    }
    *rows_out = rows;
    return SH_OK;
}

void sh_rows_fini(sh_rows *rows) {
    sh_free(rows->x);
    sh_free(rows->target);
    sh_free(rows->weight);
    sh_free(rows->square);
    sh_sparse_fini(&rows->sparse);
    *rows = (sh_rows){0};
}

/* Row `index` (width): in place where dense, else expanded into `buffer`. */
const float *sh_rows_at(const sh_rows *rows, size_t index, float *buffer) {
    if (rows->x != NULL) return rows->x + index * rows->width;
    sh_sparse_expand(&rows->sparse, index, buffer);
    return buffer;
}

enum { LANES = 8 };  // running sums side by side, added up in a fixed order

/* Pairwise, in the order that vector registers fold. */
static double add_lanes(const double lane[LANES]) {
    return ((lane[0] + lane[4]) + (lane[1] + lane[5])) +
           ((lane[2] + lane[6]) + (lane[3] + lane[7]));
}

/* Dense rows have eight running sums: the compiler makes vectors of them, and the order stays the
 * same. */
double sh_rows_dot(const sh_rows *rows, size_t index, const double *w) {
    double lane[LANES] = {0};
    if (rows->x == NULL) {
        double sum = 0;
        for (size_t i = rows->sparse.start[index]; i < rows->sparse.start[index + 1]; i++)
            sum += (double)rows->sparse.value[i] * w[rows->sparse.index[i]];
        return sum;
    }
    const float *x = rows->x + index * rows->width;
    size_t i = 0;
    for (; i + LANES <= rows->width; i += LANES)
        for (int j = 0; j < LANES; j++) lane[j] += (double)x[i + (size_t)j] * w[i + (size_t)j];
    // The rest of a row, after whole vectors.
    for (; i < rows->width; i++) lane[0] += (double)x[i] * w[i];
    return add_lanes(lane);
}

/* Adds factor x to y, x being one row; a sparse row touches its stored entries alone. */
void sh_rows_axpy(const sh_rows *rows, size_t index, double factor, double *y) {
    if (rows->x == NULL) {
        for (size_t i = rows->sparse.start[index]; i < rows->sparse.start[index + 1]; i++)
            y[rows->sparse.index[i]] += factor * (double)rows->sparse.value[i];
        return;
    }
    const float *x = rows->x + index * rows->width;
    for (size_t i = 0; i < rows->width; i++) y[i] += factor * (double)x[i];
}

/* Squares of all rows, kept until the rows are finished: 8 bytes each against O(width) each
 * time. */
sh_status sh_rows_keep_squares(sh_rows *rows) {
    double *square = sh_alloc(rows->count + 1, sizeof *square);
    if (square == NULL) return no_memory(rows->count);
    sh_free(rows->square);
    rows->square = NULL;  // else sh_rows_square would return the old ones
    for (size_t i = 0; i < rows->count; i++) square[i] = sh_rows_square(rows, i);
    rows->square = square;
    return SH_OK;
}

/* Zeros of a sparse row add nothing, but lanes differ: dense and sparse bits may differ, each is
 * fixed. */
double sh_rows_square(const sh_rows *rows, size_t index) {
    if (rows->square != NULL) return rows->square[index];
    double lane[LANES] = {0};
    bool dense = rows->x != NULL;
    const float *x =
        dense ? rows->x + index * rows->width : rows->sparse.value + rows->sparse.start[index];
    size_t i = 0,
           count = dense ? rows->width : rows->sparse.start[index + 1] - rows->sparse.start[index];
    for (; i + LANES <= count; i += LANES)
        for (int j = 0; j < LANES; j++) {
            double value = (double)x[i + (size_t)j];
            lane[j] += value * value;
        }
    for (; i < count; i++) lane[0] += (double)x[i] * (double)x[i];
    return add_lanes(lane);
}

/* The greatest |x|^2 of this worker's rows: Cauchy-Schwarz bounds of products follow from it. */
double sh_rows_square_most(const sh_rows *rows) {
    double most = 0;
    for (size_t i = 0; i < rows->count; i++) {
        double square = sh_rows_square(rows, i);
        if (square > most) most = square;
    }
    return most;
}
