/* SPDX-License-Identifier: Apache-2.0 */
/* Walks from /proc/self/cgroup through the folders of the groups. */
#include "config.h"

#include <stdio.h>
#include <string.h>

#include "base/cgroup.h"

enum { PATH_BYTES = 1024 };

int syi_cgroup_line(const char *folder, const char *name, char *line, int bytes)
{
    char path[2 * PATH_BYTES + 64];
    snprintf(path, sizeof(path), "%s/%s", folder, name);
    if (!syi_file_begin(path, line, (size_t)bytes) || !*line) return 0;
    line[strcspn(line, "\n")] = '\0';
    return 1;
}

static uint64_t least(uint64_t a, uint64_t b)
{
    return !a || (b && b < a) ? b : a;
}

/* The smallest limit from the group up to the mount. A container may see its own group as the mount itself
 * while /proc still shows the path outside: folders that do not exist have no limit and the walk ends at the
 * mount. */
static uint64_t walk(const char *mount, const char *group, int version, syi_cgroup_fn fn)
{
    char folder[2 * PATH_BYTES];
    size_t mount_length = strlen(mount);
    uint64_t limit = 0;
    snprintf(folder, sizeof(folder), "%s%s", mount, group);
    for (;;) {
        limit = least(limit, fn(folder, version));
        char *slash = strrchr(folder, '/');
        if (!slash || (size_t)(slash - folder) < mount_length) return limit;
        *slash = '\0';
    }
}

/* Whether a name is one of a comma-separated list. */
static int is_listed(const char *list, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = list; at; at = strchr(at, ',')) {
        if (*at == ',') at++;
        if (strncmp(at, name, length) == 0 && (at[length] == ',' || at[length] == '\0')) return 1;
    }
    return 0;
}

/* One line of /proc/self/cgroup, "id:controllers:path". */
static uint64_t line_limit(const char *root, char *line, const char *controller, syi_cgroup_fn fn)
{
    static const struct {
        int version;
        const char *mount, *controller;
    } mounts[] = {{2, "/sys/fs/cgroup", NULL},
                  {2, "/sys/fs/cgroup/unified", NULL},
                  {1, "/sys/fs/cgroup/cpu", "cpu"},
                  {1, "/sys/fs/cgroup/cpu,cpuacct", "cpu"},
                  {1, "/sys/fs/cgroup/memory", "memory"}};
    char mount[PATH_BYTES];
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    uint64_t limit = 0;

    if (!path) return 0;
    *path++ = '\0';
    int version = controllers[1] == '\0' ? 2 : is_listed(controllers + 1, controller) ? 1 : 0;
    for (size_t i = 0; i < SYI_COUNT(mounts); i++) {
        if (mounts[i].version != version) continue;
        if (mounts[i].controller && strcmp(mounts[i].controller, controller) != 0) continue;
        snprintf(mount, sizeof(mount), "%s%s", root, mounts[i].mount);
        limit = least(limit, walk(mount, strcmp(path, "/") == 0 ? "" : path, version, fn));
    }
    return limit;
}

uint64_t syi_cgroup_least(const char *root, const char *controller, syi_cgroup_fn fn)
{
    char path[PATH_BYTES], text[16 * PATH_BYTES], *rest;
    uint64_t limit = 0;
    snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
    if (!syi_file_begin(path, text, sizeof(text))) return 0;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest))
        limit = least(limit, line_limit(root, line, controller, fn));
    return limit;
}
