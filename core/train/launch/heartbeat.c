/* SPDX-License-Identifier: Apache-2.0 */
/* A thread for the heartbeats of a lock's owner: a long step, a saving, a program of an action may take longer than others wait
 * for one. */
#include "config.h"

#include "base/threads.h"
#include "train/launch/run_lock.h"

struct syi_heartbeat {
    pthread_t thread;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int stop;
    double seconds;
    char *path; /* of the run directory */
};

static void *give(void *arg)
{
    struct syi_heartbeat *h = arg;
    pthread_mutex_lock(&h->mutex);
    while (!h->stop) {
        const struct timespec until = syi_cond_deadline(h->seconds);
        if (!pthread_cond_timedwait(&h->changed, &h->mutex, &until)) continue;
        pthread_mutex_unlock(&h->mutex);
        /* that the lock was taken over the thread that writes finds itself */
        (void)!syi_run_lock_beat(h->path, NULL);
        pthread_mutex_lock(&h->mutex);
    }
    pthread_mutex_unlock(&h->mutex);
    return NULL;
}

int syi_heartbeat_start(const char *path, double seconds, struct syi_heartbeat **heartbeat,
                        struct sy_error *err)
{
    struct syi_heartbeat *h = syi_alloc(sizeof *h, err);
    if (!h) return SY_ENOMEM;
    *h = (struct syi_heartbeat){.seconds = seconds, .path = syi_format("%s", path)};
    if (!h->path || syi_cond_init(&h->changed)) {
        syi_free(h->path);
        syi_free(h);
        return syi_error(err, SY_ENOMEM, "out of memory");
    }
    pthread_mutex_init(&h->mutex, NULL);
    int status = syi_thread_start(&h->thread, "heartbeat", give, h, err);
    if (status) h->stop = 1; /* there is no thread to wait for */
    *heartbeat = h;
    if (status) syi_heartbeat_stop(heartbeat);
    return status;
}

void syi_heartbeat_stop(struct syi_heartbeat **heartbeat)
{
    struct syi_heartbeat *h = *heartbeat;
    if (!h) return;
    pthread_mutex_lock(&h->mutex);
    int started = !h->stop;
    h->stop = 1;
    pthread_cond_signal(&h->changed);
    pthread_mutex_unlock(&h->mutex);
    if (started) pthread_join(h->thread, NULL);
    pthread_cond_destroy(&h->changed);
    pthread_mutex_destroy(&h->mutex);
    syi_free(h->path);
    syi_free(h);
    *heartbeat = NULL;
}
