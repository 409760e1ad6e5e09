/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of a single rank: everything is a copy, done by start. */
#include "config.h"

#include <string.h>

#include "comm/comm.h"

static char here; /* stands for the only group and the only request */

static int world(void *context, int *rank, int *ranks)
{
    (void)context;
    *rank = 0;
    *ranks = 1;
    return SY_OK;
}

static int group_new(void *context, const int *ranks, int n, void **group)
{
    (void)context;
    *group = &here;
    return n == 1 && ranks[0] == 0 ? SY_OK : SY_EINVAL;
}

static void group_free(void *context, void *group)
{
    (void)context, (void)group;
}

static int start(void *context, void *group, const struct sy_collective *call, void **request)
{
    (void)context, (void)group;
    uint64_t bytes = call->send_outer * call->send_inner;
    if (call->kind == SY_COLLECTIVE_ALL_REDUCE) {
        bytes = call->elements * syi_comm_reduce_bytes(call->dtype);
        if (bytes == 0 && call->elements) return SY_EUNSUPPORTED;
    } else if (bytes != call->recv_outer * call->recv_inner) {
        return SY_EINTERNAL;
    }
    if (bytes && call->recv != call->send) memcpy(call->recv, call->send, (size_t)bytes);
    *request = &here;
    return SY_OK;
}

static int wait(void *context, void *request)
{
    (void)context, (void)request;
    return SY_OK;
}

static int barrier(void *context)
{
    (void)context;
    return SY_OK;
}

static void stop(void *context, const char *text)
{
    (void)context, (void)text;
} /* there is no other rank to stop */

static const struct sy_collective_table table = {
    .bytes = sizeof(table),
    .world = world,
    .group_new = group_new,
    .group_free = group_free,
    .start = start,
    .wait = wait,
    .barrier = barrier,
    .abort = stop,
};

void syi_comm_self(struct syi_comm *comm)
{
    memset(comm, 0, sizeof(*comm));
    comm->table = &table;
    comm->ranks = 1;
}
