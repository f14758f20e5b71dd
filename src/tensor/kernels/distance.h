/* Distances and products of two rows of floats in doubles, in one order whatever the caller:
 * running sums side by side, which are added up in a fixed order. */
#ifndef SH_TENSOR_KERNELS_DISTANCE_H
#define SH_TENSOR_KERNELS_DISTANCE_H

#include <stddef.h>

/* The sum of (a - b)^2. */
double sh_distance(const float *a, const float *b, size_t width);
/* The sum of a b. */
double sh_dot(const float *a, const float *b, size_t width);

#endif
