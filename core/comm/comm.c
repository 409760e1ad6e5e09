/* SPDX-License-Identifier: Apache-2.0 */
/* What all kinds of communication share: groups and error texts. */
#include "config.h"

#include <stdatomic.h>
#include <string.h>

#include "comm/comm.h"

static int fail(struct syi_comm *comm, int status, const char *what, struct sy_error *err)
{
    if (comm->fail) return comm->fail(comm, status, what, err);
    return syi_error(err, status, "rank %d of %d: %s: %s", comm->rank, comm->ranks, what,
                     sy_status_text(status));
}

/* ---- groups ---- */

static void free_group(struct syi_comm *comm, int group)
{
    if (comm->group[group].n) comm->table->group_free(comm->context, comm->group[group].handle);
    syi_free(comm->group[group].world);
    comm->group[group] = (struct syi_comm_group){0};
}

void syi_comm_keep(struct syi_comm *comm, int n)
{
    while (comm->n_groups > n) free_group(comm, comm->n_groups--);
}

void syi_comm_close(struct syi_comm *comm)
{
    syi_comm_keep(comm, 0);
    free_group(comm, SYI_COMM_WORLD);
}

static _Atomic uint64_t groups; /* made so far */

static int make_group(struct syi_comm *comm, const int *ranks, int n, struct syi_comm_group *group,
                      struct sy_error *err)
{
    int mine = -1;
    for (int i = 0; i < n; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->ranks || (ranks[i] == comm->rank && mine >= 0))
            return syi_error(err, SY_EINTERNAL, "rank %d in a group: there are ranks 0 to %d, each once",
                             ranks[i], comm->ranks - 1);
        if (ranks[i] == comm->rank) mine = i;
    }
    if (mine < 0) return syi_error(err, SY_EINTERNAL, "rank %d makes a group without itself", comm->rank);
    int status = comm->table->group_new(comm->context, ranks, n, &group->handle);
    if (status != SY_OK) return fail(comm, status, "making a group of ranks", err);
    group->n = n;
    group->serial = atomic_fetch_add(&groups, 1) + 1;
    group->rank = mine;
    group->lane = -1;
    return SY_OK;
}

int syi_comm_group_new(struct syi_comm *comm, const int *ranks, int n, int *group, struct sy_error *err)
{
    if (comm->n_groups + 1 == SYI_COMM_MAX_GROUPS)
        return syi_error(err, SY_EINTERNAL, "more than %d groups of ranks", SYI_COMM_MAX_GROUPS);
    int status = make_group(comm, ranks, n, &comm->group[comm->n_groups + 1], err);
    if (status == SY_OK) *group = ++comm->n_groups;
    return status;
}

int syi_comm_group_shared(struct syi_comm *comm, int lane, const int *ranks, int n, int *group,
                          struct sy_error *err)
{
    size_t bytes = (size_t)n * sizeof *ranks;
    for (int i = 1; i <= comm->n_groups; i++) {
        const struct syi_comm_group *there = &comm->group[i];
        if (there->lane != lane || there->n != n || memcmp(there->world, ranks, bytes)) continue;
        *group = i;
        return SY_OK;
    }
    int *world = syi_alloc(bytes, err);
    if (!world) return SY_ENOMEM;
    int status = syi_comm_group_new(comm, ranks, n, group, err);
    if (status) {
        syi_free(world);
        return status;
    }
    memcpy(world, ranks, bytes);
    comm->group[*group].lane = lane;
    comm->group[*group].world = world;
    return SY_OK;
}

static int stop(struct syi_comm *comm, int status, const struct sy_error *cause, struct sy_error *err)
{
    syi_comm_abort(comm, cause->text);
    return syi_error(err, status, "%s", cause->text);
}

/* The first use of the world is the same call on all ranks, so all make its group together. */
static int make_world(struct syi_comm *comm, struct sy_error *err)
{
    struct sy_error cause = {0};
    if (comm->group[SYI_COMM_WORLD].n) return SY_OK;
    int *ranks = syi_alloc((size_t)comm->ranks * sizeof *ranks, &cause);
    for (int i = 0; ranks && i < comm->ranks; i++) ranks[i] = i;
    int status =
        ranks ? make_group(comm, ranks, comm->ranks, &comm->group[SYI_COMM_WORLD], &cause) : SY_ENOMEM;
    syi_free(ranks);
    return status ? stop(comm, status, &cause, err) : SY_OK;
}

/* ---- what a table does ---- */

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

/* ---- begun and ended in one call ---- */

/* A failure ends in abort: the callers' buffers, many of them on their stacks, are in use until it returns. */
static int over_group(struct syi_comm *comm, int group, const struct sy_collective *call,
                      struct sy_error *err)
{
    void *request;
    struct sy_error cause = {0};
    int status = syi_comm_start(comm, group, call, &request, &cause);
    if (!status) status = syi_comm_wait(comm, request, &cause);
    return status ? stop(comm, status, &cause, err) : SY_OK;
}

int syi_comm_gather_in(struct syi_comm *comm, int group, const void *data, size_t bytes, void *all,
                       struct sy_error *err)
{
    struct sy_collective call = {.kind = SY_COLLECTIVE_ALL_GATHER,
                                 .send = data,
                                 .recv = all,
                                 .send_outer = 1,
                                 .send_inner = bytes,
                                 .recv_outer = 1,
                                 .recv_inner = bytes};
    return over_group(comm, group, &call, err);
}

int syi_comm_gather(struct syi_comm *comm, const void *data, size_t bytes, void *all, struct sy_error *err)
{
    int status = make_world(comm, err);
    return status ? status : syi_comm_gather_in(comm, SYI_COMM_WORLD, data, bytes, all, err);
}

