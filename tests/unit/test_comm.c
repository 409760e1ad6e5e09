/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives over 1 to 4 rank threads against a serial model that works on bytes by their indices, with
 * random cuts on both sides; buffers used again; stopping; many repetitions with more threads than CPUs. */
#include "config.h"

#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/comm.h"
#include "base/threads.h"

enum { MAX_RANKS = 8, MAX_BYTES = 1 << 16 };

static uint64_t mixed(uint64_t x) /* a hash, so all ranks draw the same numbers without sharing a state */
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}
static uint64_t draw(uint64_t seed, uint64_t what, uint64_t n)
{
    return mixed(mixed(seed) + what) % n;
}

/* What rank's send buffer holds at a byte in a round. */
static unsigned char content(uint64_t round, uint64_t rank, uint64_t at)
{
    return (unsigned char)mixed(round * 977 + rank * 31 + at * 7919);
}

/* Where byte i of piece j lies in a buffer of n pieces of `outer` runs of `inner` bytes. */
static uint64_t place(uint64_t i, uint64_t j, uint64_t n, uint64_t inner)
{
    return (i / inner * n + j) * inner + i % inner;
}

/* A piece has a * b * c bytes; the sides cut it as (a*b, c) and (a, b*c), or the other way round. */
static struct sy_collective make_call(uint64_t round, int n, int kind)
{
    uint64_t a = 1 + draw(round, 1, 5), b = 1 + draw(round, 2, 6), c = 1 + draw(round, 3, 40);
    int swapped = draw(round, 4, 2) == 1;
    struct sy_collective call = {.kind = (uint8_t)kind};
    call.send_outer = swapped ? a * b : a;
    call.send_inner = swapped ? c : b * c;
    call.recv_outer = swapped ? a : a * b;
    call.recv_inner = swapped ? b * c : c;
    if (kind == SY_COLLECTIVE_ALL_GATHER) {
        call.send_inner *= call.send_outer;
        call.send_outer = 1;
    }
    (void)n;
    return call;
}

static int one_exchange(struct syi_comm *comm, int group, uint64_t round, unsigned char *send,
                        unsigned char *recv, struct sy_error *err)
{
    uint64_t n = (uint64_t)comm->group[group].n, me = (uint64_t)comm->group[group].rank;
    int kind = draw(round, 0, 2) ? SY_COLLECTIVE_ALL_GATHER : SY_COLLECTIVE_ALL_TO_ALL;
    struct sy_collective call = make_call(round, (int)n, kind);
    uint64_t piece = call.send_outer * call.send_inner;
    uint64_t send_bytes = kind == SY_COLLECTIVE_ALL_GATHER ? piece : piece * n;
    void *request = NULL;

    for (uint64_t i = 0; i < send_bytes; i++) send[i] = content(round, me, i);
    memset(recv, 0xee, piece * n + 1);
    call.send = send;
    call.recv = recv;
    int status = syi_comm_start(comm, group, &call, &request, err);
    if (status == SY_OK) status = syi_comm_wait(comm, request, err);
    if (status != SY_OK) return status;
    memset(send, 0xdd, send_bytes); /* wait has returned: nobody may read it any more */
    for (uint64_t j = 0; j < n; j++)
        for (uint64_t i = 0; i < piece; i++) {
            uint64_t from = kind == SY_COLLECTIVE_ALL_GATHER ? i : place(i, me, n, call.send_inner);
            if (recv[place(i, j, n, call.recv_inner)] != content(round, j, from))
                return syi_error(err, SY_EINTERNAL, "round %d: byte %d of piece %d is wrong", (int)round,
                                 (int)i, (int)j);
        }
    if (recv[piece * n] != 0xee) return syi_error(err, SY_EINTERNAL, "written past the end");
    return SY_OK;
}

static int all_ranks(struct syi_comm *comm, int *group, struct sy_error *err)
{
    int ranks[MAX_RANKS];
    for (int i = 0; i < comm->ranks; i++) ranks[i] = i;
    return syi_comm_group_new(comm, ranks, comm->ranks, group, err);
}

struct job {
    int rounds;
    int bad_rank; /* of the tests of stopping */
};

