/* Coroutines. A world is a set of fibers that share one thread: one runs until it blocks, then the
 * world's owner goes on, outside of all of them. The simulator owns a world and gives its fibers a
 * virtual clock; whoever calls sh_task_spawn, waits for a task or meets another in a queue inside a
 * fiber (base/task.h) gets and blocks fibers, not threads.
 *
 * Everything here belongs to the thread that created the world. A fiber that never ends keeps what
 * it allocated: the owner ends its fibers by making what they wait for fail. */
#ifndef SH_BASE_FIBER_H
#define SH_BASE_FIBER_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

typedef struct sh_world sh_world;
typedef struct sh_fiber sh_fiber;

/* Reserved for a fiber's stack; pages cost memory once touched. Math libraries want this much. */
enum { SH_FIBER_STACK_BYTES = 256 << 10, SH_FIBER_NAME = 16 };

typedef struct sh_world_options {
    size_t stack_bytes;  // 0: SH_FIBER_STACK_BYTES
    /* What sh_fiber_yield does: it must see to it that the fiber is woken later. NULL: at once,
     * after those that are ready. */
    void (*yield)(void *owner, sh_fiber *fiber);
    void *owner;
} sh_world_options;

sh_status sh_world_create(const sh_world_options *options, sh_world **world_out);
/* Fibers that have not ended are dropped as they are. */
void sh_world_destroy(sh_world *world);

/* A new fiber, ready to run body(argument). `mark` is its owner's; those that it spawns inherit it.
 * The fiber is gone once its body returns. */
sh_status sh_world_spawn(sh_world *world, const char *name, void *mark, void (*body)(void *),
                         void *argument, sh_fiber **fiber_out);
/* Outside of all fibers: runs the one that has been ready for longest until it blocks or ends.
 * False: none is ready. */
bool sh_world_step(sh_world *world);
int sh_world_fibers(const sh_world *world);  // that have not ended
sh_fiber *sh_world_first(const sh_world *world);
sh_fiber *sh_fiber_next(const sh_fiber *fiber);

/* The fiber that calls; NULL outside of any. */
sh_fiber *sh_fiber_self(void);
sh_world *sh_fiber_world(const sh_fiber *fiber);
const char *sh_fiber_name(const sh_fiber *fiber);
void *sh_fiber_mark(const sh_fiber *fiber);
/* What it is blocked on: NULL while it is ready or runs. */
const char *sh_fiber_waits(const sh_fiber *fiber);

/* The calling fiber sleeps until it is woken; `why` (a literal) is for reports. What it waits for
 * must be looked at again: several reasons may wake it. */
void sh_fiber_block(const char *why);
/* A blocked fiber is ready again; any other is not changed. From inside or outside of fibers. */
void sh_fiber_wake(sh_fiber *fiber);
void sh_fiber_yield(void);

/* Fibers that wait for the same thing, in the order they came. */
typedef struct sh_fiber_line {
    sh_fiber *first, *last;
} sh_fiber_line;

void sh_fiber_line_wait(sh_fiber_line *line, const char *why);
void sh_fiber_line_wake(sh_fiber_line *line);  // the first; none: nothing

#endif
