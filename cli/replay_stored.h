/* SPDX-License-Identifier: Apache-2.0 */
/* What a run's database says of its steps, for switchyard replay: numbers, evaluations, and the settings they were made with. */
#ifndef CLI_REPLAY_STORED_H
#define CLI_REPLAY_STORED_H

#include "cli/cli.h"
#include "metrics/reader.h"
#include "train/checkpoint/checkpoint.h"

struct cli_stored {
    struct syi_reader *reader; /* NULL: there is no database that can be read, and nothing is stored */
};
void cli_stored_open(struct cli_stored *stored, const char *run_dir);
void cli_stored_close(struct cli_stored *stored);

/* A number of a step of training: 1 and the number, NaN where it is none, or 0: it is not stored. */
int cli_stored_number(const struct cli_stored *stored, const char *name, int64_t step, double *value);
/* The same of an evaluation after a step, as struct syi_replay_job wants it; arg: struct cli_stored. */
int cli_stored_evaluated(void *arg, int64_t step, const char *task, const char *name, double *value);
/* config: the settings that a run directory keeps, of its last attempt; in their place those of the attempt that did the
 * step. SY_EMISMATCH: steps between the checkpoint before and that one were done with others, which change weights. */
int cli_stored_settings(const struct cli_stored *stored, const char *run_dir, int64_t step,
                        struct syi_config *config, struct sy_error *err);
/* Ways back, in their order, that the training which did the step had made before it, since it was started: no checkpoint
 * knows those after the newest. SY_EFORMAT: an event of one says not which. */
int cli_stored_holes(const struct cli_stored *stored, int64_t step, struct syi_holes *holes,
                     struct sy_error *err);

#endif
