/* Tasks and bounded queues, the only concurrency that code above base/ uses: threads in a real
 * run, coroutines when spawned inside a simulated one. A task's error record travels with it to
 * whoever waits for its end. */
#include "base/task.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/addresses.h"
#include "base/fiber.h"
#include "base/memory.h"
#include "base/signals.h"

struct sh_task {
    pthread_t thread;
    sh_fiber *fiber;       // NULL: a thread
    sh_fiber_line waiter;  // of a fiber: who waits for its end
    bool ended;            // a fiber
    sh_task_body body;
    void *argument;
    sh_status status;
    sh_error error;  // copied by the task as it ends, read after the join
    char name[16];
};

/* The record belongs to the task's thread, which is about to end: a copy survives. */
static void run_body(sh_task *task) {
    task->status = task->body(task->argument);
    if (task->status != SH_OK) task->error = *sh_error_last();
}

/* Signals stay with the program's main thread. */
static void *thread_main(void *pointer) {
    sh_task *task = pointer;
    sh_signals_block();
    pthread_setname_np(pthread_self(), task->name);
    run_body(task);
    return NULL;
}

static void fiber_main(void *pointer) {
    sh_task *task = pointer;
    run_body(task);
    task->ended = true;
    sh_fiber_line_wake(&task->waiter);
}

/* Who is a coroutine spawns coroutines. */
static sh_status start(sh_task *task) {
    sh_fiber *self = sh_fiber_self();
    if (self != NULL)
        return sh_world_spawn(sh_fiber_world(self), task->name, sh_fiber_mark(self), fiber_main,
                              task, &task->fiber);
    int error = pthread_create(&task->thread, NULL, thread_main, task);
    if (error == 0) return SH_OK;
    SH_FAIL(SH_E_IO, "cannot start task '%s': %s", task->name, strerror(error));
    return sh_addresses_hint(NULL);  // a thread's stack takes 8 MiB of them
}

/* Starts a task: a thread, or inside a coroutine another coroutine of the same world. */
sh_status sh_task_spawn(const char *name, sh_task_body body, void *argument, sh_task **task_out) {
    sh_task *task = sh_alloc(1, sizeof *task);
    if (task == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for task '%s'", name);
    task->body = body;
    task->argument = argument;
    strncpy(task->name, name, sizeof task->name - 1);
    sh_status status = start(task);
    if (status != SH_OK) {
        sh_free(task);
        return status;
    }
    *task_out = task;
    return SH_OK;
}

/* Also frees the task. NULL is welcome. */
sh_status sh_task_wait(sh_task *task) {
    if (task == NULL) return SH_OK;
    if (task->fiber == NULL)
        pthread_join(task->thread, NULL);
    else if (!task->ended)
        sh_fiber_line_wait(&task->waiter, "the end of a task");
    sh_status status = task->status;
    if (status != SH_OK) sh_error_adopt(&task->error);
    sh_free(task);
    return status;
}

/* Offers the core to others. */
void sh_task_yield(void) {
    if (sh_fiber_self() != NULL)
        sh_fiber_yield();
    else
        sched_yield();
}

struct sh_queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    sh_fiber_line poppers, pushers;  // fibers that wait; they share one thread and need no lock
    size_t capacity, count, head;    // guarded by lock
    bool closed;                     // guarded by lock
    void *items[];                   // guarded by lock
};

sh_status sh_queue_create(size_t capacity, sh_queue **queue_out) {
    SH_ASSERT(capacity > 0);
    sh_queue *queue = sh_alloc(1, sizeof *queue + capacity * sizeof queue->items[0]);
    if (queue == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for a queue of %zu", capacity);
    pthread_mutex_init(&queue->lock, NULL);
    pthread_cond_init(&queue->not_empty, NULL);
    pthread_cond_init(&queue->not_full, NULL);
    queue->capacity = capacity;
    *queue_out = queue;
    return SH_OK;
}

/* Destroys a queue in which no task waits any more. */
void sh_queue_destroy(sh_queue *queue) {
    if (queue == NULL) return;
    pthread_cond_destroy(&queue->not_full);
    pthread_cond_destroy(&queue->not_empty);
    pthread_mutex_destroy(&queue->lock);
    sh_free(queue);
}

/* Tasks that share a queue are all threads or all fibers, so one of the two ways to wait is used.
 */
static void wait_for(sh_queue *queue, pthread_cond_t *condition, sh_fiber_line *line) {
    if (sh_fiber_self() == NULL) {
        pthread_cond_wait(condition, &queue->lock);
        return;
    }
    pthread_mutex_unlock(&queue->lock);
    sh_fiber_line_wait(line, line == &queue->poppers ? "a queue that is empty" : "a full queue");
    pthread_mutex_lock(&queue->lock);
}

/* Waits while the queue is full; false: it was closed. */
bool sh_queue_push(sh_queue *queue, void *item) {
    pthread_mutex_lock(&queue->lock);
    while (queue->count == queue->capacity && !queue->closed)
        wait_for(queue, &queue->not_full, &queue->pushers);
    bool pushed = !queue->closed;
    if (pushed) {
        queue->items[(queue->head + queue->count++) % queue->capacity] = item;
        pthread_cond_signal(&queue->not_empty);
        sh_fiber_line_wake(&queue->poppers);
    }
    pthread_mutex_unlock(&queue->lock);
    return pushed;
}

/* Waits while the queue is empty; what is left in a closed queue still comes out. */
bool sh_queue_pop(sh_queue *queue, void **item_out) {
    pthread_mutex_lock(&queue->lock);
    while (queue->count == 0 && !queue->closed) wait_for(queue, &queue->not_empty, &queue->poppers);
    bool popped = queue->count > 0;
    if (popped) {
        *item_out = queue->items[queue->head];
        queue->head = (queue->head + 1) % queue->capacity;
        queue->count--;
        pthread_cond_signal(&queue->not_full);
        sh_fiber_line_wake(&queue->pushers);
    }
    pthread_mutex_unlock(&queue->lock);
    return popped;
}

/* Everybody who waits learns of the end. */
void sh_queue_close(sh_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_cond_broadcast(&queue->not_empty);
    pthread_cond_broadcast(&queue->not_full);
    while (queue->poppers.first != NULL) sh_fiber_line_wake(&queue->poppers);
    while (queue->pushers.first != NULL) sh_fiber_line_wake(&queue->pushers);
    pthread_mutex_unlock(&queue->lock);
}
