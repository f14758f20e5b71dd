/* Sparse samples: of each row only what is not zero, by rows (CSR). Text and click data have some
 * dozens of features out of tens of thousands; dense rows of them would not fit into memory, and a
 * step would multiply zeros. */
#ifndef SH_DATA_SPARSE_H
#define SH_DATA_SPARSE_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

typedef struct sh_sparse {
    size_t rows, width;
    size_t *start;    // (rows + 1): row r is [start[r], start[r + 1]) of the two below
    uint32_t *index;  // below width, each at most once in a row
    float *value;
} sh_sparse;

/* Memory for so many rows and values, zeroed. */
sh_status sh_sparse_init(sh_sparse *sparse, size_t rows, size_t width, size_t values);
void sh_sparse_fini(sh_sparse *sparse);
/* Writes a row dense, (width). */
void sh_sparse_expand(const sh_sparse *sparse, size_t row, float *x_out);

/* Rows like those of text: `nonzeros` different features in each, drawn evenly (zipf 0) or with a
 * probability that falls as 1 / k^zipf for the k-th most frequent; which feature is the k-th is a
 * matter of chance, as it is in real numberings. Values are positive, every row has length one. The
 * label is the sign of a hidden linear model, one in twenty turned around; the same seed gives the
 * same model for every stream. */
typedef struct sh_sparse_spec {
    size_t rows, width, nonzeros;
    double zipf;
    uint64_t seed;
    uint32_t stream;  // training, testing
} sh_sparse_spec;

enum { SH_SPARSE_WIDTH_MOST = 1 << 28 };

/* The bytes that sh_sparse_make takes at its peak, without the labels. */
uint64_t sh_sparse_make_bytes(const sh_sparse_spec *spec);
/* `labels_out` gets `rows` zeros and ones. */
sh_status sh_sparse_make(const sh_sparse_spec *spec, sh_sparse *sparse_out, int32_t *labels_out);

#endif
