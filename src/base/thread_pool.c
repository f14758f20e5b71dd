/* A pool of threads for pieces of work of unequal length: members take the next piece from a
 * counter until none is left, so nobody idles while another has two to do. The caller works, too.
 * Not OpenMP, because each member runs single-threaded kernels with memory of its own (exact
 * runs). */
#include "base/thread_pool.h"

#include <stdatomic.h>

#include "base/memory.h"
#include "base/task.h"

/* One call of sh_thread_pool_run, on the caller's stack. */
typedef struct job {
    sh_thread_pool_work work;
    void *user;
    size_t pieces;
    atomic_size_t next;  // relaxed: only hands out numbers; the queues order everything else
} job;

typedef struct member {
    sh_thread_pool *pool;
    int index;
    sh_task *task;
} member;

struct sh_thread_pool {
    int count;
    void (*enter)(void);
    sh_queue *jobs, *done;
    member members[];  // [0] is the caller and has no task
};

/* Works on pieces until the counter runs out; a counter shares out pieces of unequal length
 * evenly. */
static void take_pieces(job *from, int index) {
    for (;;) {
        size_t piece = atomic_fetch_add_explicit(&from->next, 1, memory_order_relaxed);
        if (piece >= from->pieces) return;
        from->work(from->user, index, piece);
    }
}

/* `enter` sets up the thread (kernels see one thread) before the first piece. */
static sh_status member_main(void *argument) {
    const member *self = argument;
    sh_thread_pool *pool = self->pool;
    if (pool->enter != NULL) pool->enter();
    void *called;
    while (sh_queue_pop(pool->jobs, &called)) {
        take_pieces(called, self->index);
        sh_queue_push(pool->done, called);
    }
    return SH_OK;
}

/* On failure the pool is destroyed with as many members as there are. */
static sh_status start(sh_thread_pool *pool, const char *name) {
    SH_TRY(sh_queue_create((size_t)pool->count, &pool->jobs));
    SH_TRY(sh_queue_create((size_t)pool->count, &pool->done));
    for (int i = 1; i < pool->count; i++) {
        pool->members[i] = (member){.pool = pool, .index = i};
        SH_TRY(sh_task_spawn(name, member_main, &pool->members[i], &pool->members[i].task));
    }
    return SH_OK;
}

sh_status sh_thread_pool_create(const char *name, int members, void (*enter)(void),
                                sh_thread_pool **pool_out) {
    SH_ASSERT(members >= 1);
    sh_thread_pool *pool = sh_alloc(1, sizeof *pool + (size_t)members * sizeof pool->members[0]);
    if (pool == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for %d tasks", members);
    pool->count = members;
    pool->enter = enter;
    sh_status status = start(pool, name);
    if (status != SH_OK)
        sh_thread_pool_destroy(pool);
    else
        *pool_out = pool;
    return status;
}

/* Closing the queue ends the members; their tasks are waited for before the queues go. */
void sh_thread_pool_destroy(sh_thread_pool *pool) {
    if (pool == NULL) return;
    if (pool->jobs != NULL) sh_queue_close(pool->jobs);
    for (int i = 1; i < pool->count; i++) sh_task_wait(pool->members[i].task);
    sh_queue_destroy(pool->jobs);
    sh_queue_destroy(pool->done);
    sh_free(pool);
}

int sh_thread_pool_size(const sh_thread_pool *pool) { return pool->count; }

/* Wakes no more members than there are pieces. */
void sh_thread_pool_run(sh_thread_pool *pool, sh_thread_pool_work work, void *user, size_t pieces) {
    job all = {.work = work, .user = user, .pieces = pieces};
    int called = 0;
    for (int i = 1; i < pool->count && (size_t)i < pieces; i++, called++)
        sh_queue_push(pool->jobs, &all);
    take_pieces(&all, 0);
    // The job must outlive its last reader.
    for (void *finished; called > 0; called--) sh_queue_pop(pool->done, &finished);
}
