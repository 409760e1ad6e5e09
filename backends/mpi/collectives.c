/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives table: over messages between the ranks where they are few (direct.c), else over MPI's
 * nonblocking collectives. How a buffer is cut into pieces is an MPI datatype, so nothing is packed here, and
 * sizes beyond 2^31 bytes fit one count. */
#include "config.h"

#include <limits.h>
#include <stdlib.h>

#include "backends/mpi/mpi_backend.h"

enum { MEBIBYTE = 1 << 20, PART = 1 << 30 }; /* bytes of a large run's unit; elements of one sum */
enum { MEET = 1 };                           /* tag; the only messages of mpi->world */

static int world(void *context, int *rank, int *ranks)
{
    const struct sympi *mpi = context;
    *rank = mpi->rank;
    *ranks = mpi->ranks;
    return SY_OK;
}

/* ---- groups ---- */

/* The ranks of a group to be, this one at `at`, have all come. MPI makes a group in a call that neither ends after a time nor
 * for a message to stop, so they meet before it: in round d each hears from the rank d places before it, which has heard of the
 * d - 1 before that one. */
static int meet(struct sympi *mpi, const int *ranks, int n, int at)
{
    int status = SY_OK;
    for (int d = 1; d < n && !status; d *= 2) {
        struct sympi_request request = {.n_parts = 2};
        pthread_mutex_lock(&mpi->lock);
        int code = MPI_Irecv(NULL, 0, MPI_BYTE, ranks[(at - d + n) % n], MEET, mpi->world, &request.part[0]);
        if (code == MPI_SUCCESS)
            code = MPI_Isend(NULL, 0, MPI_BYTE, ranks[(at + d) % n], MEET, mpi->world, &request.part[1]);
        pthread_mutex_unlock(&mpi->lock);
        status = code == MPI_SUCCESS ? sympi_await(mpi, &request, "a group of ranks to come together")
                                     : sympi_fail_code(mpi, "meeting before MPI_Comm_create_group", code);
    }
    return status;
}

static int make_comm(const struct sympi *mpi, const int *ranks, int n, MPI_Comm *comm)
{
    MPI_Group all, some;
    int code = MPI_Comm_group(mpi->world, &all);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Group_incl(all, n, ranks, &some);
    if (code == MPI_SUCCESS) {
        code = MPI_Comm_create_group(mpi->world, some, 0, comm);
        MPI_Group_free(&some);
    }
    MPI_Group_free(&all);
    return code == MPI_SUCCESS ? MPI_Comm_set_errhandler(*comm, MPI_ERRORS_RETURN) : code;
}

static int group_new(void *context, const int *ranks, int n, void **handle)
{
    struct sympi *mpi = context;
    struct sympi_group *group = calloc(1, sizeof *group);
    if (!group) return SY_ENOMEM;
    group->n = n;
    group->request.group = group;
    while (group->rank < n - 1 && ranks[group->rank] != mpi->rank) group->rank++;
    int status = meet(mpi, ranks, n, group->rank);
    if (status) {
        free(group);
        return status;
    }
    pthread_mutex_lock(&mpi->lock);
    int stop = sympi_stop_came(mpi), code = stop ? MPI_SUCCESS : make_comm(mpi, ranks, n, &group->comm);
    pthread_mutex_unlock(&mpi->lock);
    if (!stop && code == MPI_SUCCESS) {
        *handle = group;
        return SY_OK;
    }
    free(group);
    return stop ? sympi_stop_follow(mpi) : sympi_fail_code(mpi, "MPI_Comm_create_group", code);
}

static void group_free(void *context, void *handle)
{
    struct sympi *mpi = context;
    struct sympi_group *group = handle;
    pthread_mutex_lock(&mpi->lock);
    if (!mpi->concluded) MPI_Comm_free(&group->comm);
    pthread_mutex_unlock(&mpi->lock);
    free(group->sum.terms);
    free(group);
}

/* ---- pieces as datatypes ---- */