static int exchange_rounds(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    const struct job *job = arg;
    unsigned char *send = malloc(MAX_BYTES), *recv = malloc(MAX_BYTES);
    int group = 0, status = all_ranks(comm, &group, err);
    for (int round = 0; status == SY_OK && round < job->rounds; round++)
        status = one_exchange(comm, group, (uint64_t)round, send, recv, err);
    if (status != SY_OK) syi_comm_abort(comm, err->text);
    free(send);
    free(recv);
    return status;
}

Test(comm, exchanges_equal_a_serial_model)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        struct job job = {.rounds = 200};
        struct sy_error err = {0};
        cr_expect_eq(syi_comm_thread_run(ranks, exchange_rounds, &job, &err), SY_OK, "%d ranks: %s", ranks,
                     err.text);
    }
}

Test(comm, self_equals_a_serial_model)
{
    struct syi_comm comm;
    struct job job = {.rounds = 200};
    struct sy_error err = {0};
    syi_comm_self(&comm);
    cr_expect(comm.rank == 0 && comm.ranks == 1);
    cr_expect_eq(exchange_rounds(&job, &comm, &err), SY_OK, "%s", err.text);
    syi_comm_close(&comm);
}

Test(comm, a_thousand_rounds_with_more_ranks_than_cpus)
{
    struct job job = {.rounds = 1000};
    struct sy_error err = {0};
    cr_expect_eq(syi_comm_thread_run(MAX_RANKS, exchange_rounds, &job, &err), SY_OK, "%s", err.text);
}

/* ---- sub-groups and overlap ---- */

/* Ranks 0..3 as a 2 x 2 mesh: row and column groups, with one collective of each under way at a time. */
static int mesh_rounds(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    int row = comm->rank / 2, column = comm->rank % 2, groups[2], status = SY_OK;
    int rows[2] = {row * 2, row * 2 + 1}, columns[2] = {column, column + 2};
    (void)arg;
    if ((status = syi_comm_group_new(comm, rows, 2, &groups[0], err)) != SY_OK) return status;
    if ((status = syi_comm_group_new(comm, columns, 2, &groups[1], err)) != SY_OK) return status;
    for (int64_t round = 0; round < 300; round++) {
        int64_t send[2] = {round * 10 + comm->rank, round * 100 + comm->rank}, got[2][2];
        struct sy_collective call[2];
        void *request[2];
        for (int g = 0; g < 2; g++) {
            call[g] = (struct sy_collective){.send = &send[g],
                                             .recv = got[g],
                                             .send_outer = 1,
                                             .send_inner = 8,
                                             .recv_outer = 1,
                                             .recv_inner = 8,
                                             .kind = SY_COLLECTIVE_ALL_GATHER};
            if ((status = syi_comm_start(comm, groups[g], &call[g], &request[g], err)) != SY_OK)
                return status;
        }
        for (int g = 1; g >= 0; g--)
            if ((status = syi_comm_wait(comm, request[g], err)) != SY_OK) return status;
        for (int i = 0; i < 2; i++)
            if (got[0][i] != round * 10 + rows[i] || got[1][i] != round * 100 + columns[i])
                return syi_error(err, SY_EINTERNAL, "round %d: wrong values", (int)round);
        if ((status = syi_comm_barrier(comm, err)) != SY_OK) return status;
    }
    return SY_OK;
}

Test(comm, groups_of_a_mesh_overlap)
{
    struct sy_error err = {0};
    cr_expect_eq(syi_comm_thread_run(4, mesh_rounds, NULL, &err), SY_OK, "%s", err.text);
}

/* Two collectives of all ranks are under way; rank 0 stops, the others wait for them in their own order. What
 * is under way is carried through, whatever the orders. */
static int stop_with_two_under_way(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    int *first_of = arg, groups[2], ranks[3] = {0, 1, 2}, first = first_of[comm->rank];
    int64_t send[2] = {comm->rank, 10 + comm->rank}, got[2] = {0, 0};
    struct sy_collective call[2];
    void *request[2];
    for (int g = 0; g < 2; g++) {
        if (syi_comm_group_new(comm, ranks, 3, &groups[g], err)) return SY_EINTERNAL;
        call[g] = (struct sy_collective){.send = &send[g],
                                         .recv = &got[g],
                                         .elements = 1,
                                         .dtype = SY_I64,
                                         .kind = SY_COLLECTIVE_ALL_REDUCE};
    }
    for (int g = 0; g < 2; g++)
        if (syi_comm_start(comm, groups[g], &call[g], &request[g], err)) return SY_EINTERNAL;
    int status = syi_comm_barrier(comm, err);
    if (!status && comm->rank == 0) {
        syi_comm_abort(comm, "rank 0 has had enough"); /* before the buffers go */
        return syi_error(err, SY_EIO, "rank 0 has had enough");
    }
    for (int g = 0; g < 2 && !status; g++) status = syi_comm_wait(comm, request[first ^ g], err);
    return !status && (got[0] != 3 || got[1] != 33) ? syi_error(err, SY_EINTERNAL, "wrong sums") : status;
}

