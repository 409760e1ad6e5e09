/* SPDX-License-Identifier: Apache-2.0 */
/* Communication of one rank: a collectives table (of a backend, or one of the two here), its context, and the
 * groups in use. self: one rank. thread: N ranks as threads of this process over shared memory, for tests and
 * single machines. Backends with collectives (mpi, nccl, null) come in through syi_backend_comm. */
#ifndef SYI_COMM_H
#define SYI_COMM_H

#include "base/base.h"
#include "base/copy_runs.h"
#include "switchyard/backend.h"

enum {
    SYI_COMM_WORLD = 0,      /* the group of all ranks, made when it is first used */
    SYI_COMM_MAX_GROUPS = 64 /* with it; 7 sets of mesh axes, for several queues */
};

struct syi_comm_group {
    void *handle;    /* of the table */
    int n;           /* ranks */
    int rank;        /* of this rank in the group */
    int lane;        /* of a shared group; -1: of no other use than its maker's */
    int *world;      /* [n] world ranks of a shared group; else NULL */
    uint64_t serial; /* of no other group that this process ever made */
};

struct syi_comm {
    const struct sy_collective_table *table; /* borrowed */
    void *context;                           /* first argument of the table's functions, borrowed */
    /* Makes an error of a function's failed status, with the words of whoever knows why; NULL: none knows. */
    int (*fail)(const struct syi_comm *comm, int status, const char *what, struct sy_error *err);
    void *owner;                                      /* for fail: what the table belongs to, borrowed */
    int rank, ranks;                                  /* of the world */
    double waited;                                    /* seconds spent waiting for collectives and barriers */
    int n_groups;                                     /* made besides the world */
    struct syi_comm_group group[SYI_COMM_MAX_GROUPS]; /* the world, then n_groups others */
};

/* ---- comm.c ---- */

/* Frees the groups. */
void syi_comm_close(struct syi_comm *comm);
/* Frees all but the world and the n oldest groups made. */
void syi_comm_keep(struct syi_comm *comm, int n);
/* A group of world ranks in the given order, this rank among them; every member calls with the same list, in
 * the same order of calls. *group: index for start. */
int syi_comm_group_new(struct syi_comm *comm, const int *ranks, int n, int *group, struct sy_error *err);
/* The same for all who work on this communicator one after the other: made at the first call with these ranks and this lane,
 * found by later ones. */
int syi_comm_group_shared(struct syi_comm *comm, int lane, const int *ranks, int n, int *group,
                          struct sy_error *err);
/* As in struct sy_collective_table; a failure says why. Nothing is allocated by self and thread. */
int syi_comm_start(struct syi_comm *comm, int group, const struct sy_collective *call, void **request,
                   struct sy_error *err);
int syi_comm_wait(struct syi_comm *comm, void *request, struct sy_error *err);
int syi_comm_barrier(struct syi_comm *comm, struct sy_error *err);
/* Tells all ranks to stop: pending and later waits fail. Completes this rank's own requests first, because
 * peers may be reading its buffers: a rank that fails with requests under way calls it before it frees them.
 */
void syi_comm_abort(struct syi_comm *comm, const char *text);
/* All ranks meet, also after abort, and return the same: SY_OK where all brought SY_OK, else status and text
 * of the lowest rank that failed of itself. *complete 0: not all ranks came; status and text are this rank's
 * own. For communication of processes; threads are joined instead. */
int syi_comm_conclude(struct syi_comm *comm, int status, int *complete, struct sy_error *err);
/* The six that follow are begun and ended in one call; a failure of one stops all ranks, as abort does.
 * all: (ranks, bytes), what each rank brings in `data`. */
int syi_comm_gather(struct syi_comm *comm, const void *data, size_t bytes, void *all, struct sy_error *err);
/* The same among the ranks of a group. */
int syi_comm_gather_in(struct syi_comm *comm, int group, const void *data, size_t bytes, void *all,
                       struct sy_error *err);
/* words[n]: the sums over all ranks on return. Allocates nothing after the first call. */
int syi_comm_sum(struct syi_comm *comm, int64_t *words, size_t n, struct sy_error *err) SYI_MUST_CHECK;
/* words[n]: those of rank 0 on return, bit for bit; what other ranks bring is lost. So that all ranks do the
 * same about what only rank 0 knows: the clock, lines of an input, which checkpoint is the newest. */
int syi_comm_broadcast(struct syi_comm *comm, int64_t *words, size_t n, struct sy_error *err) SYI_MUST_CHECK;
/* The same of any bytes, in pieces, so that little memory is needed besides. */
int syi_comm_share(struct syi_comm *comm, void *data, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* All ranks bring `bytes` that should be equal. *odd: the lowest rank whose differ from rank 0's, -1: none.
 */
int syi_comm_same(struct syi_comm *comm, const void *data, size_t bytes, int *odd, struct sy_error *err);

/* All ranks meet and say how they fared: *failure (code 0: well) becomes that of the lowest rank that brought one, on all, with
 * "rank N: " before its text where that is not rank 0. A status other than SY_OK: they could not meet. */
int syi_comm_failure(struct syi_comm *comm, struct sy_error *failure, struct sy_error *err) SYI_MUST_CHECK;
/* Between ranks that go on together after a failure: what one brings, status and err, all return. Ranks that cannot meet
 * return why, as does what they try together next. */
int syi_comm_agree(struct syi_comm *comm, int status, struct sy_error *err) SYI_MUST_CHECK;

uint64_t syi_comm_reduce_bytes(int dtype); /* of an element that all_reduce can sum; 0: it cannot */

/* ---- busy.c: long work of some ranks, for which the others wait ---- */

/* A rank that works calls syi_busy_tell now and then, so that the wait of the others does not look like a rank that hangs;
 * at its end it calls syi_busy_end, as one without work does at once, and all go on together. One that fails says so by
 * ending, as any rank does. */
struct syi_busy {
    struct syi_comm *comm;
    double told; /* seconds; when it last told */
};
struct syi_busy syi_busy_begin(struct syi_comm *comm);
int syi_busy_tell(void *busy, struct sy_error *err) SYI_MUST_CHECK;
/* Calls fn(arg) in a thread, where there are other ranks, and tells until it has returned: for work that cannot tell itself,
 * because it waits for a disk or a process. fn communicates nothing. Returns what fn does. */
int syi_busy_run(void *busy, syi_work_fn fn, void *arg, struct sy_error *err) SYI_MUST_CHECK;
/* The same of a job that was given to the worker. An error: it may not be idle yet. */
struct syi_worker;
int syi_busy_await(struct syi_busy *busy, struct syi_worker *worker, struct sy_error *err) SYI_MUST_CHECK;
int syi_busy_end(struct syi_busy *busy, struct sy_error *err) SYI_MUST_CHECK;
/* Ends it, and rank 0's bytes are on all ranks. */
int syi_busy_share(void *busy, void *data, size_t bytes, struct sy_error *err) SYI_MUST_CHECK;

/* ---- comm_self.c ---- */

void syi_comm_self(struct syi_comm *comm);

/* ---- comm_thread.c ---- */

/* Runs fn(arg, comm, err) as ranks 0..ranks-1, rank 0 in the calling thread, and joins them. A rank that
 * fails stops the others. Returns the status of the rank that failed first and puts its text into err. */
typedef int (*syi_rank_fn)(void *arg, struct syi_comm *comm, struct sy_error *err);
int syi_comm_thread_run(int ranks, syi_rank_fn fn, void *arg, struct sy_error *err);

#endif
