#include "sim/pool.h"

#include "base/memory.h"

/* Objects per slab take about SLAB_BYTES; the head holds the link to the next slab and keeps
 * the first object aligned. */
enum { SLAB_BYTES = 32 << 10, HEAD_BYTES = SH_ALIGN };

/* The first word of a slab, and of a free object, is the next one. */
static void **link_of(void *object) { return object; }

/* Without memory the free list stays empty, and sh_pool_take says so. Objects are given last to
 * first, so that they are taken in ascending addresses. */
static void add_slab(sh_pool *pool) {
    size_t each = sh_round_up(pool->bytes, sizeof(void *));
    size_t count = SLAB_BYTES / each > 0 ? SLAB_BYTES / each : 1;
    char *slab = sh_alloc(1, HEAD_BYTES + count * each);
    if (slab == NULL) return;
    *link_of(slab) = pool->slabs;
    pool->slabs = slab;
    for (size_t i = count; i > 0; i--) sh_pool_give(pool, slab + HEAD_BYTES + (i - 1) * each);
}

void *sh_pool_take(sh_pool *pool) {
    if (pool->free == NULL) add_slab(pool);
    void *object = pool->free;
    if (object != NULL) pool->free = *link_of(object);
    return object;
}

/* Last in, first out: the object taken next is the one most likely still in the cache. */
void sh_pool_give(sh_pool *pool, void *object) {
    *link_of(object) = pool->free;
    pool->free = object;
}

void sh_pool_fini(sh_pool *pool) {
    for (void *slab = pool->slabs, *next; slab != NULL; slab = next) {
        next = *link_of(slab);
        sh_free(slab);
    }
    pool->free = pool->slabs = NULL;
}
