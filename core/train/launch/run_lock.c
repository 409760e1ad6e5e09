/* SPDX-License-Identifier: Apache-2.0 */
/* The lock file of a run directory. It is made with O_EXCL and holds "HOST PID START JOB RESTART SPACE": start is the time
 * the process began in ticks since boot (0: unknown), so that a pid in use again is not mistaken for the
 * owner; job is the batch job it belongs to, "-" for none; restart is how often Slurm had started that
 * job again, -1: unknown; space is the PID namespace in which pid means something, 0: unknown, as containers may have the
 * name of their host. The file stays while the run goes on, and its time
 * is the owner's heartbeat, which is all that another host or namespace can see of it. A record lock on it only guards the
 * moments of reading, taking over and removing. */
#include "config.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/run_config.h"
#include "train/launch/run_lock.h"

enum {
    HOST_BYTES = 256,
    JOB_BYTES = 128,
    FILE_BYTES = 512,
    LOOKS = 20,        /* at a lock that changes under our eyes */
    SILENCE = 10 * 60, /* seconds without a heartbeat after which an owner on another host counts as dead */
    /* The same for an owner of our own batch job, or of our host in another PID namespace: most likely the job was queued
     * again after its host died, or the container was started again. Less than a start waits by default, so that
     * it always goes on. */
    SHORT_SILENCE = 45,
    WATCH = 25 /* seconds without a heartbeat seen by ourselves, whatever the clock of the files says */
};

struct owner {
    char host[HOST_BYTES];
    int64_t pid;
    uint64_t start; /* ticks since boot, 0: unknown */
    char job[JOB_BYTES];
    int64_t restart; /* of the job; -1: unknown */
    uint64_t space;  /* inode of its PID namespace, 0: unknown */
};

/* ---- processes ---- */

/* State letter and start time of a process, from /proc; 0 where it has none. */
static int look_at_process(int64_t pid, char *state, uint64_t *start)
{
    char path[64], text[1024];
    unsigned long long ticks;
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t got = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0) close(fd);
    if (got <= 0) return 0;
    text[got] = '\0';
    const char *end = strrchr(text, ')'); /* the name before it may hold anything */
    int found = end && sscanf(end + 1,
                              " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s "
                              "%llu",
                              state, &ticks) == 2;
    if (found) *start = ticks;
    return found;
}

/* One word of the file. */
static void keep_one_word(char *text)
{
    for (; *text; text++)
        if (isspace((unsigned char)*text)) *text = '_';
}

static void name_job(char job[JOB_BYTES])
{
    static const char *const variables[] = {"SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID"};
    strcpy(job, "-");
    for (size_t i = SYI_COUNT(variables); i-- > 0;) {
        const char *id = getenv(variables[i]);
        if (id && *id) snprintf(job, JOB_BYTES, "%s=%s", variables[i], id);
    }
    keep_one_word(job);
}

/* How often Slurm has started this job again: it does so only after it has ended all of the job before. */
static int64_t count_restarts(void)
{
    const char *text = getenv("SLURM_RESTART_COUNT"); /* not set in the first start */
    char *end;
    if (!getenv("SLURM_JOB_ID")) return -1;
    if (!text || !*text) return 0;
    long long n = strtoll(text, &end, 10);
    return *end || n < 0 ? -1 : n;
}

static struct owner look_at_this_process(void)
{
    struct owner me = {.pid = getpid()};
    struct stat space;
    char state;
    if (gethostname(me.host, sizeof me.host - 1) || !me.host[0]) strcpy(me.host, "localhost");
    keep_one_word(me.host);
    look_at_process(me.pid, &state, &me.start);
    if (!stat("/proc/self/ns/pid", &space)) me.space = space.st_ino;
    return me;
}

/* Found out once a process, which forks into another: a host that is renamed, or /proc out of reach for a moment, would make
 * an owner take its own lock for another's. */
static struct owner this_process(void)
{
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static struct owner known;
    pthread_mutex_lock(&mutex);
    if (known.pid != getpid()) known = look_at_this_process();
    struct owner me = known;
    pthread_mutex_unlock(&mutex);
    name_job(me.job);
    me.restart = count_restarts();
    return me;
}

static int is_of_host(const struct owner *owner, const struct owner *me)
{
    return !strcmp(owner->host, me->host);
}

/* Whether its pid means the same process here. */
static int is_here(const struct owner *owner, const struct owner *me)
{
    return is_of_host(owner, me) && (!owner->space || !me->space || owner->space == me->space);
}

/* One that is here. A process that was killed and not yet collected by its parent writes no more. */
static int is_alive(const struct owner *owner)
{
    char state = 0;
    uint64_t start = 0;
    if (kill((pid_t)owner->pid, 0) && errno == ESRCH) return 0;
    if (!look_at_process(owner->pid, &state, &start)) return 1;
    return state != 'Z' && state != 'X' && (!owner->start || owner->start == start);
}

