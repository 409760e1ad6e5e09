/* SPDX-License-Identifier: Apache-2.0 */
/* Progress of what was started: by the thread that waits, and while no thread waits by the communication
 * thread, so that collectives overlap with compute. Watches the time: a wait that lasts too long is an error,
 * not a hang. */
#include "config.h"

#include <sched.h>
#include <time.h>

#include "backends/mpi/mpi_backend.h"

enum {
    NAP = 100000, /* ns between two looks of the communication thread: compute has the processor meanwhile */
    /* The same without work, or while another thread waits and looks itself: it would only disturb. */
    LONG_NAP = 4 * NAP,
    IDLE_NAPS = 5, /* without work before it sleeps until it is woken */
    POLLS = 16     /* looks of a waiting thread between two looks at the clock and at stop messages */
};
static const double SPIN = 1e-3; /* seconds that a waiting thread looks without rest, then it naps */
/* Seconds that count, at most, of those between two looks at the clock: a job that is suspended does not wait meanwhile. */
static const double LONGEST_GAP = 1;

double sympi_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Makes progress, and the next step of what has several. With statuses of our own: gcc warns of MPICH's
 * MPI_STATUSES_IGNORE. lock is held. */
static int advance(struct sympi_request *request, int *done)
{
    MPI_Status status[SYMPI_PARTS];
    int code = MPI_Testall(request->n_parts, request->part, done, status);
    if (code != MPI_SUCCESS || !*done || !request->then) return code;
    *done = 0;
    return request->then(request);
}

int sympi_stop_came(struct sympi *mpi)
{
    if (mpi->ranks == 1 || mpi->stopped || mpi->concluded) return mpi->stopped || mpi->concluded;
    int code = MPI_Test(&mpi->stop_recv, &mpi->stopped, MPI_STATUS_IGNORE);
    return code == MPI_SUCCESS && mpi->stopped;
}

void sympi_retire(struct sympi *mpi, struct sympi_request *request)
{
    struct sympi_request **link = &mpi->active;
    while (*link && *link != request) link = &(*link)->next;
    if (*link) *link = request->next;
    request->active = 0;
}

/* ---- the thread that waits ---- */

struct waiting {
    double looked; /* at the clock, for the last time; 0: not yet */
    double seconds;
};

static void look_at_clock(struct waiting *w)
{
    double now = sympi_seconds(), gap = w->looked ? now - w->looked : 0;
    w->looked = now;
    w->seconds += gap < LONGEST_GAP ? gap : LONGEST_GAP;
}

/* Now and then: has a rank stopped all, or is the time over? A long wait leaves the processor to others: to
 * more ranks than there are processors, and to what the rank waited for does, such as writing a
 * checkpoint. */
static enum sympi_poll look_around(struct sympi *mpi, int stoppable, struct waiting *w, double seconds)
{
    static const struct timespec nap = {.tv_nsec = NAP};
    int stop = 0;
    look_at_clock(w);
    if (stoppable) {
        pthread_mutex_lock(&mpi->lock);
        stop = sympi_stop_came(mpi);
        pthread_mutex_unlock(&mpi->lock);
    }
    if (w->seconds > SPIN)
        nanosleep(&nap, NULL);
    else
        sched_yield();
    return stop ? SYMPI_STOPPED : w->seconds < seconds ? SYMPI_UNDER_WAY : SYMPI_LATE;
}

enum sympi_poll sympi_poll(struct sympi *mpi, struct sympi_request *request, int stoppable, double seconds,
                           int *code)
{
    enum sympi_poll state = SYMPI_UNDER_WAY;
    struct waiting w = {0};
    atomic_fetch_add(&mpi->waiters, 1);
    for (int i = 1; state == SYMPI_UNDER_WAY; i++) {
        int done = 0;
        pthread_mutex_lock(&mpi->lock);
        *code = advance(request, &done);
        pthread_mutex_unlock(&mpi->lock);
        if (*code != MPI_SUCCESS)
            state = SYMPI_FAILED;
        else if (done)
            state = SYMPI_DONE;
        else if (i % POLLS == 0)
            state = look_around(mpi, stoppable, &w, seconds);
    }
    atomic_fetch_sub(&mpi->waiters, 1);
    return state;
}

int sympi_outcome(const struct sympi *mpi, enum sympi_poll state, int code, double seconds, const char *what)
{
    if (state == SYMPI_DONE) return SY_OK;
    if (state == SYMPI_FAILED) return sympi_fail_code(mpi, what, code);
    return sympi_fail(mpi,
                      "rank %d of %d waited %.0f s for %s and not all ranks came: one hangs, died or does "
                      "something else (SWITCHYARD_COMM_TIMEOUT sets the seconds)",
                      mpi->rank, mpi->ranks, seconds, what);
}

int sympi_complete(struct sympi *mpi, struct sympi_request *request, double seconds, const char *what)
{
    int code = MPI_SUCCESS;
    enum sympi_poll state = sympi_poll(mpi, request, 0, seconds, &code);
    return sympi_outcome(mpi, state, code, seconds, what);
}

/* ---- the communication thread ---- */

/* lock is held. */
static void look(struct sympi *mpi)
{
    struct sympi_request *next;
    for (struct sympi_request *r = mpi->active; r; r = next) {
        int done = 0;
        next = r->next;
        r->error = advance(r, &done);
        if (done || r->error != MPI_SUCCESS) sympi_retire(mpi, r);
    }
}

/* It naps while there is work, and some time longer: to be woken at every start would cost the thread that
 * starts more than a nap does. lock is held. */
static void rest(struct sympi *mpi, int idle_naps)
{
    static const struct timespec nap = {.tv_nsec = NAP}, long_nap = {.tv_nsec = LONG_NAP};
    if (idle_naps > IDLE_NAPS) {
        mpi->asleep = 1;
        pthread_cond_wait(&mpi->work, &mpi->lock);
        mpi->asleep = 0;
    } else {
        pthread_mutex_unlock(&mpi->lock);
        do nanosleep(idle_naps || atomic_load(&mpi->waiters) ? &long_nap : &nap, NULL);
        while (atomic_load(&mpi->waiters));
        pthread_mutex_lock(&mpi->lock);
    }
}

static void *make_progress(void *arg)
{
    struct sympi *mpi = arg;
    int idle = 0;
    pthread_mutex_lock(&mpi->lock);
    while (!mpi->quit) {
        idle = mpi->active && !mpi->concluded ? 0 : idle + 1;
        if (!idle && !atomic_load(&mpi->waiters)) look(mpi);
        rest(mpi, idle);
    }
    pthread_mutex_unlock(&mpi->lock);
    return NULL;
}

int sympi_thread_start(struct sympi *mpi)
{
    mpi->threaded = pthread_create(&mpi->thread, NULL, make_progress, mpi) == 0;
    return mpi->threaded ? SY_OK : sympi_fail(mpi, "the communication thread cannot be started");
}

void sympi_thread_end(struct sympi *mpi)
{
    if (!mpi->threaded) return;
    pthread_mutex_lock(&mpi->lock);
    mpi->quit = 1;
    pthread_cond_signal(&mpi->work);
    pthread_mutex_unlock(&mpi->lock);
    pthread_join(mpi->thread, NULL);
    mpi->threaded = 0;
}
