/* Products of tall matrices in doubles, by OpenBLAS on one thread: who calls them shares rows out
 * among threads and workers, and the bits of a block of rows must not depend on how. */
#ifndef SH_TENSOR_KERNELS_GRAM_H
#define SH_TENSOR_KERNELS_GRAM_H

#include <stddef.h>

/* G (columns, columns) = X^T X for X (rows, columns); the upper triangle alone is written. */
void sh_gram(const double *x, size_t rows, size_t columns, double *g);
/* X := X R^-1 for the first `order` of X's columns; R (order, order) upper triangular with rows
 * `stride` numbers apart. */
void sh_gram_divide(double *x, size_t rows, size_t columns, const double *r, size_t order,
                    size_t stride);

#endif
