/* Between the files of `shoal explain` of a run. */
#ifndef SH_API_EXPLAIN_H
#define SH_API_EXPLAIN_H

#include "run/run.h"

/* Memory that sharding saves and exactness costs, and which all-reduces the workers take. The
 * optimizer is made. */
void sh_explain_team(const shoal_run *run, FILE *file);

#endif
