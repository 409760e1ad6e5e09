/* SPDX-License-Identifier: Apache-2.0 */
/* A request to a running training to move to another backend, and its answer: two files of the run directory, over which
 * any process on any host that sees it can ask.
 *
 *   RUN/move          id ID            by whoever asks, made with O_EXCL: one request at a time
 *                     backend NAME     may be missing: the one at work
 *                     set KEY=VALUE    any number
 *                     end              without it the file is still being written
 *   RUN/move.answer   id ID            by the run, replaced at once
 *                     done TEXT        or: refused TEXT
 *
 * The run removes the request when it takes it, and what is left of one when it starts. */
#ifndef SYI_MOVE_FILE_H
#define SYI_MOVE_FILE_H

#include "base/run_config.h"
#include "train/launch/run_dir.h"

enum { SYI_MOVE_SETS = 16, SYI_MOVE_WORD = 64, SYI_MOVE_LINE = 256 };
struct syi_move {
    char id[SYI_MOVE_WORD];
    char backend[SYI_MOVE_WORD]; /* "": the one at work */
    int n_sets;
    char set[SYI_MOVE_SETS][SYI_MOVE_LINE]; /* KEY=VALUE */
};

/* Any text. SY_ENOENT: it has no end yet; SY_EINVAL: it is no request. */
int syi_move_parse(const char *text, struct syi_move *move, struct sy_error *err) SYI_MUST_CHECK;
/* Sets its keys over those of config and checks them: those that change where a run computes, not what. */
int syi_move_apply(const struct syi_move *move, struct syi_config *config,
                   struct sy_error *err) SYI_MUST_CHECK;

/* ---- who asks ---- */

/* Gives move->id a value and leaves the request. SY_EBUSY: another one waits. */
int syi_move_ask(const char *run_dir, struct syi_move *move, struct sy_error *err) SYI_MUST_CHECK;
/* Whether it was answered, and then what; text: what to show. */
enum syi_move_state { SYI_MOVE_WAITS, SYI_MOVE_DONE, SYI_MOVE_REFUSED };
enum syi_move_state syi_move_look(const char *run_dir, const struct syi_move *move, char *text, size_t bytes);
/* Takes the request back: 1, or 0 where the run has taken it. */
int syi_move_withdraw(const char *run_dir, const struct syi_move *move);

/* ---- the run ---- */

/* When the file in its place was written, in nanoseconds; 0: there is none. Cheap. */
int64_t syi_move_time(const char *run_dir);
/* Reads and removes it. SY_ENOENT: there is none, or it has no end yet; SY_EINVAL: it is no request, and stays. */
int syi_move_receive(const char *run_dir, struct syi_move *move, struct sy_error *err) SYI_MUST_CHECK;
int syi_move_answer(const struct syi_run_dir *dir, const struct syi_move *move, int done, const char *text,
                    struct sy_error *err) SYI_MUST_CHECK;
void syi_move_clean(const char *run_dir); /* under the lock, at the start of a run */

#endif