int syi_comm_sum(struct syi_comm *comm, int64_t *words, size_t n, struct sy_error *err)
{
    struct sy_collective call = {
        .send = words, .recv = words, .elements = n, .kind = SY_COLLECTIVE_ALL_REDUCE, .dtype = SY_I64};
    if (comm->ranks == 1 || n == 0) return SY_OK;
    int status = make_world(comm, err);
    return status ? status : over_group(comm, SYI_COMM_WORLD, &call, err);
}

/* An integer sum to which the others add zeros. */
static int broadcast_from(struct syi_comm *comm, int rank, int64_t *words, size_t n, struct sy_error *err)
{
    if (comm->rank != rank && n) memset(words, 0, n * sizeof *words); /* without words there is no memory */
    return syi_comm_sum(comm, words, n, err);
}

int syi_comm_broadcast(struct syi_comm *comm, int64_t *words, size_t n, struct sy_error *err)
{
    return broadcast_from(comm, 0, words, n, err);
}

/* What follows allocates nothing: a rank without memory would leave the others waiting for it. */
enum { PIECE = 1 << 14, PIECE_WORDS = PIECE / sizeof(int64_t) };

/* words: the `bytes` of rank 0's data, PIECE at most. */
static int share_piece(struct syi_comm *comm, const void *data, size_t bytes, int64_t *words,
                       struct sy_error *err)
{
    size_t n = (bytes + sizeof *words - 1) / sizeof *words;
    words[n - 1] = 0; /* data may end within it */
    memcpy(words, data, bytes);
    return syi_comm_broadcast(comm, words, n, err);
}

int syi_comm_share(struct syi_comm *comm, void *data, size_t bytes, struct sy_error *err)
{
    int64_t words[PIECE_WORDS];
    int status = SY_OK;
    if (comm->ranks == 1) return SY_OK;
    for (size_t at = 0, n; at < bytes && !status; at += n) {
        n = bytes - at < PIECE ? bytes - at : PIECE;
        status = share_piece(comm, (char *)data + at, n, words, err);
        if (!status) memcpy((char *)data + at, words, n);
    }
    return status;
}

/* *rank: the lowest for which `is` is not 0, -1: none. Each rank adds a bit of its own. */
static int find_lowest(struct syi_comm *comm, int is, int *rank, struct sy_error *err)
{
    enum { BITS = 64, WORDS = 16 };
    uint64_t bits[WORDS];
    int64_t words[WORDS];
    *rank = -1;
    for (int first = 0; *rank < 0 && first < comm->ranks; first += BITS * WORDS) {
        int mine = comm->rank - first;
        memset(bits, 0, sizeof bits);
        if (is && mine >= 0 && mine < BITS * WORDS) bits[mine / BITS] = UINT64_C(1) << mine % BITS;
        memcpy(words, bits, sizeof words);
        int status = syi_comm_sum(comm, words, WORDS, err);
        if (status) return status;
        memcpy(bits, words, sizeof bits);
        for (int i = WORDS - 1; i >= 0; i--)
            if (bits[i]) *rank = first + i * BITS + __builtin_ctzll(bits[i]);
    }
    return SY_OK;
}

int syi_comm_same(struct syi_comm *comm, const void *data, size_t bytes, int *odd, struct sy_error *err)
{
    int64_t words[PIECE_WORDS];
    int differs = 0, status = SY_OK;
    *odd = -1;
    if (comm->ranks == 1) return SY_OK;
    for (size_t at = 0, n; at < bytes && !status; at += n) {
        n = bytes - at < PIECE ? bytes - at : PIECE;
        status = share_piece(comm, (const char *)data + at, n, words, err);
        differs |= memcmp(words, (const char *)data + at, n) != 0;
    }
    return status ? status : find_lowest(comm, differs, odd, err);
}

/* For all ranks will report it: the host of one that is not the first can be found. */
static void name_rank(const struct syi_comm *comm, struct sy_error *failure)
{
    const struct sy_error own = *failure;
    if (!own.code || !comm->rank || !strncmp(own.text, "rank ", 5)) return;
    *failure = (struct sy_error){0};
    syi_error(failure, own.code, "rank %d: %s", comm->rank, own.text);
}

int syi_comm_failure(struct syi_comm *comm, struct sy_error *failure, struct sy_error *err)
{
    int64_t words[(sizeof *failure + sizeof(int64_t) - 1) / sizeof(int64_t)] = {0};
    int rank;
    if (comm->ranks == 1) return SY_OK;
    name_rank(comm, failure);
    int status = find_lowest(comm, failure->code, &rank, err);
    if (status || rank < 0) return status;
    memcpy(words, failure, sizeof *failure);
    status = broadcast_from(comm, rank, words, SYI_COUNT(words), err);
    if (!status) memcpy(failure, words, sizeof *failure);
    return status;
}

int syi_comm_agree(struct syi_comm *comm, int status, struct sy_error *err)
{
    struct sy_error why = {0}, meeting = {0};
    if (status) syi_error(&why, status, "%s", err && err->code ? err->text : sy_status_text(status));
    int failed = syi_comm_failure(comm, &why, &meeting);
    if (failed) why = meeting;
    if (err) *err = why;
    return failed ? failed : why.code;
}

uint64_t syi_comm_reduce_bytes(int dtype)
{
    return dtype == SY_F32 ? sizeof(float) : dtype == SY_F64 || dtype == SY_I64 ? sizeof(double) : 0;
}
