/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a run's lock and its status file for those who only watch. */
#include "config.h"

#include <ctype.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

#include "train/launch/run_lock.h"
#include "train/launch/run_state.h"

enum {
    QUIET = 60
}; /* seconds without a heartbeat, several of them, after which an owner elsewhere is doubted */

/* The word of the status file; "" where there is none. Takes no memory, for nothing here can fail. */
static void read_word(const char *path, char *word, size_t bytes)
{
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int file = folder < 0 ? -1 : openat(folder, "status", O_RDONLY | O_CLOEXEC);
    ssize_t length = file < 0 ? 0 : read(file, word, bytes - 1);
    word[length > 0 ? length : 0] = '\0';
    for (char *c = word; *c; c++)
        if (!isgraph((unsigned char)*c)) *c = '\0';
    if (file >= 0) close(file);
    if (folder >= 0) close(folder);
}

static void describe_owner(const struct syi_lock_state *lock, struct syi_run_state *state)
{
    const char *where = lock->here ? "this host" : lock->host;
    state->live = lock->here ? lock->alive : lock->silence <= QUIET;
    if (state->live)
        snprintf(state->text, sizeof state->text, "running, process %" PRId64 " on %s", lock->pid, where);
    else if (lock->here)
        snprintf(state->text, sizeof state->text,
                 "killed: process %" PRId64 " runs no more and left its lock", lock->pid);
    else
        snprintf(state->text, sizeof state->text,
                 "no sign of life for %" PRId64 " s from process %" PRId64 " on %s", lock->silence, lock->pid,
                 where);
}

void syi_run_state_read(const char *path, struct syi_run_state *state)
{
    struct syi_lock_state lock;
    char word[64];
    *state = (struct syi_run_state){0};
    syi_run_lock_look(path, &lock);
    if (lock.held) {
        describe_owner(&lock, state);
        return;
    }
    read_word(path, word, sizeof word);
    snprintf(state->text, sizeof state->text, "%s",
             !word[0]                   ? "ended, it is not known how"
             : !strcmp(word, "running") ? "ended without saying how"
                                        : word);
}
