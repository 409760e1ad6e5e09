/* SPDX-License-Identifier: Apache-2.0 */
/* The collectives of the MPI backend against those of comm thread: every rank does the same exercises over
 * both and compares all bytes it received. Run by collectives.sh under a launcher; `large` does one exchange
 * of more than 2^31 bytes instead, with `absent` a rank does not come to a group. */
#include "config.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "runtime/backend.h"

enum { MAX_RANKS = 16 };

/* One pass over a communication: what this rank received, as a hash. */
struct pass {
    struct syi_comm *comm;
    struct syi_sha256 hash;
    uint64_t round; /* numbers the contents of buffers */
};

static unsigned char content(uint64_t round, int rank, uint64_t at)
{
    uint64_t x = round * 1000003u + (uint64_t)rank * 7919u + at * 2654435761u;
    return (unsigned char)(x >> 7 ^ x >> 19);
}

static void *buffer(uint64_t bytes)
{
    void *memory = malloc(bytes + 64);
    if (!memory) abort();
    memset(memory, 0x5a, bytes + 64); /* what follows is hashed, too: nothing may be written there */
    return memory;
}

/* ---- exchanges ---- */

/* A collective under way and its buffers. */
struct flight {
    struct sy_collective call;
    void *request;
    unsigned char *send, *recv;
    uint64_t recv_bytes;
};

static int launch(struct pass *p, int group, int kind, const uint64_t cut[4], struct flight *f,
                  struct sy_error *err)
{
    uint64_t n = (uint64_t)p->comm->group[group].n, piece = cut[0] * cut[1];
    uint64_t send_bytes = kind == SY_COLLECTIVE_ALL_GATHER ? piece : piece * n;
    f->recv_bytes = piece * n;
    f->send = buffer(send_bytes);
    f->recv = buffer(f->recv_bytes);
    for (uint64_t i = 0; i < send_bytes; i++) f->send[i] = content(p->round, p->comm->rank, i);
    p->round++;
    f->call = (struct sy_collective){.kind = (uint8_t)kind, .send = f->send, .recv = f->recv};
    f->call.send_outer = kind == SY_COLLECTIVE_ALL_GATHER ? 1 : cut[0];
    f->call.send_inner = kind == SY_COLLECTIVE_ALL_GATHER ? piece : cut[1];
    f->call.recv_outer = cut[2];
    f->call.recv_inner = cut[3];
    return syi_comm_start(p->comm, group, &f->call, &f->request, err);
}

static int land(struct pass *p, struct flight *f, struct sy_error *err)
{
    int status = syi_comm_wait(p->comm, f->request, err);
    if (!status) syi_sha256_add(&p->hash, f->recv, f->recv_bytes + 64);
    free(f->send);
    free(f->recv);
    return status;
}

static int exchanges(struct pass *p, int group, struct sy_error *err)
{
    static const uint64_t cuts[][4] = {
        /* outer and inner of the sender, of the receiver */
        {0, 0, 0, 0},           {1, 1, 1, 1},          {1, 7, 7, 1},
        {3, 5, 5, 3},           {1, 4096, 4096, 1},    {64, 3, 1, 192},
        {257, 12, 4, 771},      {2, 50000, 1, 100000}, {1, 1 << 20, 1, 1 << 20},
        {1024, 1000, 8, 128000}};
    int status = SY_OK;
    for (size_t i = 0; i < SYI_COUNT(cuts); i++)
        for (int kind = SY_COLLECTIVE_ALL_GATHER; !status && kind <= SY_COLLECTIVE_ALL_TO_ALL; kind++) {
            struct flight f;
            status = launch(p, group, kind, cuts[i], &f, err);
            if (!status) status = land(p, &f, err);
        }
    return status;
}