Test(comm, a_stop_carries_all_through_in_any_order, .timeout = 20)
{
    for (int round = 0; round < 200; round++) {
        struct sy_error err = {0};
        int first_of[3] = {0, round & 1, round & 1};
        int status = syi_comm_thread_run(3, stop_with_two_under_way, first_of, &err);
        cr_assert_eq(status, SY_EIO, "%s", err.text);
        cr_assert_not_null(strstr(err.text, "had enough"), "%s", err.text);
    }
}

static int same_list_twice(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    int first = -1, second = -1, backward[2] = {1, 0}, third = -1, alone = -1;
    (void)arg;
    if (all_ranks(comm, &first, err) || all_ranks(comm, &second, err)) return SY_EINTERNAL;
    if (syi_comm_group_new(comm, backward, 2, &third, err)) return SY_EINTERNAL;
    if (syi_comm_group_new(comm, &comm->rank, 1, &alone, err)) return SY_EINTERNAL;
    if (comm->group[third].rank != 1 - comm->rank || comm->group[alone].n != 1)
        return syi_error(err, SY_EINTERNAL, "wrong place in a group");
    unsigned char *send = malloc(MAX_BYTES), *recv = malloc(MAX_BYTES);
    int status = SY_OK;
    for (uint64_t round = 0; round < 40 && status == SY_OK; round++)
        status = one_exchange(comm, (int[]){first, second, third, alone}[round % 4], round, send, recv, err);
    free(send);
    free(recv);
    return status;
}

Test(comm, groups_keep_their_order_and_are_kept_apart)
{
    struct sy_error err = {0};
    cr_expect_eq(syi_comm_thread_run(2, same_list_twice, NULL, &err), SY_OK, "%s", err.text);
}

static int wrong_groups(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    int group = 0, without[1] = {1 - comm->rank}, outside[2] = {comm->rank, 2},
        twice[2] = {comm->rank, comm->rank};
    (void)arg, (void)err;
    return syi_comm_group_new(comm, without, 1, &group, NULL) == SY_EINTERNAL &&
                   syi_comm_group_new(comm, outside, 2, &group, NULL) == SY_EINTERNAL &&
                   syi_comm_group_new(comm, twice, 2, &group, NULL) == SY_EINTERNAL
               ? SY_OK
               : SY_EINTERNAL;
}

Test(comm, groups_that_make_no_sense)
{
    cr_expect_eq(syi_comm_thread_run(2, wrong_groups, NULL, NULL), SY_OK);
    cr_expect_eq(syi_comm_thread_run(0, wrong_groups, NULL, NULL), SY_EINVAL);
    cr_expect_eq(syi_comm_thread_run(5000, wrong_groups, NULL, NULL), SY_EINVAL);
}

/* ---- sums ---- */

static double value_of(int rank, int64_t i)
{
    return (double)((i * 7 + rank * 13) % 101);
} /* sums are exact */

static int reduce_one(struct syi_comm *comm, int group, int dtype, int64_t n, int in_place,
                      struct sy_error *err)
{
    union number {
        float f32[4000];
        double f64[4000];
        int64_t i64[4000];
    } *send = malloc(sizeof(*send)), *recv = in_place ? send : malloc(sizeof(*recv));
    struct sy_collective call = {.send = send,
                                 .recv = recv,
                                 .elements = (uint64_t)n,
                                 .kind = SY_COLLECTIVE_ALL_REDUCE,
                                 .dtype = (uint8_t)dtype};
    void *request = NULL;
    for (int64_t i = 0; i < n; i++) {
        double value = value_of(comm->rank, i);
        if (dtype == SY_F32) send->f32[i] = (float)value;
        if (dtype == SY_F64) send->f64[i] = value;
        if (dtype == SY_I64) send->i64[i] = (int64_t)value;
    }
    int status = syi_comm_start(comm, group, &call, &request, err);
    if (status == SY_OK) status = syi_comm_wait(comm, request, err);
    for (int64_t i = 0; status == SY_OK && i < n; i++) {
        double sum = 0, got = dtype == SY_F32   ? recv->f32[i]
                              : dtype == SY_F64 ? recv->f64[i]
                                                : (double)recv->i64[i];
        for (int rank = 0; rank < comm->ranks; rank++) sum += value_of(rank, i);
        if (got != sum) status = syi_error(err, SY_EINTERNAL, "dtype %d element %d", dtype, (int)i);
    }
    if (status != SY_OK) syi_comm_abort(comm, err->text);
    if (!in_place) free(recv);
    free(send);
    return status;
}

