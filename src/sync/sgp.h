/* SGP's push-sum weight, for whoever wants to see that mass is conserved. */
#ifndef SH_SYNC_SGP_H
#define SH_SYNC_SGP_H

#include "sync/sync.h"

/* The weight that this worker holds, and with it what it sent that nobody has received yet. Over
 * all workers, between steps, the latter sums up to their number. */
double sh_sgp_weight(const sh_sync *sync);
double sh_sgp_mass(const sh_sync *sync);

#endif
