/* SPDX-License-Identifier: Apache-2.0 */
/* The weights that training begins with: drawn from the seed, or read from another run (train.init_*): a part of its
 * tensors, under other names, a dense MLP as experts, an expert as a dense MLP. */
#ifndef SYI_TRAIN_INIT_H
#define SYI_TRAIN_INIT_H

#include "train/checkpoint/checkpoint.h"
#include "train/engine/engine.h"
#include "train/launch/run_dir.h"

/* What came of it. step is set on all ranks, the texts are rank 0's. */
struct syi_init_report {
    int64_t step;            /* training begins at: 0, or with train.init_state that of the other run */
    struct syi_text notes;   /* lines for the user: counts, settings of the other run that differ */
    struct syi_text tensors; /* lines of init.txt (doc/fine-tuning.md) */
};
void syi_init_report_free(struct syi_init_report *report); /* safe when zeroed */
/* The run directory's init.txt. */
int syi_init_report_write(const struct syi_init_report *report, const struct syi_run_dir *dir,
                          struct sy_error *err) SYI_MUST_CHECK;

/* Fills parameters, and what of optimizer state begins as they do, as config->train says. Called by every rank; each
 * reads its own part. leaves: of the state (syi_checkpoint_resume), or NULL. report starts zeroed; the caller frees it, on
 * failure too. A failure names the key that can mend it. */
int syi_init_weights(struct syi_engine *engine, const struct syi_config *config, const struct syi_rank *rank,
                     const struct syi_checkpoint_leaves *leaves, struct syi_init_report *report,
                     struct sy_error *err) SYI_MUST_CHECK;

#endif
