/* One row per loss. X(name) declares sh_loss_kind_name, defined at the end of its file. */
#define SH_LOSS_LIST(X) \
    X(cross_entropy)    \
    X(mse)              \
    X(bce)              \
    X(hinge)            \
    X(huber)
