/* Between the files of `shoal explain` of a run. */
#ifndef SH_TRAIN_EXPLAIN_H
#define SH_TRAIN_EXPLAIN_H

#include "train/run.h"

/* Memory that sharding saves and exactness costs, and which all-reduces the workers take. The
 * optimizer is made. */
void sh_explain_team(const shoal_run *run, FILE *file);

#endif
