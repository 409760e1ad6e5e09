/* SPDX-License-Identifier: Apache-2.0 */
/* The pool does every task once in its own range, with more threads than CPUs too; workers have the default
 * floating-point environment, and give way to threads that compute; CPU quotas are read from a made control-group tree. */
#include "config.h"

#include <criterion/criterion.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#    include <xmmintrin.h>
#endif

#include "base/threads.h"
#include "fake_root.h"

enum { TASKS = 1000 };

struct seen {
    int count[TASKS];  /* runs of each task */
    int thread[TASKS]; /* that ran it */
};

static void note(void *arg, int64_t task, int thread)
{
    struct seen *seen = arg;
    seen->count[task]++;
    seen->thread[task] = thread;
}

static void check_ranges(int threads, int64_t n)
{
    struct syi_threads *pool = NULL;
    struct sy_error err = {0};
    cr_assert_eq(syi_threads_new(threads, 1, &pool, &err), SY_OK, "%s", err.text);
    cr_assert_eq(syi_threads_count(pool), threads);
    struct seen *seen = calloc(1, sizeof(*seen));
    for (int round = 1; round <= 20; round++) {
        syi_threads_for(pool, n, note, seen);
        for (int64_t i = 0; i < n; i++) cr_assert_eq(seen->count[i], round);
    }
    int least = TASKS, most = 0, of[8] = {0};
    for (int64_t i = 0; i < n; i++) {
        cr_assert(i == 0 || seen->thread[i] >= seen->thread[i - 1]); /* contiguous, in order */
        of[seen->thread[i]]++;
    }
    for (int i = 0; i < threads; i++) {
        if (of[i] < least) least = of[i];
        if (of[i] > most) most = of[i];
    }
    cr_assert_leq(most - least, 1);
    free(seen);
    syi_threads_free(pool);
}

Test(threads, every_task_once_in_static_ranges)
{
    static const int64_t counts[] = {0, 1, 2, 3, 7, 8, 9, 64, 999, TASKS};
    for (int threads = 1; threads <= 8; threads++)
        for (size_t i = 0; i < SYI_COUNT(counts); i++) check_ranges(threads, counts[i]);
}

static void add_one(void *arg, int64_t task, int thread)
{
    (void)thread;
    ((int64_t *)arg)[task]++;
}

Test(threads, many_short_pieces_with_more_threads_than_cpus)
{
    struct syi_threads *pool = NULL;
    int64_t sum[8] = {0};
    cr_assert_eq(syi_threads_new(8, 4, &pool, NULL), SY_OK);
    for (int i = 0; i < 5000; i++) {
        if (i % 1000 == 0) usleep(2000); /* lets the workers fall asleep */
        syi_threads_for(pool, 8, add_one, sum);
    }
    for (int i = 0; i < 8; i++) cr_assert_eq(sum[i], 5000);
    syi_threads_free(pool);
}

Test(threads, without_a_pool_the_caller_does_it)
{
    int64_t sum[3] = {0};
    syi_threads_for(NULL, 3, add_one, sum);
    cr_assert(sum[0] == 1 && sum[1] == 1 && sum[2] == 1);
    cr_assert_eq(syi_threads_count(NULL), 1);
}

Test(threads, silly_numbers_are_refused)
{
    struct syi_threads *pool = NULL;
    struct sy_error err = {0};
    cr_assert_eq(syi_threads_new(0, 1, &pool, &err), SY_EINVAL);
    cr_assert_eq(syi_threads_new(5000, 1, &pool, NULL), SY_EINVAL);
    cr_assert_null(pool);
    cr_assert(strstr(err.text, "0 threads"));
    syi_threads_free(NULL);
}

