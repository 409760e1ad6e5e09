/* SPDX-License-Identifier: Apache-2.0 */
/* A thread that does one job after the other beside the thread that gives them. */
#include "config.h"

#include "base/threads.h"

struct syi_worker {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed; /* one waits on it at a time: the thread for a job, or the owner for its end */
    void (*fn)(void *arg);  /* the job; NULL: none */
    void *arg;
    int stop;
};

static void *work(void *arg)
{
    struct syi_worker *w = arg;
    syi_fp_reset();
    syi_thread_give_way();
    pthread_mutex_lock(&w->mutex);
    for (;;) {
        while (!w->fn && !w->stop) pthread_cond_wait(&w->changed, &w->mutex);
        if (!w->fn) break;
        pthread_mutex_unlock(&w->mutex);
        w->fn(w->arg);
        pthread_mutex_lock(&w->mutex);
        w->fn = NULL;
        pthread_cond_signal(&w->changed);
    }
    pthread_mutex_unlock(&w->mutex);
    return NULL;
}

int syi_worker_new(const char *name, struct syi_worker **worker, struct sy_error *err)
{
    struct syi_worker *w = syi_alloc(sizeof *w, err);
    if (!w) return SY_ENOMEM;
    pthread_mutex_init(&w->mutex, NULL);
    pthread_cond_init(&w->changed, NULL);
    int status = syi_thread_start(&w->thread, name, work, w, err);
    if (status) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->mutex);
        syi_free(w);
        return status;
    }
    *worker = w;
    return SY_OK;
}

void syi_worker_start(struct syi_worker *w, void (*fn)(void *arg), void *arg)
{
    pthread_mutex_lock(&w->mutex);
    w->fn = fn;
    w->arg = arg;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mutex);
}

int syi_worker_is_idle(struct syi_worker *w)
{
    pthread_mutex_lock(&w->mutex);
    int idle = !w->fn;
    pthread_mutex_unlock(&w->mutex);
    return idle;
}

void syi_worker_wait(struct syi_worker *w)
{
    pthread_mutex_lock(&w->mutex);
    while (w->fn) pthread_cond_wait(&w->changed, &w->mutex);
    pthread_mutex_unlock(&w->mutex);
}

void syi_worker_free(struct syi_worker *w)
{
    if (!w) return;
    syi_worker_wait(w);
    pthread_mutex_lock(&w->mutex);
    w->stop = 1;
    pthread_cond_signal(&w->changed);
    pthread_mutex_unlock(&w->mutex);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->mutex);
    syi_free(w);
}
