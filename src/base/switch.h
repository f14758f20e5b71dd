/* From one stack to another: what coroutines are made of. Only the registers that a function must
 * keep are saved; the rest is the compiler's business at a call. Rounding mode and signal mask are
 * the thread's and stay as they are. A switch takes a few nanoseconds (swapcontext makes two system
 * calls, some 500 ns). */
#ifndef SH_BASE_SWITCH_H
#define SH_BASE_SWITCH_H

#include <stddef.h>

#if !defined(__x86_64__) && !defined(__aarch64__)
#define SH_SWITCH_PORTABLE  // may be defined from outside, to test it
#endif

#ifdef SH_SWITCH_PORTABLE
#include <ucontext.h>
typedef ucontext_t sh_context;
#else
typedef struct sh_context {
    void *stack;  // its lowest used address; the saved registers lie there
} sh_context;
#endif

/* A context that will call entry(argument) on [stack, stack + bytes). `entry` never returns. */
void sh_context_make(sh_context *context, void *stack, size_t bytes, void (*entry)(void *),
                     void *argument);

/* Leaves the running context in `from` and goes on with `to`. */
void sh_context_switch(sh_context *from, sh_context *to);

#endif
