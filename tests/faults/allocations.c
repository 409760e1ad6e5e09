/* SPDX-License-Identifier: Apache-2.0 */
/* To be preloaded: lists the allocations of a process, and makes one of them fail, once. An allocation is named by the stack
 * of its callers and by how many had that stack before, so that neither threads nor where objects are loaded change names.
 *   SY_ALLOCATIONS  a file that gets a line for each allocation: the hash of its stack
 *   SY_FAIL_STACK   the hash of the one that fails, SY_FAIL_TIME which of those with that stack (1: the first)
 *   SY_FAILED       a file that is made to say that it came to that
 * What the dynamic linker and libc take before main counts too. */
#define _GNU_SOURCE /* dl_iterate_phdr */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <link.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <unwind.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

enum { DEEPEST = 128 }; /* callers that count */

struct stack {
    int depth;
    uintptr_t at[DEEPEST];       /* return addresses; in an object: offsets in it */
    const char *object[DEEPEST]; /* its name without folders; NULL: in none */
};

static int list = -1;     /* SY_ALLOCATIONS */
static uint64_t fatal;    /* SY_FAIL_STACK */
static long fatal_time;   /* SY_FAIL_TIME, 0: none fails */
static atomic_long times; /* allocations that had the fatal stack */
static _Thread_local int busy
    __attribute__((tls_model("initial-exec"))); /* what looking at a stack takes does not count */

__attribute__((constructor)) static void start(void)
{
    const char *path = getenv("SY_ALLOCATIONS"), *stack = getenv("SY_FAIL_STACK"),
               *time = getenv("SY_FAIL_TIME");
    if (stack) fatal = strtoull(stack, NULL, 16);
    fatal_time = stack && time ? atol(time) : 0;
    if (path) list = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

static _Unwind_Reason_Code add_caller(struct _Unwind_Context *context, void *data)
{
    struct stack *stack = data;
    if (stack->depth == DEEPEST) return _URC_END_OF_STACK;
    stack->at[stack->depth++] = (uintptr_t)_Unwind_GetIP(context);
    return _URC_NO_REASON;
}

/* Finds the callers that are in this object. */
static int name_callers(struct dl_phdr_info *object, size_t bytes, void *data)
{
    (void)bytes;
    struct stack *stack = data;
    uintptr_t begin = UINTPTR_MAX, end = 0;
    for (int i = 0; i < object->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &object->dlpi_phdr[i];
        if (part->p_type != PT_LOAD) continue;
        uintptr_t first = object->dlpi_addr + part->p_vaddr;
        if (first < begin) begin = first;
        if (first + part->p_memsz > end) end = first + part->p_memsz;
    }
    const char *slash = strrchr(object->dlpi_name, '/');
    for (int i = 0; i < stack->depth; i++) {
        if (stack->object[i] || stack->at[i] < begin || stack->at[i] >= end) continue;
        stack->object[i] = slash ? slash + 1 : object->dlpi_name;
        stack->at[i] -= object->dlpi_addr;
    }
    return 0;
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * UINT64_C(0x9e3779b97f4a7c15);
    return hash ^ hash >> 29;
}

static uint64_t hash_of(const struct stack *stack)
{
    uint64_t hash = 0;
    for (int i = 0; i < stack->depth; i++) {
        if (!stack->object[i]) continue;
        for (const char *c = stack->object[i]; *c; c++) hash = mix(hash, (unsigned char)*c);
        hash = mix(hash, stack->at[i]);
    }
    return hash;
}

/* Says in SY_FAILED who called; the program's own name is empty. */
static void tell(const struct stack *stack)
{
    const char *path = getenv("SY_FAILED");
    int file = path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0) return;
    for (int i = 0; i < stack->depth; i++)
        if (stack->object[i]) dprintf(file, "%s 0x%" PRIxPTR "\n", stack->object[i], stack->at[i]);
    close(file);
}

static int fails(void)
{
    if ((list < 0 && !fatal_time) || busy) return 0;
    int before = errno, failed;
    busy = 1;
    struct stack stack = {.depth = 0};
    _Unwind_Backtrace(add_caller, &stack);
    dl_iterate_phdr(name_callers, &stack);
    uint64_t hash = hash_of(&stack);
    if (list >= 0) dprintf(list, "%016" PRIx64 "\n", hash);
    failed = fatal_time && hash == fatal && atomic_fetch_add(&times, 1) + 1 == fatal_time;
    if (failed) tell(&stack);
    busy = 0;
    errno = failed ? ENOMEM : before;
    return failed;
}

#pragma GCC visibility push(default) /* these stand before the C library's */

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(n, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(memory, bytes);
}

void *memalign(size_t alignment, size_t bytes)
{
    return fails() ? NULL : __libc_memalign(alignment, bytes);
}

void *aligned_alloc(size_t alignment, size_t bytes)
{
    return memalign(alignment, bytes);
}

int posix_memalign(void **memory, size_t alignment, size_t bytes)
{
    if (fails()) return ENOMEM;
    *memory = __libc_memalign(alignment, bytes);
    return *memory ? 0 : ENOMEM;
}
