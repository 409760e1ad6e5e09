/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a run's lock and its status file for those who only watch. */
#include "config.h"

#include <inttypes.h>
#include <string.h>

#include "train/launch/run_lock.h"
#include "train/launch/run_state.h"

enum {
    QUIET = 60
}; /* seconds without a heartbeat, several of them, after which an owner elsewhere is doubted */

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
    syi_run_status_read(path, word, sizeof word);
    snprintf(state->text, sizeof state->text, "%s",
             !word[0]                   ? "ended, it is not known how"
             : !strcmp(word, "running") ? "ended without saying how"
                                        : word);
}
