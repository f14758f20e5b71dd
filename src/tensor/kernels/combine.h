/* What joins the values of several ranks into one: sum, maximum, minimum, product. One thread each:
 * the ranks are the threads. Integers wrap around. A NaN on any side gives NaN.
 *
 * The mean is a sum that its owner divides once, so that all ranks end with equal bits; for the
 * kernels SH_MEAN is SH_SUM. */
#ifndef SH_TENSOR_KERNELS_COMBINE_H
#define SH_TENSOR_KERNELS_COMBINE_H

#include <stdint.h>

#include "tensor/dtype.h"
#include "tensor/kernels/simd.h"

/* z = a op b; z may be a or b, otherwise nothing overlaps. */
typedef void (*sh_join)(void *z, const void *a, const void *b, size_t count);
/* a = b = a op b: what two ranks need, in one pass. */
typedef void (*sh_join_both)(void *a, void *b, size_t count);

typedef struct sh_combine_kernels {
    sh_join join[SH_REDUCE_OPS][SH_DTYPES];  // NULL for bytes
    sh_join_both both[SH_REDUCE_OPS][SH_DTYPES];
    /* x /= divisor; integers towards zero. NULL for bytes. */
    void (*divide[SH_DTYPES])(void *x, int divisor, size_t count);
    /* Vector loads and stores: on lines that are dirty in another core's cache far faster than the
     * string instructions behind memcpy. */
    void (*copy)(void *to, const void *from, size_t bytes);
} sh_combine_kernels;

SH_SIMD_DECLARE(sh_combine_kernels, sh_combine_table);
static inline const sh_combine_kernels *sh_combine(void) { return SH_SIMD_PICK(sh_combine_table); }

#endif
