/* Objects of one size that come and go millions of times: slabs and a free list. */
#ifndef SH_SIM_POOL_H
#define SH_SIM_POOL_H

#include <stddef.h>

typedef struct sh_pool {
    size_t bytes;  // of an object, at least a pointer
    void *free, *slabs;
} sh_pool;

/* Not zeroed; NULL when there is no memory. */
void *sh_pool_take(sh_pool *pool);
void sh_pool_give(sh_pool *pool, void *object);
void sh_pool_fini(sh_pool *pool);  // whatever is still taken goes with it

#endif
