/* Steps on sparse data: where the samples are sparse, the net is one dense layer and the optimizer
 * is plain SGD, a step reads and writes only the weights whose features occur
 * (sync/hogwild_sparse.h). Alone, and in Hogwild; other schemes sum or send whole gradients. */
#ifndef SH_RUN_SPARSE_H
#define SH_RUN_SPARSE_H

#include "run/run.h"

/* Makes run->sparse where that fits, before the loader and when the optimizer is known. */
sh_status sh_run_begin_sparse(shoal_run *run);
void sh_run_end_sparse(shoal_run *run);
/* The loader goes, and the batch that it gave. */
void sh_run_drop_sparse(shoal_run *run);
const sh_sparse_layer *sh_run_sparse_layer(const shoal_run *run);  // NULL: steps are dense
/* The next batch of a worker among others: sh_replica_ops.next_sparse. */
sh_status sh_run_next_sparse(shoal_run *run, sh_sparse_batch *batch_out);

#endif
