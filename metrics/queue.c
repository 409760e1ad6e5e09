/* SPDX-License-Identifier: Apache-2.0 */
/* The queue: a ring of bytes under one mutex. The writer reads without it, because what it has not released
 * is not written over. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "metrics/queue.h"

enum { GATHER_SECONDS = 1 }; /* how long a record may wait for others to share its transaction */

int syi_queue_create(struct syi_queue *queue, size_t capacity, double patience, struct sy_error *err)
{
    pthread_condattr_t attributes;

    memset(queue, 0, sizeof(*queue));
    if (capacity < 4 * (size_t)SYI_RECORD_MAX) capacity = 4 * (size_t)SYI_RECORD_MAX;
    queue->capacity = capacity;
    queue->patience = patience;
    queue->ring = syi_alloc(capacity, err);
    if (!queue->ring) return SY_ENOMEM;
    if (pthread_condattr_init(&attributes) != 0) goto no_thread;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->filled, &attributes);
    pthread_cond_init(&queue->released, &attributes);
    pthread_condattr_destroy(&attributes);
    queue->made = 1;
    return SY_OK;
no_thread:
    syi_queue_free(queue);
    return syi_error(err, SY_ENOMEM, "metrics: no memory for the writer's locks");
}

void syi_queue_free(struct syi_queue *queue)
{
    if (queue->made) {
        pthread_mutex_destroy(&queue->mutex);
        pthread_cond_destroy(&queue->filled);
        pthread_cond_destroy(&queue->released);
    }
    syi_free(queue->ring);
    memset(queue, 0, sizeof(*queue));
}

static void copy_in(struct syi_queue *queue, uint64_t at, const void *data, size_t bytes)
{
    size_t place = (size_t)(at % queue->capacity);
    size_t front = bytes < queue->capacity - place ? bytes : queue->capacity - place;

    memcpy(queue->ring + place, data, front);
    memcpy(queue->ring, (const char *)data + front, bytes - front);
}

static void copy_out(struct syi_queue *queue, uint64_t at, void *data, size_t bytes)
{
    size_t place = (size_t)(at % queue->capacity);
    size_t front = bytes < queue->capacity - place ? bytes : queue->capacity - place;

    memcpy(data, queue->ring + place, front);
    memcpy((char *)data + front, queue->ring, bytes - front);
}

/* The failure, if there is one, as the result of the call at hand. */
static int tell_failure(const struct syi_queue *queue, struct sy_error *err)
{
    if (queue->failure.code == SY_OK) return SY_OK;
    return syi_error(err, queue->failure.code, "%s", queue->failure.text);
}

/* ---- waiting for the writer ---- */

static struct timespec after(double seconds)
{
    struct timespec time;
    int64_t nanoseconds;

    clock_gettime(CLOCK_MONOTONIC, &time);
    nanoseconds = time.tv_nsec + (int64_t)(seconds * 1e9);
    time.tv_sec += (time_t)(nanoseconds / 1000000000);
    time.tv_nsec = (long)(nanoseconds % 1000000000);
    return time;
}

/* Until the writer releases something; 0 when that is not to be waited for any longer. */
static int wait_release(struct syi_queue *queue, const struct timespec *until)
{
    if (!queue->stalled && pthread_cond_timedwait(&queue->released, &queue->mutex, until) == ETIMEDOUT)
        queue->stalled = 1;
    return !queue->stalled;
}

static size_t room(const struct syi_queue *queue)
{
    return queue->capacity - (size_t)(queue->put - queue->taken);
}

/* Room for a record, waited for if need be, or why there is none. */
static int find_room(struct syi_queue *queue, size_t bytes, struct sy_error *err)
{
    struct timespec until = after(queue->patience);
    int status;

    while (queue->failure.code == SY_OK && room(queue) < bytes && wait_release(queue, &until)) continue;
    status = tell_failure(queue, err);
    if (status || room(queue) >= bytes) return status;
    return syi_error(
        err, SY_EBUSY,
        "metrics: the database has taken no rows for a while (is it locked by another program?) and "
        "the queue of %zu MiB is full",
        queue->capacity >> 20);
}

