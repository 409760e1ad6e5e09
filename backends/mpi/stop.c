/* SPDX-License-Identifier: Apache-2.0 */
/* How all ranks end together. A rank that fails sends every other a message to stop; a rank that reads it, in
 * whatever it waits for, meets the others in `conclude`, where all agree on one failure: that of the lowest
 * rank that failed of itself. Buffers of collectives that were under way stay MPI's: they are valid until
 * conclude has returned, and after it MPI is not called any more. */
#include "config.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "backends/mpi/mpi_backend.h"

enum { STOP = 1, SECONDS_TO_STOP = 60 }; /* tag; time in which ranks that work come to their next wait */
static const double GRACE = 0.2;         /* seconds in which the others may fail, too */

static void send_stop(struct sympi *mpi)
{
    MPI_Request request;
    pthread_mutex_lock(&mpi->lock);
    for (int i = 0; i < mpi->ranks; i++)
        if (i != mpi->rank &&
            MPI_Isend(&mpi->rank, 1, MPI_INT, i, STOP, mpi->control, &request) == MPI_SUCCESS)
            MPI_Request_free(&request);
    pthread_mutex_unlock(&mpi->lock);
}

/* ---- agreeing ---- */

static double patience(const struct sympi *mpi, int status)
{
    return status && mpi->timeout > SECONDS_TO_STOP ? SECONDS_TO_STOP : mpi->timeout;
}

/* mpi->lowest: the lowest key of all ranks. A rank that failed of itself comes before all that were stopped. Where all
 * fail at the same time, as with a run file that is wrong, nobody has to be stopped. */
static int lowest(struct sympi *mpi, int status)
{
    struct sympi_request request = {.n_parts = 1};
    mpi->key = !status ? INT_MAX : mpi->stopped ? mpi->ranks + mpi->rank : mpi->rank;
    mpi->lowest = INT_MAX;
    pthread_mutex_lock(&mpi->lock);
    int code = MPI_Iallreduce(&mpi->key, &mpi->lowest, 1, MPI_INT, MPI_MIN, mpi->control, request.part);
    pthread_mutex_unlock(&mpi->lock);
    if (code != MPI_SUCCESS) return sympi_fail_code(mpi, "MPI_Iallreduce", code);
    if (status && !mpi->stopped && sympi_poll(mpi, &request, 1, GRACE, &code) == SYMPI_LATE) send_stop(mpi);
    return sympi_complete(mpi, &request, patience(mpi, status), "all ranks to agree how to go on");
}

/* The words of rank `from`, on all ranks. */
static int share_text(struct sympi *mpi, int from)
{
    struct sympi_request request = {.n_parts = 2};
    pthread_mutex_lock(&mpi->lock);
    int code = MPI_Ibcast(&mpi->status, 1, MPI_INT, from, mpi->control, &request.part[0]);
    if (code == MPI_SUCCESS)
        code = MPI_Ibcast(mpi->text, SYMPI_TEXT, MPI_CHAR, from, mpi->control, &request.part[1]);
    pthread_mutex_unlock(&mpi->lock);
    if (code != MPI_SUCCESS) return sympi_fail_code(mpi, "MPI_Ibcast", code);
    return sympi_complete(mpi, &request, patience(mpi, 1), "the words of a rank that failed");
}

/* mpi->status and mpi->text: this rank's, then those agreed on. SY_EBACKEND: not all ranks came. */
static int agree(struct sympi *mpi)
{
    char mine[SYMPI_TEXT];
    int own = mpi->status, status = lowest(mpi, mpi->status), key = mpi->lowest;
    memcpy(mine, mpi->text, sizeof mine);
    if (!status && key != INT_MAX) status = share_text(mpi, key % mpi->ranks);
    if (status) {
        mpi->alone = 1;
        mpi->status = own ? own : SY_EBACKEND;
        memcpy(mpi->text, mine, sizeof mine);
    } else if (key != INT_MAX && key % mpi->ranks) {
        memcpy(mine, mpi->text, sizeof mine);
        if (strncmp(mine, "rank ", 5))
            snprintf(mpi->text, sizeof mpi->text, "rank %d: %.900s", key % mpi->ranks, mine);
    }
    pthread_mutex_lock(&mpi->lock); /* the communication thread looks at it */
    mpi->concluded = mpi->status != SY_OK;
    pthread_mutex_unlock(&mpi->lock);
    return status;
}

int sympi_conclude(void *context, int *status, char *text, size_t text_bytes)
{
    struct sympi *mpi = context;
    int result = SY_OK;
    if (!mpi->concluded) {
        pthread_mutex_lock(&mpi->lock);
        if (*status) sympi_stop_came(mpi);
        pthread_mutex_unlock(&mpi->lock);
        mpi->status = *status;
        snprintf(mpi->text, sizeof mpi->text, "%s", text);
        result = agree(mpi);
    }
    *status = mpi->status;
    snprintf(text, text_bytes, "%s", mpi->text);
    return mpi->alone ? SY_EBACKEND : result;
}

void sympi_abort(void *context, const char *text)
{
    char words[SYMPI_TEXT];
    int status = SY_EBACKEND;
    snprintf(words, sizeof words, "%s", text);
    sympi_conclude(context, &status, words, sizeof words);
}

int sympi_stop_follow(struct sympi *mpi)
{
    sympi_abort(mpi, "stopped by another rank");
    return sympi_fail(mpi, "%s", mpi->text);
}

int sympi_await(struct sympi *mpi, struct sympi_request *request, const char *what)
{
    int code = MPI_SUCCESS;
    enum sympi_poll state = sympi_poll(mpi, request, 1, mpi->timeout, &code);
    return state == SYMPI_STOPPED ? sympi_stop_follow(mpi)
                                  : sympi_outcome(mpi, state, code, mpi->timeout, what);
}
