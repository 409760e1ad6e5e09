/* SPDX-License-Identifier: Apache-2.0 */
/* To be preloaded: the first time that the process reads a file, or brings it to disk, takes SY_SLOW_SECONDS, for each file
 * whose path ends with a word of SY_SLOW. */
#include "config.h"

#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#pragma GCC visibility push(default) /* these stand before the C library's */

static void delay(int fd)
{
    static atomic_uint seen; /* a bit a word */
    const char *word = getenv("SY_SLOW"), *seconds = getenv("SY_SLOW_SECONDS");
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = word && seconds ? readlink(link, path, sizeof path) : -1;
    for (unsigned bit = 1; length > 0 && *word; bit <<= 1) {
        ssize_t n = (ssize_t)strcspn(word, " ");
        if (n && n <= length && !memcmp(path + length - n, word, (size_t)n) &&
            !(atomic_fetch_or(&seen, bit) & bit))
            usleep((useconds_t)(1e6 * strtod(seconds, NULL)));
        word += n + (word[n] == ' ');
    }
}

#define NEXT(fn, name)                                                                                       \
    void *symbol = dlsym(RTLD_NEXT, name);                                                                   \
    memcpy(&(fn), &symbol, sizeof(fn))

ssize_t read(int fd, void *to, size_t bytes)
{
    ssize_t (*next)(int, void *, size_t);
    NEXT(next, "read");
    delay(fd);
    return next(fd, to, bytes);
}

ssize_t pread(int fd, void *to, size_t bytes, off_t at)
{
    ssize_t (*next)(int, void *, size_t, off_t);
    NEXT(next, "pread");
    delay(fd);
    return next(fd, to, bytes, at);
}

static int to_disk(const char *name, int fd)
{
    int (*next)(int);
    NEXT(next, name);
    delay(fd);
    return next(fd);
}

int fsync(int fd)
{
    return to_disk("fsync", fd);
}

int fdatasync(int fd)
{
    return to_disk("fdatasync", fd);
}