static int reduce_rounds(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    static const int dtypes[] = {SY_F32, SY_F64, SY_I64};
    static const int64_t sizes[] = {0, 1, 2, 3, 255, 256, 257, 4000};
    int group = 0, status = all_ranks(comm, &group, err);
    (void)arg;
    for (int i = 0; status == SY_OK && i < 48; i++)
        status = reduce_one(comm, group, dtypes[i % 3], sizes[i / 3 % 8], i >= 24, err);
    struct sy_collective call = {.kind = SY_COLLECTIVE_ALL_REDUCE, .dtype = SY_I32, .elements = 1};
    void *request = NULL;
    if (status == SY_OK && syi_comm_start(comm, group, &call, &request, NULL) != SY_EUNSUPPORTED)
        status = SY_EINTERNAL;
    return status;
}

Test(comm, sums)
{
    for (int ranks = 1; ranks <= 4; ranks++) {
        struct sy_error err = {0};
        cr_expect_eq(syi_comm_thread_run(ranks, reduce_rounds, NULL, &err), SY_OK, "%d ranks: %s", ranks,
                     err.text);
    }
    struct syi_comm self;
    syi_comm_self(&self);
    cr_expect_eq(reduce_rounds(NULL, &self, NULL), SY_OK);
}

/* ---- stopping ---- */

/* One rank fails at round 20, before it posts (or just after, when bad_rank is negative), the others wait
 * for it. */
static int fail_at_20(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    const struct job *job = arg;
    int bad = job->bad_rank < 0 ? -job->bad_rank : job->bad_rank, group = 0,
        status = all_ranks(comm, &group, err);
    unsigned char *send = malloc(MAX_BYTES), *recv = malloc(MAX_BYTES);
    for (uint64_t round = 0; status == SY_OK && round < 1000; round++) {
        if (round == 20 && comm->rank == bad) {
            struct sy_collective call = make_call(round, comm->ranks, SY_COLLECTIVE_ALL_TO_ALL);
            void *request = NULL;
            call.send = send;
            call.recv = recv;
            if (job->bad_rank < 0) syi_comm_start(comm, group, &call, &request, NULL);
            status = syi_error(err, SY_ENUMERIC, "the loss is not finite");
            syi_comm_abort(comm, err->text);
            memset(send, 0, MAX_BYTES); /* may be freed: nobody reads it now */
            if (syi_comm_start(comm, group, &call, &request, NULL) == SY_OK) status = SY_EINTERNAL;
            if (syi_comm_barrier(comm, NULL) != SY_EBACKEND) status = SY_EINTERNAL;
            break;
        }
        status = one_exchange(comm, group, round % 20 ? round : 0, send, recv, err);
    }
    free(send);
    free(recv);
    if (comm->rank != bad && (status != SY_EBACKEND || !strstr(err->text, "the loss is not finite")))
        return SY_OK;
    return status;
}

Test(comm, a_failing_rank_stops_the_others_and_its_text_comes_out)
{
    static const int bad[] = {0, 2, 1, 3};
    for (size_t i = 0; i < SYI_COUNT(bad); i++) {
        struct job job = {.bad_rank = bad[i]};
        struct sy_error err = {0};
        cr_expect_eq(syi_comm_thread_run(4, fail_at_20, &job, &err), SY_ENUMERIC, "%s", err.text);
        cr_expect_str_eq(err.text, "the loss is not finite");
    }
}

/* A rank that just returns a failure stops the others too, in a barrier as well. */
static int return_failure(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    (void)arg;
    if (comm->rank == 1) return syi_error(err, SY_EIO, "disk on fire");
    return syi_comm_barrier(comm, err);
}