/* n bytes in a row. */
static int run_type(uint64_t n, MPI_Datatype *type)
{
    MPI_Datatype unit;
    if (n <= INT_MAX) return MPI_Type_contiguous((int)n, MPI_BYTE, type);
    if (n / MEBIBYTE > INT_MAX) return MPI_ERR_COUNT;
    int code = MPI_Type_contiguous(MEBIBYTE, MPI_BYTE, &unit);
    if (code != MPI_SUCCESS) return code;
    MPI_Datatype types[2] = {unit, MPI_BYTE};
    code = MPI_Type_create_struct(2, (int[]){(int)(n / MEBIBYTE), (int)(n % MEBIBYTE)},
                                  (MPI_Aint[]){0, (MPI_Aint)(n / MEBIBYTE * MEBIBYTE)}, types, type);
    MPI_Type_free(&unit);
    return code;
}

/* `outer` runs of `inner` bytes, `stride` bytes from one to the next; the next piece begins after one
 * run. */
static int runs_type(uint64_t outer, uint64_t inner, uint64_t stride, MPI_Datatype *type)
{
    MPI_Datatype run, runs;
    if (outer > INT_MAX) return MPI_ERR_COUNT;
    int code = run_type(inner, &run);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_create_hvector((int)outer, 1, (MPI_Aint)stride, run, &runs);
    MPI_Type_free(&run);
    if (code != MPI_SUCCESS) return code;
    code = MPI_Type_create_resized(runs, 0, (MPI_Aint)inner, type);
    MPI_Type_free(&runs);
    return code == MPI_SUCCESS ? MPI_Type_commit(type) : code;
}

static int piece_of(uint64_t outer, uint64_t inner, uint64_t n, struct sympi_piece *piece)
{
    *piece = (struct sympi_piece){MPI_BYTE, 0, 0};
    if (!outer || !inner) return MPI_SUCCESS;
    if (outer == 1 && inner <= INT_MAX) {
        piece->count = (int)inner;
        return MPI_SUCCESS;
    }
    piece->count = piece->owned = 1;
    return runs_type(outer, inner, inner * n, &piece->type);
}

static void piece_free(struct sympi_piece *piece)
{
    if (piece->owned) MPI_Type_free(&piece->type); /* what uses it is carried through */
}

/* ---- start ---- */

static int start_exchange(struct sympi_group *group, const struct sy_collective *call)
{
    struct sympi_piece send, recv;
    uint64_t n = (uint64_t)group->n;
    int gather = call->kind == SY_COLLECTIVE_ALL_GATHER;
    int code = gather ? piece_of(1, call->send_outer * call->send_inner, n, &send)
                      : piece_of(call->send_outer, call->send_inner, n, &send);
    if (code != MPI_SUCCESS) return code;
    code = piece_of(call->recv_outer, call->recv_inner, n, &recv);
    if (code == MPI_SUCCESS && sympi_is_direct(group, call, 0))
        code = sympi_direct_exchange(group, call, &send, &recv);
    else if (code == MPI_SUCCESS)
        code = gather ? MPI_Iallgather(call->send, send.count, send.type, call->recv, recv.count, recv.type,
                                       group->comm, group->request.part)
                      : MPI_Ialltoall(call->send, send.count, send.type, call->recv, recv.count, recv.type,
                                      group->comm, group->request.part);
    if (code == MPI_SUCCESS && !group->request.n_parts) group->request.n_parts = 1;
    piece_free(&send);
    piece_free(&recv);
    return code;
}

static MPI_Datatype sum_type(int dtype)
{
    switch (dtype) {
    case SY_F32: return MPI_FLOAT;
    case SY_F64: return MPI_DOUBLE;
    case SY_I64: return MPI_INT64_T;
    default: return MPI_DATATYPE_NULL;
    }
}

