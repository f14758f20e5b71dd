/* Who owns which rows of an image, and which rows of its neighbours a worker needs: tables, without
 * any communication.
 *
 * A window of kernel k, dilation d, stride s and padding q maps output rows [lo, hi) to input rows
 * [lo s - q, (hi - 1) s - q + d (k - 1) + 1), cut to the image. What of these a worker does not own
 * is its halo. Where rows are owned in balance, d (k - 1) + 1 - s rows cross a boundary, unevenly
 * to the two sides; floor(k / 2) to each side is right for stride 1 only. */
#ifndef SH_PARALLEL_SPACE_ROWS_H
#define SH_PARALLEL_SPACE_ROWS_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sh_window {
    int64_t kernel, stride, dilation, padding;
} sh_window;

typedef struct sh_rows {
    int64_t first, last;  // [first, last)
} sh_rows;

static inline int64_t sh_rows_count(sh_rows rows) {
    return rows.last > rows.first ? rows.last - rows.first : 0;
}
sh_rows sh_rows_meet(sh_rows a, sh_rows b);  // what both have; count 0: nothing

/* The first `rows` % parts workers have a row more. */
sh_rows sh_rows_owned(int64_t rows, int parts, int rank);

/* Input rows that these output rows read, cut to an image of `in_rows`. */
sh_rows sh_window_inputs(const sh_window *window, sh_rows outputs, int64_t in_rows);
/* Output rows, of `out_rows`, that read any of these input rows. */
sh_rows sh_window_outputs(const sh_window *window, sh_rows inputs, int64_t out_rows);
/* Rows of zeros above the first input row that these outputs read. */
int64_t sh_window_above(const sh_window *window, sh_rows outputs);

/* Rows of others that a worker needs to compute its own part of the output. */
typedef struct sh_halo {
    int64_t top, bottom, own;
} sh_halo;
sh_halo sh_halo_of(const sh_window *window, int64_t in_rows, int64_t out_rows, int parts, int rank);

#endif
