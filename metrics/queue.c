/* SPDX-License-Identifier: Apache-2.0 */
/* The queue: a ring of bytes under one mutex. The writer reads without it, because what it has not released
 * is not written over. */
#include "config.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "metrics/queue.h"

enum { PATIENCE_SECONDS = 1 }; /* how long a record may wait for others to share its transaction */

int syi_queue_create(struct syi_queue *queue, size_t capacity, struct sy_error *err)
{
    pthread_condattr_t attributes;

    memset(queue, 0, sizeof(*queue));
    if (capacity < 4 * (size_t)SYI_RECORD_MAX) capacity = 4 * (size_t)SYI_RECORD_MAX;
    queue->capacity = capacity;
    queue->ring = syi_alloc(capacity, err);
    if (!queue->ring) return SY_ENOMEM;
    if (pthread_condattr_init(&attributes) != 0) goto no_thread;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_mutex_init(&queue->mutex, NULL);
    pthread_cond_init(&queue->filled, &attributes);
    pthread_cond_init(&queue->released, NULL);
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
    while (queue->failure.code == SY_OK && queue->capacity - (queue->put - queue->taken) < bytes)
        pthread_cond_wait(&queue->released, &queue->mutex);
    status = tell_failure(queue, err);
    if (status == SY_OK) {
        at = queue->put;
        copy_in(queue, at, &record, sizeof(record));
        copy_in(queue, at + sizeof(record), first, first_bytes);
        copy_in(queue, at + sizeof(record) + first_bytes, second, second_bytes);
        queue->put += bytes;
        if (at == queue->taken || queue->put - queue->taken >= queue->capacity / 2)
            pthread_cond_signal(&queue->filled);
    }
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

int syi_queue_flush(struct syi_queue *queue, struct sy_error *err)
{
    uint64_t end;
    int status;

    pthread_mutex_lock(&queue->mutex);
    end = queue->wanted = queue->put;
    pthread_cond_signal(&queue->filled);
    while (queue->taken < end) pthread_cond_wait(&queue->released, &queue->mutex);
    status = tell_failure(queue, err);
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

void syi_queue_close(struct syi_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    queue->closing = 1;
    pthread_cond_signal(&queue->filled);
    pthread_mutex_unlock(&queue->mutex);
}

int syi_queue_is_closing(struct syi_queue *queue)
{
    int closing;

    pthread_mutex_lock(&queue->mutex);
    closing = queue->closing;
    pthread_mutex_unlock(&queue->mutex);
    return closing;
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
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += PATIENCE_SECONDS;
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
    if (queue->failure.code == SY_OK) queue->failure = *failure;
    pthread_cond_broadcast(&queue->released);
    pthread_mutex_unlock(&queue->mutex);
}