Test(comm, a_returned_failure_stops_the_others)
{
    struct sy_error err = {0};
    cr_expect_eq(syi_comm_thread_run(3, return_failure, NULL, &err), SY_EIO);
    cr_expect_str_eq(err.text, "disk on fire");
}

/* Peers are between start and wait when one stops: the complete collective is carried through. */
static int stop_in_between(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    int group = 0, status = all_ranks(comm, &group, err), *mine = malloc(sizeof(int)), all[4];
    struct sy_collective call = {.send = mine,
                                 .recv = all,
                                 .send_outer = 1,
                                 .send_inner = 4,
                                 .recv_outer = 1,
                                 .recv_inner = 4,
                                 .kind = SY_COLLECTIVE_ALL_GATHER};
    void *request = NULL;
    (void)arg;
    *mine = comm->rank;
    if (status == SY_OK) status = syi_comm_start(comm, group, &call, &request, err);
    if (status == SY_OK && comm->rank == 0) {
        status = syi_error(err, SY_ENOMEM, "rank 0 gives up");
        syi_comm_abort(comm, err->text);
    } else if (status == SY_OK) {
        usleep(3000 * (unsigned)comm->rank);
        int waited = syi_comm_wait(comm, request, err);
        if (waited == SY_OK && (all[0] != 0 || all[3] != 3)) waited = SY_EINTERNAL;
        status = waited;
    }
    free(mine);
    return status;
}

/* Two ranks, the other of which came too late: as with MPI, a sum that was waited for in vain is still under way, and
 * its buffer is written until abort returns. */
struct late {
    int64_t *recv;
    int is_aborted;
};
static int late_group(void *context, const int *ranks, int n, void **group)
{
    (void)ranks, (void)n;
    *group = context;
    return SY_OK;
}
static void late_group_free(void *context, void *group)
{
    (void)context, (void)group;
}
static int late_start(void *context, void *group, const struct sy_collective *call, void **request)
{
    ((struct late *)context)->recv = call->recv;
    *request = group;
    return SY_OK;
}
static int late_wait(void *context, void *request)
{
    (void)context, (void)request;
    return SY_EBACKEND;
}
static void late_abort(void *context, const char *text)
{
    struct late *late = context;
    late->is_aborted = text[0] != '\0';
    *late->recv = 7; /* the other rank's term comes now */
}

Test(comm, a_sum_waited_for_in_vain_is_ended_while_its_buffer_is_there)
{
    static const struct sy_collective_table table = {.bytes = sizeof table,
                                                     .group_new = late_group,
                                                     .group_free = late_group_free,
                                                     .start = late_start,
                                                     .wait = late_wait,
                                                     .abort = late_abort};
    struct late late = {0};
    struct syi_comm comm = {.table = &table, .context = &late, .ranks = 2};
    struct sy_error err = {0};
    int64_t word = 1;
    cr_expect_eq(syi_comm_sum(&comm, &word, 1, &err), SY_EBACKEND);
    cr_expect(late.is_aborted, "the buffer is left to a sum that is under way");
    cr_expect_eq(word, 7);
    cr_expect(strstr(err.text, "waiting for a collective"), "%s", err.text);
    syi_comm_close(&comm);
}

Test(comm, buffers_live_until_peers_have_read_them)
{
    for (int i = 0; i < 30; i++) {
        struct sy_error err = {0};
        cr_expect_eq(syi_comm_thread_run(4, stop_in_between, NULL, &err), SY_ENOMEM, "%s", err.text);
    }
}

static int different_calls(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    const struct job *job = arg;
    unsigned char bytes[2][64] = {{0}};
    struct sy_collective call = {.send = bytes[0],
                                 .recv = bytes[1],
                                 .send_outer = 1,
                                 .send_inner = 8,
                                 .recv_outer = 1,
                                 .recv_inner = 8,
                                 .kind = SY_COLLECTIVE_ALL_GATHER};
    int group = 0, status = all_ranks(comm, &group, err);
    void *request = NULL;
    if (comm->rank == 1) {
        if (job->rounds == 0) call.kind = SY_COLLECTIVE_ALL_TO_ALL;
        if (job->rounds == 1) call.send_inner = 4;
    }
    if (status == SY_OK) status = syi_comm_start(comm, group, &call, &request, err);
    if (status == SY_OK) status = syi_comm_wait(comm, request, err);
    if (status == SY_OK) status = syi_comm_barrier(comm, err);
    return status;
}

