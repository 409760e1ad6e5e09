/* SPDX-License-Identifier: Apache-2.0 */
/* A communicator whose collectives take some time more: each completes no earlier than a delay after its
 * start, as if it travelled that long, whatever the rank does meanwhile. Counts what is under way. Which ones
 * are delayed is set before each start (session hooks). Wraps any other communicator; moves nothing itself.
 */
#ifndef DELAYED_COMM_H
#define DELAYED_COMM_H

#include <errno.h>
#include <string.h>
#include <time.h>

#include "comm/comm.h"

enum { DELAYED_MOST = 64 };

struct delayed_request {
    void *request; /* of the inner communicator; NULL: free */
    int64_t until; /* ns; 0: not delayed */
};

struct delayed {
    struct syi_comm comm;   /* what users take */
    struct syi_comm *inner; /* borrowed */
    int64_t delay;          /* ns */
    int selected;           /* whether the next start is one that is delayed */
    int64_t n_delayed;      /* starts with delay so far */
    int under_way, most;    /* now, and at most so far */
    struct delayed_request request[DELAYED_MOST];
};

static inline int64_t delayed_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline int delayed_world(void *context, int *rank, int *ranks)
{
    struct delayed *d = context;
    return d->inner->table->world(d->inner->context, rank, ranks);
}

static inline int delayed_group_new(void *context, const int *ranks, int n, void **group)
{
    struct delayed *d = context;
    return d->inner->table->group_new(d->inner->context, ranks, n, group);
}

static inline void delayed_group_free(void *context, void *group)
{
    struct delayed *d = context;
    d->inner->table->group_free(d->inner->context, group);
}

static inline int delayed_start(void *context, void *group, const struct sy_collective *call, void **request)
{
    struct delayed *d = context;
    struct delayed_request *r = d->request;
    while (r->request && r < d->request + DELAYED_MOST - 1) r++;
    if (r->request) return SY_EINTERNAL;
    int status = d->inner->table->start(d->inner->context, group, call, &r->request);
    if (status) return status;
    r->until = d->selected ? delayed_now() + d->delay : 0;
    d->n_delayed += d->selected;
    if (++d->under_way > d->most) d->most = d->under_way;
    *request = r;
    return SY_OK;
}

static inline int delayed_wait(void *context, void *request)
{
    struct delayed *d = context;
    struct delayed_request *r = request;
    void *inner = r->request;
    struct timespec until = {(time_t)(r->until / 1000000000), (long)(r->until % 1000000000)};
    while (r->until && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR) continue;
    r->request = NULL;
    d->under_way--;
    return d->inner->table->wait(d->inner->context, inner);
}

static inline int delayed_barrier(void *context)
{
    struct delayed *d = context;
    return d->inner->table->barrier(d->inner->context);
}

static inline void delayed_abort(void *context, const char *text)
{
    struct delayed *d = context;
    d->inner->table->abort(d->inner->context, text);
}

static const struct sy_collective_table delayed_table = {
    .bytes = sizeof delayed_table,
    .world = delayed_world,
    .group_new = delayed_group_new,
    .group_free = delayed_group_free,
    .start = delayed_start,
    .wait = delayed_wait,
    .barrier = delayed_barrier,
    .abort = delayed_abort,
};

/* End with syi_comm_close(&d->comm). */
static inline void delayed_open(struct delayed *d, struct syi_comm *inner)
{
    memset(d, 0, sizeof *d);
    d->inner = inner;
    d->comm.table = &delayed_table;
    d->comm.context = d;
    d->comm.rank = inner->rank;
    d->comm.ranks = inner->ranks;
}

#endif
