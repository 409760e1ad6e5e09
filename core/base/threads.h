/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of the host: how many CPUs there are, the pool of parallel_for, and the gate on which pool and
 * collectives wait. A pool belongs to one rank; its tasks never start tasks. */
#ifndef SYI_THREADS_H
#define SYI_THREADS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

#include "base/base.h"

/* ---- cpus.c ---- */

/* CPUs this process may use: its affinity set, cut by the CPU quota of its control group. 1 or more. */
int syi_cpu_count(void);
/* CPUs that the control group's quota allows, rounded up; 0: no quota. root: "" on a real system (tests give
 * a folder that holds proc/self/cgroup and sys/fs/cgroup). */
int syi_cpu_quota(const char *root);
/* The set of CPUs this process may use, as text; "" where the system does not say. */
void syi_cpu_set_text(char *text, size_t bytes);
/* What the processor is called; "" where the system does not say. */
void syi_cpu_name(char *name, size_t bytes);
/* Threads for each of `ranks` processes or rank threads that share this process's CPUs. 1 or more. */
int syi_cpu_share(int ranks);
/* The least number of threads a process that SLURM_CPUS_PER_TASK and OMP_NUM_THREADS allow, 0 where neither does; *name:
 * which of them. */
int syi_cpu_limit(const char **name);
/* Threads of a process or rank that nobody chose: its share of the CPUs, at most what the environment allows a process of `local`
 * ranks; *limited_by: the variable that made it less, or NULL. */
int syi_cpu_default(int sharers, int local, const char **limited_by);

/* ---- threads.c: gate ---- */

/* A number that threads wait on until it changes. Whoever changes it calls syi_gate_wake after the change. */
struct syi_gate {
    _Alignas(64) _Atomic uint32_t word; /* changed by its users, atomically */
    _Atomic int sleepers;               /* threads in the condition variable */
    pthread_mutex_t mutex;
    pthread_cond_t cond;
};

void syi_gate_init(struct syi_gate *gate);
void syi_gate_destroy(struct syi_gate *gate);
/* Returns the word once (word & mask) differs from old: looks `spin` times, then yields a little, then
 * sleeps. */
uint32_t syi_gate_wait(struct syi_gate *gate, uint32_t mask, uint32_t old, int spin);
void syi_gate_wake(struct syi_gate *gate);
/* The number of looks that pays: 0 when `runnable` threads share fewer CPUs, else a few microseconds' worth.
 */
int syi_gate_spin(int runnable);

/* ---- threads.c: starting a thread ---- */

/* Starts fn(arg) in a thread called name (15 characters count). Signals that a user or a batch system sends
 * stay with the other threads. fn calls syi_fp_reset first. */
int syi_thread_start(pthread_t *thread, const char *name, void *(*fn)(void *), void *arg,
                     struct sy_error *err);
/* The calling thread is for work beside computing: when it wakes it does not interrupt a thread that computes, but waits until
 * a processor is free or the system shares them out anew. Where a system cannot do that, or its user chose how threads are
 * scheduled, nothing changes. */
void syi_thread_give_way(void);
/* Default floating-point environment for the calling thread: round to nearest, no flush-to-zero, no traps. */
void syi_fp_reset(void);
/* Whether arithmetic is as it is written in this build and thread: sums in their order, products not fused with sums, small
 * numbers kept. SY_EUNSUPPORTED names what is not. */
int syi_fp_check(struct sy_error *err) SYI_MUST_CHECK;
/* The control bits of the calling thread that change results: MXCSR without its status flags (x86-64), FPCR
 * (AArch64), elsewhere 0. Equal to SYI_FP_CONTROL_DEFAULT after syi_fp_reset. */
uint32_t syi_fp_control(void);
#if defined(__x86_64__)
#    define SYI_FP_CONTROL_DEFAULT 0x1f80u
#else
#    define SYI_FP_CONTROL_DEFAULT 0u
#endif

/* ---- threads.c: waiting for a time ---- */

/* A condition whose timed waits go by the clock that is never set. SY_ENOMEM without a message. */
int syi_cond_init(pthread_cond_t *cond) SYI_MUST_CHECK;
/* The moment `seconds` from now for such a wait, now if they are past. */
struct timespec syi_cond_deadline(double seconds);

/* ---- worker.c ---- */

/* A thread for jobs beside the thread that owns it, one at a time. */
struct syi_worker;
int syi_worker_new(const char *name, struct syi_worker **worker, struct sy_error *err) SYI_MUST_CHECK;
void syi_worker_free(struct syi_worker *worker); /* after the job under way; NULL is fine */
/* Starts fn(arg) when the worker is idle. Allocates nothing. What the owner wrote before is seen by the job, and what the
 * job wrote by the owner once the worker is idle. */
void syi_worker_start(struct syi_worker *worker, void (*fn)(void *arg), void *arg);
int syi_worker_is_idle(struct syi_worker *worker);
void syi_worker_wait(struct syi_worker *worker); /* until it is */

/* ---- threads.c: pool ---- */

struct syi_threads;
typedef void (*syi_task_fn)(void *arg, int64_t task, int thread);

/* Threads of an embedding program in place of our own: run calls task(task_arg, i) for i = 0..n-1, once each, in any order
 * and on any threads, and returns when all have returned. run NULL: our own. */
struct syi_runner {
    sy_run_tasks_fn run;
    void *arg;
};

/* A pool of `threads` (the caller of syi_threads_for is thread 0). ranks: how many such pools share the CPUs.
 */
int syi_threads_new(int threads, int ranks, struct syi_threads **pool, struct sy_error *err);
/* The same of threads that are not ours. */
int syi_threads_borrow(int threads, const struct syi_runner *runner, struct syi_threads **pool,
                       struct sy_error *err) SYI_MUST_CHECK;
void syi_threads_free(struct syi_threads *pool);       /* NULL is fine */
int syi_threads_count(const struct syi_threads *pool); /* 1 for NULL */
/* fn(arg, task, thread) for task 0..n-1, cut into one contiguous range a thread; returns when all are done.
 * Allocates nothing. pool NULL: all in the caller. */
void syi_threads_for(struct syi_threads *pool, int64_t n, syi_task_fn fn, void *arg);
/* syi_fp_control of every thread of the pool, the caller's first. control: [threads]. */
void syi_threads_fp_control(struct syi_threads *pool, uint32_t *control);

#endif
