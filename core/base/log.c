/* SPDX-License-Identifier: Apache-2.0 */
/* The log: lines go to one sink that the program sets, and nowhere before. Lines longer than the buffer are
 * cut; one that would be several, by words of a plugin or a name of a file, is made one. */
#include "config.h"

#include <pthread.h>

#include "base/base.h"

static struct {
    pthread_mutex_t mutex; /* held while the sink runs, so lines of several threads stay whole */
    sy_log_fn fn;
    void *arg;
} sink = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void sy_log_set(sy_log_fn fn, void *arg)
{
    pthread_mutex_lock(&sink.mutex);
    sink.fn = fn;
    sink.arg = arg;
    pthread_mutex_unlock(&sink.mutex);
}

void syi_log(enum sy_log_level level, const char *format, ...)
{
    char line[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof(line), format, args);
    va_end(args);
    syi_keep_one_line(line);
    pthread_mutex_lock(&sink.mutex);
    if (sink.fn) sink.fn(sink.arg, level, line);
    pthread_mutex_unlock(&sink.mutex);
}