/* Two groups at a time, waited for in the other order. */
static int overlap(struct pass *p, const int group[2], struct sy_error *err)
{
    static const uint64_t cut[4] = {16, 4096, 4, 16384};
    int status = SY_OK;
    for (int i = 0; !status && i < 50; i++) {
        struct flight f[2];
        status = launch(p, group[0], SY_COLLECTIVE_ALL_TO_ALL, cut, &f[0], err);
        if (!status) status = launch(p, group[1], SY_COLLECTIVE_ALL_GATHER, cut, &f[1], err);
        if (!status) status = land(p, &f[1], err);
        if (!status) status = land(p, &f[0], err);
        if (!status && i % 10 == 0) status = syi_comm_barrier(p->comm, err);
    }
    return status;
}

/* ---- sums: of whole numbers, which are exact in any order ---- */

static int sum(struct pass *p, int group, int dtype, uint64_t n, int in_place, struct sy_error *err)
{
    uint64_t bytes = n * syi_comm_reduce_bytes(dtype);
    void *send = buffer(bytes), *recv = in_place ? send : buffer(bytes), *request;
    struct sy_collective call = {
        .kind = SY_COLLECTIVE_ALL_REDUCE, .dtype = (uint8_t)dtype, .elements = n, .send = send, .recv = recv};
    for (uint64_t i = 0; i < n; i++) {
        int value = content(p->round, p->comm->rank, i) - 100;
        if (dtype == SY_F32) ((float *)send)[i] = (float)value;
        if (dtype == SY_F64) ((double *)send)[i] = value;
        if (dtype == SY_I64) ((int64_t *)send)[i] = value * (INT64_C(1) << 40);
    }
    p->round++;
    int status = syi_comm_start(p->comm, group, &call, &request, err);
    if (!status) status = syi_comm_wait(p->comm, request, err);
    if (!status) syi_sha256_add(&p->hash, recv, bytes + 64);
    if (!in_place) free(recv);
    free(send);
    return status;
}

static int sums(struct pass *p, int group, struct sy_error *err)
{
    static const int dtypes[] = {SY_F32, SY_F64, SY_I64};
    static const uint64_t sizes[] = {0, 1, 2, 3, 255, 1000, 65537, 1 << 20};
    struct sy_collective call = {.kind = SY_COLLECTIVE_ALL_REDUCE, .dtype = SY_BF16, .elements = 1};
    void *request;
    int status = SY_OK;
    for (size_t i = 0; !status && i < SYI_COUNT(dtypes) * SYI_COUNT(sizes) * 2; i++)
        status = sum(p, group, dtypes[i / 2 % 3], sizes[i / 6], i % 2 != 0, err);
    if (!status && syi_comm_start(p->comm, group, &call, &request, NULL) != SY_EUNSUPPORTED)
        status = syi_error(err, SY_EINTERNAL, "a sum of bfloat16 was not refused");
    return status;
}

/* ---- all of it ---- */

static int make_groups(struct syi_comm *comm, int group[4], struct sy_error *err)
{
    int all[MAX_RANKS], back[MAX_RANKS], half[MAX_RANKS], n = 0;
    for (int i = 0; i < comm->ranks; i++) {
        all[i] = i;
        back[i] = comm->ranks - 1 - i;
        if (i % 2 == comm->rank % 2) half[n++] = i;
    }
    int status = syi_comm_group_new(comm, all, comm->ranks, &group[0], err);
    if (!status) status = syi_comm_group_new(comm, back, comm->ranks, &group[1], err);
    if (!status) status = syi_comm_group_new(comm, half, n, &group[2], err);
    return status ? status : syi_comm_group_new(comm, &comm->rank, 1, &group[3], err);
}

