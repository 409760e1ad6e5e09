/* SPDX-License-Identifier: Apache-2.0 */
/* The file systems that a run writes to: can it, do locks work, how long does a file take to be on disk. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "cli/doctor/doctor.h"
#include "metrics/place.h"

static const double little_space = 1024.0 * 1024 * 1024, slow_sync = 0.5; /* worth a note: bytes, seconds */

/* ---- type ---- */

/* Whether a mount point of /proc/self/mountinfo, where a blank is \040, holds the path; *length: of the point. */
static int holds(const char *point, const char *path, size_t *length)
{
    size_t n = 0;
    for (; *point; n++) {
        int c = (unsigned char)*point++;
        if (c == '\\' && strlen(point) >= 3) {
            c = (point[0] - '0') * 64 + (point[1] - '0') * 8 + (point[2] - '0');
            point += 3;
        }
        if ((unsigned char)path[n] != c) return 0;
    }
    *length = n;
    return n == 1 || !path[n] || path[n] == '/';
}

/* "ext4", of the longest mount point that holds the path, the last where several lie over each other. */
static void find_type(struct doctor *d, const char *path, char *type, size_t bytes)
{
    char line[4096], point[2048], found[64];
    size_t longest = 0, length;
    FILE *file = fopen("/proc/self/mountinfo", "r");
    if (!file) doctor_lose(d);
    snprintf(type, bytes, "a file system of unknown type");
    while (file && fgets(line, sizeof line, file)) {
        const char *after = strstr(line, " - ");
        if (!after || sscanf(line, "%*s %*s %*s %*s %2047s", point) != 1 ||
            sscanf(after + 3, "%63s", found) != 1 || !holds(point, path, &length) || length < longest)
            continue;
        longest = length;
        snprintf(type, bytes, "%s", found);
    }
    if (file) fclose(file);
}

/* ---- writing ---- */

/* Seconds that a new file of 64 KiB takes to be on disk, and its removal; negative with errno: it cannot be written, or
 * (*synced 0) not be synced. */
static double time_sync(const char *folder, int *synced)
{
    static const char block[65536] = "switchyard doctor";
    char *path = syi_format("%s/.switchyard-doctor-%ld", folder, (long)getpid());
    int fd = path ? open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600) : -1, reason;
    double begin = syi_seconds(), seconds = -1;
    *synced = 0;
    if (fd >= 0) unlink(path);
    if (fd >= 0 && !syi_write_all(fd, path, block, sizeof block, NULL)) {
        *synced = fsync(fd) == 0;
        seconds = *synced ? syi_seconds() - begin : -1;
    }
    reason = errno;
    if (fd >= 0) close(fd);
    syi_free(path);
    errno = reason;
    return seconds;
}

/* ---- one folder ---- */

/* needed: a run cannot be without it. */
static void add_folder(struct doctor *d, const char *topic, const char *path, int needed)
{
    char type[64], free_text[SYI_NUMBER_BYTES], why[128] = "";
    struct statvfs space = {0};
    enum doctor_level bad = needed ? DOCTOR_PROBLEM : DOCTOR_NOTE;
    const char *advice = NULL;
    int synced;
    find_type(d, path, type, sizeof type);
    double seconds = time_sync(path, &synced);
    if (seconds < 0) {
        doctor_lose(d);
        snprintf(why, sizeof why, "%s", strerror(errno));
        doctor_add(d, bad, topic, "choose another folder, or make room",
                   "%s (%s): a file cannot be written: %s", path, type, why);
        return;
    }
    int locks = syi_place_can_lock_in(path);
    double left = statvfs(path, &space) ? 0 : (double)space.f_bavail * (double)space.f_frsize;
    doctor_bytes(free_text, left);
    if (left < little_space) advice = "little room: checkpoints and the database need some";
    if (seconds > slow_sync) advice = "slow: a run that saves often waits";
    if (!locks)
        advice =
            strcmp(topic, "TMPDIR")
                ? "the database is then written below $TMPDIR and copied (metrics.dir names another folder)"
                : "databases of runs without locks could not be written here: set it to a folder of this host";
    if (!strcmp(type, "tmpfs") && needed) advice = "in memory: it is lost when the machine stops";
    doctor_add(d, advice ? DOCTOR_NOTE : DOCTOR_OK, topic, advice,
               "%s (%s): locks %s, fsync %.1f ms, %s free", path, type, locks ? "work" : "do not work",
               1000 * seconds, free_text);
    doctor_number(d, "fsync_seconds", seconds);
    doctor_number(d, "free_bytes", left);
    doctor_number(d, "locks", locks);
}

/* The folder itself, or the first above it that is there, in which it would be made; freed by free(). */
static char *existing(const char *folder)
{
    char path[4096];
    struct stat info;
    snprintf(path, sizeof path, "%s", folder);
    while (stat(path, &info) && errno == ENOENT) {
        char *slash = strrchr(path, '/');
        if (!slash) return realpath(".", NULL);
        slash[slash == path] = '\0';
    }
    return realpath(path, NULL);
}

/* path: where the folder is, freed here, or NULL with errno. */
static void add_given(struct doctor *d, const char *topic, const char *folder, char *path, int needed)
{
    if (path)
        add_folder(d, topic, path, needed);
    else if (errno == ENOMEM)
        doctor_lose(d);
    else
        doctor_add(d, needed ? DOCTOR_PROBLEM : DOCTOR_NOTE, topic, "choose another folder", "%s: %s", folder,
                   strerror(errno));
    free(path);
}

void doctor_folders(struct doctor *d, const char *run_dir)
{
    const char *temporary = getenv("TMPDIR");
    if (!temporary || !*temporary) temporary = "/tmp";
    add_given(d, "folder", ".", realpath(".", NULL), !run_dir);
    add_given(d, "TMPDIR", temporary, realpath(temporary, NULL), 0); /* nobody makes it */
    if (run_dir) add_given(d, "run-dir", run_dir, existing(run_dir), 1);
}
