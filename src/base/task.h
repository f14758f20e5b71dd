/* Tasks: the one way to run things side by side inside a worker. A task is a thread, or inside a
 * coroutine (the simulator's workers) another coroutine of the same world; each has its own error
 * record. A thread takes no signals (base/signals.h). Tasks meet in bounded queues.
 *
 * The tasks of a worker are listed in docs/architecture.md with their owner files. */
#ifndef SH_BASE_TASK_H
#define SH_BASE_TASK_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct sh_task sh_task;
typedef sh_status (*sh_task_body)(void *argument);

/* `name` (at most 15 characters) appears in debuggers. Keeps `argument` until the task ends. */
sh_status sh_task_spawn(const char *name, sh_task_body body, void *argument, sh_task **task_out);
/* Waits for the end, destroys the task, and passes on its status and error record. */
sh_status sh_task_wait(sh_task *task);
void sh_task_yield(void);

/* A bounded queue of pointers between tasks. */
typedef struct sh_queue sh_queue;

sh_status sh_queue_create(size_t capacity, sh_queue **queue_out);
void sh_queue_destroy(sh_queue *queue);
/* Waits while full or empty; false once the queue is closed (and, for pop, drained). */
bool sh_queue_push(sh_queue *queue, void *item);
bool sh_queue_pop(sh_queue *queue, void **item_out);
void sh_queue_close(sh_queue *queue);

#endif
