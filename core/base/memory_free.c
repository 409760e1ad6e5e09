/* SPDX-License-Identifier: Apache-2.0 */
/* How much memory this process can still take: what the system has available, and what the limits of its
 * control groups leave. Pages of files count as free in both, for they are given back when memory is wanted.
 */
#include "config.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/cgroup.h"

/* The number after KEY at the beginning of a line of a file; 0 when there is none. */
static uint64_t number_behind(const char *path, const char *key)
{
    char text[256];
    uint64_t number;
    syi_file_line(path, key, text, sizeof(text));
    return sscanf(text, " %" SCNu64, &number) == 1 ? number : 0;
}

static int read_number(const char *folder, const char *name, uint64_t *number)
{
    char line[64];
    return syi_cgroup_line(folder, name, line, sizeof(line)) && sscanf(line, "%" SCNu64, number) == 1;
}

/* What a group may still take, at least 1; 0 when it has no limit ("max", or version 1's enormous one). */
static uint64_t folder_free(const char *folder, int version)
{
    static const char *const names[2][4] = {
        {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file", "total_active_file"},
        {"memory.max", "memory.current", "inactive_file", "active_file"}};
    const char *const *name = names[version - 1];
    char stat[4096];
    uint64_t limit, used;
    if (!read_number(folder, name[0], &limit) || limit >= UINT64_C(1) << 60) return 0;
    if (!read_number(folder, name[1], &used)) used = 0;
    snprintf(stat, sizeof(stat), "%s/memory.stat", folder);
    uint64_t files = syi_add_u64(number_behind(stat, name[2]), number_behind(stat, name[3]));
    used = used > files ? used - files : 0;
    return limit > used ? limit - used : 1;
}

uint64_t syi_memory_free_of_system(const char *root)
{
    char path[1024];
    snprintf(path, sizeof(path), "%s/proc/meminfo", root);
    return syi_mul_u64(number_behind(path, "MemAvailable:"), 1024);
}

uint64_t syi_memory_free_of_groups(const char *root)
{
    return syi_cgroup_least(root, "memory", folder_free);
}

uint64_t syi_memory_free(const char *root)
{
    uint64_t system = syi_memory_free_of_system(root), group = syi_memory_free_of_groups(root);
    return group && (!system || group < system) ? group : system;
}
