/* What the scheme of a run keeps from meeting to meeting (sh_sync_state): blocks of the run, which
 * go into checkpoints and come from them. A run of one worker has them too, unused, so that a
 * checkpoint does not depend on the number of workers. */
#ifndef SH_RUN_SCHEME_STATE_H
#define SH_RUN_SCHEME_STATE_H

#include "ckpt/checkpoint.h"
#include "sync/sync.h"

struct shoal_run;

typedef struct sh_scheme_state {
    sh_checkpoint_slot slots[SH_SYNC_STATES];
    size_t count;
    sh_param_list lists[SH_SYNC_STATES];  // of what is not laid out like the parameters
} sh_scheme_state;

/* Zeroed blocks for the scheme in the options, before a checkpoint is read. */
sh_status sh_scheme_state_init(struct shoal_run *run);
void sh_scheme_state_fini(sh_scheme_state *states);

#endif
