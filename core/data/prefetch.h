/* SPDX-License-Identifier: Apache-2.0 */
/* Batches read ahead by a thread, so that a step finds the next one ready. */
#ifndef SYI_PREFETCH_H
#define SYI_PREFETCH_H

#include <pthread.h>

#include "data/batcher.h"

/* A batch of the ring. */
struct syi_prefetched {
    struct syi_batch batch;
    int status; /* of reading it; an error's text is `err` */
    struct sy_error err;
};

/* One thread asks for batches. Without a reading thread it reads them itself. */
struct syi_prefetch {
    struct syi_batcher *batcher; /* borrowed; the reading thread's, once it runs */
    struct syi_prefetched *ring; /* [n] batch of step s of the stream is ring[s % n] */
    int n;                       /* 1 + batches ahead */
    double waited;               /* seconds that callers waited for batches; reset by the owner */
    int has_thread;
    pthread_t thread;
    pthread_mutex_t mutex; /* of all below */
    pthread_cond_t changed;
    int64_t wanted; /* step that the caller asked for last: it and those after it stay */
    int64_t next;   /* step that is read next */
    int reading;    /* 1: the thread is at it */
    int stop;
};

/* `ahead` batches at most are ready; 0: no thread. make: fills a zeroed batch with memory. */
int syi_prefetch_open(struct syi_prefetch *prefetch, struct syi_batcher *batcher, int ahead,
                      int (*make)(void *arg, struct syi_batch *batch, struct sy_error *err), void *arg,
                      struct sy_error *err) SYI_MUST_CHECK;
void syi_prefetch_close(struct syi_prefetch *prefetch); /* also of a zeroed one */
/* Of packed rows, before a step is asked for that does not follow: syi_batcher_seek, when nothing is being read. */
void syi_prefetch_seek(struct syi_prefetch *prefetch, struct syi_row_position position);
/* The batch of a step, until the next call. Steps that follow one another are read ahead; another step begins anew
 * there. */
int syi_prefetch_get(struct syi_prefetch *prefetch, int64_t step, const struct syi_batch **batch,
                     struct sy_error *err) SYI_MUST_CHECK;

#endif
