/* SPDX-License-Identifier: Apache-2.0 */
/* The thread pool, and the gate it waits on. Work is cut into static ranges, so which thread computes what
 * depends on the numbers of tasks and threads only. Results must not depend on it at all: that is the
 * kernels' duty. */
#include "config.h"

#include <fenv.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#if defined(__x86_64__)
#    include <xmmintrin.h>
#endif

#include "base/threads.h"

/* ---- gate ---- */

/* Looks at a gate before a thread sleeps, for to wake it takes 5 to 100 us: a few microseconds, then yielding
 * the processor, for up to about a millisecond where each thread has one of its own. Gaps between kernels,
 * and the time by which one thread is done before another, are shorter. */
enum { SPIN = 400, YIELDS = 64, OWN_YIELDS = 2000 };

static inline void relax(void)
{
#if defined(__x86_64__)
    _mm_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

void syi_gate_init(struct syi_gate *gate)
{
    atomic_init(&gate->word, 0);
    atomic_init(&gate->sleepers, 0);
    pthread_mutex_init(&gate->mutex, NULL);
    pthread_cond_init(&gate->cond, NULL);
}

void syi_gate_destroy(struct syi_gate *gate)
{
    pthread_cond_destroy(&gate->cond);
    pthread_mutex_destroy(&gate->mutex);
}

uint32_t syi_gate_wait(struct syi_gate *gate, uint32_t mask, uint32_t old, int spin)
{
    uint32_t word;
    for (int i = 0, n = spin ? spin + OWN_YIELDS : YIELDS; i < n; i++) {
        word = atomic_load_explicit(&gate->word, memory_order_acquire);
        if ((word & mask) != old) return word;
        if (i < spin)
            relax();
        else
            sched_yield();
    }
    pthread_mutex_lock(&gate->mutex);
    /* Announced before the last look, while the waker changes the word before it looks for sleepers: one of
     * the two sees the other. */
    atomic_fetch_add(&gate->sleepers, 1);
    while (((word = atomic_load(&gate->word)) & mask) == old) pthread_cond_wait(&gate->cond, &gate->mutex);
    atomic_fetch_sub(&gate->sleepers, 1);
    pthread_mutex_unlock(&gate->mutex);
    return word;
}

void syi_gate_wake(struct syi_gate *gate)
{
    if (atomic_load(&gate->sleepers) == 0) return;
    pthread_mutex_lock(&gate->mutex);
    pthread_cond_broadcast(&gate->cond);
    pthread_mutex_unlock(&gate->mutex);
}

int syi_gate_spin(int runnable)
{
    return runnable > syi_cpu_count() ? 0 : SPIN;
}

/* ---- waiting for a time ---- */

int syi_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    if (pthread_condattr_init(&attributes) != 0) return SY_ENOMEM;
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    int failed = pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
    return failed ? SY_ENOMEM : SY_OK;
}

struct timespec syi_cond_deadline(double seconds)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    int64_t nanoseconds = time.tv_nsec + (int64_t)((seconds > 0 ? seconds : 0) * 1e9);
    time.tv_sec += (time_t)(nanoseconds / 1000000000);
    time.tv_nsec = (long)(nanoseconds % 1000000000);
    return time;
}

/* ---- starting a thread ---- */

enum {
    STACK = 2 << 20
}; /* least bytes: a rank has configurations on its stack; some libraries give 128 KiB */

