/* Switching stacks, for coroutines: saves the registers that a call preserves, changes the stack
 * pointer, restores. Some 2 ns, where swapcontext makes two system calls for the signal mask.
 * Other processors, and builds that ask for it, use swapcontext (SH_SWITCH_PORTABLE). */
#include "base/switch.h"

#include <stdint.h>
#include <string.h>

#ifdef SH_SWITCH_PORTABLE

/* makecontext passes ints, so a pointer goes in two halves. */
static void enter(unsigned entry_high, unsigned entry_low, unsigned high, unsigned low) {
    uintptr_t entry = (uintptr_t)((uint64_t)entry_high << 32 | entry_low);
    uintptr_t argument = (uintptr_t)((uint64_t)high << 32 | low);
    ((void (*)(void *))entry)((void *)argument);
}

void sh_context_make(sh_context *context, void *stack, size_t bytes, void (*entry)(void *),
                     void *argument) {
    uint64_t code = (uint64_t)(uintptr_t)entry, data = (uint64_t)(uintptr_t)argument;
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = bytes;
    context->uc_link = NULL;
    makecontext(context, (void (*)(void))enter, 4, (unsigned)(code >> 32), (unsigned)code,
                (unsigned)(data >> 32), (unsigned)data);
}

void sh_context_switch(sh_context *from, sh_context *to) { swapcontext(from, to); }

#elif defined(__x86_64__)

/* sh_stack_switch(&from->stack, to->stack): pushes rbp, rbx, r12 to r15, changes rsp, pops. The
 * first switch into a context returns to sh_stack_enter, which finds the entry in r12 and its
 * argument in r13. */
__asm__(
    ".text\n"
    ".globl sh_stack_switch\n"
    ".hidden sh_stack_switch\n"
    ".type sh_stack_switch, @function\n"
    "sh_stack_switch:\n"
    "    pushq %rbp\n"
    "    pushq %rbx\n"
    "    pushq %r12\n"
    "    pushq %r13\n"
    "    pushq %r14\n"
    "    pushq %r15\n"
    "    movq %rsp, (%rdi)\n"
    "    movq %rsi, %rsp\n"
    "    popq %r15\n"
    "    popq %r14\n"
    "    popq %r13\n"
    "    popq %r12\n"
    "    popq %rbx\n"
    "    popq %rbp\n"
    "    ret\n"
    ".size sh_stack_switch, . - sh_stack_switch\n"
    ".globl sh_stack_enter\n"
    ".hidden sh_stack_enter\n"
    ".type sh_stack_enter, @function\n"
    "sh_stack_enter:\n"
    "    movq %r13, %rdi\n"
    "    jmp *%r12\n"
    ".size sh_stack_enter, . - sh_stack_enter\n");

enum { SAVED = 7, R13 = 2, R12 = 3, RETURN = 6 };  // words, from the stack pointer up

#elif defined(__aarch64__)

/* The same with x19 to x30 and the low halves of v8 to v15; x19 is the entry, x20 its argument. */
__asm__(
    ".text\n"
    ".globl sh_stack_switch\n"
    ".hidden sh_stack_switch\n"
    ".type sh_stack_switch, %function\n"
    "sh_stack_switch:\n"
    "    sub sp, sp, #160\n"
    "    stp x19, x20, [sp, #0]\n"
    "    stp x21, x22, [sp, #16]\n"
    "    stp x23, x24, [sp, #32]\n"
    "    stp x25, x26, [sp, #48]\n"
    "    stp x27, x28, [sp, #64]\n"
    "    stp x29, x30, [sp, #80]\n"
    "    stp d8, d9, [sp, #96]\n"
    "    stp d10, d11, [sp, #112]\n"
    "    stp d12, d13, [sp, #128]\n"
    "    stp d14, d15, [sp, #144]\n"
    "    mov x9, sp\n"
    "    str x9, [x0]\n"
    "    mov sp, x1\n"
    "    ldp x19, x20, [sp, #0]\n"
    "    ldp x21, x22, [sp, #16]\n"
    "    ldp x23, x24, [sp, #32]\n"
    "    ldp x25, x26, [sp, #48]\n"
    "    ldp x27, x28, [sp, #64]\n"
    "    ldp x29, x30, [sp, #80]\n"
    "    ldp d8, d9, [sp, #96]\n"
    "    ldp d10, d11, [sp, #112]\n"
    "    ldp d12, d13, [sp, #128]\n"
    "    ldp d14, d15, [sp, #144]\n"
    "    add sp, sp, #160\n"
    "    ret\n"
    ".size sh_stack_switch, . - sh_stack_switch\n"
    ".globl sh_stack_enter\n"
    ".hidden sh_stack_enter\n"
    ".type sh_stack_enter, %function\n"
    "sh_stack_enter:\n"
    "    mov x0, x20\n"
    "    mov x30, xzr\n"
    "    br x19\n"
    ".size sh_stack_enter, . - sh_stack_enter\n");

enum { SAVED = 20, X19 = 0, X20 = 1, X30 = 11 };

#endif

#ifndef SH_SWITCH_PORTABLE

/* Defined in assembly above. */
void sh_stack_switch(void **from, void *to);
void sh_stack_enter(void);

void sh_context_make(sh_context *context, void *stack, size_t bytes, void (*entry)(void *),
                     void *argument) {
    uintptr_t *top = (uintptr_t *)(((uintptr_t)stack + bytes) & ~(uintptr_t)63);
#if defined(__x86_64__)
    *--top = 0;  // where a call would have left its return address: ends a debugger's walk
#endif
    uintptr_t *saved = top - SAVED;
    memset(saved, 0, SAVED * sizeof *saved);
#if defined(__x86_64__)
    saved[R12] = (uintptr_t)entry;
    saved[R13] = (uintptr_t)argument;
    saved[RETURN] = (uintptr_t)sh_stack_enter;
#else
    saved[X19] = (uintptr_t)entry;
    saved[X20] = (uintptr_t)argument;
    saved[X30] = (uintptr_t)sh_stack_enter;
#endif
    context->stack = saved;
}

/* All other state of the thread, such as the rounding mode, stays as it is. */
void sh_context_switch(sh_context *from, sh_context *to) {
    sh_stack_switch(&from->stack, to->stack);
}

#endif
