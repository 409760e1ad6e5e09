/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives that the backend does on device memory. The communication of the run joins ranks as ever, and here it
 * hands round the id by which their devices find each other. A link moves whole pieces: where a tensor is cut
 * along an inner dimension, rows are copied to staging memory of the device before, or from it afterwards. */
#include "config.h"

#include <string.h>

#include "runtime/device.h"

const struct sy_link_table *syi_links_of(const struct syi_backend *backend)
{
    const struct sy_link_table *links = backend->plugin.desc.links;
    return links && links->linked(backend->context) == 1 ? links : NULL;
}

int syi_link_packs(const struct sy_collective *call, int side)
{
    return call->kind != SY_COLLECTIVE_ALL_REDUCE && (side ? call->recv_outer : call->send_outer) > 1;
}

/* ---- making ---- */

/* What a member of a group says to the others. */
struct word {
    struct sy_error failure; /* code 0: none */
    uint8_t id[SY_LINK_ID_BYTES];
};

/* All members bring a word: *first is that of the group's rank 0, or all fail as the first that failed. */
static int meet(struct syi_comm *comm, int group, const struct word *mine, struct word *first,
                struct sy_error *err)
{
    int n = comm->group[group].n;
    struct word *all = syi_alloc((size_t)n * sizeof *all, err);
    int status = all ? syi_comm_gather_in(comm, group, mine, sizeof *mine, all, err) : SY_ENOMEM;
    for (int i = 0; i < n && !status; i++)
        if (all[i].failure.code) status = syi_error(err, all[i].failure.code, "%s", all[i].failure.text);
    if (!status) *first = all[0];
    syi_free(all);
    return status;
}

static int make(struct syi_backend *backend, struct syi_comm *comm, int group, void **handle,
                struct sy_error *err)
{
    const struct sy_link_table *links = backend->plugin.desc.links;
    struct word mine = {0}, first = {0};
    int rank = comm->group[group].rank, n = comm->group[group].n;
    int status = rank ? SY_OK : links->id_new(backend->context, mine.id);
    if (status) syi_backend_error(backend, status, "naming a group of devices", &mine.failure);
    status = meet(comm, group, &mine, &first, err);
    if (status) return status;
    *handle = NULL;
    status = links->group_new(backend->context, first.id, rank, n, handle);
    if (status) syi_backend_error(backend, status, "joining a group of devices", &mine.failure);
    status = meet(comm, group, &mine, &first, err);
    if (status && *handle) links->group_free(backend->context, *handle);
    return status;
}

/* Made once for all sessions of the backend; a group that the communicator made anew has another serial. */
static int find(struct syi_backend *backend, struct syi_comm *comm, int group, void **handle,
                struct sy_error *err)
{
    uint64_t serial = comm->group[group].serial;
    for (size_t i = 0; i < backend->n_links; i++)
        if (backend->link[i].serial == serial) {
            *handle = backend->link[i].handle;
            return SY_OK;
        }
    int status = SYI_GROW(backend->link, backend->cap_links, backend->n_links + 1, err);
    if (!status) status = make(backend, comm, group, handle, err);
    if (!status) backend->link[backend->n_links++] = (struct syi_link){serial, *handle};
    return status;
}

int syi_link_connect(struct syi_session *session, struct syi_transfer *t, struct sy_error *err)
{
    uint8_t *staging = session->place[SYI_STAGING];
    t->ranks = (uint64_t)session->options.comm->group[t->group].n;
    t->linked = t->call;
    t->linked.send_inner *= t->call.send_outer;
    t->linked.recv_inner *= t->call.recv_outer;
    t->linked.send_outer = t->linked.recv_outer = 1;
    if (syi_link_packs(&t->call, 0)) t->linked.send = staging + t->stage[0];
    if (syi_link_packs(&t->call, 1)) t->linked.recv = staging + t->stage[1];
    return find(session->options.backend, session->options.comm, t->group, &t->link, err);
}

/* ---- running ---- */

static int copy_rows(const struct syi_session *s, void *to, uint64_t to_stride, const void *from,
                     uint64_t from_stride, uint64_t row, uint64_t rows)
{
    return s->device->copy_rows(s->options.backend->context, to, to_stride, from, from_stride, row, rows);
}

static int pack(const struct syi_transfer *t)
{
    const uint64_t inner = t->call.send_inner, piece = t->linked.send_inner;
    int status = SY_OK;
    for (uint64_t p = 0; p < t->ranks && !status; p++)
        status =
            copy_rows(t->session, (uint8_t *)t->linked.send + p * piece, inner,
                      (const uint8_t *)t->call.send + p * inner, t->ranks * inner, inner, t->call.send_outer);
    return status;
}

static int unpack(const struct syi_transfer *t)
{
    const uint64_t inner = t->call.recv_inner, piece = t->linked.recv_inner;
    int status = SY_OK;
    for (uint64_t p = 0; p < t->ranks && !status; p++)
        status = copy_rows(t->session, (uint8_t *)t->call.recv + p * inner, t->ranks * inner,
                           (const uint8_t *)t->linked.recv + p * piece, inner, inner, t->call.recv_outer);
    return status;
}

int syi_link_start(void *transfer, const struct sy_call *call)
{
    const struct syi_transfer *t = transfer;
    struct syi_session *s = t->session;
    int status = syi_link_packs(&t->call, 0) ? pack(t) : SY_OK;
    (void)call;
    return status ? status : s->links->start(s->options.backend->context, t->link, &t->linked);
}

int syi_link_wait(void *transfer, const struct sy_call *call)
{
    const struct syi_transfer *t = transfer;
    struct syi_session *s = t->session;
    int status = s->links->wait(s->options.backend->context, t->link);
    (void)call;
    return !status && syi_link_packs(&t->call, 1) ? unpack(t) : status;
}
