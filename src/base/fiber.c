/* Coroutines in one thread: simulated workers, their loaders and services. A world runs its ready
 * fibers in the order in which they became ready, so a simulation repeats exactly. A fiber leaves
 * the processor only by blocking, yielding or ending, hence no locks inside a world.
 *
 * A fiber costs a stack of addresses with a guard page, of which a few pages are ever touched;
 * stacks of ended fibers are reused. The sanitizers are told of every switch. */
#include "base/fiber.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/memory.h"
#include "base/switch.h"

#if defined(__SANITIZE_ADDRESS__)
#define SH_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define SH_TSAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SH_ASAN 1
#elif __has_feature(thread_sanitizer)
#define SH_TSAN 1
#endif
#endif
#ifdef SH_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SH_TSAN
#include <sanitizer/tsan_interface.h>
#endif

enum { PAGE = 4096 };

/* A stack, with the guard page below it: an overflow ends the process instead of writing over a
 * neighbour. The sanitizers must know both sides of a switch. */
typedef struct stack {
    char *memory;  // the lowest usable address
    size_t bytes;
    void *shadow;  // the address sanitizer's, while this stack does not run
    void *calls;   // the thread sanitizer's record of who called whom on this stack
} stack;

struct sh_fiber {
    sh_context context;  // saved registers, while it does not run
    sh_world *world;
    sh_fiber *next_ready;     // link of the ready list, or of the line it waits in
    sh_fiber *before, *next;  // all fibers of the world
    const char *waits;        // what it is blocked on, for reports
    bool blocked;
    void *mark;  // tag of the world's owner; spawned fibers inherit it
    void (*body)(void *);
    void *argument;
    stack stack;
    char name[SH_FIBER_NAME];
    sh_error error;
};

/* A kept stack; this link lies in the stack itself. */
typedef struct spare {
    struct spare *next;
} spare;

struct sh_world {
    sh_world_options options;
    sh_context context;  // of the owner, while a fiber runs
    stack stack;         // of the owner, as the sanitizer tells
    sh_fiber_line ready;
    sh_fiber *first, *last;
    sh_fiber *ended;  // ended just now; freed by the owner, as its stack is still in use
    spare *spares;    // stacks of fibers that are gone
    int fibers;
};

/* The running fiber of this thread; NULL outside of fibers. */
static _Thread_local sh_fiber *self;

sh_fiber *sh_fiber_self(void) { return self; }
sh_world *sh_fiber_world(const sh_fiber *fiber) { return fiber->world; }
const char *sh_fiber_name(const sh_fiber *fiber) { return fiber->name; }
void *sh_fiber_mark(const sh_fiber *fiber) { return fiber->mark; }
const char *sh_fiber_waits(const sh_fiber *fiber) { return fiber->blocked ? fiber->waits : NULL; }
sh_fiber *sh_world_first(const sh_world *world) { return world->first; }
sh_fiber *sh_fiber_next(const sh_fiber *fiber) { return fiber->next; }
int sh_world_fibers(const sh_world *world) { return world->fibers; }

/* ---- Stacks ---------------------------------------------------------------------------------- */

