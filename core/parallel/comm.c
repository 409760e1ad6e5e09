/* SPDX-License-Identifier: Apache-2.0 */
/* What all kinds of communication share: groups and error texts. */
#include "config.h"

#include <string.h>

#include "parallel/comm.h"
#include "runtime/backend.h"

static int fail(struct syi_comm *comm, int status, const char *what, struct sy_error *err)
{
    if (comm->backend) return syi_backend_error(comm->backend, status, what, err);
    const char *reason = comm->reason ? comm->reason(comm->context) : "";
    return syi_error(err, status, "rank %d of %d: %s: %s", comm->rank, comm->ranks, what,
                     reason[0] ? reason : sy_status_text(status));
}

int syi_comm_from_backend(struct syi_comm *comm, struct syi_backend *backend, struct sy_error *err)
{
    memset(comm, 0, sizeof(*comm));
    comm->table = backend->plugin.desc.collectives;
    comm->context = backend->context;
    comm->backend = backend;
    if (!comm->table)
        return syi_error(err, SY_EUNSUPPORTED, "backend %s has no collectives: choose another --comm",
                         backend->plugin.desc.name);
    int status = comm->table->world(comm->context, &comm->rank, &comm->ranks);
    return status == SY_OK ? SY_OK : fail(comm, status, "number of ranks", err);
}

void syi_comm_keep(struct syi_comm *comm, int n)
{
    while (comm->n_groups > n) comm->table->group_free(comm->context, comm->group[--comm->n_groups].handle);
}

void syi_comm_close(struct syi_comm *comm)
{
    syi_comm_keep(comm, 0);
}

int syi_comm_group_new(struct syi_comm *comm, const int *ranks, int n, int *group, struct sy_error *err)
{
    struct syi_comm_group *fresh = &comm->group[comm->n_groups];
    int mine = -1;
    if (comm->n_groups == SYI_COMM_MAX_GROUPS)
        return syi_error(err, SY_EINTERNAL, "more than %d groups of ranks", SYI_COMM_MAX_GROUPS);
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->ranks || (ranks[i] == comm->rank && mine >= 0))
            return syi_error(err, SY_EINTERNAL, "rank %d in a group: there are ranks 0 to %d, each once",
                             ranks[i], comm->ranks - 1);
        if (ranks[i] == comm->rank) mine = i;
    }
    if (mine < 0) return syi_error(err, SY_EINTERNAL, "rank %d makes a group without itself", comm->rank);
    int status = comm->table->group_new(comm->context, ranks, n, &fresh->handle);
    if (status != SY_OK) return fail(comm, status, "making a group of ranks", err);
    fresh->n = n;
    fresh->rank = mine;
    *group = comm->n_groups++;
    return SY_OK;
}

int syi_comm_start(struct syi_comm *comm, int group, const struct sy_collective *call, void **request,
                   struct sy_error *err)
{
    int status = comm->table->start(comm->context, comm->group[group].handle, call, request);
    return status == SY_OK ? SY_OK : fail(comm, status, "starting a collective", err);
}

int syi_comm_wait(struct syi_comm *comm, void *request, struct sy_error *err)
{
    double begin = syi_seconds();
    int status = comm->table->wait(comm->context, request);
    comm->waited += syi_seconds() - begin;
    return status == SY_OK ? SY_OK : fail(comm, status, "waiting for a collective", err);
}

int syi_comm_barrier(struct syi_comm *comm, struct sy_error *err)
{
    double begin = syi_seconds();
    int status = comm->table->barrier(comm->context);
    comm->waited += syi_seconds() - begin;
    return status == SY_OK ? SY_OK : fail(comm, status, "waiting for all ranks", err);
}

void syi_comm_abort(struct syi_comm *comm, const char *text)
{
    comm->table->abort(comm->context, text);
}

int syi_comm_conclude(struct syi_comm *comm, int status, int *complete, struct sy_error *err)
{
    struct sy_error own = *err;
    char text[sizeof own.text];
    snprintf(text, sizeof text, "%s", own.text);
    int failed = comm->table->conclude(comm->context, &status, text, sizeof text);
    *complete = failed == SY_OK;
    *err = (struct sy_error){0};
    if (failed && !own.code) return fail(comm, failed, "meeting all ranks", err);
    return status ? syi_error(err, status, "%s", failed ? own.text : text) : SY_OK;
}

int syi_comm_gather(struct syi_comm *comm, const void *data, size_t bytes, void *all, struct sy_error *err)
{
    struct sy_collective call = {.kind = SY_COLLECTIVE_ALL_GATHER,
                                 .send = data,
                                 .recv = all,
                                 .send_outer = 1,
                                 .send_inner = bytes,
                                 .recv_outer = 1,
                                 .recv_inner = bytes};
    void *request;
    int group, *ranks = syi_alloc((size_t)comm->ranks * sizeof *ranks, err);
    if (!ranks) return SY_ENOMEM;
    for (int i = 0; i < comm->ranks; i++) ranks[i] = i;
    int status = syi_comm_group_new(comm, ranks, comm->ranks, &group, err);
    syi_free(ranks);
    if (status) return status;
    status = syi_comm_start(comm, group, &call, &request, err);
    if (!status) status = syi_comm_wait(comm, request, err);
    syi_comm_keep(comm, comm->n_groups - 1); /* the newest served once */
    return status;
}

int syi_comm_same(struct syi_comm *comm, const void *data, size_t bytes, int *odd, struct sy_error *err)
{
    *odd = -1;
    if (comm->ranks == 1) return SY_OK;
    char *all = syi_alloc((size_t)comm->ranks * bytes, err);
    if (!all) return SY_ENOMEM;
    int status = syi_comm_gather(comm, data, bytes, all, err);
    for (int i = comm->ranks - 1; !status && i > 0; i--)
        if (memcmp(all, all + (size_t)i * bytes, bytes)) *odd = i;
    syi_free(all);
    return status;
}

uint64_t syi_comm_reduce_bytes(int dtype)
{
    return dtype == SY_F32 ? sizeof(float) : dtype == SY_F64 || dtype == SY_I64 ? sizeof(double) : 0;
}
