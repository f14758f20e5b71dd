/* One row per loss. X(name) declares sh_loss_kind_name, defined at the end of its file. */
#ifndef SH_NN_LOSSES_LIST_H
#define SH_NN_LOSSES_LIST_H

/* `auto` chooses cross_entropy for classes and mse for values (loss.c). */
#define SH_LOSS_LIST(X) \
    X(cross_entropy)    \
    X(mse)              \
    X(bce)              \
    X(hinge)            \
    X(huber)            \
    X(nearest)

#endif