Test(comm, ranks_out_of_step_are_told)
{
    for (int i = 0; i < 2; i++) {
        struct job job = {.rounds = i};
        struct sy_error err = {0};
        cr_expect_neq(syi_comm_thread_run(2, different_calls, &job, &err), SY_OK);
        cr_expect(strstr(err.text, "collectives that do not fit") != NULL, "%s", err.text);
    }
}

/* Ranks with pools of their own, all oversubscribed. */
static int ranks_with_pools(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    struct syi_threads *pool = NULL;
    uint32_t control[3];
    int status = syi_threads_new(3, comm->ranks, &pool, err);
    if (status != SY_OK) return status;
    syi_threads_fp_control(pool, control);
    for (int i = 0; i < 3; i++)
        if (control[i] != SYI_FP_CONTROL_DEFAULT)
            status = syi_error(err, SY_EINTERNAL, "control %x", control[i]);
    if (status == SY_OK) status = exchange_rounds(arg, comm, err);
    syi_threads_free(pool);
    return status;
}

Test(comm, ranks_with_thread_pools)
{
    struct job job = {.rounds = 100};
    struct sy_error err = {0};
    cr_expect_eq(syi_comm_thread_run(4, ranks_with_pools, &job, &err), SY_OK, "%s", err.text);
}

/* More times than there may be groups, the same ranks and lane are the same group; another lane or order is another. */
static int shared_groups(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    int forward[2] = {0, 1}, backward[2] = {1, 0}, first = -1, other = -1, turned = -1, again = -1;
    (void)arg;
    if (syi_comm_group_shared(comm, 1, forward, 2, &first, err)) return SY_EINTERNAL;
    if (syi_comm_group_shared(comm, 2, forward, 2, &other, err)) return SY_EINTERNAL;
    if (syi_comm_group_shared(comm, 1, backward, 2, &turned, err)) return SY_EINTERNAL;
    for (int i = 0; i < 2 * SYI_COMM_MAX_GROUPS; i++)
        if (syi_comm_group_shared(comm, 1, forward, 2, &again, err) || again != first) return SY_EINTERNAL;
    if (first == other || first == turned || other == turned || comm->n_groups != 3)
        return syi_error(err, SY_EINTERNAL, "groups %d, %d, %d of %d", first, other, turned, comm->n_groups);
    int own = -1; /* a group of its maker's is not shared */
    if (syi_comm_group_new(comm, forward, 2, &own, err) || own == first) return SY_EINTERNAL;
    syi_comm_keep(comm, 0);
    return syi_comm_group_shared(comm, 1, forward, 2, &again, err) || again != 1 ? SY_EINTERNAL : SY_OK;
}

Test(comm, groups_are_shared_by_lane_and_ranks)
{
    struct sy_error err = {0};
    cr_expect_eq(syi_comm_thread_run(2, shared_groups, NULL, &err), SY_OK, "%s", err.text);
}

/* arg: bits of the ranks that fail. The lowest one's failure is that of all, with its number, and all go on. */
static int agree_on(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    int failing = *(int *)arg, lowest = failing ? __builtin_ctz((unsigned)failing) : -1;
    char text[32];
    for (int round = 0; round < 20; round++) {
        struct sy_error mine = {0};
        int status =
            failing & 1 << comm->rank ? syi_error(&mine, SY_EIO - comm->rank, "by %d", comm->rank) : SY_OK;
        status = syi_comm_agree(comm, status, &mine);
        snprintf(text, sizeof text, "rank %d: by %d", lowest, lowest);
        const char *want = lowest > 0 ? text : "by 0";
        if (lowest < 0 ? status || mine.code : status != SY_EIO - lowest || strcmp(mine.text, want) != 0)
            return syi_error(err, SY_EINTERNAL, "rank %d: %d %s", comm->rank, status, mine.text);
    }
    return syi_comm_agree(comm, SY_ENOMEM, NULL) == SY_ENOMEM ? SY_OK : SY_EINTERNAL; /* without a text */
}

Test(comm, ranks_agree_on_a_failure_and_go_on)
{
    for (int failing = 0; failing < 8; failing++) {
        struct sy_error err = {0};
        cr_expect_eq(syi_comm_thread_run(3, agree_on, &failing, &err), SY_OK, "%s", err.text);
        cr_expect_eq(syi_comm_thread_run(1, agree_on, &(int){failing & 1}, &err), SY_OK, "%s", err.text);
    }
}

