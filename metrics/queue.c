/* SPDX-License-Identifier: Apache-2.0 */
/* The queue: a chain of blocks of memory under one mutex. The writer reads records in place without it, for what it
 * has not released is neither moved nor freed. */
#include "config.h"

#include <errno.h>
#include <stdalign.h>
#include <string.h>
#include <time.h>

#include "base/threads.h"
#include "metrics/queue.h"

enum {
    GATHER_SECONDS = 1, /* how long a record may wait for others to share its transaction */
    BATCH_BLOCKS = 16,  /* of a transaction: so that a slow disk is seen to get on */
    SILENCE = 12        /* times the patience: a call of the writer that neither ends nor fails */
};

struct syi_queue_block {
    struct syi_queue_block *next;
    uint64_t begin;    /* place of its first byte, in bytes put in since the start */
    size_t used, size; /* bytes of data */
    alignas(8) char data[];
};

static struct syi_queue_block *new_block(size_t bytes, struct sy_error *err)
{
    size_t size = bytes > SYI_QUEUE_BLOCK ? bytes : SYI_QUEUE_BLOCK;
    struct syi_queue_block *block = syi_alloc(sizeof(*block) + size, err);
    if (block) block->size = size;
    return block;
}

int syi_queue_create(struct syi_queue *queue, size_t capacity, double patience, struct sy_error *err)
{
    memset(queue, 0, sizeof(*queue));
    queue->capacity = capacity;
    queue->patience = patience;
    queue->first = queue->last = new_block(0, err);
    queue->spare = queue->first ? new_block(0, err) : NULL;
    if (!queue->spare) goto no_memory;
    if (syi_cond_init(&queue->filled) || syi_cond_init(&queue->released)) {
        syi_error(err, SY_ENOMEM, "metrics: no memory for the writer's locks");
        goto no_memory;
    }
    pthread_mutex_init(&queue->mutex, NULL);
    queue->made = 1;
    return SY_OK;
no_memory:
    syi_queue_free(queue);
    return SY_ENOMEM;
}

void syi_queue_free(struct syi_queue *queue)
{
    if (queue->made) {
        pthread_mutex_destroy(&queue->mutex);
        pthread_cond_destroy(&queue->filled);
        pthread_cond_destroy(&queue->released);
    }
    for (struct syi_queue_block *block = queue->first, *next; block; block = next) {
        next = block->next;
        syi_free(block);
    }
    syi_free(queue->spare);
    memset(queue, 0, sizeof(*queue));
}

struct syi_part syi_record_part(const struct syi_queue_record *record, int i)
{
    const char *at = (const char *)(record + 1);
    for (int before = 0; before < i; before++) at += record->part[before];
    return (struct syi_part){at, record->part[i]};
}

/* The failure, if there is one, as the result of the call at hand. */
static int tell_failure(const struct syi_queue *queue, struct sy_error *err)
{
    if (queue->failure.code == SY_OK) return SY_OK;
    return syi_error(err, queue->failure.code, "%s", queue->failure.text);
}

/* ---- waiting for the writer ---- */

static int has_room(const struct syi_queue *queue, size_t bytes)
{
    uint64_t used = queue->put - queue->taken;
    return used == 0 || used + bytes <= queue->capacity;
}

/* The writer takes what is there, whether or not that is worth a transaction. */
static void end_gathering(struct syi_queue *queue)
{
    queue->wanted = queue->put;
    pthread_cond_signal(&queue->filled);
}

/* Until there is room, the writer has failed, or it has not got on for too long: then no put waits any more before it
 * does. How long a call of the system takes is not to be known, so a writer that is in one gets more time than one
 * whose tries fail. */
static void wait_for_room(struct syi_queue *queue, size_t bytes)
{
    double begin = syi_seconds(), left;
    int waited = 0;

    end_gathering(queue);
    while (queue->failure.code == SY_OK && !has_room(queue, bytes)) {
        if (queue->gave_up || (queue->blocked && queue->stalled)) break;
        left = queue->patience * (queue->blocked ? 1 : SILENCE) -
               (syi_seconds() - (queue->moved > begin ? queue->moved : begin));
        if (left <= 0) {
            queue->gave_up = 1;
            break;
        }
        struct timespec until = syi_cond_deadline(left);
        pthread_cond_timedwait(&queue->released, &queue->mutex, &until);
        waited = 1;
    }
    if (!waited) return;
    queue->n_waits++;
    queue->wait_seconds += syi_seconds() - begin;
}

/* Room for a record, waited for if need be, or why there is none. */
static int find_room(struct syi_queue *queue, size_t bytes, struct sy_error *err)
{
    int status = tell_failure(queue, err);

    if (status || has_room(queue, bytes)) return status;
    wait_for_room(queue, bytes);
    status = tell_failure(queue, err);
    if (status || has_room(queue, bytes)) return status;
    return syi_error(
        err, SY_EBUSY,
        "metrics: the database has taken no rows for a while (is it locked by another program, or the disk full?) "
        "and the queue of %.4g MiB is full",
        (double)queue->capacity / (1 << 20));
}

/* ---- the producer ---- */

static struct syi_queue_block *take_spare(struct syi_queue *queue, size_t bytes)
{
    struct syi_queue_block *block = queue->spare;
    if (!block || block->size < bytes) return NULL;
    queue->spare = NULL;
    return block;
}

/* The block that has `bytes` left at its end, a new one after the last if need be. */
static struct syi_queue_block *block_for(struct syi_queue *queue, size_t bytes, struct sy_error *err)
{
    struct syi_queue_block *block = queue->last;

