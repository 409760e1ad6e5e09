/* SPDX-License-Identifier: Apache-2.0 */
/* The lock file of a run directory. It is made with O_EXCL and holds "HOST PID START": start is the time the
 * process began in ticks since boot (0: unknown), so that a pid in use again is not mistaken for the owner.
 * The file stays while the run goes on; a record lock on it only guards the moments of reading, taking over
 * and removing. */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "train/launch/run_lock.h"

enum { HOST_BYTES = 256, FILE_BYTES = 512, LOOKS = 20 }; /* LOOKS: at a lock that changes under our eyes */

struct owner {
    char host[HOST_BYTES];
    int64_t pid;
    uint64_t start; /* ticks since boot, 0: unknown */
};

/* ---- processes ---- */

/* State letter and start time of a process as /proc tells; 0 where it does not. */
static int look_at_process(int64_t pid, char *state, uint64_t *start)
{
    char path[64], *text = NULL;
    size_t bytes;
    unsigned long long ticks;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    if (syi_file_read(path, &text, &bytes, NULL)) return 0;
    const char *end = strrchr(text, ')'); /* the name before it may hold anything */
    int found = end && sscanf(end + 1,
                              " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                              "%llu",
                              state, &ticks) == 2;
    if (found) *start = ticks;
    syi_free(text);
    return found;
}

static struct owner this_process(void)
{
    struct owner me = {.pid = getpid()};
    char state;
    if (gethostname(me.host, sizeof me.host - 1) || !me.host[0]) strcpy(me.host, "localhost");
    for (char *at = me.host; *at; at++)
        if (*at == ' ' || *at == '\n') *at = '_';
    look_at_process(me.pid, &state, &me.start);
    return me;
}

/* Of this host. A process that was killed and not yet collected by its parent writes no more. */
static int is_alive(const struct owner *owner)
{
    char state = 0;
    uint64_t start = 0;
    if (kill((pid_t)owner->pid, 0) && errno == ESRCH) return 0;
    if (!look_at_process(owner->pid, &state, &start)) return 1;
    return state != 'Z' && state != 'X' && (!owner->start || owner->start == start);
}

/* ---- the file ---- */

static int write_owner(int fd, const char *file, const struct owner *owner, struct sy_error *err)
{
    char text[FILE_BYTES];
    int length =
        snprintf(text, sizeof text, "%s %" PRId64 " %" PRIu64 "\n", owner->host, owner->pid, owner->start);
    if (ftruncate(fd, 0) || pwrite(fd, text, (size_t)length, 0) != length || fsync(fd))
        return syi_error_system(err, "cannot write %s", file);
    return SY_OK;
}

/* 0: nobody stands in it. */
static int read_owner(int fd, struct owner *owner)
{
    char text[FILE_BYTES];
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    if (got <= 0) return 0;
    text[got] = '\0';
    return sscanf(text, "%255s %" SCNd64 " %" SCNu64, owner->host, &owner->pid, &owner->start) == 3 &&
           owner->pid > 0;
}

static int same_owner(const struct owner *a, const struct owner *b)
{
    return !strcmp(a->host, b->host) && a->pid == b->pid && a->start == b->start;
}

/* Waits for others who look at the file. File systems without record locks say so at once; there the check of
 * who is alive is all there is. */
static void guard(int fd)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    while (fcntl(fd, F_SETLKW, &range) && errno == EINTR) continue;
}

/* Whether fd still is what the name leads to. */
static int is_current(int fd, const char *file)
{
    struct stat mine, there;
    return !fstat(fd, &mine) && !stat(file, &there) && mine.st_dev == there.st_dev &&
           mine.st_ino == there.st_ino;
}

/* ---- taking ---- */