static int start_sum(struct sympi_group *group, const struct sy_collective *call)
{
    uint64_t size = call->dtype == SY_F32 ? sizeof(float) : sizeof(double), left = call->elements;
    const char *from = call->send;
    char *to = call->recv;
    struct sympi_request *request = &group->request;
    if (sympi_is_direct(group, call, size)) return sympi_direct_sum(group, call, sum_type(call->dtype), size);
    do {
        uint64_t n = left < PART ? left : PART;
        int code = MPI_Iallreduce(from == to ? MPI_IN_PLACE : from, to, (int)n, sum_type(call->dtype),
                                  MPI_SUM, group->comm, &request->part[request->n_parts]);
        if (code != MPI_SUCCESS) return code;
        request->n_parts++;
        left -= n;
        from += n * size;
        to += n * size;
    } while (left);
    return MPI_SUCCESS;
}

static int check(const struct sympi *mpi, const struct sympi_group *group, const struct sy_collective *call)
{
    if (group->request.n_parts) return sympi_fail(mpi, "two collectives of a group of ranks at a time");
    if (call->kind != SY_COLLECTIVE_ALL_REDUCE)
        return call->kind < SY_COLLECTIVE_ALL_REDUCE ? SY_OK : SY_EUNSUPPORTED;
    if (sum_type(call->dtype) == MPI_DATATYPE_NULL) return SY_EUNSUPPORTED;
    if (call->elements <= (uint64_t)SYMPI_PARTS * PART) return SY_OK;
    return sympi_fail(mpi, "a sum of %llu elements: at most %llu are possible",
                      (unsigned long long)call->elements, (unsigned long long)SYMPI_PARTS * PART);
}

static int start(void *context, void *handle, const struct sy_collective *call, void **request)
{
    struct sympi *mpi = context;
    struct sympi_group *group = handle;
    int status = check(mpi, group, call), code = MPI_SUCCESS;
    if (status) return status;
    pthread_mutex_lock(&mpi->lock);
    int stop = sympi_stop_came(mpi);
    if (!stop)
        code = call->kind == SY_COLLECTIVE_ALL_REDUCE ? start_sum(group, call) : start_exchange(group, call);
    if (!stop && code == MPI_SUCCESS) {
        group->request.error = MPI_SUCCESS;
        group->request.active = 1;
        group->request.next = mpi->active;
        mpi->active = &group->request;
        if (mpi->asleep) pthread_cond_signal(&mpi->work);
    }
    pthread_mutex_unlock(&mpi->lock);
    if (stop) return sympi_stop_follow(mpi);
    if (code != MPI_SUCCESS) return sympi_fail_code(mpi, "starting a collective", code);
    *request = group;
    return SY_OK;
}

/* ---- wait ---- */

static int wait(void *context, void *handle)
{
    struct sympi *mpi = context;
    struct sympi_request *request = &((struct sympi_group *)handle)->request;
    if (mpi->concluded) return sympi_fail(mpi, "%s", mpi->text);
    pthread_mutex_lock(&mpi->lock);
    if (request->active) sympi_retire(mpi, request); /* this thread looks after it from here on */
    pthread_mutex_unlock(&mpi->lock);
    int status = request->error == MPI_SUCCESS ? sympi_await(mpi, request, "a collective")
                                               : sympi_fail_code(mpi, "a collective", request->error);
    request->n_parts = 0;
    return status;
}

static int barrier(void *context)
{
    struct sympi *mpi = context;
    struct sympi_request request = {.n_parts = 1};
    pthread_mutex_lock(&mpi->lock);
    int stop = sympi_stop_came(mpi), code = stop ? MPI_SUCCESS : MPI_Ibarrier(mpi->world, request.part);
    pthread_mutex_unlock(&mpi->lock);
    if (stop) return sympi_stop_follow(mpi);
    if (code != MPI_SUCCESS) return sympi_fail_code(mpi, "MPI_Ibarrier", code);
    return sympi_await(mpi, &request, "all ranks at a barrier");
}

const struct sy_collective_table sympi_collectives = {
    .bytes = sizeof sympi_collectives,
    .world = world,
    .group_new = group_new,
    .group_free = group_free,
    .start = start,
    .wait = wait,
    .barrier = barrier,
    .abort = sympi_abort,
    .conclude = sympi_conclude,
};
