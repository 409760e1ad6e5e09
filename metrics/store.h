/* SPDX-License-Identifier: Apache-2.0 */
/* The store of a run's numbers: a metric sink (core/train/trainer/sink.h) that writes an SQLite database from a
 * thread of its own. Reading it back is query.h's. */
#ifndef SYI_STORE_H
#define SYI_STORE_H

#include "train/trainer/sink.h"

struct syi_store_options {
    int64_t start_step; /* the step of the checkpoint the run goes on from, -1 for a fresh start */
    int append;         /* belong to the last attempt instead of beginning one (eval of a finished run) */
    const char *config; /* the run file in force, kept with the attempt; borrowed for the call */
    const char
        *folder; /* where the database is written (place.h), NULL or "": beside `path` if locks work there */
    size_t queue_bytes; /* that rows may wait in, 0: 64 MiB; small ones are raised to 64 KiB */
};

/* Opens or makes the database of the run directory that `path` is in, brings one of an earlier version to this one,
 * begins an attempt and starts the writer. A damaged file is moved to PATH.corrupt-N with a warning, and a new one
 * begins; with append it is an error. sink->close ends it, within seconds even where another program keeps the database
 * locked; its error says how many rows are not written. On failure nothing is left open. The calling thread is the
 * sink's producer. */
int syi_store_open(const char *path, const struct syi_store_options *options, struct syi_metric_sink *sink,
                   struct sy_error *err) SYI_MUST_CHECK;

#endif
