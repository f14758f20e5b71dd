/* The schemes: one file and one row each. */
#ifndef SH_SYNC_LIST_H
#define SH_SYNC_LIST_H

#include "sync/sync.h"

#define SH_SYNC_LIST(X) \
    X(bsp)              \
    X(alone)            \
    X(ssp)              \
    X(async)            \
    X(ps)               \
    X(softsync)         \
    X(ksync)            \
    X(backup)           \
    X(easgd)            \
    X(local)            \
    X(post_local)       \
    X(adacomm)          \
    X(diloco)           \
    X(gossip)           \
    X(adpsgd)           \
    X(gossip_pull)      \
    X(gossip_push)      \
    X(sgp)              \
    X(hogwild)          \
    X(hogwild_locked)

#define X(name) extern const sh_sync_kind sh_sync_##name;
SH_SYNC_LIST(X)
#undef X

#endif
