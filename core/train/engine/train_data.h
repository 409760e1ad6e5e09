/* SPDX-License-Identifier: Apache-2.0 */
/* The batches of a run file's training: of its task or mixture, or made up where only shapes matter. */
#ifndef SYI_TRAIN_DATA_H
#define SYI_TRAIN_DATA_H

#include "base/run_config.h"
#include "data/prefetch.h"
#include "train/engine/engine.h"

/* The stream of batches that a rank trains on. */
struct syi_train_data {
    struct syi_vocabularies vocabularies;
    struct syi_mixture mixture;
    struct syi_batcher batcher;
    struct syi_prefetch prefetch;
    char copied[200]; /* what data.stage copied, in one line; "": nothing was to be */
};

/* Who reads, and where what is made of large files is kept. */
struct syi_train_reader {
    const struct syi_rank *rank;     /* NULL: for itself alone, from the original files */
    const struct syi_engine *engine; /* whose rows are read, NULL: all */
    const char *run_dir; /* beside which indexes are kept unless data.cache says where; NULL: there only */
    int quiet;           /* 1: does not log what is left out */
    int ahead;           /* batches read ahead */
};

/* Called by all ranks: the first reads files and makes what is missing in the cache, the others open what they take examples
 * from. Closed by the caller, also on failure. */
int syi_train_data_open(struct syi_train_data *data, const struct syi_config *config,
                        const struct syi_train_reader *reader, struct sy_error *err) SYI_MUST_CHECK;
void syi_train_data_close(struct syi_train_data *data); /* also of a zeroed one */
/* The batch of a step, until the next call. */
int syi_train_data_get(struct syi_train_data *data, int64_t step, const struct syi_batch **batch,
                       struct sy_error *err) SYI_MUST_CHECK;

/* Works out config->data.length_buckets, data.auto_buckets of them, from the lengths of batches all over the training: a pure
 * function of the run file and the files of its tasks. run_dir: as a reader's. positions: of a row in these padded lengths and
 * with one padded length, on average over those batches. */
int syi_train_find_buckets(struct syi_config *config, const char *run_dir, double positions[2],
                           struct sy_error *err) SYI_MUST_CHECK;

/* Memory for any batch of the run file's training. */
int syi_train_batch_create(const struct syi_config *config, struct syi_batch *batch,
                           struct sy_error *err) SYI_MUST_CHECK;
/* Fills a batch with random tokens in rows of random lengths: a pure function of (train.seed, step). Buckets
 * take turns. */
void syi_train_batch_make_up(const struct syi_config *config, const struct syi_vocabularies *vocabularies,
                             int64_t step, struct syi_batch *batch);

/* What a run trains on as the beginning of a message that it changed. A checkpoint knows the contents of all tasks
 * together, so of several it is not known which. */
void syi_train_data_name(const struct syi_config *config, char *text, size_t bytes);

#endif
