/* SPDX-License-Identifier: Apache-2.0 */
/* How many CPUs this process may use: the affinity set (which batch systems and MPI launchers narrow), the
 * CPU quota of the control group (which containers set), and what the environment allows. */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cgroup.h"
#include "base/threads.h"

static int affinity_count(void)
{
#if defined(__linux__)
    /* The kernel refuses a set smaller than its own, so the set grows until it fits. */
    for (size_t cpus = 1024; cpus <= 1 << 20; cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(cpus);
        if (!set) break;
        size_t bytes = CPU_ALLOC_SIZE(cpus);
        int n = sched_getaffinity(0, bytes, set) == 0 ? CPU_COUNT_S(bytes, set) : 0;
        CPU_FREE(set);
        if (n > 0) return n;
    }
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

/* quota / period rounded up, at least 1; 0 when there is no quota. */
static uint64_t quota_cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) return 0;
    long long cpus = quota / period + (quota % period != 0);
    return cpus > 1 << 20 ? 0 : (uint64_t)cpus;
}

static uint64_t folder_quota(const char *folder, int version)
{
    char line[128];
    long long quota = 0, period = 0;
    if (version == 2) {
        if (!syi_cgroup_line(folder, "cpu.max", line, sizeof(line)) ||
            sscanf(line, "%lld %lld", &quota, &period) != 2)
            return 0;
        return quota_cpus(quota, period);
    }
    if (!syi_cgroup_line(folder, "cpu.cfs_quota_us", line, sizeof(line)) || sscanf(line, "%lld", &quota) != 1)
        return 0;
    if (!syi_cgroup_line(folder, "cpu.cfs_period_us", line, sizeof(line)) ||
        sscanf(line, "%lld", &period) != 1)
        return 0;
    return quota_cpus(quota, period);
}

int syi_cpu_quota(const char *root)
{
    return (int)syi_cgroup_least(root, "cpu", folder_quota);
}

int syi_cpu_count(void)
{
    int cpus = affinity_count(), quota = syi_cpu_quota("");
    return quota && quota < cpus ? quota : cpus;
}

void syi_cpu_set_text(char *text, size_t bytes)
{
    syi_file_line("/proc/self/status", "Cpus_allowed_list:", text, bytes);
}

void syi_cpu_name(char *name, size_t bytes)
{
    char text[256];
    syi_file_line("/proc/cpuinfo", "model name", text, sizeof(text));
    snprintf(name, bytes, "%s", text + strspn(text, "\t :"));
}

int syi_cpu_share(int ranks)
{
    int cpus = syi_cpu_count();
    return ranks > 1 ? (cpus / ranks > 1 ? cpus / ranks : 1) : cpus;
}

int syi_cpu_limit(const char **name)
{
    static const char *const variables[] = {"SLURM_CPUS_PER_TASK", "OMP_NUM_THREADS"};
    int least = 0;
    *name = NULL;
    for (size_t i = 0; i < SYI_COUNT(variables); i++) {
        const char *text = getenv(variables[i]);
        char *end;
        long n = text ? strtol(text, &end, 10) : 0;
        if (n < 1 || n > 1 << 20 || (*end && *end != ','))
            continue; /* OMP_NUM_THREADS may be a list, by depth */
        if (least && n >= least) continue;
        least = (int)n;
        *name = variables[i];
    }
    return least;
}

int syi_cpu_default(int sharers, int local, const char **limited_by)
{
    const char *name;
    int share = syi_cpu_share(sharers), limit = syi_cpu_limit(&name),
        each = limit / local > 1 ? limit / local : 1;
    *limited_by = limit && each < share ? name : NULL;
    return *limited_by ? each : share;
}