/* ---- the file ---- */

/* Whether there is room for it; 0 with errno. */
static int put_owner(int fd, const struct owner *owner)
{
    char text[FILE_BYTES];
    int length = snprintf(text, sizeof text, "%s %" PRId64 " %" PRIu64 " %s %" PRId64 " %" PRIu64 "\n",
                          owner->host, owner->pid, owner->start, owner->job, owner->restart, owner->space);
    int failed = ftruncate(fd, 0);
    for (int at = 0; !failed && at < length;) { /* a write may be short */
        ssize_t put = pwrite(fd, text + at, (size_t)(length - at), at);
        if (put > 0) at += (int)put;
        failed = put < 0 && errno != EINTR;
    }
    return !failed && !fsync(fd);
}

static int is_full(int number)
{
    return number == ENOSPC || number == EDQUOT;
}

static int write_owner(int fd, const char *file, const struct owner *owner, struct sy_error *err)
{
    if (put_owner(fd, owner)) return SY_OK;
    return syi_error_system(err,
                            is_full(errno) ? "cannot write %s (make room, as by `switchyard ckpt prune`)"
                                           : "cannot write %s",
                            file);
}

/* 0: nobody stands in it. A lock of an older version has no job, no restart or no namespace. */
static int read_owner(int fd, struct owner *owner)
{
    char text[FILE_BYTES];
    ssize_t got = pread(fd, text, sizeof text - 1, 0);
    if (got <= 0) return 0;
    text[got] = '\0';
    strcpy(owner->job, "-");
    owner->restart = -1;
    owner->space = 0;
    return sscanf(text, "%255s %" SCNd64 " %" SCNu64 " %127s %" SCNd64 " %" SCNu64, owner->host, &owner->pid,
                  &owner->start, owner->job, &owner->restart, &owner->space) >= 3 &&
           owner->pid > 0;
}

static int same_owner(const struct owner *a, const struct owner *b)
{
    return is_here(a, b) && a->pid == b->pid && a->start == b->start;
}

/* Waits for others who look at the file. File systems without record locks say so at once; there the check of
 * who is alive is all there is. */
static void guard(int fd)
{
    struct flock range = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    while (fcntl(fd, F_SETLKW, &range) && errno == EINTR) continue;
}

/* Seconds since the owner's last heartbeat; 0 where that cannot be known. Both times are the file system's,
 * because the clocks of hosts differ. */
static int64_t silence(int fd, const char *path)
{
    struct stat beat, now;
    char *file = syi_format("%s/lock.XXXXXX", path);
    int fresh = file ? mkstemp(file) : -1, known = fresh >= 0 && !fstat(fresh, &now) && !fstat(fd, &beat);
    if (fresh >= 0) {
        close(fresh);
        unlink(file);
    }
    syi_free(file);
    return known && now.st_mtime > beat.st_mtime ? (int64_t)(now.st_mtime - beat.st_mtime) : 0;
}

/* ---- taking ---- */

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
    int takeover;       /* the user's word that the owner runs no more */
    int last;           /* of many looks: an empty lock is nobody's by now */
    int again;          /* out: the lock changes, look once more */
    struct owner owner; /* out: who holds it; pid 0: nobody that can be read */
    int silent;         /* out: by its file's time it is dead, but it was not watched for long enough */
    double watch;
    struct timespec beat; /* the lock's time at the last look, kept from try to try */
    double since;         /* and when it was first seen so */
    int (*make_room)(void *arg, struct sy_error *err); /* and its arg: see run_lock.h */
    void *arg;
    char *taken_over;
    size_t bytes; /* of taken_over */
};

/* What to say before the name of the owner's host. */
static const char *place_of(const struct attempt *a)
{
    int beside = is_of_host(&a->owner, &a->me) && !is_here(&a->owner, &a->me);
    return beside ? "in another PID namespace of host" : "on host";
}

static int refuse(const struct attempt *a, int64_t silent, struct sy_error *err)
{
    const struct owner *owner = &a->owner;
    if (is_here(owner, &a->me))
        return syi_error(err, SY_EBUSY,
                         "run directory %s is in use by process %" PRId64
                         " on this host (%s): wait for it to end, stop it, or "
                         "choose another --run-dir",
                         a->path, owner->pid, owner->host);
    return syi_error(
        err, SY_EBUSY,
        "run directory %s is locked by process %" PRId64 " %s %s, whose last heartbeat was %" PRId64
        " s ago and which cannot be asked from %s: if it runs no more, start again with --takeover",
        a->path, owner->pid, place_of(a), owner->host, silent,
        is_of_host(owner, &a->me) ? "here" : a->me.host);
}

