/* The rows of a data set that one worker learns from, dense or sparse, in memory.
 *
 * Rows are numbered over all workers; each has a stretch of neighbours. Where the data lies in one
 * file the stretches are made of whole tiles, so that what is computed tile by tile has the same
 * bits however many workers share the tiles. */
#ifndef SH_LEARN_ROWS_H
#define SH_LEARN_ROWS_H

#include "data/dataset.h"
#include "data/sparse.h"
#include "learn/team.h"
#include "tensor/kernels/distance.h"

enum { SH_TILE_ROWS = 256 };

typedef struct sh_rows {
    size_t count, width;
    size_t first, total;  // row i is row first + i of `total`
    float *x;             // (count, width); NULL: sparse
    sh_sparse sparse;     // with x NULL
    double *target;       // (count) classes from 0, or values; NULL: none
    double *weight;       // (count); NULL: all 1
    double *square;   // (count): what sh_rows_square tells, once sh_rows_keep_squares was called
    int64_t classes;  // 0: targets are values
    double greatest;  // |x| of all cells of all workers
} sh_rows;

/* This worker's share of a data set, copied. Collective. */
sh_status sh_rows_open(const sh_dataset *dataset, sh_learn_team *team, sh_rows *rows_out);
/* All of a data set, as for one worker. */
sh_status sh_rows_open_all(const sh_dataset *dataset, sh_rows *rows_out);
void sh_rows_fini(sh_rows *rows);

/* Rows of a tile. */
static inline size_t sh_rows_tiles(const sh_rows *rows) {
    return (rows->count + SH_TILE_ROWS - 1) / SH_TILE_ROWS;
}
/* Row `index` dense: where it lies, or written to `buffer` (width). */
const float *sh_rows_at(const sh_rows *rows, size_t index, float *buffer);
/* Sum of row `index` times w, in one order whatever surrounds the row. */
double sh_rows_dot(const sh_rows *rows, size_t index, const double *w);
/* y += factor times row `index`. */
void sh_rows_axpy(const sh_rows *rows, size_t index, double factor, double *y);
/* The sum of a row's squares. */
double sh_rows_square(const sh_rows *rows, size_t index);
/* Remembers them; again after the rows have changed. */
sh_status sh_rows_keep_squares(sh_rows *rows);
double sh_rows_square_most(const sh_rows *rows);

#endif
