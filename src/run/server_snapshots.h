/* The snapshots: where the services of a scheme hold the model, their snapshots lie in memory that
 * outlives them and their workers. When one dies, the others find its part of the model there. */
#ifndef SH_RUN_SERVER_SNAPSHOTS_H
#define SH_RUN_SERVER_SNAPSHOTS_H

#include "run/run.h"

/* Collective: the snapshots of this generation, for services like this one. Nothing to do where the
 * replicas hold the model, or where the team cannot regroup. */
sh_status sh_server_snapshots_open(shoal_run *run, const sh_service *like);
/* Where service `index` keeps its snapshot; NULL: it has none. */
void *sh_server_snapshots_at(const sh_server_snapshots *snapshots, int index);
/* What the services of the last generation left becomes the model and the optimizer's state; `tell`
 * is called for each. */
sh_status sh_server_snapshots_restore(shoal_run *run, void (*tell)(shoal_run *run, int service,
                                                                   const sh_recovered *recovered));

#endif