/* Seconds in which no heartbeat came while we looked, by our clock that is never set. */
static double watched(int fd, struct attempt *a)
{
    struct stat info;
    if (fstat(fd, &info)) return 0;
    if (a->since == 0 || info.st_mtim.tv_sec != a->beat.tv_sec || info.st_mtim.tv_nsec != a->beat.tv_nsec) {
        a->beat = info.st_mtim;
        a->since = syi_seconds();
    }
    return syi_seconds() - a->since;
}

/* Whether the owner is known to run no more, or counts as dead; says why in a->taken_over. */
static int may_follow(struct attempt *a, int64_t silent, double seen)
{
    const struct owner *owner = &a->owner;
    if (is_here(owner, &a->me)) {
        snprintf(a->taken_over, a->bytes, "took over the lock of process %" PRId64 ", which runs no more",
                 owner->pid);
        return !is_alive(owner);
    }
    int same_job = strcmp(owner->job, "-") && !strcmp(owner->job, a->me.job);
    int length = snprintf(a->taken_over, a->bytes, "took over the lock of process %" PRId64 " %s %s%s",
                          owner->pid, place_of(a), owner->host, same_job ? ", of the same batch job" : "");
    char *rest = a->taken_over + length;
    int ended = same_job && owner->restart >= 0 && owner->restart < a->me.restart;
    if (ended)
        snprintf(rest, a->bytes - (size_t)length,
                 ", whose earlier start Slurm has ended (restart %" PRId64 ")", a->me.restart);
    else if (a->takeover)
        snprintf(rest, a->bytes - (size_t)length, ", as --takeover asks");
    else
        snprintf(rest, a->bytes - (size_t)length, ", whose last heartbeat was %" PRId64 " s ago", silent);
    int old = silent > (same_job || is_of_host(owner, &a->me) ? SHORT_SILENCE : SILENCE);
    a->silent = old && seen < a->watch;
    return ended || a->takeover || (old && seen >= a->watch);
}

/* The lock is there. */
static int take_over(int fd, struct attempt *a, struct sy_error *err)
{
    a->owner = (struct owner){.pid = 0};
    a->again = !syi_file_is_current(fd, a->file);
    if (a->again) return SY_OK;
    if (!read_owner(fd, &a->owner)) {
        a->owner.pid = 0;
        a->again = !a->takeover && (!a->last || !is_empty(fd));
        if (a->again) return SY_OK;
        snprintf(a->taken_over, a->bytes, "took over a lock without an owner, %s",
                 a->takeover ? "as --takeover asks" : "whose process was killed as it made it");
        return write_owner(fd, a->file, &a->me, err);
    }
    int64_t silent = silence(fd, a->path);
    if (may_follow(a, silent, watched(fd, a))) return write_owner(fd, a->file, &a->me, err);
    a->taken_over[0] = '\0';
    return refuse(a, silent, err);
}

/* Into the guarded lock that was created. *holds 0: there was no room, and what makes some ran in its place. */
static int fill_lock(int fd, struct attempt *a, int *holds, struct sy_error *err)
{
    *holds = !a->make_room || put_owner(fd, &a->me) || !is_full(errno);
    return *holds ? write_owner(fd, a->file, &a->me, err) : a->make_room(a->arg, err);
}

/* Creates the lock, or looks at the one that is there. One that was created and is no longer empty once it is
 * guarded was taken over meanwhile. */
static int try_to_take(struct attempt *a, struct sy_error *err)
{
    int fd = open(a->file, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666), created = fd >= 0, holds = 1, status;
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
    created = created && is_empty(fd) && syi_file_is_current(fd, a->file);
    status = created ? fill_lock(fd, a, &holds, err) : take_over(fd, a, err);
    if (created && (status || !holds)) unlink(a->file);
    close(fd);
    return status;
}

/* As often as it takes to find a lock that does not change. */
static int take(struct attempt *a, struct sy_error *err)
{
    int status = SY_OK;
    a->again = 1;
    a->silent = 0;
    for (int look = 0; a->again && !status && look < LOOKS; look++) {
        if (look) nanosleep(&(struct timespec){.tv_nsec = 50 * 1000 * 1000}, NULL);
        a->last = look == LOOKS - 1;
        status = try_to_take(a, err);
    }
    if (status || !a->again) return status;
    return syi_error(err, SY_EBUSY,
                     "%s names no owner: if no process uses the run directory, start again with --takeover",
                     a->file);
}

static void say_why_we_wait(const struct attempt *a, double wait)
{
    if (a->silent)
        syi_log(SY_LOG_INFO,
                "run directory %s: no heartbeat of process %" PRId64
                " %s %s for long, by the time of files: watching for %.0f s whether one comes",
                a->path, a->owner.pid, place_of(a), a->owner.host, a->watch);
    else if (wait > 0)
        syi_log(SY_LOG_INFO,
                "run directory %s is held by process %" PRId64 " %s %s: waiting up to %.0f s for its end",
                a->path, a->owner.pid, place_of(a), a->owner.host, wait);
}

