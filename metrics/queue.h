/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue of metric records between the training thread and the writer thread. All memory is
 * allocated at creation. A full queue makes the producer wait, but only for so long: then a record is refused
 * and counted. Records stay in the queue until the writer says they are on disk. SQL is store.c's. */
#ifndef SYI_QUEUE_H
#define SYI_QUEUE_H

#include <pthread.h>

#include "base/base.h"

enum syi_record_kind { SYI_RECORD_METRIC, SYI_RECORD_ROUTING, SYI_RECORD_EVENT, SYI_RECORD_EVAL };

/* In the queue it is followed by its two texts, each with its NUL. */
struct syi_record {
    uint32_t bytes; /* of the whole record, texts included, a multiple of 8 */
    uint32_t kind;  /* enum syi_record_kind */
    int64_t step;
    int64_t time;            /* ms since 1970, UTC */
    double value;            /* metric, eval */
    int64_t tokens, dropped; /* routing */
    int32_t expert;          /* routing */
    uint32_t first_bytes;    /* of the first text, NUL included: metric name, layer, event kind, eval task */
    uint32_t second_bytes;   /* of the second: event text, eval name; empty for the others */
    uint32_t unused;
};

enum { SYI_RECORD_MAX = 64 << 10 }; /* bytes of a record with its texts */

struct syi_queue {
    pthread_mutex_t mutex;
    pthread_cond_t filled;   /* wakes the writer: work, a flush or the end */
    pthread_cond_t released; /* wakes the producer: room, or a flush done */
    int made;                /* mutex and conditions exist */
    char *ring;              /* (capacity) */
    size_t capacity;
    uint64_t put, taken;       /* bytes put in and released since the start; their place is modulo capacity */
    uint64_t wanted;           /* the writer must not wait for more before `taken` is here (flush) */
    uint64_t n_put, n_refused; /* records */
    double patience;           /* seconds a put waits for room */
    int stalled; /* a wait for the writer was in vain; until it releases something none waits again */
    int closing;
    double close_by;         /* syi_seconds() until which the writer may try, once it is closing */
    struct sy_error failure; /* first failure of the writer; every later call of the producer returns it */
};

/* capacity in bytes; patience: seconds that a put waits for room. */
int syi_queue_create(struct syi_queue *queue, size_t capacity, double patience,
                     struct sy_error *err) SYI_MUST_CHECK;
void syi_queue_free(struct syi_queue *queue);

/* Producer. SY_EBUSY: there was no room in time, the record is lost. Any other status is final: the writer
 * has failed. */
int syi_queue_put(struct syi_queue *queue, struct syi_record record, const char *first, const char *second,
                  struct sy_error *err) SYI_MUST_CHECK;
/* Waits until all records are released, at most so many seconds; SY_EBUSY: they are not yet. */
int syi_queue_flush(struct syi_queue *queue, double seconds, struct sy_error *err) SYI_MUST_CHECK;
/* No more records; the writer has so many seconds for those that are there. */
void syi_queue_close(struct syi_queue *queue, double seconds);

/* Writer. Waits until a batch is worth writing; 0 when the queue is closed and empty, else 1 with its places.
 */
int syi_queue_wait(struct syi_queue *queue, uint64_t *from, uint64_t *to);
/* Copies the record at `at` into record (SYI_RECORD_MAX bytes, 8-aligned) and returns the place of the next.
 */
uint64_t syi_queue_read(struct syi_queue *queue, uint64_t at, struct syi_record *record);
/* Whether the queue is closed and its time is over. */
int syi_queue_is_over(struct syi_queue *queue);
/* Everything before `to` is done with; failure (code SY_OK for none) reaches the producer. */
void syi_queue_release(struct syi_queue *queue, uint64_t to, const struct sy_error *failure);

#endif
