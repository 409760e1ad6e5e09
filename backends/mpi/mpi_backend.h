/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI plugin's own structures: one context a process, one group a communicator, one request a group. All
 * MPI calls are made with `lock` held, by whichever thread needs progress: the one that waits, or else the
 * communication thread (progress.c). */
#ifndef SYMPI_H
#define SYMPI_H

#include <mpi.h>
#include <pthread.h>
#include <stdatomic.h>

#include "switchyard/backend.h"
#include "switchyard/switchyard.h"

enum {
    SYMPI_TEXT = 1024, /* bytes of a text that all ranks get */
    SYMPI_PARTS = 32,  /* MPI calls of one collective: sums of more elements than an int counts are cut */
    SYMPI_DIRECT =
        16 /* most ranks of a group that send to each other directly: two calls for each other one */
};

struct sympi_request {
    struct sympi_request *next; /* of the context's list of what is under way */
    MPI_Request part[SYMPI_PARTS];
    int n_parts;
    int active;                                 /* in the list */
    int error;                                  /* MPI's code, MPI_SUCCESS: none */
    int (*then)(struct sympi_request *request); /* starts what follows when all parts are done, or NULL */
    struct sympi_group *group;                  /* for `then` */
};

/* What a collective takes from or gives to one rank. */
struct sympi_piece {
    MPI_Datatype type;
    int count;
    int owned; /* type is to be freed */
};

/* A sum of few ranks under way (direct.c). */
struct sympi_sum {
    const char *send;
    char *recv, *terms;       /* terms: those of other ranks for this rank's piece, one after the other */
    uint64_t terms_bytes;     /* that there is room for */
    uint64_t piece, elements; /* elements of a rank's piece, of all */
    uint64_t size;            /* bytes of an element */
    MPI_Datatype type;
};

struct sympi_group {
    MPI_Comm comm;
    int n, rank;                  /* ranks, this one's place */
    struct sympi_request request; /* at most one collective of a group is under way */
    struct sympi_sum sum;
};

struct sympi {
    const struct sy_host *host;
    MPI_Comm world;   /* groups are made from it; barriers */
    MPI_Comm control; /* stop messages and conclusions, never data */
    int rank, ranks;
    int initialised; /* 1: by us, so finalized by us */
    double timeout;  /* seconds that a wait may last */

    pthread_mutex_t lock; /* of all MPI calls and of what follows */
    struct sympi_request *active;
    MPI_Request stop_recv; /* a message to stop from any rank */
    int stop_from;         /* its contents: the rank that stopped first */
    int stopped;           /* 1: that message came */
    int concluded;         /* 1: all ranks agreed on a failure, or could not: MPI is not called any more */
    int alone;             /* 1: not all ranks came to agree */
    int status;            /* the failure's */
    char text[SYMPI_TEXT]; /* the failure's */
    int key, lowest;       /* with which all agree on it: a meeting that is given up may still write them */

    pthread_t thread; /* makes progress while nobody waits */
    pthread_cond_t work;
    int threaded, quit;
    int asleep;         /* 1: the thread waits for `work` */
    atomic_int waiters; /* threads that make progress themselves */
};

/* ---- collectives.c ---- */

extern const struct sy_collective_table sympi_collectives;

/* ---- direct.c ---- */

/* Whether a collective is done without MPI's collectives; size: bytes of an element of a sum. */
int sympi_is_direct(const struct sympi_group *group, const struct sy_collective *call, uint64_t size);
/* Start; MPI's code. lock is held. */
int sympi_direct_exchange(struct sympi_group *group, const struct sy_collective *call,
                          const struct sympi_piece *send, const struct sympi_piece *recv);
int sympi_direct_sum(struct sympi_group *group, const struct sy_collective *call, MPI_Datatype type,
                     uint64_t size);

/* ---- progress.c ---- */

double sympi_seconds(void);
int sympi_thread_start(struct sympi *mpi);
void sympi_thread_end(struct sympi *mpi);
enum sympi_poll { SYMPI_UNDER_WAY, SYMPI_DONE, SYMPI_LATE, SYMPI_STOPPED, SYMPI_FAILED };
/* Makes progress until the request is done, a rank stopped all (where stoppable), MPI failed (*code says how)
 * or `seconds` passed. */
enum sympi_poll sympi_poll(struct sympi *mpi, struct sympi_request *request, int stoppable, double seconds,
                           int *code);
/* What sympi_poll returned for `what`: SY_OK, or SY_EBACKEND after having said why it is not done. Not for
 * SYMPI_STOPPED. */
int sympi_outcome(const struct sympi *mpi, enum sympi_poll state, int code, double seconds, const char *what);
/* Both, where no rank can stop it. */
int sympi_complete(struct sympi *mpi, struct sympi_request *request, double seconds, const char *what);
/* Takes the request out of the list of those the thread looks after. lock is held. */
void sympi_retire(struct sympi *mpi, struct sympi_request *request);
/* Whether a message to stop has come. lock is held. */
int sympi_stop_came(struct sympi *mpi);

/* ---- stop.c ---- */

/* Waits for a request as long as mpi->timeout: SY_OK, or SY_EBACKEND after having said why `what` is not
 * done, or having followed a message to stop. */
int sympi_await(struct sympi *mpi, struct sympi_request *request, const char *what);
/* Meets all ranks because of a stop message; reports the failure that was agreed on to the host.
 * SY_EBACKEND. */
int sympi_stop_follow(struct sympi *mpi);
void sympi_abort(void *context, const char *text);
int sympi_conclude(void *context, int *status, char *text, size_t text_bytes);

/* ---- fail.c ---- */

/* Reports a line to the host; returns SY_EBACKEND. */
int sympi_fail(const struct sympi *mpi, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a failed MPI call. */
int sympi_fail_code(const struct sympi *mpi, const char *call, int code);

#endif
