/* SPDX-License-Identifier: Apache-2.0 */
/* Host memory: zeroed, aligned for the widest vectors, failing with a status instead of a crash; from the C library, or
 * from the functions that an embedding program gives. */
#include "config.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/base.h"

enum { ALIGNMENT = 64 }; /* one cache line, one AVX-512 register */

static struct sy_allocator allocator; /* all NULL: the C library's */
static atomic_size_t in_use;          /* pieces that are not freed */

int sy_allocator_set(const struct sy_allocator *given, struct sy_error *err)
{
    size_t pieces = atomic_load(&in_use);
    if (given && (!given->take || !given->give_back))
        return syi_error(err, SY_EINVAL, "an allocator has both functions, take and give_back");
    if (pieces)
        return syi_error(
            err, SY_EBUSY,
            "%zu pieces of memory are in use: set the allocator before the first handle is opened, or after "
            "the last is closed and all answers are freed",
            pieces);
    allocator = given ? *given : (struct sy_allocator){0};
    return SY_OK;
}

void *syi_take(size_t bytes, size_t alignment)
{
    void *memory = NULL;
    if (bytes == 0) bytes = 1;
    if (allocator.take)
        memory = allocator.take(allocator.arg, bytes, alignment);
    else if (posix_memalign(&memory, alignment, bytes))
        memory = NULL;
    if (memory) atomic_fetch_add_explicit(&in_use, 1, memory_order_relaxed);
    return memory;
}

void *syi_alloc(size_t bytes, struct sy_error *err)
{
    void *memory = syi_take(bytes, ALIGNMENT);
    if (memory)
        memset(memory, 0, bytes ? bytes : 1);
    else
        syi_error(err, SY_ENOMEM, "out of memory: %zu bytes were asked for", bytes);
    return memory;
}

void syi_free(void *memory)
{
    if (!memory) return;
    atomic_fetch_sub_explicit(&in_use, 1, memory_order_relaxed);
    if (allocator.take)
        allocator.give_back(allocator.arg, memory);
    else
        free(memory);
}

int syi_grow(void **array, size_t *capacity, size_t need, size_t size, struct sy_error *err)
{
    if (need <= *capacity) return SY_OK;
    size_t grown = *capacity < 16 ? 16 : *capacity;
    while (grown < need && grown <= SIZE_MAX / 2) grown *= 2;
    if (grown < need) grown = need;
    if (grown > SIZE_MAX / size)
        return syi_error(err, SY_ENOMEM, "out of memory: %zu elements of %zu bytes were asked for", need,
                         size);
    void *fresh = syi_alloc(grown * size, err);
    if (!fresh) return SY_ENOMEM;
    void *old; /* *array is a pointer to some other type: read and written as bytes */
    memcpy(&old, array, sizeof(old));
    if (*capacity) memcpy(fresh, old, *capacity * size);
    memcpy(array, &fresh, sizeof(fresh));
    *capacity = grown;
    syi_free(old);
    return SY_OK;
}

char *syi_strdup(const char *text, struct sy_error *err)
{
    size_t bytes = strlen(text) + 1;
    char *copy = syi_alloc(bytes, err);
    if (copy) memcpy(copy, text, bytes);
    return copy;
}

char *syi_format(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int length = vsnprintf(NULL, 0, format, args);
    va_end(args);
    if (length < 0) return NULL;
    char *text = syi_alloc((size_t)length + 1, NULL);
    if (!text) return NULL;
    va_start(args, format);
    vsnprintf(text, (size_t)length + 1, format, args);
    va_end(args);
    return text;
}
