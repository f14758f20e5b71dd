/* Bulk-synchronous: gradients of all workers are summed in every step, while backward still runs
 * (Valiant 1990; the DDP algorithm of Li et al., VLDB 2020). The reducer does the work, driven by
 * backward itself (sync/reducer.h), so there is no step of its own. */
#include "sync/list.h"

static const sh_sync_family bsp_family = {.step = NULL};

const sh_sync_kind sh_sync_bsp = {
    .name = "bsp",
    .help = "bulk-synchronous: every step is that of one worker with the whole batch",
    .family = &bsp_family,
};
