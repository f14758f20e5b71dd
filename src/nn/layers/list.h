/* One row per layer. X(name) declares sh_layer_kind_name, defined at the end of its file. */
#ifndef SH_NN_LAYERS_LIST_H
#define SH_NN_LAYERS_LIST_H

/* The order is that of the registry (sh_layer_at). attention_core, centres, kernel, votes and route
 * are parts of attention and of the learned models; they can be named in a run file like all
 * others. */
#define SH_LAYER_LIST(X) \
    X(dense)             \
    X(centres)           \
    X(kernel)            \
    X(votes)             \
    X(route)             \
    X(conv)              \
    X(maxpool)           \
    X(avgpool)           \
    X(globalpool)        \
    X(batchnorm)         \
    X(layernorm)         \
    X(dropout)           \
    X(droppath)          \
    X(embedding)         \
    X(positions)         \
    X(attention)         \
    X(attention_core)    \
    X(add)               \
    X(concat)            \
    X(flatten)           \
    X(relu)              \
    X(gelu)              \
    X(silu)              \
    X(tanh)              \
    X(sigmoid)           \
    X(softmax)

#endif