int syi_queue_put(struct syi_queue *queue, struct syi_record record, const char *first, const char *second,
                  struct sy_error *err)
{
    size_t first_bytes = strlen(first) + 1, second_bytes = strlen(second) + 1, bytes;
    uint64_t at;
    int status;

    bytes = (sizeof(record) + first_bytes + second_bytes + 7) / 8 * 8;
    if (first_bytes > SYI_RECORD_MAX || second_bytes > SYI_RECORD_MAX || bytes > SYI_RECORD_MAX)
        return syi_error(err, SY_EINVAL, "metrics: \"%.40s\" has a text of %zu bytes; at most %d fit", first,
                         first_bytes + second_bytes, SYI_RECORD_MAX - (int)sizeof(record) - 8);
    record.bytes = (uint32_t)bytes;
    record.first_bytes = (uint32_t)first_bytes;
    record.second_bytes = (uint32_t)second_bytes;
    pthread_mutex_lock(&queue->mutex);
    status = find_room(queue, bytes, err);
    if (status) {
        queue->n_refused++;
    } else {
        at = queue->put;
        copy_in(queue, at, &record, sizeof(record));
        copy_in(queue, at + sizeof(record), first, first_bytes);
        copy_in(queue, at + sizeof(record) + first_bytes, second, second_bytes);
        queue->put += bytes;
        queue->n_put++;
        if (at == queue->taken || queue->put - queue->taken >= queue->capacity / 2)
            pthread_cond_signal(&queue->filled);
    }
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

int syi_queue_flush(struct syi_queue *queue, double seconds, struct sy_error *err)
{
    struct timespec until = after(seconds);
    uint64_t end;
    int status;

    pthread_mutex_lock(&queue->mutex);
    end = queue->wanted = queue->put;
    pthread_cond_signal(&queue->filled);
    while (seconds > 0 && queue->taken < end && wait_release(queue, &until)) continue;
    status = tell_failure(queue, err);
    if (!status && queue->taken < end)
        status =
            syi_error(err, SY_EBUSY, "metrics: the last rows are not in the database after %g s", seconds);
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

void syi_queue_close(struct syi_queue *queue, double seconds)
{
    pthread_mutex_lock(&queue->mutex);
    queue->closing = 1;
    queue->close_by = syi_seconds() + seconds;
    pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->mutex);
}

int syi_queue_is_over(struct syi_queue *queue)
{
    int over;

    pthread_mutex_lock(&queue->mutex);
    over = queue->closing && syi_seconds() >= queue->close_by;
    pthread_mutex_unlock(&queue->mutex);
    return over;
}

/* Enough to write now, without regard to how long it has waited. */
static int is_ready(const struct syi_queue *queue)
{
    return queue->closing || queue->wanted > queue->taken || queue->put - queue->taken >= queue->capacity / 2;
}

int syi_queue_wait(struct syi_queue *queue, uint64_t *from, uint64_t *to)
{
    struct timespec until;

    pthread_mutex_lock(&queue->mutex);
    while (queue->put == queue->taken && !queue->closing) pthread_cond_wait(&queue->filled, &queue->mutex);
    until = after(GATHER_SECONDS);
    while (!is_ready(queue))
        if (pthread_cond_timedwait(&queue->filled, &queue->mutex, &until) == ETIMEDOUT) break;
    *from = queue->taken;
    *to = queue->put;
    pthread_mutex_unlock(&queue->mutex);
    return *from != *to;
}

uint64_t syi_queue_read(struct syi_queue *queue, uint64_t at, struct syi_record *record)
{
    copy_out(queue, at, record, sizeof(*record));
    copy_out(queue, at + sizeof(*record), record + 1, record->bytes - sizeof(*record));
    return at + record->bytes;
}

void syi_queue_release(struct syi_queue *queue, uint64_t to, const struct sy_error *failure)
{
    pthread_mutex_lock(&queue->mutex);
    queue->taken = to;
    queue->stalled = 0;
    if (queue->failure.code == SY_OK) queue->failure = *failure;
    pthread_cond_broadcast(&queue->released);
    pthread_mutex_unlock(&queue->mutex);
}
