/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of few ranks and of more than a few bytes, as messages from each rank to each: MPI's own ones
 * that do not block are slower by up to a half, and those that block could not be stopped when a rank fails.
 * A rank's own piece is copied first where the others get the same bytes, which are in the cache then. A sum
 * is an exchange of pieces, a local sum in the order own, then ascending ranks, and a gathering; the owner of
 * a piece sums it for all, so all ranks have the same bits. */
#include "config.h"

#include <limits.h>
#include <stdlib.h>

#include "backends/mpi/mpi_backend.h"
#include "base/copy_runs.h"

enum { TAG = 1, LEAST_SUM = 16 * 1024 }; /* bytes, below: two trips cost more than they save */

/* What goes to or comes from one rank; the next rank's begins `step` bytes after it. */
struct side {
    char *at;
    uint64_t step;
    struct sympi_piece piece;
};

/* The rank that is `i` places before this one in a ring, or after it: each begins with another one. */
static int before(const struct sympi_group *group, int i)
{
    return (group->rank + group->n - i) % group->n;
}
static int after(const struct sympi_group *group, int i)
{
    return (group->rank + i) % group->n;
}

/* One message more of the request; MPI's code. */
static int receive(struct sympi_group *group, void *at, int count, MPI_Datatype type, int peer)
{
    struct sympi_request *request = &group->request;
    int code = MPI_Irecv(at, count, type, peer, TAG, group->comm, &request->part[request->n_parts]);
    request->n_parts += code == MPI_SUCCESS;
    return code;
}
static int send(struct sympi_group *group, const void *at, int count, MPI_Datatype type, int peer)
{
    struct sympi_request *request = &group->request;
    int code = MPI_Isend(at, count, type, peer, TAG, group->comm, &request->part[request->n_parts]);
    request->n_parts += code == MPI_SUCCESS;
    return code;
}

/* Receives from and sends to all others. */
static int post(struct sympi_group *group, const struct side *from, const struct side *to)
{
    int code = MPI_SUCCESS;
    for (int i = 1; i < group->n && code == MPI_SUCCESS; i++) {
        int peer = before(group, i);
        code = receive(group, to->at + to->step * (uint64_t)peer, to->piece.count, to->piece.type, peer);
    }
    for (int i = 1; i < group->n && code == MPI_SUCCESS; i++) {
        int peer = after(group, i);
        code = send(group, from->at + from->step * (uint64_t)peer, from->piece.count, from->piece.type, peer);
    }
    return code;
}

/* ---- exchanges ---- */

int sympi_direct_exchange(struct sympi_group *group, const struct sy_collective *call,
                          const struct sympi_piece *send, const struct sympi_piece *recv)
{
    const uint64_t n = (uint64_t)group->n, rank = (uint64_t)group->rank;
    const uint64_t bytes = call->recv_outer * call->recv_inner;
    const int gather = call->kind == SY_COLLECTIVE_ALL_GATHER;
    const uint64_t inner = gather ? bytes : call->send_inner;
    struct side from = {(char *)call->send, gather ? 0 : inner, *send};
    struct side to = {call->recv, call->recv_inner, *recv};
    int code = gather ? MPI_SUCCESS : post(group, &from, &to);
    syi_copy_runs(to.at + to.step * rank, to.step, to.step * n, from.at + from.step * rank, inner,
                  gather ? inner : inner * n, bytes);
    return gather ? post(group, &from, &to) : code;
}

/* ---- sums ---- */

static uint64_t elements_of(const struct sympi_group *group, int rank)
{
    uint64_t begin = group->sum.piece * (uint64_t)rank, all = group->sum.elements;
    return begin >= all ? 0 : all - begin < group->sum.piece ? all - begin : group->sum.piece;
}

/* All others' terms of this rank's piece are there: sums them, sends the sum to everyone. */
static int add_and_gather(struct sympi_request *request)
{
    struct sympi_group *group = request->group;
    struct sympi_sum *sum = &group->sum;
    uint64_t bytes = sum->piece * sum->size, mine = elements_of(group, group->rank);
    char *own = sum->recv + bytes * (uint64_t)group->rank, *term = sum->terms;
    int code = MPI_SUCCESS;
    if (sum->send != sum->recv) memcpy(own, sum->send + bytes * (uint64_t)group->rank, mine * sum->size);
    for (int i = 1; i < group->n && code == MPI_SUCCESS; i++, term += bytes)
        code = MPI_Reduce_local(term, own, (int)mine, sum->type, MPI_SUM);
    request->n_parts = 0;
    request->then = NULL;
    for (int i = 1; i < group->n && code == MPI_SUCCESS; i++) {
        int peer = before(group, i);
        code = receive(group, sum->recv + bytes * (uint64_t)peer, (int)elements_of(group, peer), sum->type,
                       peer);
    }
    for (int i = 1; i < group->n && code == MPI_SUCCESS; i++)
        code = send(group, own, (int)mine, sum->type, after(group, i));
    return code;
}

static int send_terms(struct sympi_group *group)
{
    struct sympi_sum *sum = &group->sum;
    uint64_t bytes = sum->piece * sum->size;
    char *term = sum->terms;
    int mine = (int)elements_of(group, group->rank), code = MPI_SUCCESS;
    for (int peer = 0; peer < group->n && code == MPI_SUCCESS; peer++) {
        if (peer == group->rank) continue;
        code = receive(group, term, mine, sum->type, peer);
        term += bytes;
    }
    for (int i = 1; i < group->n && code == MPI_SUCCESS; i++) {
        int peer = after(group, i);
        code =
            send(group, sum->send + bytes * (uint64_t)peer, (int)elements_of(group, peer), sum->type, peer);
    }
    group->request.then = add_and_gather;
    return code;
}

int sympi_is_direct(const struct sympi_group *group, const struct sy_collective *call, uint64_t size)
{
    if (group->n < 2 || group->n > SYMPI_DIRECT) return 0;
    if (call->kind != SY_COLLECTIVE_ALL_REDUCE) return 1;
    return call->elements * size >= LEAST_SUM && call->elements <= INT_MAX;
}

int sympi_direct_sum(struct sympi_group *group, const struct sy_collective *call, MPI_Datatype type,
                     uint64_t size)
{
    struct sympi_sum *sum = &group->sum;
    const uint64_t n = (uint64_t)group->n, piece = (call->elements + n - 1) / n;
    const uint64_t need = piece * size * (n - 1);
    if (sum->terms_bytes < need) { /* the largest sum of a group settles it */
        free(sum->terms);
        sum->terms = malloc(need);
        sum->terms_bytes = sum->terms ? need : 0;
        if (!sum->terms) return MPI_ERR_NO_MEM;
    }
    sum->send = call->send;
    sum->recv = call->recv;
    sum->type = type;
    sum->size = size;
    sum->piece = piece;
    sum->elements = call->elements;
    return send_terms(group);
}