/* Takes a kept stack, or maps a new one with its guard page. */
static sh_status take_stack(sh_world *world, stack *stack_out) {
    size_t bytes = world->options.stack_bytes;
    if (world->spares != NULL) {
        // A spare begins at the top of its stack: those pages are in memory already.
        char *top = (char *)world->spares + sizeof(spare);
        world->spares = world->spares->next;
        *stack_out = (stack){.memory = top - bytes, .bytes = bytes};
        return SH_OK;
    }
    char *memory = mmap(NULL, bytes + PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (memory != MAP_FAILED && mprotect(memory, PAGE, PROT_NONE) != 0) {
        munmap(memory, bytes + PAGE);
        memory = MAP_FAILED;
    }
    if (memory == MAP_FAILED) {
        SH_FAIL(SH_E_MEMORY, "no stack of %zu KiB for coroutine %d: %s", bytes >> 10,
                world->fibers + 1, strerror(errno));
        return sh_error_hint("sysctl vm.max_map_count: each takes two mappings");
    }
    *stack_out = (stack){.memory = memory + PAGE, .bytes = bytes};
    return SH_OK;
}

/* Makes a call record for the thread sanitizer. It counts calls and returns: with one record for
 * all stacks, calls would never return and the record would grow without end. */
static void open_calls(stack *opened) {
#ifdef SH_TSAN
    opened->calls = __tsan_create_fiber(0);
#else
    (void)opened;
#endif
}

static void close_calls(stack *closed) {
#ifdef SH_TSAN
    __tsan_destroy_fiber(closed->calls);
#else
    (void)closed;
#endif
}

/* Clears the address sanitizer's marks: frames that were abandoned have left the stack poisoned. */
static void unpoison(const stack *left) {
#ifdef SH_ASAN
    __asan_unpoison_memory_region(left->memory, left->bytes);
#else
    (void)left;
#endif
}

/* Unmaps a stack and its guard page. */
static void drop_stack(const stack *dropped) {
    unpoison(dropped);
    munmap(dropped->memory - PAGE, dropped->bytes + PAGE);
}

/* The list of kept stacks lies in the stacks themselves. */
static void keep_stack(sh_world *world, const stack *kept) {
    unpoison(kept);
    spare *at = (spare *)(void *)(kept->memory + kept->bytes - sizeof *at);
    at->next = world->spares;
    world->spares = at;
}

/* ---- Switching ------------------------------------------------------------------------------- */

/* Switches stacks and tells the sanitizers. `ends`: the stack that is left will not run again. */
static void switch_stacks(sh_context *from, stack *from_stack, sh_context *to,
                          const stack *to_stack, bool ends) {
#ifdef SH_ASAN
    __sanitizer_start_switch_fiber(ends ? NULL : &from_stack->shadow, to_stack->memory,
                                   to_stack->bytes);
    sh_context_switch(from, to);
    __sanitizer_finish_switch_fiber(from_stack->shadow, NULL, NULL);
#else
#ifdef SH_TSAN
    __tsan_switch_to_fiber(to_stack->calls, 0);
#endif
    (void)from_stack;
    (void)to_stack;
    (void)ends;
    sh_context_switch(from, to);
#endif
}

/* Switches back to whoever called sh_world_step. */
static void to_owner(sh_fiber *fiber, bool ends) {
    sh_world *world = fiber->world;
    switch_stacks(&fiber->context, &fiber->stack, &world->context, &world->stack, ends);
}

/* First function on a new stack. It never returns, since no frame lies below it. */
static void fiber_main(void *argument) {
    sh_fiber *fiber = argument;
#ifdef SH_ASAN
    const void *bottom;
    __sanitizer_finish_switch_fiber(NULL, &bottom, &fiber->world->stack.bytes);
    fiber->world->stack.memory = (char *)(uintptr_t)bottom;
#endif
    fiber->body(fiber->argument);
    fiber->world->ended = fiber;
    to_owner(fiber, true);
    SH_ASSERT(false);  // a fiber does not run after its end
}

/* Appends a fiber to a line; it is in at most one line at a time. */
static void append(sh_fiber_line *line, sh_fiber *fiber) {
    fiber->next_ready = NULL;
    if (line->last != NULL)
        line->last->next_ready = fiber;
    else
        line->first = fiber;
    line->last = fiber;
}

/* First come, first served: fair, and the same in every run. */
static sh_fiber *take_first(sh_fiber_line *line) {
    sh_fiber *fiber = line->first;
    if (fiber == NULL) return NULL;
    line->first = fiber->next_ready;
    if (line->first == NULL) line->last = NULL;
    return fiber;
}

/* Frees the fiber that has just ended, from the owner's stack. */
static void free_ended(sh_world *world) {
    sh_fiber *fiber = world->ended;
    world->ended = NULL;
    world->fibers--;
    if (fiber->before != NULL)
        fiber->before->next = fiber->next;
    else
        world->first = fiber->next;
    if (fiber->next != NULL)
        fiber->next->before = fiber->before;
    else
        world->last = fiber->before;
    close_calls(&fiber->stack);
    keep_stack(world, &fiber->stack);
    sh_free(fiber);
}

/* Runs the next ready fiber until it gives the processor back; false: none is ready. The fiber's
 * error record is in place meanwhile. */
bool sh_world_step(sh_world *world) {
    SH_DCHECK(self == NULL);
    sh_fiber *fiber = take_first(&world->ready);
    if (fiber == NULL) return false;
    self = fiber;
    sh_error_record(&fiber->error);
#ifdef SH_TSAN
    world->stack.calls = __tsan_get_current_fiber();
#endif
    switch_stacks(&world->context, &world->stack, &fiber->context, &fiber->stack, false);
    sh_error_record(NULL);
    self = NULL;
    if (world->ended != NULL) free_ended(world);
    return true;
}

/* The caller has stored itself where a waker finds it. `why` is what reports of a stuck simulation
 * say. */
void sh_fiber_block(const char *why) {
    sh_fiber *fiber = self;
    fiber->waits = why;
    fiber->blocked = true;
    to_owner(fiber, false);
}

/* Waking a fiber that is not blocked does nothing. */
void sh_fiber_wake(sh_fiber *fiber) {
    if (!fiber->blocked) return;
    fiber->blocked = false;
    append(&fiber->world->ready, fiber);
}

/* In a simulation yielding takes virtual time (options.yield), or spinning would never end. */
void sh_fiber_yield(void) {
    sh_fiber *fiber = self;
    const sh_world_options *options = &fiber->world->options;
    if (options->yield != NULL) {
        options->yield(options->owner, fiber);
        sh_fiber_block("its next turn");
        return;
    }
    append(&fiber->world->ready, fiber);
    to_owner(fiber, false);
}

/* The link of a fiber is the line's until it is woken: only its line wakes it. */
void sh_fiber_line_wait(sh_fiber_line *line, const char *why) {
    append(line, self);
    sh_fiber_block(why);
}

void sh_fiber_line_wake(sh_fiber_line *line) {
    sh_fiber *fiber = take_first(line);
    if (fiber != NULL) sh_fiber_wake(fiber);
}

/* ---- Worlds ---------------------------------------------------------------------------------- */

/* No fiber exists yet, so nothing is mapped. */
sh_status sh_world_create(const sh_world_options *options, sh_world **world_out) {
    sh_world *world = sh_alloc(1, sizeof *world);
    if (world == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for coroutines");
    world->options = *options;
    size_t bytes = options->stack_bytes > 0 ? options->stack_bytes : SH_FIBER_STACK_BYTES;
    world->options.stack_bytes = sh_round_up(bytes, PAGE);
    *world_out = world;
    return SH_OK;
}

/* Drops fibers as they are: what they own is not freed. */
void sh_world_destroy(sh_world *world) {
    if (world == NULL) return;
    for (sh_fiber *fiber = world->first, *next; fiber != NULL; fiber = next) {
        next = fiber->next;
        close_calls(&fiber->stack);
        drop_stack(&fiber->stack);
        sh_free(fiber);
    }
    size_t bytes = world->options.stack_bytes;
    for (spare *at = world->spares, *next; at != NULL; at = next) {
        next = at->next;
        drop_stack(&(stack){.memory = (char *)at + sizeof *at - bytes, .bytes = bytes});
    }
    sh_free(world);
}

/* The fiber starts when its turn comes. */
sh_status sh_world_spawn(sh_world *world, const char *name, void *mark, void (*body)(void *),
                         void *argument, sh_fiber **fiber_out) {
    sh_fiber *fiber = sh_alloc(1, sizeof *fiber);
    if (fiber == NULL) return SH_FAIL(SH_E_MEMORY, "out of memory for task '%s'", name);
    sh_status status = take_stack(world, &fiber->stack);
    if (status != SH_OK) {
        sh_free(fiber);
        return status;
    }
    open_calls(&fiber->stack);
    fiber->world = world;
    fiber->mark = mark;
    fiber->body = body;
    fiber->argument = argument;
    strncpy(fiber->name, name, sizeof fiber->name - 1);
    sh_context_make(&fiber->context, fiber->stack.memory, fiber->stack.bytes, fiber_main, fiber);
    fiber->before = world->last;
    if (world->last != NULL)
        world->last->next = fiber;
    else
        world->first = fiber;
    world->last = fiber;
    world->fibers++;
    append(&world->ready, fiber);
    if (fiber_out != NULL) *fiber_out = fiber;
    return SH_OK;
}