static int refuse(const char *path, const char *file, const struct owner *owner, const struct owner *me,
                  struct sy_error *err)
{
    if (strcmp(owner->host, me->host))
        return syi_error(err, SY_EBUSY,
                         "run directory %s is locked by process %" PRId64
                         " on host %s, which cannot be asked from %s: if it "
                         "runs no more, remove %s and start again",
                         path, owner->pid, owner->host, me->host, file);
    return syi_error(err, SY_EBUSY,
                     "run directory %s is in use by process %" PRId64
                     " on this host (%s): wait for it to end, stop it, or "
                     "choose another --run-dir",
                     path, owner->pid, owner->host);
}

/* Whoever made or took over the lock was killed before it wrote its name. */
static int is_empty(int fd)
{
    struct stat info;
    return !fstat(fd, &info) && info.st_size == 0;
}

/* What a try found and may do. */
struct attempt {
    const char *path, *file; /* the run directory, its lock */
    struct owner me;
    int last;  /* of many looks: an empty lock is nobody's by now */
    int again; /* out: the lock changes, look once more */
    char *taken_over;
    size_t bytes; /* of taken_over */
};

/* The lock is there. */
static int take_over(int fd, struct attempt *a, struct sy_error *err)
{
    struct owner owner = {{0}, 0, 0};
    a->again = !is_current(fd, a->file);
    if (a->again) return SY_OK;
    if (!read_owner(fd, &owner)) {
        a->again = !a->last || !is_empty(fd);
        if (a->again) return SY_OK;
        snprintf(a->taken_over, a->bytes, "took over an empty lock, whose process was killed as it made it");
    } else {
        if (strcmp(owner.host, a->me.host) || is_alive(&owner))
            return refuse(a->path, a->file, &owner, &a->me, err);
        snprintf(a->taken_over, a->bytes, "took over the lock of process %" PRId64 ", which runs no more",
                 owner.pid);
    }
    return write_owner(fd, a->file, &a->me, err);
}

/* Creates the lock, or looks at the one that is there. One that was created and is no longer empty once it is
 * guarded was taken over meanwhile. */
static int try_to_take(struct attempt *a, struct sy_error *err)
{
    int fd = open(a->file, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666), created = fd >= 0, status;
    a->again = 0;
    if (!created && errno == EEXIST) fd = open(a->file, O_RDWR | O_CLOEXEC);
    if (fd < 0 && errno == ENOENT && !access(a->path, W_OK)) {
        a->again = 1; /* removed between the two */
        return SY_OK;
    }
    if (fd < 0)
        return syi_error_system(
            err, "cannot write into run directory %s (its file lock); try another --run-dir", a->path);
    guard(fd);
    created = created && is_empty(fd) && is_current(fd, a->file);
    status = created ? write_owner(fd, a->file, &a->me, err) : take_over(fd, a, err);
    if (created && status) unlink(a->file);
    close(fd);
    return status;
}

int syi_run_lock_take(const char *path, char *taken_over, size_t bytes, struct sy_error *err)
{
    struct attempt a = {.path = path, .me = this_process(), .again = 1, .bytes = bytes};
    int status = SY_OK;
    taken_over[0] = '\0';
    char *file = syi_format("%s/lock", path);
    if (!file) return syi_error(err, SY_ENOMEM, "out of memory");
    a.file = file;
    a.taken_over = taken_over;
    for (int look = 0; a.again && !status && look < LOOKS; look++) {
        if (look) nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
        a.last = look == LOOKS - 1;
        status = try_to_take(&a, err);
    }
    if (a.again && !status)
        status = syi_error(err, SY_EBUSY,
                           "%s names no owner: if no process uses the run directory, remove that file", file);
    syi_free(file);
    return status;
}

void syi_run_lock_release(const char *path)
{
    struct owner me = this_process(), owner = {{0}, 0, 0};
    char *file = syi_format("%s/lock", path);
    int fd = file ? open(file, O_RDWR | O_CLOEXEC) : -1;
    if (fd >= 0) {
        guard(fd);
        if (is_current(fd, file) && read_owner(fd, &owner) && same_owner(&owner, &me)) unlink(file);
        close(fd);
    }
    syi_free(file);
}
