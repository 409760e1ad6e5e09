/* SPDX-License-Identifier: Apache-2.0 */
/* Long work of some ranks, for which the others wait: all add up, again and again, how many still work. */
#include "config.h"

#include <time.h>

#include "base/threads.h"
#include "comm/comm.h"

static const double TELL_SECONDS = 0.5; /* half the least that a wait may last */

struct syi_busy syi_busy_begin(struct syi_comm *comm)
{
    return (struct syi_busy){comm, syi_seconds()};
}

int syi_busy_tell(void *busy, struct sy_error *err)
{
    struct syi_busy *b = busy;
    int64_t working = 1;
    if (syi_seconds() - b->told < TELL_SECONDS) return SY_OK;
    b->told = syi_seconds();
    return syi_comm_sum(b->comm, &working, 1, err);
}

int syi_busy_await(struct syi_busy *busy, struct syi_worker *worker, struct sy_error *err)
{
    static const struct timespec nap = {.tv_nsec = 1000000};
    int status = SY_OK;
    while (!status && !syi_worker_is_idle(worker)) {
        nanosleep(&nap, NULL);
        status = syi_busy_tell(busy, err);
    }
    return status;
}

struct job {
    syi_work_fn fn;
    void *arg;
    int status;
    struct sy_error *err;
};

static void work(void *arg)
{
    struct job *job = arg;
    job->status = job->fn(job->arg, job->err);
}

int syi_busy_run(void *busy, syi_work_fn fn, void *arg, struct sy_error *err)
{
    struct syi_busy *b = busy;
    struct job job = {.fn = fn, .arg = arg, .err = err};
    struct syi_worker *worker;
    if (b->comm->ranks == 1 || syi_worker_new("busy", &worker, NULL)) return fn(arg, err);
    syi_worker_start(worker, work, &job);
    (void)!syi_busy_await(b, worker, NULL); /* what fails shows when they meet */
    syi_worker_free(worker);
    return job.status;
}

int syi_busy_end(struct syi_busy *busy, struct sy_error *err)
{
    int64_t working;
    int status;
    do {
        working = 0;
        status = syi_comm_sum(busy->comm, &working, 1, err);
    } while (!status && working);
    return status;
}

int syi_busy_share(void *busy, void *data, size_t bytes, struct sy_error *err)
{
    struct syi_busy *b = busy;
    int status = syi_busy_end(b, err);
    return status ? status : syi_comm_share(b->comm, data, bytes, err);
}