static int exercise(struct syi_comm *comm, char hex[65], struct sy_error *err)
{
    struct pass p = {.comm = comm};
    int group[4], odd = 0, status = make_groups(comm, group, err);
    syi_sha256_init(&p.hash);
    for (int g = 0; !status && g < 4; g++) {
        status = exchanges(&p, group[g], err);
        if (!status) status = sums(&p, group[g], err);
    }
    if (!status) status = overlap(&p, (int[]){group[0], group[2]}, err);
    if (!status) status = syi_comm_same(comm, "equal", 6, &odd, err);
    if (!status && odd != -1) status = syi_error(err, SY_EINTERNAL, "equal bytes differ on rank %d", odd);
    const int mark = comm->rank == comm->ranks - 1;
    if (!status) status = syi_comm_same(comm, &mark, sizeof mark, &odd, err);
    if (!status && odd != (comm->ranks > 1 ? comm->ranks - 1 : -1))
        status = syi_error(err, SY_EINTERNAL, "rank %d is said to differ", odd);
    if (!status) syi_sha256_hex(&p.hash, hex);
    return status;
}

static int exercise_thread(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    char(*hex)[65] = arg;
    return exercise(comm, hex[comm->rank], err);
}

static int compare(struct syi_comm *comm, struct sy_error *err)
{
    char want[MAX_RANKS][65], got[65];
    if (comm->ranks > MAX_RANKS) return syi_error(err, SY_EINVAL, "at most %d ranks", MAX_RANKS);
    int status = exercise(comm, got, err);
    if (!status) status = syi_comm_thread_run(comm->ranks, exercise_thread, want, err);
    if (status || !strcmp(want[comm->rank], got)) return status;
    return syi_error(err, SY_EINTERNAL, "MPI gives other bytes than threads");
}

/* Rank 1 does not come to the group that the others make. */
static int absent(struct syi_comm *comm, struct sy_error *err)
{
    int group[4];
    while (comm->rank == 1) pause();
    return make_groups(comm, group, err);
}

/* 2^31 bytes and more in one run, and in one piece of two runs. */
static int large(struct syi_comm *comm, struct sy_error *err)
{
    const uint64_t bytes = (UINT64_C(1) << 31) + 4096 * 3;
    static const uint64_t outer[] = {1, 2};
    int group[4], status = make_groups(comm, group, err);
    for (size_t i = 0; !status && i < SYI_COUNT(outer); i++) {
        struct pass p = {.comm = comm, .round = i};
        struct flight f;
        const uint64_t cut[4] = {1, bytes, outer[i], bytes / outer[i]};
        status = launch(&p, group[0], SY_COLLECTIVE_ALL_GATHER, cut, &f, err);
        if (status) return status;
        status = syi_comm_wait(comm, f.request, err);
        for (uint64_t at = 0; !status && at < bytes; at += 4095)
            for (int from = 0; from < comm->ranks; from++) {
                uint64_t inner = bytes / outer[i], run = at / inner;
                uint64_t to = (run * (uint64_t)comm->ranks + (uint64_t)from) * inner + at % inner;
                if (f.recv[to] != content(i, from, at))
                    status = syi_error(err, SY_EINTERNAL, "byte %llu of rank %d is wrong",
                                       (unsigned long long)at, from);
            }
        free(f.send);
        free(f.recv);
    }
    return status;
}

static const struct {
    const char *name;
    int (*fn)(struct syi_comm *comm, struct sy_error *err);
} exercises[] = {{"", compare}, {"large", large}, {"absent", absent}};

int main(int argc, char **argv)
{
    size_t what = SYI_COUNT(exercises) - 1;
    while (what && strcmp(argc > 1 ? argv[1] : "", exercises[what].name)) what--;
    struct syi_backend *backend;
    struct syi_comm comm;
    struct sy_error err = {0};
    int complete = 1, status = syi_backend_open("mpi", NULL, NULL, &backend, &err);
    if (status) {
        fprintf(stderr, "%s\n", err.text);
        return 1;
    }
    status = syi_backend_comm(backend, &comm, &err);
    if (!status) status = exercises[what].fn(&comm, &err);
    status = syi_comm_conclude(&comm, status, &complete, &err);
    if (status && (comm.rank == 0 || !complete)) fprintf(stderr, "%s\n", err.text);
    if (!status && comm.rank == 0) printf("%d ranks ok\n", comm.ranks);
    if (!status) syi_comm_close(&comm);
    syi_backend_close(backend);
    return status != 0;
}