/* ---- a rank without memory ---- */

static _Thread_local int is_short; /* this thread gets no memory */

static void *take_unless_short(void *arg, size_t bytes, size_t alignment)
{
    void *piece = NULL;
    (void)arg;
    return is_short || posix_memalign(&piece, alignment, bytes) ? NULL : piece;
}

static void give_back(void *arg, void *piece)
{
    (void)arg;
    free(piece);
}

/* What ranks tell each other needs no memory once the world is there. */
static int meet_short(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    enum { BYTES = 100001 };
    static char text[3][BYTES];
    struct sy_error failure = {0};
    char *own = text[comm->rank];
    int odd = 0, none = 0;
    (void)arg;
    int status = syi_comm_sum(comm, &(int64_t){1}, 1, err);
    is_short = comm->rank == 1;
    memset(own, comm->rank ? 'x' : 'y', BYTES);
    if (!status) status = syi_comm_share(comm, own, BYTES, err);
    cr_expect(own[0] == 'y' && own[BYTES - 1] == 'y');
    if (!status) status = syi_comm_same(comm, own, BYTES, &none, err);
    if (comm->rank) own[BYTES - 1] = 'x';
    if (!status) status = syi_comm_same(comm, own, BYTES, &odd, err);
    cr_expect(none == -1 && odd == 1, "%d %d", none, odd);
    if (comm->rank) syi_error(&failure, SY_ENOMEM, "short %d", comm->rank);
    if (!status) status = syi_comm_failure(comm, &failure, err);
    cr_expect(failure.code == SY_ENOMEM && !strcmp(failure.text, "rank 1: short 1"), "%s", failure.text);
    is_short = 0;
    return status;
}

static int begin_short(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    (void)arg;
    is_short = comm->rank == 1;
    int status = syi_comm_sum(comm, &(int64_t){1}, 1, err);
    is_short = 0;
    if (comm->rank == 1) (void)syi_comm_barrier(comm, NULL); /* returns, as all were told to stop */
    return status;
}

Test(comm, a_rank_without_memory_keeps_none_waiting, .timeout = 60)
{
    static const struct sy_allocator allocator = {NULL, take_unless_short, give_back};
    struct sy_error err = {0};
    cr_assert_eq(sy_allocator_set(&allocator, NULL), SY_OK);
    cr_expect_eq(syi_comm_thread_run(3, meet_short, NULL, &err), SY_OK, "%s", err.text);
    cr_expect_eq(syi_comm_thread_run(3, begin_short, NULL, &err), SY_ENOMEM, "%s", err.text);
    cr_assert_eq(sy_allocator_set(NULL, NULL), SY_OK);
}

/* ---- long work of one rank ---- */

/* Rank 0's work ends, and fails, when rank 1 has heard that it goes on. */
struct work {
    int begun; /* calls */
    atomic_int heard;
};

static int work_until_heard(void *arg, struct sy_error *err)
{
    struct work *work = arg;
    work->begun++;
    for (int i = 0; i < 10000 && !atomic_load(&work->heard); i++)
        nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    return syi_error(err, SY_EIO, "heard: %d", atomic_load(&work->heard));
}

static int work_or_listen(void *arg, struct syi_comm *comm, struct sy_error *err)
{
    struct work *work = arg;
    struct syi_busy busy = syi_busy_begin(comm);
    int64_t working = 0;
    int status = SY_OK;
    if (comm->rank == 0) {
        status = syi_busy_run(&busy, work_until_heard, work, err);
        return status == SY_EIO && !syi_busy_end(&busy, NULL) ? status : SY_EINTERNAL;
    }
    for (int sums = 0; !status && (working || !sums); sums++) {
        working = 0;
        status = syi_comm_sum(comm, &working, 1, err);
        if (working) atomic_store(&work->heard, 1);
    }
    return status;
}

Test(comm, others_hear_of_work_that_a_rank_waits_for)
{
    struct work work = {.begun = 0};
    struct sy_error err = {0};
    cr_assert_eq(syi_comm_thread_run(2, work_or_listen, &work, &err), SY_EIO, "%s", err.text);
    cr_assert_eq(work.begun, 1);
    cr_assert(strstr(err.text, "heard: 1"), "%s", err.text);
}
