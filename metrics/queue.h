/* SPDX-License-Identifier: Apache-2.0 */
/* A bounded queue of metric records between the training thread and the writer thread. It begins small and takes
 * memory as it is needed. A full queue makes the producer wait as long as the writer gets on; only where the database
 * takes nothing is a record refused and counted. Records stay in the queue until the writer says they are on disk.
 * SQL is rows.c's. */
#ifndef SYI_QUEUE_H
#define SYI_QUEUE_H

#include <pthread.h>

#include "base/base.h"

/* What the parts of a record are; those not named are empty. */
enum syi_record_kind {
    SYI_RECORD_METRIC,       /* name; value */
    SYI_RECORD_PARAMETER,    /* parameter, name; value */
    SYI_RECORD_ROUTING,      /* layer, tokens, dropped (both as counts.h encodes them) */
    SYI_RECORD_EVENT,        /* kind, text */
    SYI_RECORD_EVAL,         /* task, name, settings; value */
    SYI_RECORD_EXAMPLE,      /* task, input, target, prediction; number: the item, value: the score */
    SYI_RECORD_EVAL_ROUTING, /* task, layer, tokens, dropped (both as counts.h encodes them) */
    SYI_RECORD_BACK,         /* the attempt before this one goes back to the step, and on as this one */
    SYI_RECORD_COPY,         /* no row: what is before it belongs into the run directory's copy */
    SYI_RECORD_KINDS
};

enum { SYI_RECORD_PARTS = 4, SYI_QUEUE_BLOCK = 256 << 10 /* bytes of memory taken at once, at the least */ };

/* In the queue it is followed by the bytes of its parts. */
struct syi_queue_record {
    uint32_t bytes; /* of the whole record, parts included, a multiple of 8 */
    uint32_t kind;  /* enum syi_record_kind */
    int64_t attempt;
    int64_t step;
    int64_t time; /* ms since 1970, UTC */
    double value;
    int64_t number;
    uint32_t part[SYI_RECORD_PARTS]; /* bytes of each */
};

struct syi_part {
    const void *data;
    size_t bytes;
};
/* A part of a record that came out of a queue; valid as long as the record. */
struct syi_part syi_record_part(const struct syi_queue_record *record, int i);

struct syi_queue_block;

struct syi_queue {
    pthread_mutex_t mutex;
    pthread_cond_t filled;   /* wakes the writer: work, a flush or the end */
    pthread_cond_t released; /* wakes the producer: room, or a flush done */
    int made;                /* mutex and conditions exist */
    struct syi_queue_block *first, *last,
        *spare;                /* records in their order; an empty block for the next need */
    size_t capacity;           /* bytes of records */
    uint64_t put, taken;       /* bytes put in and released since the start */
    uint64_t wanted;           /* the writer must not wait for more before `taken` is here (flush) */
    uint64_t n_put, n_refused; /* records */
    uint64_t n_waits;          /* records that had to wait for room, and how long in all */
    double wait_seconds;
    double patience; /* seconds a put waits for room while the writer is blocked */
    double moved;    /* syi_seconds() of the last release */
    int blocked;     /* the writer's last try failed */
    int stalled;     /* a flush waited in vain; until the writer releases something none waits again */
    int gave_up;     /* likewise a put */
    int closing;
    double close_by;         /* syi_seconds() until which the writer may try, once it is closing */
    struct sy_error failure; /* first failure of the writer; every later call of the producer returns it */
};

/* capacity in bytes; patience: seconds that a put waits for room while no try of the writer succeeds. */
int syi_queue_create(struct syi_queue *queue, size_t capacity, double patience,
                     struct sy_error *err) SYI_MUST_CHECK;
void syi_queue_free(struct syi_queue *queue);

/* Producer. Copies record and parts (n_parts at most SYI_RECORD_PARTS, together less than 2 GiB); bytes and part of
 * `record` are set here. A record larger than the queue goes in when that is empty. SY_EBUSY: the writer takes nothing,
 * SY_ENOMEM: no memory; either way this record is lost and others may not be. Any other status is final: the writer
 * has failed. */
int syi_queue_put(struct syi_queue *queue, struct syi_queue_record record, const struct syi_part *part,
                  int n_parts, struct sy_error *err) SYI_MUST_CHECK;
/* Waits until all records are released, at most so many seconds; SY_EBUSY: they are not yet. */
int syi_queue_flush(struct syi_queue *queue, double seconds, struct sy_error *err) SYI_MUST_CHECK;
/* No more records; once a try fails the writer has what is left of so many seconds. */
void syi_queue_close(struct syi_queue *queue, double seconds);

/* Writer. Waits until a batch is worth writing, of some MiB at most; 0 when the queue is closed and empty, else 1 with
 * its places. */
int syi_queue_wait(struct syi_queue *queue, uint64_t *from, uint64_t *to);
/* The record at `at`, valid until it is released; the next is at `at` + its bytes. */
const struct syi_queue_record *syi_queue_read(struct syi_queue *queue, uint64_t at);
/* A try has failed and the same records will be tried again: nobody waits for long from now on. */
void syi_queue_block(struct syi_queue *queue);
/* Whether the queue is closed and its time is over. */
int syi_queue_is_over(struct syi_queue *queue);
/* Everything before `to` is done with; failure (code SY_OK for none) reaches the producer. */
void syi_queue_release(struct syi_queue *queue, uint64_t to, const struct sy_error *failure);

#endif
