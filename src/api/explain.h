/* Between the files of `shoal explain` of a run: explain.c prints the page, explain_team.c its
 * part about several workers. */
#ifndef SH_API_EXPLAIN_H
#define SH_API_EXPLAIN_H

#include "run/run.h"

/* Prints what several workers cost: memory that sharding saves and exactness takes, and which
 * all-reduces sum the gradients. Prints nothing for one worker that is not exact. The run's
 * optimizer must have been made. */
void sh_explain_team(const shoal_run *run, FILE *file);

#endif
