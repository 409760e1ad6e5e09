/* SPDX-License-Identifier: Apache-2.0 */
/* The reading thread: it fills the ring from the step that was asked for last, and sleeps when it is full. */
#include "config.h"

#include <string.h>

#include "base/threads.h"
#include "data/prefetch.h"

static void read_step(struct syi_prefetch *p, int64_t step)
{
    struct syi_prefetched *slot = &p->ring[step % p->n];
    memset(&slot->err, 0, sizeof slot->err);
    slot->status = syi_batcher_fetch(p->batcher, step, &slot->batch, &slot->err);
}

/* A slot belongs to the thread while `next` is its step, and to the caller from then on until it asks for a later one. Who
 * wants another step than the following one first waits until nothing is being read. */
static void *run(void *arg)
{
    struct syi_prefetch *p = arg;
    syi_fp_reset();
    syi_thread_give_way();
    pthread_mutex_lock(&p->mutex);
    while (!p->stop) {
        if (p->wanted < 0 || p->next >= p->wanted + p->n) {
            pthread_cond_wait(&p->changed, &p->mutex);
            continue;
        }
        int64_t step = p->next;
        p->reading = 1;
        pthread_mutex_unlock(&p->mutex);
        read_step(p, step);
        pthread_mutex_lock(&p->mutex);
        p->reading = 0;
        p->next++;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->mutex);
    return NULL;
}

static int begin_thread(struct syi_prefetch *p, struct sy_error *err)
{
    int status = syi_thread_start(&p->thread, "batches", run, p, err);
    p->has_thread = !status;
    return status;
}

int syi_prefetch_open(struct syi_prefetch *p, struct syi_batcher *batcher, int ahead,
                      int (*make)(void *arg, struct syi_batch *batch, struct sy_error *err), void *arg,
                      struct sy_error *err)
{
    int status = SY_OK;
    memset(p, 0, sizeof *p);
    p->batcher = batcher;
    p->n = ahead + 1;
    p->wanted = -1;
    pthread_mutex_init(&p->mutex, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->ring = syi_alloc((size_t)p->n * sizeof *p->ring, err);
    if (!p->ring) status = SY_ENOMEM;
    for (int i = 0; i < p->n && !status; i++) status = make(arg, &p->ring[i].batch, err);
    if (!status && ahead) status = begin_thread(p, err);
    if (status) syi_prefetch_close(p);
    return status;
}

void syi_prefetch_close(struct syi_prefetch *p)
{
    if (!p->batcher) return;
    pthread_mutex_lock(&p->mutex);
    p->stop = 1;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->mutex);
    if (p->has_thread) pthread_join(p->thread, NULL);
    for (int i = 0; p->ring && i < p->n; i++) syi_batch_free(&p->ring[i].batch);
    syi_free(p->ring);
    pthread_mutex_destroy(&p->mutex);
    pthread_cond_destroy(&p->changed);
    memset(p, 0, sizeof *p);
}

void syi_prefetch_seek(struct syi_prefetch *p, struct syi_row_position position)
{
    pthread_mutex_lock(&p->mutex);
    p->wanted = -1;
    while (p->reading) pthread_cond_wait(&p->changed, &p->mutex);
    syi_batcher_seek(p->batcher, position);
    pthread_mutex_unlock(&p->mutex);
}

/* Slots of steps before `step` are free from now on. */
static void want(struct syi_prefetch *p, int64_t step)
{
    if (p->wanted < 0 || step < p->wanted || step > p->next) {
        while (p->reading) pthread_cond_wait(&p->changed, &p->mutex);
        p->next = step;
    }
    p->wanted = step;
    pthread_cond_broadcast(&p->changed);
}

int syi_prefetch_get(struct syi_prefetch *p, int64_t step, const struct syi_batch **batch,
                     struct sy_error *err)
{
    const struct syi_prefetched *slot = &p->ring[step < 0 ? 0 : step % p->n];
    double begin = syi_seconds();
    if (p->has_thread) {
        pthread_mutex_lock(&p->mutex);
        want(p, step);
        while (p->next <= step) pthread_cond_wait(&p->changed, &p->mutex);
        pthread_mutex_unlock(&p->mutex);
    } else {
        read_step(p, step < 0 ? 0 : step);
    }
    p->waited += syi_seconds() - begin;
    *batch = &slot->batch;
    return slot->status ? syi_error(err, slot->status, "%s", slot->err.text) : SY_OK;
}
