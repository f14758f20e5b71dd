/* What the schemes of the local family share: steps alone, and now and then a round in which the
 * models become one. */
#ifndef SH_SYNC_LOCAL_H
#define SH_SYNC_LOCAL_H

#include "sync/sync.h"

/* One step of this worker alone, with its own samples and optimizer. */
sh_status sh_local_step(sh_sync *sync, sh_loss_result *result_out);
/* Collective, at a meeting: a round, unless the last step ended with one. Also where each worker
 * keeps its optimizer's state the states are averaged here, since one checkpoint speaks for all;
 * so a resumed run goes on like one that was not interrupted. */
sh_status sh_local_meet(sh_sync *sync, int64_t *since, sh_momentum policy,
                        sh_status (*round)(sh_sync *sync));

#endif
