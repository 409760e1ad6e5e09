/* SPDX-License-Identifier: Apache-2.0 */
/* How many CPUs this process may use: the affinity set (which batch systems and MPI launchers narrow) and the
 * CPU quota of the control group (which containers set), version 1 and 2. The control file systems are looked
 * for where distributions mount them, below /sys/fs/cgroup. */
#include "config.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/threads.h"

enum { PATH_BYTES = 1024 };

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

/* First line of a small file; 0 when there is none. */
static int read_line(const char *path, char *line, int bytes)
{
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int found = fgets(line, bytes, file) != NULL;
    fclose(file);
    return found;
}

/* quota / period rounded up, at least 1; 0 when there is no quota. */
static int quota_cpus(long long quota, long long period)
{
    if (quota <= 0 || period <= 0) return 0;
    long long cpus = (quota + period - 1) / period;
    return cpus > 1 << 20 ? 0 : (int)cpus;
}

static int folder_quota(const char *folder, int version)
{
    char path[2 * PATH_BYTES + 64], line[128];
    long long quota = 0, period = 0;
    if (version == 2) {
        snprintf(path, sizeof(path), "%s/cpu.max", folder);
        if (!read_line(path, line, sizeof(line)) || sscanf(line, "%lld %lld", &quota, &period) != 2) return 0;
        return quota_cpus(quota, period);
    }
    snprintf(path, sizeof(path), "%s/cpu.cfs_quota_us", folder);
    if (!read_line(path, line, sizeof(line)) || sscanf(line, "%lld", &quota) != 1) return 0;
    snprintf(path, sizeof(path), "%s/cpu.cfs_period_us", folder);
    if (!read_line(path, line, sizeof(line)) || sscanf(line, "%lld", &period) != 1) return 0;
    return quota_cpus(quota, period);
}

/* The smallest quota from the group up to the mount. A container may see its own group as the mount itself
 * while /proc still shows the path outside: folders that do not exist have no quota and the walk ends at the
 * mount. */
static int walk_quota(const char *mount, const char *group, int version)
{
    char folder[2 * PATH_BYTES];
    size_t mount_length = strlen(mount);
    int least = 0;
    snprintf(folder, sizeof(folder), "%s%s", mount, group);
    for (;;) {
        int cpus = folder_quota(folder, version);
        if (cpus && (!least || cpus < least)) least = cpus;
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < mount_length) return least;
        *slash = '\0';
    }
}

/* Whether `cpu` is one of the comma-separated controllers. */
static int has_cpu(const char *controllers)
{
    for (const char *at = controllers; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, "cpu", 3) == 0 && (at[3] == ',' || at[3] == '\0')) return 1;
    }
    return 0;
}

/* One line of /proc/self/cgroup, "id:controllers:path". */
static int line_quota(const char *root, char *line)
{
    static const struct {
        int version;
        const char *mount;
    } mounts[] = {{2, "/sys/fs/cgroup"},
                  {2, "/sys/fs/cgroup/unified"},
                  {1, "/sys/fs/cgroup/cpu"},
                  {1, "/sys/fs/cgroup/cpu,cpuacct"}};
    char mount[PATH_BYTES];
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    int least = 0;

    if (!path) return 0;
    *path++ = '\0';
    path[strcspn(path, "\n")] = '\0';
    int version = controllers[1] == '\0' ? 2 : has_cpu(controllers + 1) ? 1 : 0;
    for (size_t i = 0; i < SYI_COUNT(mounts); i++) {
        if (mounts[i].version != version) continue;
        snprintf(mount, sizeof(mount), "%s%s", root, mounts[i].mount);
        int cpus = walk_quota(mount, strcmp(path, "/") == 0 ? "" : path, version);
        if (cpus && (!least || cpus < least)) least = cpus;
    }
    return least;
}

int syi_cpu_quota(const char *root)
{
    char path[PATH_BYTES], line[PATH_BYTES];
    int least = 0;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    while (fgets(line, sizeof(line), file)) {
        int cpus = line_quota(root, line);
        if (cpus && (!least || cpus < least)) least = cpus;
    }
    fclose(file);
    return least;
}

int syi_cpu_count(void)
{
    int cpus = affinity_count(), quota = syi_cpu_quota("");
    return quota && quota < cpus ? quota : cpus;
}

void syi_cpu_set_text(char *text, size_t bytes)
{
    static const char key[] = "Cpus_allowed_list:";
    char line[PATH_BYTES];
    FILE *file = fopen("/proc/self/status", "r");
    text[0] = '\0';
    if (!file) return;
    while (!text[0] && fgets(line, sizeof(line), file))
        if (!strncmp(line, key, sizeof(key) - 1)) snprintf(text, bytes, "%s", line + sizeof(key) - 1);
    fclose(file);
}

int syi_cpu_share(int ranks)
{
    int cpus = syi_cpu_count();
    return ranks > 1 ? (cpus / ranks > 1 ? cpus / ranks : 1) : cpus;
}
