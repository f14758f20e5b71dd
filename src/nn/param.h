/* The parameter store: every parameter is a named range of one plain block (row-major, unpadded, in
 * the order of the layers), and its gradient is the same range of a second block. State that is not
 * trained (running statistics of batchnorm) has a block of its own, described the same way. */
#ifndef SH_NN_PARAM_H
#define SH_NN_PARAM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/index.h"
#include "base/status.h"
#include "tensor/shape.h"

enum { SH_PARAM_NAME = 96 };

/* What of a whole tensor a worker of a split net holds: of dimension `dim`, which is `groups` equal
 * stretches side by side (q, k and v), elements [begin, end) of every stretch. */
typedef struct sh_slice {
    sh_shape whole;  // rank 0: not split
    int dim;
    int64_t groups, begin, end;
} sh_slice;

static inline bool sh_slice_is_split(const sh_slice *part) { return part->whole.rank > 0; }
/* The shape of the part; `whole` itself where it is not split. */
sh_shape sh_slice_shape(const sh_slice *part, const sh_shape *whole);
/* In row-major order a part is runs of neighbouring elements of the whole, all of one length. */
size_t sh_slice_runs(const sh_slice *part);
size_t sh_slice_run_count(const sh_slice *part);
/* Where run `index` begins in the whole; in the part it begins at index * sh_slice_run_count. */
size_t sh_slice_run_begin(const sh_slice *part, size_t index);

typedef struct sh_param {
    char name[SH_PARAM_NAME];  // like PyTorch's: "conv1.weight"
    sh_shape shape;
    size_t offset, count;  // elements in the block
    bool decays;           // weight decay and trust ratios apply: matrices, not biases and norms
    sh_slice slice;        // of a parameter that is split over workers
} sh_param;

typedef struct sh_param_list {
    sh_param *items;
    size_t count, capacity;
    size_t total;      // elements of the whole block
    sh_index by_name;  // of what sh_param_list_add has added
} sh_param_list;

/* Appends a range at the end of the block; its index goes to `index_out`. */
sh_status sh_param_list_add(sh_param_list *list, const char *name, sh_shape shape, bool decays,
                            size_t *index_out);
/* Of the ranges that were added here; NULL when there is none. */
const sh_param *sh_param_list_find(const sh_param_list *list, const char *name);
void sh_param_list_fini(sh_param_list *list);

#endif
