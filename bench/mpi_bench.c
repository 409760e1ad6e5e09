/* SPDX-License-Identifier: Apache-2.0 */
/* What the MPI backend adds to MPI: its collectives and the raw MPI calls on the same buffers, in turn,
 * medians of 20. Built and run by `make bench-mpi`; knows nothing of models. */
#include "config.h"

#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "comm/comm.h"
#include "runtime/backend.h"

enum { REPEATS = 20, WARM = 3, MAX_RANKS = 64 };
static const uint64_t LEAST = 64 << 10, MOST = 64 << 20; /* bytes of a rank's buffer */

static struct syi_comm comm;
static int group;
static char *send, *recv, *sums;

static void check(int status, const struct sy_error *err)
{
    if (!status) return;
    fprintf(stderr, "mpi_bench: %s\n", err->text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void run(struct sy_collective call)
{
    struct sy_error err = {0};
    void *request;
    check(syi_comm_start(&comm, group, &call, &request, &err), &err);
    check(syi_comm_wait(&comm, request, &err), &err);
}

/* ---- what is compared; bytes: of a rank's buffer ---- */

static int piece_of(uint64_t bytes)
{
    return (int)(bytes / (uint64_t)comm.ranks);
}

static void exchange(uint64_t bytes)
{
    uint64_t piece = (uint64_t)piece_of(bytes);
    run((struct sy_collective){.kind = SY_COLLECTIVE_ALL_TO_ALL,
                               .send = send,
                               .recv = recv,
                               .send_outer = 1,
                               .send_inner = piece,
                               .recv_outer = 1,
                               .recv_inner = piece});
}

static void raw_exchange(uint64_t bytes)
{
    int piece = piece_of(bytes);
    MPI_Alltoall(send, piece, MPI_BYTE, recv, piece, MPI_BYTE, MPI_COMM_WORLD);
}

static void sum(uint64_t bytes)
{
    run((struct sy_collective){.kind = SY_COLLECTIVE_ALL_REDUCE,
                               .dtype = SY_F32,
                               .send = send,
                               .recv = recv,
                               .elements = bytes / sizeof(float)});
}

static void raw_sum(uint64_t bytes)
{
    MPI_Allreduce(send, recv, (int)(bytes / sizeof(float)), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
}

static void gather_sums(uint64_t piece)
{
    run((struct sy_collective){.kind = SY_COLLECTIVE_ALL_GATHER,
                               .send = sums,
                               .recv = send,
                               .send_outer = 1,
                               .send_inner = piece,
                               .recv_outer = 1,
                               .recv_inner = piece});
}

/* The two halves of the reproducible sum; the local sum between them belongs to the compute backend. */
static void reproducible(uint64_t bytes)
{
    exchange(bytes);
    gather_sums((uint64_t)piece_of(bytes));
}

static void raw_reproducible(uint64_t bytes)
{
    raw_exchange(bytes);
    MPI_Allgather(sums, piece_of(bytes), MPI_BYTE, send, piece_of(bytes), MPI_BYTE, MPI_COMM_WORLD);
}

/* ---- measuring ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double once(void (*fn)(uint64_t bytes), uint64_t bytes)
{
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime();
    fn(bytes);
    return MPI_Wtime() - begin;
}

/* Seconds of a and b, medians on rank 0; a b, b a, ... so that neither always comes first. */
static void measure(void (*a)(uint64_t bytes), void (*b)(uint64_t bytes), uint64_t bytes, double median[2])
{
    double seconds[2][REPEATS];
    for (int i = -WARM; i < REPEATS; i++) {
        double x = 0, y = 0;
        if (i % 2 == 0) x = once(a, bytes);
        y = once(b, bytes);
        if (i % 2 != 0) x = once(a, bytes);
        if (i < 0) continue;
        seconds[0][i] = x;
        seconds[1][i] = y;
    }
    for (int i = 0; i < 2; i++) {
        qsort(seconds[i], REPEATS, sizeof(double), compare);
        median[i] = (seconds[i][REPEATS / 2 - 1] + seconds[i][REPEATS / 2]) / 2;
    }
}

int main(void)
{
    static const struct {
        const char *name, *raw;
        void (*fn)(uint64_t bytes), (*raw_fn)(uint64_t bytes);
    } rows[] = {{"all-to-all", "MPI_Alltoall", exchange, raw_exchange},
                {"all-reduce", "MPI_Allreduce", sum, raw_sum},
                {"reproducible all-reduce", "MPI_Alltoall + MPI_Allgather", reproducible, raw_reproducible}};
    struct sy_error err = {0};
    struct syi_backend *backend;
    int ranks[MAX_RANKS];
    check(syi_backend_open("mpi", NULL, NULL, &backend, &err), &err);
    check(syi_backend_comm(backend, &comm, &err), &err);
    if (comm.ranks > MAX_RANKS) check(syi_error(&err, SY_EINVAL, "at most %d ranks", MAX_RANKS), &err);
    for (int i = 0; i < comm.ranks; i++) ranks[i] = i;
    check(syi_comm_group_new(&comm, ranks, comm.ranks, &group, &err), &err);
    send = calloc(1, MOST);
    recv = calloc(1, MOST);
    sums = calloc(1, MOST);
    if (!send || !recv || !sums) check(syi_error(&err, SY_ENOMEM, "out of memory"), &err);
    if (comm.rank == 0) printf("%d ranks, %s; microseconds, ratio\n", comm.ranks, backend->plugin.desc.build);
    for (size_t row = 0; row < SYI_COUNT(rows); row++)
        for (uint64_t bytes = LEAST; bytes <= MOST; bytes *= 4) {
            double median[2];
            measure(rows[row].fn, rows[row].raw_fn, bytes, median);
            if (comm.rank == 0)
                printf("%-24s %9llu bytes  %10.1f   %-28s %10.1f   %5.3f\n", rows[row].name,
                       (unsigned long long)bytes, 1e6 * median[0], rows[row].raw, 1e6 * median[1],
                       median[0] / median[1]);
        }
    free(send);
    free(recv);
    free(sums);
    syi_comm_close(&comm);
    syi_backend_close(backend);
    return 0;
}
