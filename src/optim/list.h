/* The optimizers: one file and one row each. */
#ifndef SH_OPTIM_LIST_H
#define SH_OPTIM_LIST_H

#include "optim/optim.h"

#define SH_OPTIM_LIST(X) \
    X(sgd)               \
    X(momentum)          \
    X(nesterov)          \
    X(adam)              \
    X(adamw)             \
    X(adagrad)           \
    X(rmsprop)           \
    X(lars)              \
    X(lamb)

#define X(name) extern const sh_optim_kind sh_optim_##name;
SH_OPTIM_LIST(X)
#undef X

#endif
