/* SPDX-License-Identifier: Apache-2.0 */
/* A whole run in files of other programs. */
#ifndef SYI_EXPORT_H
#define SYI_EXPORT_H

#include "base/base.h"

/* Gives the name of a file that was written, and how many rows are in it. */
typedef void (*syi_export_fn)(void *arg, const char *file, int64_t rows);

/* One CSV file (RFC 4180) for each table and view of the database at path, in folder, which is made or is empty:
 * nothing is overwritten. */
int syi_export_csv(const char *path, const char *folder, syi_export_fn wrote, void *arg,
                   struct sy_error *err) SYI_MUST_CHECK;

/* Event files of TensorBoard in folder, likewise: training metrics and statistics of parameters in it, those of an evaluation in a sub-folder of
 * the task's name. Values are float32, times the training's own clock: the attempt's start and the seconds of its
 * steps. Events, and examples where there are, are texts. */
int syi_export_tensorboard(const char *path, const char *folder, syi_export_fn wrote, void *arg,
                           struct sy_error *err) SYI_MUST_CHECK;

/* Makes the folder; one that is there must be empty. */
int syi_export_folder(const char *folder, struct sy_error *err) SYI_MUST_CHECK;

#endif
