#include "base/task.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/memory.h"

struct sh_task {
    pthread_t thread;
    sh_task_body body;
    void *argument;
    sh_status status;
    sh_error error;  // copied by the task as it ends, read after the join
    char name[16];
};

static void *task_main(void *pointer) {
    sh_task *task = pointer;
    pthread_setname_np(pthread_self(), task->name);
    task->status = task->body(task->argument);
    if (task->status != SH_OK) task->error = *sh_error_last();
    return NULL;
}

sh_status sh_task_spawn(const char *name, sh_task_body body, void *argument, sh_task **task_out) {
    sh_task *task = sh_alloc(1, sizeof *task);
    if (task == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for task '%s'", name);
    task->body = body;
    task->argument = argument;
    strncpy(task->name, name, sizeof task->name - 1);
    int error = pthread_create(&task->thread, NULL, task_main, task);
    if (error != 0) {
        sh_free(task);
        return SH_FAIL(SH_E_IO, "cannot start task '%s': %s", name, strerror(error));
    }
    *task_out = task;
    return SH_OK;
}

sh_status sh_task_wait(sh_task *task) {
    if (task == NULL) return SH_OK;
    pthread_join(task->thread, NULL);
    sh_status status = task->status;
    if (status != SH_OK) sh_error_adopt(&task->error);
    sh_free(task);
    return status;
}

void sh_task_yield(void) { sched_yield(); }

struct sh_queue {
    pthread_mutex_t lock;
    pthread_cond_t not_empty, not_full;
    size_t capacity, count, head;  // guarded by lock
    bool closed;                   // guarded by lock
    void *items[];                 // guarded by lock
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

void sh_queue_destroy(sh_queue *queue) {
    if (queue == NULL) return;
    pthread_cond_destroy(&queue->not_full);
    pthread_cond_destroy(&queue->not_empty);
    pthread_mutex_destroy(&queue->lock);
    sh_free(queue);
}

bool sh_queue_push(sh_queue *queue, void *item) {
    pthread_mutex_lock(&queue->lock);
    while (queue->count == queue->capacity && !queue->closed)
        pthread_cond_wait(&queue->not_full, &queue->lock);
    bool pushed = !queue->closed;
    if (pushed) {
        queue->items[(queue->head + queue->count++) % queue->capacity] = item;
        pthread_cond_signal(&queue->not_empty);
    }
    pthread_mutex_unlock(&queue->lock);
    return pushed;
}

bool sh_queue_pop(sh_queue *queue, void **item_out) {
    pthread_mutex_lock(&queue->lock);
    while (queue->count == 0 && !queue->closed) pthread_cond_wait(&queue->not_empty, &queue->lock);
    bool popped = queue->count > 0;
    if (popped) {
        *item_out = queue->items[queue->head];
        queue->head = (queue->head + 1) % queue->capacity;
        queue->count--;
        pthread_cond_signal(&queue->not_full);
    }
    pthread_mutex_unlock(&queue->lock);
    return popped;
}

void sh_queue_close(sh_queue *queue) {
    pthread_mutex_lock(&queue->lock);
    queue->closed = true;
    pthread_cond_broadcast(&queue->not_empty);
    pthread_cond_broadcast(&queue->not_full);
    pthread_mutex_unlock(&queue->lock);
}
