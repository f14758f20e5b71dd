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

typedef struct sh_param {
    char name[SH_PARAM_NAME];  // like PyTorch's: "conv1.weight"
    sh_shape shape;
    size_t offset, count;  // elements in the block
    bool decays;           // weight decay and trust ratios apply: matrices, not biases and norms
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