Test(threads, workers_do_not_inherit_a_changed_floating_point_mode)
{
    struct syi_threads *pool = NULL;
    uint32_t control[4];
#if defined(__x86_64__)
    _mm_setcsr(_mm_getcsr() | 0x8040); /* flush to zero, denormals are zero */
    cr_assert_neq(syi_fp_control(), SYI_FP_CONTROL_DEFAULT);
    struct sy_error err = {0};
    cr_expect_eq(syi_fp_check(&err), SY_EUNSUPPORTED);
    cr_expect(strstr(err.text, "floating-point control register is set") && strstr(err.text, "-ffast-math"),
              "%s", err.text);
#endif
    cr_assert_eq(syi_threads_new(4, 1, &pool, NULL), SY_OK);
    syi_fp_reset();
    syi_threads_fp_control(pool, control);
    for (int i = 0; i < 4; i++)
        cr_assert_eq(control[i], SYI_FP_CONTROL_DEFAULT, "thread %d: %x", i, control[i]);
    syi_threads_free(pool);
}

/* ---- CPU quotas ---- */

TestSuite(quota, .init = make_root, .fini = remove_root);

Test(quota, none)
{
    cr_assert_eq(syi_cpu_quota(root), 0);
    put("proc/self/cgroup", "0::/\n");
    put("sys/fs/cgroup/cpu.max", "max 100000\n");
    cr_assert_eq(syi_cpu_quota(root), 0);
}

Test(quota, version_2_smallest_of_the_parents_rounded_up)
{
    put("proc/self/cgroup", "0::/a/b/c\n");
    put("sys/fs/cgroup/a/cpu.max", "150000 100000\n");
    put("sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
    put("sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    cr_assert_eq(syi_cpu_quota(root), 2);
}

Test(quota, a_path_that_the_container_does_not_see)
{
    put("proc/self/cgroup", "0::/../outside/pod7\n");
    put("sys/fs/cgroup/cpu.max", "50000 100000\n");
    cr_assert_eq(syi_cpu_quota(root), 1);
}

Test(quota, version_1)
{
    put("proc/self/cgroup", "9:name=systemd:/\n4:cpuset:/job\n3:cpuacct,cpu:/job\n2:memory:/x\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "250000\n");
    put("sys/fs/cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "100000\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "-1\n");
    put("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n");
    cr_assert_eq(syi_cpu_quota(root), 3);
}

Test(quota, nonsense_is_no_quota)
{
    put("proc/self/cgroup", "0::/\nno colon\n::\n\n1:cpu\n");
    put("sys/fs/cgroup/cpu.max", "lots\n");
    cr_assert_eq(syi_cpu_quota(root), 0);
}

Test(cpus, at_least_one_and_shared)
{
    cr_assert_geq(syi_cpu_count(), 1);
    cr_assert_eq(syi_cpu_share(1), syi_cpu_count());
    cr_assert_eq(syi_cpu_share(1 << 20), 1);
}

/* ---- stacks ---- */

#if defined(__GLIBC__)
static void *measure_stack(void *bytes)
{
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, bytes);
    pthread_attr_destroy(&attributes);
    return NULL;
}

Test(threads, stacks_are_large_where_the_default_is_small)
{
    pthread_attr_t small;
    pthread_t thread;
    size_t bytes = 0;
    pthread_attr_init(&small);
    cr_assert_eq(pthread_attr_setstacksize(&small, 256 << 10), 0);
    cr_assert_eq(pthread_setattr_default_np(&small), 0);
    cr_assert_eq(syi_thread_start(&thread, "stack", measure_stack, &bytes, NULL), SY_OK);
    pthread_join(thread, NULL);
    cr_expect_geq(bytes, 2u << 20, "%zu bytes", bytes);
}
#endif

#if defined(__linux__)
static void note_policy(void *arg)
{
    int *policy = arg;
    struct sched_param own;
    pthread_getschedparam(pthread_self(), policy, &own);
}

Test(threads, work_beside_computing_gives_way)
{
    struct syi_worker *worker = NULL;
    struct sy_error err = {0};
    struct sched_param own;
    int policy = -1, mine = -1;
    cr_assert_eq(syi_worker_new("beside", &worker, &err), SY_OK, "%s", err.text);
    syi_worker_start(worker, note_policy, &policy);
    syi_worker_free(worker);
    pthread_getschedparam(pthread_self(), &mine, &own);
    cr_assert_eq(policy, mine == SCHED_OTHER ? SCHED_BATCH : mine);
}
#endif