int syi_run_lock_take(const char *path, const struct syi_lock_options *options, char *taken_over,
                      size_t bytes, struct sy_error *err)
{
    struct attempt a = {.path = path,
                        .me = this_process(),
                        .takeover = options && options->takeover,
                        .watch = options && options->watch > 0 ? options->watch : WATCH,
                        .make_room = options ? options->make_room : NULL,
                        .arg = options ? options->arg : NULL,
                        .taken_over = taken_over,
                        .bytes = bytes};
    struct sy_error why = {0};
    double wait = options ? options->wait : 0, begin = syi_seconds();
    taken_over[0] = '\0';
    char *file = syi_format("%s/lock", path);
    if (!file) return syi_error(err, SY_ENOMEM, "out of memory");
    a.file = file;
    int status = take(&a, &why);
    if (status == SY_EBUSY && a.owner.pid) say_why_we_wait(&a, wait);
    while (status == SY_EBUSY && a.owner.pid && (a.silent || syi_seconds() - begin < wait)) {
        nanosleep(&(struct timespec){.tv_nsec = 500 * 1000 * 1000}, NULL);
        why = (struct sy_error){0};
        status = take(&a, &why);
    }
    syi_free(file);
    return status ? syi_error(err, status, "%s", why.text) : SY_OK;
}

void syi_run_status_read(const char *path, char *word, size_t bytes)
{
    char file[4096]; /* no path is longer */
    snprintf(file, sizeof file, "%s/status", path);
    syi_file_begin(file, word, bytes);
    for (char *c = word; *c; c++)
        if (!isgraph((unsigned char)*c)) *c = '\0';
}

/* A successor says how it ended before it removes its lock. A run that begins has no status yet. */
static int has_ended(const char *path)
{
    char word[64];
    syi_run_status_read(path, word, sizeof word);
    return *word && strcmp(word, "running") != 0;
}

/* Somebody removed the lock of a run that goes on: without one another would start. -1: as where the folder is gone. */
static int make_again(const char *file, const struct owner *me)
{
    int fd = open(file, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
    if (fd < 0) return errno == EEXIST ? open(file, O_RDWR | O_CLOEXEC) : -1;
    guard(fd);
    if (is_empty(fd) && write_owner(fd, file, me, NULL)) unlink(file);
    return fd;
}

int syi_run_lock_beat(const char *path, struct sy_error *err)
{
    struct owner me = this_process(), owner = {.pid = 0};
    char *file = syi_format("%s/lock", path);
    int fd = file ? open(file, O_RDWR | O_CLOEXEC) : -1, gone = file && fd < 0 && errno == ENOENT;
    int ended = gone && has_ended(path), status = SY_OK;
    if (gone && !ended) fd = make_again(file, &me);
    if (ended)
        status = syi_error(err, SY_EBUSY,
                           "run directory %s was taken over by a process that has ended since: this run ends "
                           "without saving",
                           path);
    else if (fd >= 0 && read_owner(fd, &owner) && !same_owner(&owner, &me))
        status = syi_error(err, SY_EBUSY,
                           "run directory %s was taken over by process %" PRId64
                           " on host %s: this run ends without saving, the other one goes on",
                           path, owner.pid, owner.host);
    else if (fd >= 0)
        futimens(fd, NULL);
    if (fd >= 0) close(fd);
    syi_free(file);
    return status;
}

void syi_run_lock_release(const char *path)
{
    struct owner me = this_process(), owner = {.pid = 0};
    char file[SYI_CONFIG_STRING + sizeof "/lock"]; /* a lock is released also where memory is short */
    snprintf(file, sizeof file, "%s/lock", path);
    int fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd >= 0) {
        guard(fd);
        if (syi_file_is_current(fd, file) && read_owner(fd, &owner) && same_owner(&owner, &me)) unlink(file);
        close(fd);
    }
}

void syi_run_lock_look(const char *path, struct syi_lock_state *state)
{
    struct owner me = this_process(), owner = {.pid = 0};
    struct stat info;
    char *file = syi_format("%s/lock", path);
    int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    *state = (struct syi_lock_state){0};
    if (fd >= 0 && read_owner(fd, &owner) && !fstat(fd, &info)) {
        int64_t now = (int64_t)time(NULL), beat = (int64_t)info.st_mtime;
        state->held = 1;
        memcpy(state->host, owner.host, sizeof state->host);
        state->pid = owner.pid;
        state->here = is_here(&owner, &me);
        state->alive = state->here && is_alive(&owner);
        state->silence = now > beat ? now - beat : 0;
    }
    if (fd >= 0) close(fd);
    syi_free(file);
}