int syi_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg,
                     struct sy_error *err)
{
    static const int kept[] = {SIGSEGV, SIGBUS,  SIGFPE, SIGILL,
                               SIGTRAP, SIGABRT, SIGPROF}; /* of the thread itself */
    sigset_t blocked, before;
    pthread_attr_t attributes;
    size_t stack = 0;
    if (pthread_attr_init(&attributes) != 0) return syi_error(err, SY_ENOMEM, "out of memory");
    pthread_attr_getstacksize(&attributes, &stack);
    if (stack < STACK) pthread_attr_setstacksize(&attributes, STACK);
    sigfillset(&blocked);
    for (size_t i = 0; i < SYI_COUNT(kept); i++) sigdelset(&blocked, kept[i]);
    pthread_sigmask(SIG_SETMASK, &blocked, &before); /* the new thread inherits it */
    int failed = pthread_create(thread, &attributes, fn, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (failed)
        return syi_error(err, SY_ENOMEM,
                         "cannot start thread %s: %s; ask for fewer threads or raise the process limit", name,
                         strerror(failed));
#if defined(__linux__)
    char cut[16];
    snprintf(cut, sizeof(cut), "%s", name);
    pthread_setname_np(*thread, cut);
#endif
    return SY_OK;
}

void syi_thread_give_way(void)
{
#if defined(SCHED_BATCH)
    struct sched_param own = {0};
    int policy = SCHED_OTHER;
    if (pthread_getschedparam(pthread_self(), &policy, &own) || policy != SCHED_OTHER) return;
    (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &own);
#endif
}

void syi_fp_reset(void)
{
    fesetenv(FE_DFL_ENV);
}

uint32_t syi_fp_control(void)
{
#if defined(__x86_64__)
    return _mm_getcsr() & ~0x3fu;
#elif defined(__aarch64__)
    uint64_t control;
    __asm__ volatile("mrs %0, fpcr" : "=r"(control));
    return (uint32_t)control;
#else
    return 0;
#endif
}

/* volatile: computed when the program runs, by the code that its flags made. */
int syi_fp_check(struct sy_error *err)
{
    volatile float given[] = {1e8f, 1, 0x1p-126f, 1 + 0x1p-12f};
    float big = given[0], one = given[1], tiny = given[2], near = given[3];
    volatile float product = near * near, half = tiny / 2;
    const char *wrong = NULL;
    if (big + one - big != 0) wrong = "sums are taken in another order";
    if (near * near - product != 0) wrong = "products and sums are fused";
    if (half == 0) wrong = "denormal numbers are taken as 0";
    if (syi_fp_control() != SYI_FP_CONTROL_DEFAULT) wrong = "the floating-point control register is set";
    if (!wrong) return SY_OK;
    return syi_error(
        err, SY_EUNSUPPORTED,
        "%s in this process, which would give other results than elsewhere: was it, or a library in it, built or "
        "linked with -ffast-math?",
        wrong);
}

/* ---- pool ---- */

struct worker {
    struct syi_threads *pool;
    pthread_t thread;
    int index; /* 1..n-1 */
};

struct syi_threads {
    struct syi_gate start;            /* word: number of the piece of work that workers may take */
    struct syi_gate done;             /* word: number of pieces that workers have finished */
    _Alignas(64) _Atomic int pending; /* workers still busy with this piece */
    /* The piece of work, written before start.word changes. */
    syi_task_fn fn;
    void *fn_arg;
    int64_t n_tasks;
    int stop;    /* workers return instead */
    int n;       /* threads with the caller */
    int started; /* workers that run */
    int spin;    /* looks at a gate before yielding */
    struct syi_runner runner;
    struct worker worker[];
};

/* Thread t takes n/threads tasks, the first n mod threads of them one more. */
static void run_range(const struct syi_threads *pool, int thread)
{
    int64_t each = pool->n_tasks / pool->n, more = pool->n_tasks % pool->n;
    int64_t begin = each * thread + (thread < more ? thread : more);
    int64_t end = begin + each + (thread < more);
    for (int64_t task = begin; task < end; task++) pool->fn(pool->fn_arg, task, thread);
}

static void *work(void *arg)
{
    struct worker *worker = arg;
    struct syi_threads *pool = worker->pool;
    uint32_t seen = 0;
    syi_fp_reset();
    for (;;) {
        seen = syi_gate_wait(&pool->start, UINT32_MAX, seen, pool->spin);
        if (pool->stop) return NULL;
        run_range(pool, worker->index);
        if (atomic_fetch_sub(&pool->pending, 1) == 1) {
            atomic_fetch_add(&pool->done.word, 1);
            syi_gate_wake(&pool->done);
        }
    }
}

/* On a thread of the embedding program, which may compute in another floating-point mode. */
static void run_borrowed(void *arg, size_t thread)
{
    fenv_t before;
    fegetenv(&before);
    syi_fp_reset();
    run_range(arg, (int)thread);
    fesetenv(&before);
}

static int make_pool(int threads, int ranks, struct syi_threads **out, struct sy_error *err)
{
    if (threads < 1 || threads > 4096 || ranks < 1)
        return syi_error(err, SY_EINVAL,
                         "%d threads for each of %d ranks: threads must be 1 to 4096, ranks 1 or more",
                         threads, ranks);
    struct syi_threads *pool = syi_alloc(sizeof(*pool) + (size_t)threads * sizeof(pool->worker[0]), err);
    if (!pool) return SY_ENOMEM;
    syi_gate_init(&pool->start);
    syi_gate_init(&pool->done);
    pool->n = threads;
    pool->spin = ranks > INT32_MAX / threads ? 0 : syi_gate_spin(threads * ranks);
    *out = pool;
    return SY_OK;
}

int syi_threads_borrow(int threads, const struct syi_runner *runner, struct syi_threads **out,
                       struct sy_error *err)
{
    int status = make_pool(threads, 1, out, err);
    if (!status) (*out)->runner = *runner;
    return status;
}

int syi_threads_new(int threads, int ranks, struct syi_threads **out, struct sy_error *err)
{
    struct syi_threads *pool;
    int made = make_pool(threads, ranks, &pool, err);
    if (made) return made;
    for (int i = 1; i < threads; i++) {
        char name[32];
        snprintf(name, sizeof(name), "sy-worker-%d", i);
        struct worker *worker = &pool->worker[i];
        worker->pool = pool;
        worker->index = i;
        int status = syi_thread_start(&worker->thread, name, work, worker, err);
        if (status != SY_OK) {
            syi_threads_free(pool);
            return status;
        }
        pool->started = i;
    }
    *out = pool;
    return SY_OK;
}

void syi_threads_free(struct syi_threads *pool)
{
    if (!pool) return;
    pool->stop = 1;
    atomic_fetch_add(&pool->start.word, 1);
    syi_gate_wake(&pool->start);
    for (int i = 1; i <= pool->started; i++) pthread_join(pool->worker[i].thread, NULL);
    syi_gate_destroy(&pool->start);
    syi_gate_destroy(&pool->done);
    syi_free(pool);
}

int syi_threads_count(const struct syi_threads *pool)
{
    return pool ? pool->n : 1;
}

void syi_threads_for(struct syi_threads *pool, int64_t n, syi_task_fn fn, void *arg)
{
    if (!pool || pool->n == 1 || n <= 1) {
        for (int64_t task = 0; task < n; task++) fn(arg, task, 0);
        return;
    }
    uint32_t done = atomic_load_explicit(&pool->done.word, memory_order_relaxed);
    pool->fn = fn;
    pool->fn_arg = arg;
    pool->n_tasks = n;
    if (pool->runner.run) {
        pool->runner.run(pool->runner.arg, (size_t)pool->n, run_borrowed, pool);
        return;
    }
    atomic_store_explicit(&pool->pending, pool->n - 1, memory_order_relaxed);
    atomic_fetch_add(&pool->start.word, 1);
    syi_gate_wake(&pool->start);
    run_range(pool, 0);
    syi_gate_wait(&pool->done, UINT32_MAX, done, pool->spin);
}

static void store_control(void *arg, int64_t task, int thread)
{
    (void)task;
    ((uint32_t *)arg)[thread] = syi_fp_control();
}

void syi_threads_fp_control(struct syi_threads *pool, uint32_t *control)
{
    syi_threads_for(pool, syi_threads_count(pool), store_control, control);
}
