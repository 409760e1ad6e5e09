/* SPDX-License-Identifier: Apache-2.0 */
/* To be preloaded: the SY_FAIL_ALLOCATION-th allocation of the process fails, once, and the file SY_FAILED is
 * made to say that it came to that. What the dynamic linker and libc take before main counts too. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <unistd.h>

void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t n, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);
void *__libc_memalign(size_t alignment, size_t bytes);

#pragma GCC visibility push(default) /* these stand before the C library's */

static atomic_long calls;
static long fatal; /* number of the call that fails, 0: none */

__attribute__((constructor)) static void start(void)
{
    const char *text = getenv("SY_FAIL_ALLOCATION");
    fatal = text ? atol(text) : 0;
    atomic_store(&calls, 0);
}

static int fails(void)
{
    if (!fatal || atomic_fetch_add(&calls, 1) + 1 != fatal) return 0;
    const char *path = getenv("SY_FAILED");
    int file = path ? open(path, O_WRONLY | O_CREAT, 0600) : -1;
    if (file >= 0) close(file);
    errno = ENOMEM;
    return 1;
}

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
