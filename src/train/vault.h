/* The vault: where the services of a scheme hold the model, their snapshots lie in memory that
 * outlives them and their workers. When one dies, the others find its part of the model there. */
#ifndef SH_TRAIN_VAULT_H
#define SH_TRAIN_VAULT_H

#include "train/run.h"

/* Collective: the vault of this generation, for services like this one. Nothing to do where the
 * replicas hold the model, or where the team cannot regroup. */
sh_status sh_vault_open(shoal_run *run, const sh_service *like);
/* Where service `index` keeps its snapshot; NULL: there is no vault. */
void *sh_vault_snapshot(const sh_vault *vault, int index);
/* What the services of the last generation left becomes the model and the optimizer's state; `tell`
 * hears of each. */
sh_status sh_vault_restore(shoal_run *run,
                           void (*tell)(shoal_run *run, int service, const sh_remains *remains));

#endif
