/* A crew: tasks that share out numbered pieces of work among themselves and their caller. Which
 * member takes which piece is left to chance, so a piece's result must depend on its number alone.
 *
 * Nothing is allocated after creation. */
#ifndef SH_BASE_CREW_H
#define SH_BASE_CREW_H

#include <stddef.h>

#include "base/status.h"

typedef struct sh_crew sh_crew;
typedef void (*sh_crew_work)(void *user, int member, size_t piece);

/* `members` counts the caller, who is member 0. `enter` (may be NULL) is called once by each of the
 * other members, before its first piece. */
sh_status sh_crew_create(const char *name, int members, void (*enter)(void), sh_crew **crew_out);
/* Waits for the tasks to end. */
void sh_crew_destroy(sh_crew *crew);
int sh_crew_members(const sh_crew *crew);
/* Calls `work` once for each piece in [0, pieces), then returns; everything the members wrote is
 * visible to the caller. Always by the same task. */
void sh_crew_run(sh_crew *crew, sh_crew_work work, void *user, size_t pieces);

#endif
