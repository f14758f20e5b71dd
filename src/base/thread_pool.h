/* A pool: tasks that share out numbered pieces of work among themselves and their caller. Which
 * member takes which piece is left to chance, so a piece's result must depend on its number alone.
 *
 * Nothing is allocated after creation. */
#ifndef SH_BASE_THREAD_POOL_H
#define SH_BASE_THREAD_POOL_H

#include <stddef.h>

#include "base/status.h"

typedef struct sh_thread_pool sh_thread_pool;
typedef void (*sh_thread_pool_work)(void *user, int member, size_t piece);

/* `members` counts the caller, who is member 0. `enter` (may be NULL) is called once by each of the
 * other members, before its first piece. */
sh_status sh_thread_pool_create(const char *name, int members, void (*enter)(void),
                                sh_thread_pool **pool_out);
/* Waits for the tasks to end. */
void sh_thread_pool_destroy(sh_thread_pool *pool);
int sh_thread_pool_size(const sh_thread_pool *pool);
/* Calls `work` once for each piece in [0, pieces), then returns; everything the members wrote is
 * visible to the caller. Always by the same task. */
void sh_thread_pool_run(sh_thread_pool *pool, sh_thread_pool_work work, void *user, size_t pieces);

#endif
