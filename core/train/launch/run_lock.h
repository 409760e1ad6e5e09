/* SPDX-License-Identifier: Apache-2.0 */
/* The lock file of a run directory: one writer, over processes and hosts. */
#ifndef SYI_RUN_LOCK_H
#define SYI_RUN_LOCK_H

#include "base/base.h"

enum { SYI_HEARTBEAT = 10 }; /* seconds; far less than others wait before they take a lock over */

struct syi_lock_options {
    double wait; /* seconds to wait for an owner to end, after a line of the log about it */
    double
        watch; /* seconds that a lock of another host whose time is old is watched for a heartbeat first: its
                     time is old, too, after the clock was set forward. 0: 25, more than two heartbeats */
    double beat;  /* seconds from one heartbeat of this process to the next. 0: SYI_HEARTBEAT */
    int takeover; /* 1: follow an owner that cannot be asked, at the user's word that it runs no more */
    /* Called with arg where the disk is too full for the owner's name, in place of taking the lock, whose file is there until it
     * returns, and guarded, so that others wait. Its status is that of the taking. NULL: a full disk is an error. */
    int (*make_room)(void *arg, struct sy_error *err);
    void *arg;
};

/* Takes PATH/lock for this process. The lock of a process that is dead on this host, or whose heartbeat on
 * another one, or in another PID namespace, stopped, is taken over: one line about it in taken_over (at least 512 bytes), which is empty
 * otherwise. options NULL: no wait, no takeover. SY_EBUSY names the owner. */
int syi_run_lock_take(const char *path, const struct syi_lock_options *options, char *taken_over,
                      size_t bytes, struct sy_error *err) SYI_MUST_CHECK;
/* The owner's heartbeat: the file's time. SY_EBUSY: another process took the lock over, and holds it or has ended since. A lock
 * that is gone while PATH/status says that nobody ended the run is made again. */
int syi_run_lock_beat(const char *path, struct sy_error *err) SYI_MUST_CHECK;
/* Removes the lock, if it still is this process's. */
void syi_run_lock_release(const char *path);

/* The word of PATH/status; "" where there is none. */
void syi_run_status_read(const char *path, char *word, size_t bytes);

/* What a look at the lock shows, for those who only watch. */
struct syi_lock_state {
    int held;       /* there is a lock with an owner; else all is 0 */
    char host[256]; /* of the owner */
    int64_t pid;
    int here;        /* the owner is of this host and PID namespace */
    int alive;       /* where it is: the process runs */
    int64_t silence; /* seconds since its last heartbeat, by the clock of this host */
};
void syi_run_lock_look(const char *path, struct syi_lock_state *state); /* changes nothing */

/* ---- heartbeat.c ---- */

struct syi_heartbeat;
/* A thread gives the owner's heartbeats from now on, whatever other threads are at. */
int syi_heartbeat_start(const char *path, double seconds, struct syi_heartbeat **heartbeat,
                        struct sy_error *err) SYI_MUST_CHECK;
void syi_heartbeat_stop(struct syi_heartbeat **heartbeat); /* makes it NULL; NULL before: does nothing */

#endif
