/* SPDX-License-Identifier: Apache-2.0 */
/* The batches of a run file's training: of its task, or made up where only shapes matter. */
#ifndef SYI_TRAIN_DATA_H
#define SYI_TRAIN_DATA_H

#include "base/run_config.h"
#include "data/batcher.h"

/* The stream of batches that training takes, and memory for one. All are freed by the caller, also on
 * failure. vocabularies: opened, and borrowed by the batcher. quiet: as in struct syi_batcher_options. */
int syi_train_data_open(const struct syi_config *config, const struct syi_task *task, int quiet,
                        struct syi_vocabularies *vocabularies, struct syi_batcher *batcher,
                        struct syi_batch *batch, struct sy_error *err) SYI_MUST_CHECK;
/* Memory for any batch of the run file. */
int syi_train_batch_create(const struct syi_config *config, struct syi_batch *batch,
                           struct sy_error *err) SYI_MUST_CHECK;
/* Fills a batch with random tokens in rows of random lengths: a pure function of (train.seed, step). Buckets
 * take turns. */
void syi_train_batch_make_up(const struct syi_config *config, const struct syi_vocabularies *vocabularies,
                             int64_t step, struct syi_batch *batch);

#endif
