/* What the schemes of the local family share: steps alone, and now and then a round in which the
 * models become one. */
#ifndef SH_SYNC_LOCAL_H
#define SH_SYNC_LOCAL_H

#include "sync/delta.h"

/* One step of this worker alone, with its own samples and optimizer. */
sh_status sh_local_step(sh_sync *sync, sh_loss_result *result_out);
/* The policy for the optimizer's state: averaged unless the options say otherwise, or a codec saves
 * bytes, which whole states would cost again. */
sh_momentum sh_local_momentum(const sh_sync *sync);
/* Collective, at a meeting: a round, unless the last step ended with one. Also where each worker
 * keeps its optimizer's state the states are averaged here, since one checkpoint speaks for all,
 * and so are the residuals of a codec; a resumed run goes on like one that was not interrupted. */
sh_status sh_local_meet(sh_sync *sync, int64_t *since, sh_momentum policy, sh_delta *delta,
                        sh_status (*round)(sh_sync *sync));

#endif
