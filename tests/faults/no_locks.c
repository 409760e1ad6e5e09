/* SPDX-License-Identifier: Apache-2.0 */
/* To be preloaded: record locks of files whose path begins with SY_NO_LOCKS fail with ENOLCK, as on a network file
 * system without a lock server, or with the error of the number SY_LOCK_ERROR. */
#include "config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#pragma GCC visibility push(default) /* these stand before the C library's */

static int is_refused(int fd, int command)
{
    const char *prefix = getenv("SY_NO_LOCKS");
    char link[64], path[4096];
    if (!prefix || !*prefix || (command != F_SETLK && command != F_SETLKW && command != F_GETLK)) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    if (n < 0) return 0;
    path[n] = '\0';
    return !strncmp(path, prefix, strlen(prefix));
}

static int call(const char *name, int fd, int command, void *argument)
{
    int (*next)(int, int, ...) = NULL;
    void *symbol = dlsym(RTLD_NEXT, name);
    if (is_refused(fd, command)) {
        errno = getenv("SY_LOCK_ERROR") ? atoi(getenv("SY_LOCK_ERROR")) : ENOLCK;
        return -1;
    }
    memcpy(&next, &symbol, sizeof next);
    return next(fd, command, argument);
}

int fcntl(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return call("fcntl", fd, command, argument);
}

int fcntl64(int fd, int command, ...)
{
    va_list list;
    va_start(list, command);
    void *argument = va_arg(list, void *);
    va_end(list);
    return call("fcntl64", fd, command, argument);
}
