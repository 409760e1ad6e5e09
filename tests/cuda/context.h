/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of their own for functions that take turns on a thread. On x86-64 a switch is a dozen instructions; swapcontext,
 * elsewhere and under sanitizers, which know it, asks the system for the signal mask each time.
 *
 *     emulated_context_make(context, stack, bytes, enter)   enter runs at the first switch to it, and never returns
 *     emulated_context_switch(from, to) */
#ifndef EMULATED_CONTEXT_H
#define EMULATED_CONTEXT_H

#include <stddef.h>
#include <stdint.h>

#if defined(__has_feature)
#    if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#        define EMULATED_SANITIZED
#    endif
#endif
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#    define EMULATED_SANITIZED
#endif

#if defined(__x86_64__) && defined(__ELF__) && !defined(EMULATED_SANITIZED)

struct emulated_context {
    void *stack_pointer;
};

/* Saves the registers that a function must keep on the stack at hand, and takes those of the other one. */
extern "C" void emulated_switch(void **from, void *to) __attribute__((visibility("hidden")));
__asm__(".text\n"
        ".globl emulated_switch\n"
        ".hidden emulated_switch\n"
        ".type emulated_switch, @function\n"
        "emulated_switch:\n"
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
        ".size emulated_switch, . - emulated_switch\n");

static inline void emulated_context_switch(emulated_context *from, const emulated_context *to)
{
    emulated_switch(&from->stack_pointer, to->stack_pointer);
}

static inline void emulated_context_make(emulated_context *context, unsigned char *stack, size_t bytes,
                                         void (*enter)())
{
    enum { REGISTERS = 6 };
    void **top = reinterpret_cast<void **>(reinterpret_cast<uintptr_t>(stack + bytes) / 16 * 16);
    *--top = nullptr; /* where enter would return to: its frame is as a call makes it */
    *--top = reinterpret_cast<void *>(enter);
    for (int i = 0; i < REGISTERS; i++) *--top = nullptr;
    context->stack_pointer = top;
}

#else
#    include <ucontext.h>

struct emulated_context {
    ucontext_t context;
};

static inline void emulated_context_switch(emulated_context *from, const emulated_context *to)
{
    swapcontext(&from->context, &to->context);
}

static inline void emulated_context_make(emulated_context *context, unsigned char *stack, size_t bytes,
                                         void (*enter)())
{
    getcontext(&context->context);
    context->context.uc_stack.ss_sp = stack;
    context->context.uc_stack.ss_size = bytes;
    context->context.uc_link = nullptr;
    makecontext(&context->context, enter, 0);
}
#endif

#endif