    if (block->size - block->used >= bytes) return block;
    block = take_spare(queue, bytes);
    if (!block) block = new_block(bytes, err);
    if (!block) return NULL;
    block->next = NULL;
    block->used = 0;
    block->begin = queue->put;
    queue->last->next = block;
    queue->last = block;
    return block;
}

/* Enough to write now, without regard to how long it has waited. */
static int is_ready(const struct syi_queue *queue)
{
    uint64_t used = queue->put - queue->taken;
    return queue->closing || queue->wanted > queue->taken || used >= queue->capacity / 2 ||
           used >= (uint64_t)BATCH_BLOCKS * SYI_QUEUE_BLOCK;
}

static int append(struct syi_queue *queue, const struct syi_queue_record *record, const struct syi_part *part,
                  int n_parts, struct sy_error *err)
{
    struct syi_queue_block *block = block_for(queue, record->bytes, err);
    int was_empty = queue->put == queue->taken;
    char *at;

    if (!block) return SY_ENOMEM;
    at = block->data + block->used;
    memcpy(at, record, sizeof(*record));
    at += sizeof(*record);
    for (int i = 0; i < n_parts; i++)
        if (part[i].bytes) {
            memcpy(at, part[i].data, part[i].bytes);
            at += part[i].bytes;
        }
    block->used += record->bytes;
    queue->put += record->bytes;
    queue->n_put++;
    if (was_empty || is_ready(queue)) pthread_cond_signal(&queue->filled);
    return SY_OK;
}

int syi_queue_put(struct syi_queue *queue, struct syi_queue_record record, const struct syi_part *part,
                  int n_parts, struct sy_error *err)
{
    size_t bytes = sizeof(record);
    int status;

    memset(record.part, 0, sizeof(record.part));
    for (int i = 0; i < n_parts; i++) {
        record.part[i] = (uint32_t)part[i].bytes;
        bytes += part[i].bytes;
    }
    bytes = (bytes + 7) / 8 * 8;
    if (bytes > INT32_MAX)
        return syi_error(err, SY_EINVAL, "metrics: a row of %zu bytes is too large", bytes);
    record.bytes = (uint32_t)bytes;
    pthread_mutex_lock(&queue->mutex);
    status = find_room(queue, bytes, err);
    if (!status) status = append(queue, &record, part, n_parts, err);
    if (status) queue->n_refused++;
    pthread_mutex_unlock(&queue->mutex);
    return status;
}

int syi_queue_flush(struct syi_queue *queue, double seconds, struct sy_error *err)
{
    struct timespec until = syi_cond_deadline(seconds);
    uint64_t end;
    int status;

    pthread_mutex_lock(&queue->mutex);
    end_gathering(queue);
    end = queue->wanted;
    while (seconds > 0 && queue->taken < end && !queue->stalled)
        if (pthread_cond_timedwait(&queue->released, &queue->mutex, &until) == ETIMEDOUT) queue->stalled = 1;
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

/* ---- the writer ---- */

int syi_queue_is_over(struct syi_queue *queue)
{
    int over;

    pthread_mutex_lock(&queue->mutex);
    over = queue->closing && syi_seconds() >= queue->close_by;
    pthread_mutex_unlock(&queue->mutex);
    return over;
}

void syi_queue_block(struct syi_queue *queue)
{
    pthread_mutex_lock(&queue->mutex);
    queue->blocked = 1;
    pthread_cond_broadcast(&queue->released);
    pthread_mutex_unlock(&queue->mutex);
}

int syi_queue_wait(struct syi_queue *queue, uint64_t *from, uint64_t *to)
{
    const struct syi_queue_block *block;
    struct timespec until;

    pthread_mutex_lock(&queue->mutex);
    while (queue->put == queue->taken && !queue->closing) pthread_cond_wait(&queue->filled, &queue->mutex);
    until = syi_cond_deadline(GATHER_SECONDS);
    while (!is_ready(queue))
        if (pthread_cond_timedwait(&queue->filled, &queue->mutex, &until) == ETIMEDOUT) break;
    block = queue->first;
    for (int i = 1; i < BATCH_BLOCKS && block->next; i++) block = block->next;
    *from = queue->taken;
    *to = block->begin + block->used;
    pthread_mutex_unlock(&queue->mutex);
    return *from != *to;
}

const struct syi_queue_record *syi_queue_read(struct syi_queue *queue, uint64_t at)
{
    const struct syi_queue_block *block;

    pthread_mutex_lock(&queue->mutex);
    block = queue->first;
    while (block->next && at >= block->next->begin) block = block->next;
    pthread_mutex_unlock(&queue->mutex);
    return (const struct syi_queue_record *)(const void *)(block->data + (at - block->begin));
}

/* The first block is done with. One block of the usual size is kept for the next need. */
static void drop_first(struct syi_queue *queue)
{
    struct syi_queue_block *block = queue->first;

    queue->first = block->next;
    if (queue->spare || block->size > SYI_QUEUE_BLOCK)
        syi_free(block);
    else
        queue->spare = block;
}

void syi_queue_release(struct syi_queue *queue, uint64_t to, const struct sy_error *failure)
{
    pthread_mutex_lock(&queue->mutex);
    queue->taken = to;
    queue->moved = syi_seconds();
    queue->stalled = queue->gave_up = queue->blocked = 0;
    while (queue->first->next && queue->first->begin + queue->first->used <= to) drop_first(queue);
    if (queue->put == to) { /* all is done: the last block begins anew */
        queue->first->used = 0;
        queue->first->begin = to;
    }
    if (queue->failure.code == SY_OK) queue->failure = *failure;
    pthread_cond_broadcast(&queue->released);
    pthread_mutex_unlock(&queue->mutex);
}
