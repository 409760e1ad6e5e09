/* SPDX-License-Identifier: Apache-2.0 */
/* Several runs in one connection: their databases attached, and views over all of them. */
#ifndef SYI_RUNS_H
#define SYI_RUNS_H

#include <sqlite3.h>

#include "base/base.h"

/* Attaches the databases others[] (n) to db, whose own is `path`, as run_2, run_3, ..., and makes the temporary views
 * all_run, all_metric, all_loss, all_eval and all_event over it and them, with a column `run`: the name of the run
 * directory, or its path as it was given where two have the same name. SY_EINVAL: more than SQLite can attach. */
int syi_runs_attach(sqlite3 *db, const char *path, const char *const *others, int n,
                    struct sy_error *err) SYI_MUST_CHECK;

#endif
