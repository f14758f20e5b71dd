/* How busy the machine is. OpenMP's threads wait for each other many times per step; where others
 * want the cores too, each wait lasts until the system lets the slowest thread run. */
#ifndef SH_RUN_LOAD_H
#define SH_RUN_LOAD_H

#include <stdbool.h>

#include "base/log.h"

enum { SH_LOAD_TEXT = 160 };

/* Advice for a run of `threads` threads on a machine of `cores` cores and this load average. False:
 * there is none to give, as one thread waits for nobody and a load up to the cores slows no team.
 */
bool sh_load_advice(double load, long cores, int threads, char text_out[SH_LOAD_TEXT]);

/* The same for this machine's load of the last minute, as a line of the log. */
void sh_load_tell(const sh_log *log, int threads);

#endif
